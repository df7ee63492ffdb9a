"""The parts of msgspec that the recorder uses, in pure Python.

A program may run in an environment without msgspec, or with one of another Python version. It is
recorded with this module then, slower and with the same lines. It is never installed under the name
`msgspec`: the program must not find a package that it does not have.
"""

from __future__ import annotations

import base64
import inspect
import json as _json
import math
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints


class MsgspecError(ValueError):
    """The base of the errors of this module."""


class DecodeError(MsgspecError):
    """A text is not JSON."""


class ValidationError(DecodeError):
    """A value does not have the expected type."""


class Raw(bytes):
    """Encoded JSON that is kept as it is."""


class Meta:
    """Constraints of a type. Only the range of numbers is checked."""

    def __init__(self, *, ge: int | None = None, le: int | None = None, **_: Any) -> None:
        self.ge, self.le = ge, le


class _Factory:
    """A default that is created for each object."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


def field(*, default_factory: Callable[[], Any]) -> Any:
    return _Factory(default_factory)


class Struct:
    """A class whose annotations are its fields."""

    __struct_fields__: ClassVar[tuple[str, ...]] = ()
    _options: ClassVar[dict[str, Any]] = {}
    _defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__()
        cls._options = {**cls._options, **options}
        names, defaults = list(cls.__struct_fields__), dict(cls._defaults)
        for name, annotation in inspect.get_annotations(cls).items():
            if "ClassVar" in str(annotation):
                continue
            if name not in names:
                names.append(name)
            if name in cls.__dict__:
                default = cls.__dict__[name]
                is_empty = isinstance(default, (dict, list, set)) and not default
                defaults[name] = _Factory(type(default)) if is_empty else default
        cls.__struct_fields__ = tuple(names)
        cls._defaults = defaults

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        cls = type(self)
        values = self.__dict__
        if len(args) > len(cls.__struct_fields__):
            raise TypeError(f"{cls.__name__}: too many arguments")
        values.update(zip(cls.__struct_fields__, args, strict=False))
        values.update(kwargs)
        if len(values) < len(cls.__struct_fields__):
            for name in cls.__struct_fields__:
                if name not in values:
                    if name not in cls._defaults:
                        raise TypeError(f"{cls.__name__}: missing argument {name!r}")
                    default = cls._defaults[name]
                    values[name] = default.make() if isinstance(default, _Factory) else default
        elif len(values) > len(cls.__struct_fields__):
            raise TypeError(f"{cls.__name__}: unexpected argument")

    def __setattr__(self, name: str, value: Any) -> None:
        if self._options.get("frozen"):
            raise AttributeError(f"immutable type: {type(self).__name__!r}")
        self.__dict__[name] = value

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        if not self._options.get("frozen"):
            raise TypeError(f"unhashable type: {type(self).__name__!r}")
        return hash(tuple(self.__dict__[name] for name in self.__struct_fields__))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={self.__dict__[name]!r}" for name in self.__struct_fields__)
        return f"{type(self).__name__}({fields})"


# --- encoding -------------------------------------------------------------------------------------


def to_builtins(value: Struct) -> dict[str, Any]:
    """Return the fields of a struct, as they are encoded."""
    options, values = value._options, value.__dict__
    found: dict[str, Any] = {}
    if "tag" in options:
        found[options.get("tag_field", "type")] = options["tag"]
    omit = options.get("omit_defaults", False)
    for name in value.__struct_fields__:
        item = values[name]
        if omit and name in value._defaults:
            default = value._defaults[name]
            default = default.make() if isinstance(default, _Factory) else default
            if item is default or (type(item) is type(default) and not item and not default):
                continue
        found[name] = item
    return found


class _HasRaw(Exception):  # noqa: N818  # a signal, not an error
    pass


def _to_json_value(value: Any) -> Any:
    if isinstance(value, Struct):
        return to_builtins(value)
    if isinstance(value, Raw):
        raise _HasRaw
    if isinstance(value, (set, frozenset)):
        return list(value)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


def _make_encoder(
    sort_keys: bool, enc_hook: Callable[[Any], Any] | None = None
) -> _json.JSONEncoder:
    def convert(value: Any) -> Any:
        try:
            return _to_json_value(value)
        except TypeError:
            if enc_hook is None:
                raise
            return enc_hook(value)

    return _json.JSONEncoder(
        ensure_ascii=False,
        separators=(",", ":"),
        allow_nan=False,
        sort_keys=sort_keys,
        default=convert,
    )


_plain, _sorted = _make_encoder(False), _make_encoder(True)


def _encode(
    value: Any, *, order: str | None = None, enc_hook: Callable[[Any], Any] | None = None
) -> bytes:
    encoder = _sorted if order else _plain
    if enc_hook is not None:
        encoder = _make_encoder(bool(order), enc_hook)
    try:
        return encoder.encode(value).encode()
    except _HasRaw:
        return _encode_slowly(value, enc_hook)
    except UnicodeEncodeError:
        raise
    except ValueError:  # not finite, or a cycle
        return encoder.encode(_without_infinities(value, 200)).encode()


def _encode_slowly(value: Any, enc_hook: Callable[[Any], Any] | None) -> bytes:
    """Encode a value that contains `Raw`, which the standard encoder cannot embed."""
    if isinstance(value, Raw):
        return bytes(value)
    if isinstance(value, Struct):
        value = to_builtins(value)
    if isinstance(value, Mapping):
        items = (
            _encode(str(key)) + b":" + _encode_slowly(item, enc_hook) for key, item in value.items()
        )
        return b"{" + b",".join(items) + b"}"
    if isinstance(value, (list, tuple)):
        return b"[" + b",".join(_encode_slowly(item, enc_hook) for item in value) + b"]"
    return _encode(value, enc_hook=enc_hook)


def _without_infinities(value: Any, depth: int) -> Any:
    if depth == 0:
        raise RecursionError("too deep")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Struct):
        value = to_builtins(value)
    if isinstance(value, Mapping):
        return {key: _without_infinities(item, depth - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_infinities(item, depth - 1) for item in value]
    return value


class _Encoder:
    encode = staticmethod(_encode)

    @staticmethod
    def encode_lines(values: Iterable[Any]) -> bytes:
        return b"".join(_encode(value) + b"\n" for value in values)


# --- decoding -------------------------------------------------------------------------------------


def _refuse(text: str) -> Any:
    raise DecodeError(f"JSON is malformed: {text}")


_decoder = _json.JSONDecoder(parse_constant=_refuse)
_SPACE = " \t\n\r"


def _decode_text(data: Any) -> str:
    if isinstance(data, str):
        return data
    return bytes(data).decode()


def _decode(data: Any, *, type: Any = Any, strict: bool = True) -> Any:
    text = _decode_text(data)
    if _has_raw(type):
        return _decode_raw(text, type)
    try:
        value = _decoder.decode(text)
    except DecodeError:
        raise
    except ValueError as error:
        raise DecodeError(str(error)) from None
    return value if type is Any else _convert(value, type)


def _has_raw(expected: Any) -> bool:
    return expected is Raw or Raw in get_args(expected)


def _decode_raw(text: str, expected: Any) -> Any:
    """Decode to `Raw`, or to a list or dictionary of it."""
    if expected is Raw:
        _decode(text)
        return Raw(text.encode())
    is_list = get_origin(expected) is list
    items: list[Raw] = []
    members: dict[str, Raw] = {}
    at = _skip(text, 0)
    if text[at : at + 1] != ("[" if is_list else "{"):
        raise ValidationError("expected an array" if is_list else "expected an object")
    closing = "]" if is_list else "}"
    at = _skip(text, at + 1)
    while text[at : at + 1] != closing:
        if items or members:
            at = _skip(text, _expect(text, at, ","))
        key = None
        if not is_list:
            key, at = _scan(text, at)
            at = _skip(text, _expect(text, _skip(text, at), ":"))
        _, end = _scan(text, at)
        raw = Raw(text[at:end].encode())
        if key is None:
            items.append(raw)
        else:
            members[str(key)] = raw
        at = _skip(text, end)
    if _skip(text, at + 1) != len(text):
        raise DecodeError("JSON is malformed: trailing characters")
    return items if is_list else members


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _expect(text: str, at: int, character: str) -> int:
    if text[at : at + 1] != character:
        raise DecodeError(f"JSON is malformed: expected {character!r}")
    return at + 1


def _scan(text: str, at: int) -> tuple[Any, int]:
    try:
        return _decoder.raw_decode(text, at)
    except DecodeError:
        raise
    except ValueError as error:
        raise DecodeError(str(error)) from None


def _convert(value: Any, expected: Any) -> Any:
    """Return a value as the expected type, or raise ValidationError."""
    if expected is Any or expected is object:
        return value
    if expected is None or expected is type(None):
        if value is None:
            return None
    elif isinstance(expected, type) and issubclass(expected, Struct):
        return _convert_struct(value, expected)
    elif expected in (str, bool):
        if type(value) is expected:
            return value
    elif expected is int:
        if type(value) is int:
            return value
    elif expected is float:
        if type(value) in (int, float):
            return float(value)
    elif expected is bytes:
        if type(value) is str:
            return _decode_base64(value)
    else:
        return _convert_generic(value, expected)
    raise ValidationError(f"expected {expected}, got {type(value).__name__}")


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ValidationError("invalid base64 encoded string") from None


def _convert_generic(value: Any, expected: Any) -> Any:
    origin, args = get_origin(expected), get_args(expected)
    if origin is Annotated:
        value = _convert(value, args[0])
        for meta in args[1:]:
            low, high = getattr(meta, "ge", None), getattr(meta, "le", None)
            if (low is not None and value < low) or (high is not None and value > high):
                raise ValidationError("out of range")
        return value
    if origin is Literal and value in args:
        return value
    if origin in (Union, UnionType):
        return _convert_union(value, args)
    if origin is tuple and isinstance(value, list) and Ellipsis not in args:
        if len(value) != len(args):
            raise ValidationError(f"expected an array of length {len(args)}, got {len(value)}")
        return tuple(_convert(item, each) for item, each in zip(value, args, strict=True))
    if origin in (list, set, frozenset, tuple) and isinstance(value, list):
        inner = args[0] if args else Any
        return origin(_convert(item, inner) for item in value)
    if origin is not None and isinstance(value, dict):
        return {key: _convert(item, args[1]) for key, item in value.items()}
    if expected in (dict, list) and isinstance(value, expected):
        return value
    raise ValidationError(f"expected {expected}, got {type(value).__name__}")


def _convert_union(value: Any, choices: tuple[Any, ...]) -> Any:
    for choice in choices:
        try:
            return _convert(value, choice)
        except ValidationError:
            continue
    raise ValidationError(f"expected one of {choices}, got {type(value).__name__}")


_hints: dict[type, dict[str, Any]] = {}


def _convert_struct(value: Any, expected: type[Struct]) -> Struct:
    if not isinstance(value, dict):
        raise ValidationError(f"expected object, got {type(value).__name__}")
    options = expected._options
    if "tag" in options and value.get(options.get("tag_field", "type")) != options["tag"]:
        raise ValidationError("the tag differs")
    if expected not in _hints:
        try:
            _hints[expected] = get_type_hints(expected, include_extras=True)
        except NameError:  # a name that only type checkers import
            _hints[expected] = {}
    hints = _hints[expected]
    fields = {
        name: _convert(value[name], hints.get(name, Any))
        for name in expected.__struct_fields__
        if name in value
    }
    try:
        return expected(**fields)
    except TypeError as error:
        raise ValidationError(str(error)) from None


class _Decoder:
    def __init__(self, type: Any = Any) -> None:
        self._type = type

    def __class_getitem__(cls, item: Any) -> type[_Decoder]:
        return cls

    def decode(self, data: Any) -> Any:
        return _decode(data, type=self._type)

    def decode_lines(self, data: Any) -> list[Any]:
        return [self.decode(line) for line in bytes(data).split(b"\n") if line.strip()]


# --- the modules of msgspec -----------------------------------------------------------------------


def _replace(struct: Struct, **changes: Any) -> Any:
    return type(struct)(**{**struct.__dict__, **changes})


def _fields(struct: Any) -> tuple[Any, ...]:
    names = struct.__struct_fields__
    return tuple(SimpleNamespace(name=name, encode_name=name) for name in names)


json = SimpleNamespace(encode=_encode, decode=_decode, Encoder=_Encoder, Decoder=_Decoder)
structs = SimpleNamespace(
    replace=_replace, asdict=lambda struct: dict(struct.__dict__), fields=_fields
)
