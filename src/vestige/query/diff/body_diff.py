"""What differs between two bodies: structure first, then bytes and words at the first divergence.

Two model requests are compared as such (messages by role and content, ids, tools, parameters,
cache breakpoints), other JSON by its paths, everything else line by line. Pure.

    found = diff_bodies(before, after)
    found.differences      # [Difference(mark="~", where="message 3 user", a=..., b=...), ...]
    found.parting          # the first differing byte, and a little of each side
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from vestige.limits import MIB
from vestige.providers.models import Message, Request
from vestige.query import formatting
from vestige.query.diff.sequence_alignment import find_changes
from vestige.query.diff.word_diff import (
    USUAL,
    Parting,
    check_rules,
    diff_words,
    find_parting,
    normalise,
)

DIFFERENCES_MAX = 200
"""Of one pair that are kept; the rest is counted. Nobody reads the 201st."""

VALUE_SHOWN = 60
VALUE_KEPT = 400
"""Characters of a value in a line, and in data."""

DEPTH_MAX = 40
LINES_MAX = 50_000
ELEMENTS_MAX = 50_000
"""Of a list, those that are compared one by one: each is rendered and looked at for ids."""
NORMALISE_MAX = 2 * MIB
"""Characters. In longer bodies volatile values are compared like all others, and that is said."""

_MESSAGES: Final = (
    "messages",
    "input",
    "contents",
    "system",
    "instructions",
    "systemInstruction",
    "system_instruction",
)
_NOT_PARAMETERS: Final = frozenset([*_MESSAGES, "tools", "model"])


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not the same."""

    mark: str
    """`~` changed, `-` only in the first, `+` only in the second."""
    where: str
    a: str | None = None
    b: str | None = None

    def line(self) -> str:
        """`~ where: a → b`, `- where: a`, `+ where: b`."""
        where = formatting.single_line(self.where, 80)
        sides = [
            formatting.single_line(side, VALUE_SHOWN)
            for side in (self.a, self.b)
            if side is not None
        ]
        return f"{self.mark} {where}" + (f": {' → '.join(sides)}" if sides else "")

    def data(self) -> dict[str, str | None]:
        return {"mark": self.mark, "where": self.where, "a": self.a, "b": self.b}


class Differences(list[Difference]):
    """Kept up to a bound; the others counted."""

    left_out = 0

    def note(self, mark: str, where: str, a: str | None = None, b: str | None = None) -> None:
        if len(self) >= DIFFERENCES_MAX:
            self.left_out += 1
            return
        self.append(Difference(mark, where[:200], a and a[:VALUE_KEPT], b and b[:VALUE_KEPT]))


@dataclass(frozen=True, slots=True)
class BodyDiff:
    """Two bodies side by side."""

    kind: str
    """`request`, `json` or `text`."""
    alike: bool
    """Nothing differs beyond what is ignored."""
    identical: bool
    """Byte for byte."""
    ignored: tuple[str, ...]
    volatile_only: bool
    """They differ, and only in ids or times (whether or not these are ignored)."""
    differences: Differences
    parting: Parting | None
    words: str
    notes: tuple[str, ...] = ()

    def lines(self, structure_max: int = 40) -> list[str]:
        """Structure, then bytes, then words."""
        told = [difference.line() for difference in self.differences[:structure_max]]
        more = len(self.differences) - structure_max + self.differences.left_out
        if more > 0:
            told.append(f"… {formatting.pluralize(more, 'more difference')}")
        told.extend(self.notes)
        if self.parting is not None:
            told.append(f"first differing byte {self.parting.offset_bytes}:")
            told.append(f"  A {self.parting.a}")
            told.append(f"  B {self.parting.b}")
        if self.words:
            told.append(f"  words: {self.words}")
        return told

    def data(self) -> dict[str, Any]:
        parting = self.parting
        return {
            "kind": self.kind,
            "alike": self.alike,
            "identical": self.identical,
            "only_ids_or_times": self.volatile_only,
            "ignored": list(self.ignored),
            "differences": [difference.data() for difference in self.differences],
            "differences_left_out": self.differences.left_out,
            "first_byte": parting and parting.offset_bytes,
            "first_a": parting and parting.a,
            "first_b": parting and parting.b,
            "words": self.words,
            "notes": list(self.notes),
        }


def diff_bodies(a: str, b: str, ignore: Sequence[str] = ()) -> BodyDiff:
    """Compare two bodies as what they are."""
    rules = check_rules(ignore)
    found = Differences()
    if a == b:
        return BodyDiff("text", True, True, rules, False, found, None, "")
    notes = []
    short = max(len(a), len(b)) <= NORMALISE_MAX
    if rules and not short:
        notes.append(f"longer than {formatting.size(NORMALISE_MAX)}: nothing is ignored in it")
        rules = ()
    alike = bool(rules) and normalise(a, rules) == normalise(b, rules)
    volatile_only = alike or (short and normalise(a, USUAL) == normalise(b, USUAL))
    a_json, b_json = _parse_json(a), _parse_json(b)
    kind = "text"
    structured = not alike and _is_container(a_json) and _is_container(b_json)
    if structured:
        try:
            kind = _diff_structures(a, b, a_json, b_json, rules, found)
        except RecursionError:  # nested deeper than anybody writes
            structured = False
    if structured:
        if not found:
            notes.append("the same JSON in different bytes (order of keys, white space or escapes)")
    elif not alike:
        _diff_lines(a, b, rules, found, notes)
    if volatile_only and not alike:
        notes.append("differs only in ids or times")
    parting = None if alike else find_parting(a, b, rules)
    told = "" if parting is None else diff_words(a, b, parting)
    return BodyDiff(kind, alike, False, rules, volatile_only, found, parting, told, tuple(notes))


def _parse_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text.encode(errors="replace"))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def _is_container(value: Any) -> bool:
    return isinstance(value, (dict, list))


def _diff_structures(
    a: str, b: str, a_json: Any, b_json: Any, rules: tuple[str, ...], found: Differences
) -> str:
    a_request, b_request = parse_request(a), parse_request(b)
    if a_request is None or b_request is None:
        diff_json(a_json, b_json, "$", rules, found, 0)
        return "json"
    _diff_requests(a_request, b_request, rules, found)
    for key, told in (("tools", "tool"), *((key, "message") for key in _MESSAGES)):
        # In a part that the common form does not show: a description, an image, a marker.
        if not any(difference.where.startswith(told) for difference in found):
            diff_json(a_json.get(key), b_json.get(key), f"$.{key}", rules, found, 0)
    for key in [*a_json, *(key for key in b_json if key not in a_json)]:
        if key not in _NOT_PARAMETERS:
            side = {key: a_json[key]} if key in a_json else {}
            other = {key: b_json[key]} if key in b_json else {}
            diff_json(side, other, "parameter", rules, found, 0)
    return "request"


def parse_request(text: str) -> Request | None:
    """The body as a model request; None where it is none."""
    try:
        from vestige.providers.parsing import parse_request as parse
    except ImportError:  # the reader of requests is not there yet
        return None
    request: Request | None = parse(text)
    return request if request is not None and (request.messages or request.tools) else None


# --- model requests ---------------------------------------------------------------------------


def _diff_requests(a: Request, b: Request, rules: tuple[str, ...], found: Differences) -> None:
    if a.provider != b.provider:
        found.note("~", "provider", a.provider, b.provider)
    if a.model != b.model:
        found.note("~", "model", a.model or "none", b.model or "none")
    if len(a.messages) != len(b.messages):
        found.note("~", "messages", str(len(a.messages)), str(len(b.messages)))
    _diff_messages(a.messages, b.messages, rules, found)
    _diff_tools(a, b, found)
    if len(a.breakpoints) != len(b.breakpoints):
        found.note("~", "cache breakpoints", str(len(a.breakpoints)), str(len(b.breakpoints)))


def _diff_messages(
    a: Sequence[Message], b: Sequence[Message], rules: tuple[str, ...], found: Differences
) -> None:
    changes, _ = find_changes(
        [_message_key(message, rules) for message in a],
        [_message_key(message, rules) for message in b],
        [message.role for message in a],
        [message.role for message in b],
    )
    for mark, a_at, b_at in changes:
        if mark == "=":
            continue
        if a_at is not None and b_at is not None:
            where = f"message {a_at + 1} {a[a_at].role}"
            if a_at != b_at:
                where += f" (B: {b_at + 1})"
            _diff_message(a[a_at], b[b_at], where, rules, found)
        elif a_at is not None:
            found.note("-", f"message {a_at + 1} {a[a_at].role}", _say_message(a[a_at]))
        elif b_at is not None:
            found.note("+", f"message {b_at + 1} {b[b_at].role}", None, _say_message(b[b_at]))


def _message_key(message: Message, rules: tuple[str, ...]) -> tuple[Any, ...]:
    return (
        message.role,
        normalise(message.text, rules),
        tuple(
            (_id(call.id, rules), call.name, normalise(call.arguments, rules))
            for call in message.calls
        ),
        tuple(
            (_id(result.call_id, rules), normalise(result.text, rules))
            for result in message.results
        ),
    )


def _id(text: str | None, rules: tuple[str, ...]) -> str | None:
    return None if "ids" in rules else text


def _diff_message(
    a: Message, b: Message, where: str, rules: tuple[str, ...], found: Differences
) -> None:
    parting = find_parting(a.text, b.text, rules)
    if parting is not None:
        sizes = (f"{len(a.text)} characters", f"{len(b.text)} characters")
        found.note("~", f"{where} text", parting.a or sizes[0], parting.b or sizes[1])
    a_names, b_names = ([call.name for call in side.calls] for side in (a, b))
    if a_names != b_names:
        found.note("~", f"{where} calls", _listed(a_names), _listed(b_names))
    else:
        for one, other in zip(a.calls, b.calls, strict=True):
            if normalise(one.arguments, rules) != normalise(other.arguments, rules):
                found.note("~", f"{where} call {one.name}", one.arguments, other.arguments)
    for side, a_parts, b_parts in (
        ("call ids", [call.id for call in a.calls], [call.id for call in b.calls]),
        ("result ids", [r.call_id for r in a.results], [r.call_id for r in b.results]),
    ):
        if a_parts != b_parts and ("ids" not in rules or len(a_parts) != len(b_parts)):
            found.note("~", f"{where} {side}", _listed(a_parts), _listed(b_parts))
    for number, (was, now) in enumerate(zip(a.results, b.results, strict=False), 1):
        parting = find_parting(was.text, now.text, rules)
        if parting is not None:
            found.note("~", f"{where} result {number}", parting.a, parting.b)


def _listed(parts: Sequence[str | None]) -> str:
    return ", ".join(part or "none" for part in parts) or "none"


def _say_message(message: Message) -> str:
    said = [f"calls {_listed([call.name for call in message.calls])}"] if message.calls else []
    said += (
        [f"result of {_listed([r.call_id for r in message.results])}"] if message.results else []
    )
    return "; ".join([*said, *([message.text] if message.text else [])]) or "empty"


def _diff_tools(a: Request, b: Request, found: Differences) -> None:
    a_tools, b_tools = ({tool.name: tool for tool in side.tools} for side in (a, b))
    for name, tool in a_tools.items():
        other = b_tools.get(name)
        if other is None:
            found.note("-", f"tool {name}", formatting.size(tool.size_bytes))
        elif tool != other:
            what = "parameters" if tool.parameters != other.parameters else "definition"
            sizes = (formatting.size(tool.size_bytes), formatting.size(other.size_bytes))
            found.note("~", f"tool {name} {what}", *sizes)
    for name, tool in b_tools.items():
        if name not in a_tools:
            found.note("+", f"tool {name}", None, formatting.size(tool.size_bytes))
    if list(a_tools) != list(b_tools) and sorted(a_tools) == sorted(b_tools):
        found.note("~", "order of tools", _listed(list(a_tools)), _listed(list(b_tools)))


# --- any JSON ----------------------------------------------------------------------------------


def diff_json(
    a: Any, b: Any, path: str, rules: tuple[str, ...], found: Differences, depth: int
) -> None:
    """Two JSON values, by their paths."""
    if isinstance(a, dict) and isinstance(b, dict) and depth < DEPTH_MAX:
        for key in [*a, *(key for key in b if key not in a)]:
            at = f"{path}.{key}"
            if key not in b:
                found.note("-", at, _json(a[key]))
            elif key not in a:
                found.note("+", at, None, _json(b[key]))
            else:
                diff_json(a[key], b[key], at, rules, found, depth + 1)
    elif isinstance(a, list) and isinstance(b, list) and depth < DEPTH_MAX:
        _diff_lists(a, b, path, rules, found, depth)
    elif a != b or type(a) is not type(b):
        was, now = _json(a), _json(b)
        if normalise(was, rules) == normalise(now, rules):
            return
        parting = find_parting(was, now, rules)
        if parting is not None and min(len(was), len(now)) > VALUE_SHOWN:
            was, now = parting.a, parting.b  # two long texts: only the place where they part
        found.note("~", path, was, now)


def _diff_lists(
    a: list[Any], b: list[Any], path: str, rules: tuple[str, ...], found: Differences, depth: int
) -> None:
    sizes = len(a), len(b)
    a, b = a[:ELEMENTS_MAX], b[:ELEMENTS_MAX]
    changes, complete = find_changes(
        [normalise(_json(value), rules) for value in a],
        [normalise(_json(value), rules) for value in b],
        [_shape(value) for value in a],
        [_shape(value) for value in b],
    )
    for mark, a_at, b_at in changes:
        if mark == "=":
            continue
        if a_at is not None and b_at is not None:
            diff_json(a[a_at], b[b_at], f"{path}[{a_at}]", rules, found, depth + 1)
        elif a_at is not None:
            found.note("-", f"{path}[{a_at}]", _json(a[a_at]))
        elif b_at is not None:
            found.note("+", f"{path}[{b_at}]", None, _json(b[b_at]))
    if not complete or sizes != (len(a), len(b)):
        found.note("~", path, f"{sizes[0]} elements", f"{sizes[1]} elements, not all compared")


def _shape(value: Any) -> str:
    """What makes two elements the same thing, only changed: their role, type or name, else their kind."""
    if isinstance(value, dict):
        for key in ("contributor", "id", "name", "role", "type"):
            if isinstance(value.get(key), str):
                return f"{key}={normalise(value[key], USUAL)}"
    return type(value).__name__


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()


# --- text --------------------------------------------------------------------------------------


def _diff_lines(
    a: str, b: str, rules: tuple[str, ...], found: Differences, notes: list[str]
) -> None:
    a_lines, b_lines = a.split("\n"), b.split("\n")
    if max(len(a_lines), len(b_lines)) > LINES_MAX:
        notes.append(f"more than {LINES_MAX} lines: only the first divergence was looked for")
        return
    changes, _ = find_changes(
        [normalise(line, rules) for line in a_lines],
        [normalise(line, rules) for line in b_lines],
        [""] * len(a_lines),
        [""] * len(b_lines),
    )
    for mark, a_at, b_at in changes:
        if mark == "=":
            continue
        if a_at is not None and b_at is not None:
            was, now = a_lines[a_at], b_lines[b_at]
            parting = find_parting(was, now, rules)
            if parting is not None:
                if max(len(was), len(now)) > VALUE_SHOWN:
                    was, now = parting.a, parting.b
                found.note("~", f"line {a_at + 1}", was, now)
        elif a_at is not None:
            found.note("-", f"line {a_at + 1}", a_lines[a_at])
        elif b_at is not None:
            found.note("+", f"line {b_at + 1}", None, b_lines[b_at])
