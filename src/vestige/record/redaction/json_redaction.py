r"""Redact a JSON document as what it is: strings change, keys and structure never do.

    redact_json('{"workflow": "refresh-token", "status": "done"}', redactor, counts)   # unchanged

Each string is judged by itself and by its own key, so a value that looks like a header's name
cannot reach the next key, and a quote that closes a string is never taken for one that opens another.
A string that holds JSON is redacted by the same rules, at any depth. What is not changed stays byte
for byte, white space and all.

A key is masked only if it is itself a secret: by its shape, or because its value was registered.

Elsewhere: texts that are no JSON, or only torn pieces of it, in record/redaction/key_value_secrets.py.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import msgspec

from vestige.limits import SECRET_LENGTH_MAX
from vestige.record.redaction.key_value_secrets import (
    CONTAINERS,
    DESCRIBING,
    is_doubtful_secret,
    is_header,
    is_header_name,
    is_secret_value,
)
from vestige.record.redaction.masking import MARK, doubtful_word, mask, masks_numbers
from vestige.record.redaction.secret_patterns import is_basic
from vestige.record.redaction.secret_values import WEAK, WORD, grade, is_placeholder

if TYPE_CHECKING:
    from vestige.record.redaction.redactor import Counts, Redactor

_TOKEN: Final = re.compile(
    r'"(?P<string>[^"\\]*+(?:\\.[^"\\]*+)*+)"(?P<colon>\s*+:)?|(?P<open>[\[{])|(?P<close>[\]}])|(?P<scalar>[^\s",:\[\]{}]+)',
    re.DOTALL,
)
_TOKENS: Final = re.compile(
    r'(?:[\s,:\[\]{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"|[-+.0-9eE]++|true|false|null)*+', re.DOTALL
)
_BEGINS: Final = re.compile(r'\s*+(?:\{\s*+["}]|\[\s*+(?:["\[\]{0-9-]|true|false|null))')
_OPEN_KEY: Final = re.compile(r'"(?:[^"\\]|\\.){0,256}+"\s*+:\s*+\Z', re.DOTALL)
_WORD_MAX: Final = 5
_NAMES: Final = ("name", "key", "header", "field", "id", "variable")
_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode


def begins_json(text: str) -> bool:
    """Whether a text begins as an object or an array does."""
    return _BEGINS.match(text) is not None


def is_json(text: str) -> bool:
    """Whether a text is one whole object or array."""
    if not begins_json(text):
        return False
    try:
        _decode_raw(text.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def last_gap(text: str) -> int:
    """The last place in the beginning of a document that is outside strings, and not between a key
    and its value. Zero: one string goes on to the end. Below zero: this is not JSON."""
    found = _TOKENS.match(text)
    end = found.end() if found else 0
    if not text.startswith('"', end) and len(text) - end > _WORD_MAX:
        return -1
    if key := _OPEN_KEY.search(text, max(0, end - 600), end):
        end = key.start()
    # A number or word may go on after the end.
    while end and text[end - 1] not in ',[]{}" \t\n\r':
        end -= 1
    return end


class _Frame:
    """An object or array that is being read."""

    __slots__ = ("is_list", "item", "key", "named", "previous", "value", "word")

    def __init__(self, is_list: bool, word: str | None) -> None:
        self.is_list = is_list
        self.word = word
        """Of the secret's key that this container is under, itself or further out."""
        self.key = ""
        self.previous = ""
        """The string before, in a list."""
        self.item = 0
        self.named: str | None = None
        """The value of `name`, in an object that names and holds something."""
        self.value: tuple[int, int, str] | None = None
        """Where its `value` is."""


class _Edits:
    """What is put in place of parts of a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.found: list[tuple[int, int, str]] = []

    def put(self, low: int, high: int, new: str) -> None:
        self.found.append((low, high, new))

    def apply(self) -> str:
        if not self.found:
            return self.text
        parts: list[str] = []
        done = 0
        for low, high, new in sorted(self.found):
            parts += (self.text[done:low], new)
            done = high
        return "".join((*parts, self.text[done:]))


def redact_json(text: str, redactor: Redactor, counts: Counts | None) -> str:
    """A document, or whole tokens of one, with its secrets masked; the same object if it has none."""
    edits = _Edits(text)
    find_word = redactor.find_word
    frames = [_Frame(True, None)]
    for token in _TOKEN.finditer(text):
        frame = frames[-1]
        if token["string"] is not None:
            low, high = token.span("string")
            if token["colon"]:
                frame.key = _decoded(token["string"])
                _redact_key(edits, low, high, frame.key, redactor, counts)
                continue
            _redact_string(edits, low, high, frame, redactor, counts)
        elif token["open"]:
            frames.append(_Frame(token["open"] == "[", _word_inside(frame, find_word)))
        elif token["close"]:
            if len(frames) > 1:
                frames.pop()
                _redact_named(edits, frame, redactor, counts)
                frames[-1].item += 1
                frames[-1].previous = ""
        else:
            _redact_number(edits, token, frame, redactor, counts)
    for frame in frames:
        _redact_named(edits, frame, redactor, counts)
    return edits.apply()


def _word_inside(frame: _Frame, find_word: object) -> str | None:
    if frame.is_list or not callable(find_word):
        return frame.word
    found = find_word(frame.key)
    if found is not None:
        return found  # type: ignore[no-any-return]
    return frame.word if frame.key.lower().strip("$") not in DESCRIBING else None


def _redact_key(
    edits: _Edits, low: int, high: int, key: str, redactor: Redactor, counts: Counts | None
) -> None:
    new = redactor.shaped(key, counts)
    if new != key:
        edits.put(low, high, _encoded(edits.text[low:high], key, new))


def _redact_string(
    edits: _Edits, low: int, high: int, frame: _Frame, redactor: Redactor, counts: Counts | None
) -> None:
    raw = edits.text[low:high]
    value = _decoded(raw)
    previous, frame.previous = frame.previous, value
    frame.item += 1
    if not frame.is_list:
        lowered = frame.key.lower()
        if lowered in _NAMES and len(value) <= 128:
            frame.named = value
        elif lowered == "value":
            frame.value = (low, high, value)
    word = redactor.find_word and _secret_under(
        edits.text, high, frame, previous, value, redactor.find_word
    )
    new = None
    if word:
        masked = mask(value)
        if masked != value:
            redactor.count(counts, f"key:{word}")
            new = redactor.shaped(masked, None)
    if new is None:
        new = redactor.text(value, counts)
    if new != value:
        edits.put(low, high, _encoded(raw, value, new))
        frame.value = None if frame.value and frame.value[0] == low else frame.value


def _secret_under(
    text: str, high: int, frame: _Frame, previous: str, value: str, find_word: object
) -> str | None:
    """The word that makes a string a secret, if its place does."""
    assert callable(find_word)
    if is_placeholder(value):
        return None
    if frame.is_list:
        if frame.word is not None:
            # A list directly under the key: passwords, cookies.
            return frame.word if frame.key == "" and _fits(frame.word, value) else None
        return _second_word(text, high, frame, previous, value, find_word)
    key = frame.key
    word: str | None = find_word(key)
    if word is not None:
        if word == "pwd" and value[0] in "/~":
            return None
        if (
            word == "token"
            and len(value) <= 64
            and text[high + 1 :].lstrip(", \n").startswith('"logprob')
        ):
            return None
        return word if is_secret_value(word, value) else None
    if key == "auth" and is_basic(value):
        return "auth"
    doubtful = doubtful_word(key)
    if doubtful and is_doubtful_secret(doubtful, value):
        return doubtful
    if frame.word in CONTAINERS and key.lower().strip("$") not in DESCRIBING:
        least = WORD if "cookie" in frame.word else WEAK
        return frame.word if _fits(frame.word, value) and grade(value) >= least else None
    return None


def _fits(word: str, value: str) -> bool:
    return is_secret_value(word, value) and len(value) <= SECRET_LENGTH_MAX


def _second_word(
    text: str, high: int, frame: _Frame, previous: str, value: str, find_word: object
) -> str | None:
    """The word if a string is the second of a pair: `["authorization", "x"]`, `["--token", "x"]`."""
    assert callable(find_word)
    if not previous or len(previous) > 64:
        return None
    word: str | None = find_word(previous.lstrip("-"))
    if word is None:
        return None
    if previous.startswith("-"):
        return None if value.startswith("-") else word
    if not is_header(previous) or is_header_name(value):
        return None
    is_pair = frame.item == 2 and text[high + 1 : high + 80].lstrip().startswith("]")
    return word if is_pair or grade(value) >= WEAK else None


def _redact_named(edits: _Edits, frame: _Frame, redactor: Redactor, counts: Counts | None) -> None:
    """`{"name": "API_KEY", "value": "x"}`, in either order."""
    if frame.named is None or frame.value is None or redactor.find_word is None:
        return
    low, high, value = frame.value
    frame.value = None
    word = redactor.find_word(frame.named)
    if word is None or is_placeholder(value) or not is_secret_value(word, value):
        return
    new = mask(value)
    if new != value:
        redactor.count(counts, f"key:{word}")
        edits.put(low, high, _encoded(edits.text[low:high], value, redactor.shaped(new, None)))


def _redact_number(
    edits: _Edits, token: re.Match[str], frame: _Frame, redactor: Redactor, counts: Counts | None
) -> None:
    scalar = token["scalar"]
    frame.item += 1
    frame.previous = ""
    if frame.is_list or redactor.find_word is None or not scalar.lstrip("-").isdigit():
        return
    word = redactor.find_word(frame.key)
    if word is not None and masks_numbers(word):
        redactor.count(counts, f"key:{word}")
        edits.put(*token.span("scalar"), f'"{MARK}"')


def _decoded(raw: str) -> str:
    if "\\" not in raw:
        return raw
    try:
        return str(json.loads(f'"{raw}"', strict=False))
    except ValueError:
        return raw


def _encoded(raw: str, value: str, new: str) -> str:
    """A string's new content, spelled as the old one was."""
    for ascii_only in (False, True):
        for slash in ("/", "\\/"):
            if _spelled(value, ascii_only, slash) == raw:
                return _spelled(new, ascii_only, slash)
    return _spelled(new, True, "/")


_MARK_ESCAPED: Final = json.dumps(MARK)[1:-1]


def _spelled(value: str, ascii_only: bool, slash: str) -> str:
    text = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
    text = text.replace(_MARK_ESCAPED, MARK)  # readers look for the mark itself
    return text if slash == "/" else text.replace("/", slash)
