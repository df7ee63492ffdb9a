"""Compare two bodies: structure first, then the first differing bytes and words.

Model requests are compared by messages, tools, parameters and cache breakpoints, other JSON
by path, and everything else line by line. Pure functions.

    diff = diff_bodies(before, after)
    diff.differences       # [Difference(mark="~", where="message 3 user", a=..., b=...), ...]
    diff.first             # the first differing byte, with an excerpt of each side
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec

from vestige.limits import MIB
from vestige.providers.chat_types import Message, Request
from vestige.query import formatting
from vestige.query.diff.sequence_alignment import find_changes
from vestige.query.diff.word_diff import (
    DEFAULT_RULES,
    FirstDifference,
    diff_words,
    find_difference,
    normalise,
    validate_rules,
)

DIFFERENCES_MAX = 200
"""Differences stored per pair. The rest is only counted."""

TEXTS_CHARS_MAX = 256 * 1024
"""Characters of long texts that a comparison contains in full."""

VALUE_SHOWN_MAX = 60
VALUE_CHARS_MAX = 400
"""Characters of a value in a line, and in JSON."""

DEPTH_MAX = 40
LINES_MAX = 50_000
ELEMENTS_MAX = 50_000
"""List elements that are compared one by one. Each is rendered and searched for ids."""
NORMALISE_MAX = 2 * MIB
"""Characters. In longer bodies no value is ignored, and a add reports it."""

_MESSAGE_KEYS: Final = (
    "messages",
    "input",
    "contents",
    "system",
    "instructions",
    "systemInstruction",
    "system_instruction",
)
_NOT_PARAMETERS: Final = frozenset([*_MESSAGE_KEYS, "tools", "model"])


PARSED_MAX: Final = 4
"""Requests that are kept parsed: each is compared with its predecessor and its successor."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A field, path or line that differs between two bodies or spans."""

    mark: str
    """`~` changed, `-` only in the first, `+` only in the second."""
    where: str
    a: str | None = None
    b: str | None = None
    texts: tuple[str, str] | None = None
    """Both values in full, of a long text that differs somewhere."""

    def line(self) -> str:
        """Format as `~ where: a → b`, `- where: a` or `+ where: b`."""
        where = formatting.single_line(self.where, 80)
        sides = [
            formatting.single_line(side, VALUE_SHOWN_MAX)
            for side in (self.a, self.b)
            if side is not None
        ]
        return f"{self.mark} {where}" + (f": {' → '.join(sides)}" if sides else "")

    def data(self) -> dict[str, str | None]:
        data = {"mark": self.mark, "where": self.where, "a": self.a, "b": self.b}
        return (
            data
            if self.texts is None
            else {**data, "a_text": self.texts[0], "b_text": self.texts[1]}
        )


class Differences(list[Difference]):
    """A bounded list of differences. `left_out` counts those beyond the bound."""

    left_out = 0
    _room = TEXTS_CHARS_MAX

    def add(
        self,
        mark: str,
        where: str,
        a: str | None = None,
        b: str | None = None,
        texts: tuple[str, str] | None = None,
    ) -> None:
        if len(self) >= DIFFERENCES_MAX:
            self.left_out += 1
            return
        a, b = a and a[:VALUE_CHARS_MAX], b and b[:VALUE_CHARS_MAX]
        self.append(Difference(mark, where[:200], a, b, self._take(mark, texts)))

    def _take(self, mark: str, texts: tuple[str, str] | None) -> tuple[str, str] | None:
        """Return texts while there is room for them. A short change is shown in `a` and `b`."""
        if texts is None or (mark == "~" and max(map(len, texts)) <= VALUE_SHOWN_MAX):
            return None
        self._room -= len(texts[0]) + len(texts[1])
        return texts if self._room >= 0 else None

    def lines(self, lines_max: int, noun: str) -> list[str]:
        """Render the first differences, and count the others."""
        lines = [difference.line() for difference in self[:lines_max]]
        more = len(self) - lines_max + self.left_out
        if more > 0:
            lines.append(f"… {formatting.pluralize(more, f'more {noun}')}")
        return lines


@dataclass(frozen=True, slots=True)
class BodyDiff:
    """The differences between two bodies."""

    kind: str
    """`request`, `json` or `text`."""
    alike: bool
    """True if only ignored values differ, or nothing."""
    identical: bool
    """True if all bytes are equal."""
    ignored: tuple[str, ...]
    volatile_only: bool
    """True if only ids or times differ, even if they are not ignored."""
    differences: Differences
    first: FirstDifference | None
    words: str
    notes: tuple[str, ...] = ()
    texts: tuple[str, str] | None = None
    """Both bodies in full, if they are compared line by line."""

    def lines(self, structure_max: int = 40) -> list[str]:
        """Render structure, then bytes, then words."""
        lines = [*self.differences.lines(structure_max, "difference"), *self.notes]
        if self.first is not None:
            lines.append(f"first difference at byte {self.first.offset_bytes}:")
            lines.append(f"  A {self.first.a}")
            lines.append(f"  B {self.first.b}")
        if self.words:
            lines.append(f"  words: {self.words}")
        return lines

    def data(self) -> dict[str, Any]:
        first = self.first
        return {
            "kind": self.kind,
            "alike": self.alike,
            "identical": self.identical,
            "only_ids_or_times": self.volatile_only,
            "ignored": list(self.ignored),
            "differences": [difference.data() for difference in self.differences],
            "differences_left_out": self.differences.left_out,
            "first_byte": first and first.offset_bytes,
            "first_a": first and first.a,
            "first_b": first and first.b,
            "words": self.words,
            "notes": list(self.notes),
            "a_text": self.texts and self.texts[0],
            "b_text": self.texts and self.texts[1],
        }


def diff_bodies(a: str, b: str, ignore: Sequence[str] = ()) -> BodyDiff:
    """Compare two bodies as model requests, JSON or text."""
    rules = validate_rules(ignore)
    found = Differences()
    if a == b:
        return BodyDiff("text", True, True, rules, False, found, None, "")
    notes = []
    short = max(len(a), len(b)) <= NORMALISE_MAX
    if rules and not short:
        notes.append(f"longer than {formatting.size(NORMALISE_MAX)}: nothing was ignored")
        rules = ()
    alike = bool(rules) and normalise(a, rules) == normalise(b, rules)
    a_json, b_json = _parse_json(a), _parse_json(b)
    kind = "text"
    structured = not alike and _is_container(a_json) and _is_container(b_json)
    if structured:
        try:
            kind = _diff_structures(a, b, a_json, b_json, rules, found)
        except RecursionError:
            structured = False
    if structured:
        if not found:
            notes.append("same JSON, formatted differently (key order, white space or escapes)")
    elif not alike:
        _diff_lines(a, b, rules, found, notes)
    # What one side alone has is more than another id, so most pairs are not normalised.
    is_paired = short and all(difference.mark == "~" for difference in found)
    volatile_only = alike or (
        is_paired and normalise(a, DEFAULT_RULES) == normalise(b, DEFAULT_RULES)
    )
    if volatile_only and not alike:
        notes.append("differs only in ids or times")
    first = None if alike else find_difference(a, b, rules)
    words = "" if first is None else diff_words(a, b, first)
    is_text = not structured and not alike and len(a) + len(b) <= TEXTS_CHARS_MAX
    texts = (a, b) if is_text else None
    return BodyDiff(
        kind, alike, False, rules, volatile_only, found, first, words, tuple(notes), texts
    )


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
    a_request, b_request = parse_model_request(a), parse_model_request(b)
    if a_request is None or b_request is None:
        diff_json(a_json, b_json, "$", rules, found, 0)
        return "json"
    _diff_requests(a_request, b_request, rules, found)
    for key, prefix in (("tools", "tool"), *((key, "message") for key in _MESSAGE_KEYS)):
        # `Request` does not hold every field (image, cache marker). If it shows no difference
        # in this part, the JSON may.
        if not any(difference.where.startswith(prefix) for difference in found):
            diff_json(a_json.get(key), b_json.get(key), f"$.{key}", rules, found, 0)
    a_parameters, b_parameters = (
        {key: value for key, value in side.items() if key not in _NOT_PARAMETERS}
        for side in (a_json, b_json)
    )
    diff_json(a_parameters, b_parameters, "parameter", rules, found, 0)
    return "request"


@lru_cache(PARSED_MAX)
def parse_model_request(text: str) -> Request | None:
    """Parse a body as a model request; None if it has neither messages nor tools."""
    from vestige.providers.parsing import parse_request

    request = parse_request(text)
    return request if request is not None and (request.messages or request.tools) else None


# --- model requests ---------------------------------------------------------------------------


def _diff_requests(a: Request, b: Request, rules: tuple[str, ...], found: Differences) -> None:
    if a.provider != b.provider:
        found.add("~", "provider", a.provider, b.provider)
    if a.model != b.model:
        found.add("~", "model", a.model or "none", b.model or "none")
    if len(a.messages) != len(b.messages):
        found.add("~", "messages", str(len(a.messages)), str(len(b.messages)))
    _diff_messages(a.messages, b.messages, rules, found)
    _diff_tools(a, b, found)
    if len(a.breakpoints) != len(b.breakpoints):
        found.add("~", "cache breakpoints", str(len(a.breakpoints)), str(len(b.breakpoints)))


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
            where, shown = f"message {a_at + 1} {a[a_at].role}", _format_message(a[a_at])
            found.add("-", where, shown, texts=(_full_text(a[a_at]), ""))
        elif b_at is not None:
            where, shown = f"message {b_at + 1} {b[b_at].role}", _format_message(b[b_at])
            found.add("+", where, None, shown, texts=("", _full_text(b[b_at])))


def _full_text(message: Message) -> str:
    """Return all of a message: its text, its calls with arguments, and results of tools."""
    calls = [f"{call.name}({call.arguments})" for call in message.calls]
    results = [result.text for result in message.results]
    # A message of the role tool may have its result as its text, too.
    return "\n".join(dict.fromkeys(filter(None, [message.text, *calls, *results])))


def _message_key(message: Message, rules: tuple[str, ...]) -> tuple[Any, ...]:
    return (
        message.role,
        normalise(message.text, rules),
        tuple(
            (None if "ids" in rules else call.id, call.name, normalise(call.arguments, rules))
            for call in message.calls
        ),
        tuple(
            (None if "ids" in rules else result.call_id, normalise(result.text, rules))
            for result in message.results
        ),
    )


def _diff_message(
    a: Message, b: Message, where: str, rules: tuple[str, ...], found: Differences
) -> None:
    first = find_difference(a.text, b.text, rules)
    if first is not None:
        sizes = (f"{len(a.text)} characters", f"{len(b.text)} characters")
        shown = first.a or sizes[0], first.b or sizes[1]
        found.add("~", f"{where} text", *shown, texts=(a.text, b.text))
    a_names, b_names = ([call.name for call in side.calls] for side in (a, b))
    if a_names != b_names:
        found.add("~", f"{where} calls", _join(a_names), _join(b_names))
    else:
        for a_call, b_call in zip(a.calls, b.calls, strict=True):
            if normalise(a_call.arguments, rules) != normalise(b_call.arguments, rules):
                sent = a_call.arguments, b_call.arguments
                found.add("~", f"{where} call {a_call.name}", *sent, texts=sent)
    for kind, a_ids, b_ids in (
        ("call ids", [call.id for call in a.calls], [call.id for call in b.calls]),
        ("result ids", [r.call_id for r in a.results], [r.call_id for r in b.results]),
    ):
        if a_ids != b_ids and ("ids" not in rules or len(a_ids) != len(b_ids)):
            found.add("~", f"{where} {kind}", _join(a_ids), _join(b_ids))
    for number, (a_result, b_result) in enumerate(zip(a.results, b.results, strict=False), 1):
        first = find_difference(a_result.text, b_result.text, rules)
        if first is not None:
            texts = a_result.text, b_result.text
            found.add("~", f"{where} result {number}", first.a, first.b, texts=texts)


def _join(parts: Sequence[str | None]) -> str:
    return ", ".join(part or "none" for part in parts) or "none"


def _format_message(message: Message) -> str:
    parts = []
    if message.calls:
        parts.append(f"calls {_join([call.name for call in message.calls])}")
    if message.results:
        parts.append(f"result of {_join([result.call_id for result in message.results])}")
    if message.text:
        parts.append(message.text)
    return "; ".join(parts) or "empty"


def _diff_tools(a: Request, b: Request, found: Differences) -> None:
    a_tools, b_tools = ({tool.name: tool for tool in side.tools} for side in (a, b))
    for name, tool in a_tools.items():
        b_tool = b_tools.get(name)
        if b_tool is None:
            found.add("-", f"tool {name}", formatting.size(tool.size_bytes))
        elif tool != b_tool:
            part = "parameters" if tool.parameters != b_tool.parameters else "definition"
            sizes = (formatting.size(tool.size_bytes), formatting.size(b_tool.size_bytes))
            found.add("~", f"tool {name} {part}", *sizes)
    for name, tool in b_tools.items():
        if name not in a_tools:
            found.add("+", f"tool {name}", None, formatting.size(tool.size_bytes))
    if list(a_tools) != list(b_tools) and sorted(a_tools) == sorted(b_tools):
        found.add("~", "order of tools", _join(list(a_tools)), _join(list(b_tools)))


# --- any JSON ----------------------------------------------------------------------------------


def diff_json(
    a: Any, b: Any, path: str, rules: tuple[str, ...], found: Differences, depth: int
) -> None:
    """Add the differences between two JSON values to `found`, by path."""
    if isinstance(a, dict) and isinstance(b, dict) and depth < DEPTH_MAX:
        for key in [*a, *(key for key in b if key not in a)]:
            key_path = f"{path}.{key}"
            if key not in b:
                found.add("-", key_path, _json(a[key]))
            elif key not in a:
                found.add("+", key_path, None, _json(b[key]))
            else:
                diff_json(a[key], b[key], key_path, rules, found, depth + 1)
    elif isinstance(a, list) and isinstance(b, list) and depth < DEPTH_MAX:
        _diff_lists(a, b, path, rules, found, depth)
    elif a != b or type(a) is not type(b):
        a_text, b_text = _json(a), _json(b)
        if normalise(a_text, rules) == normalise(b_text, rules):
            return
        first = find_difference(a_text, b_text, rules)
        if first is not None and min(len(a_text), len(b_text)) > VALUE_SHOWN_MAX:
            a_text, b_text = first.a, first.b
        texts = (a, b) if isinstance(a, str) and isinstance(b, str) else None
        found.add("~", path, a_text, b_text, texts=texts)


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
            found.add("-", f"{path}[{a_at}]", _json(a[a_at]))
        elif b_at is not None:
            found.add("+", f"{path}[{b_at}]", None, _json(b[b_at]))
    if not complete or sizes != (len(a), len(b)):
        found.add("~", path, f"{sizes[0]} elements", f"{sizes[1]} elements, not all compared")


def _shape(value: Any) -> str:
    """Return a key that a changed list element keeps: its id, name, role or type."""
    if isinstance(value, dict):
        for key in ("contributor", "id", "name", "role", "type"):
            if isinstance(value.get(key), str):
                return f"{key}={normalise(value[key], DEFAULT_RULES)}"
    return type(value).__name__


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()


# --- text --------------------------------------------------------------------------------------


def _diff_lines(
    a: str, b: str, rules: tuple[str, ...], found: Differences, notes: list[str]
) -> None:
    a_lines, b_lines = a.split("\n"), b.split("\n")
    if max(len(a_lines), len(b_lines)) > LINES_MAX:
        notes.append(f"more than {LINES_MAX} lines: only the first difference is shown")
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
            a_line, b_line = a_lines[a_at], b_lines[b_at]
            first = find_difference(a_line, b_line, rules)
            if first is not None:
                if max(len(a_line), len(b_line)) > VALUE_SHOWN_MAX:
                    a_line, b_line = first.a, first.b
                found.add("~", f"line {a_at + 1}", a_line, b_line)
        elif a_at is not None:
            found.add("-", f"line {a_at + 1}", a_lines[a_at])
        elif b_at is not None:
            found.add("+", f"line {b_at + 1}", None, b_lines[b_at])
