"""Compare the intended prompt of a step with the request that was sent.

Providers write messages differently, so both sides are split into texts with a role, tool calls
and tool results. Additions (a system prompt, a marker) and merged messages of one role are normal
for a transform. Content that is missing or changed is reported.

Elsewhere: query/checks/model/history.py finds the two sides in a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from vestige.providers.chat_types import Message, Request, ToolCall
from vestige.query.formatting import single_line

SIMILAR = 0.5
"""Share of equal characters at both ends that makes two texts versions of one text."""

MISSING_MAX = 20
"""Missing texts of one request that are searched elsewhere. The first ones show the transform."""

DISTINCTIVE_CHARS = 16
"""A shorter text may occur inside another by chance."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change by a transform."""

    kind: str
    message: str
    confidence: float


@dataclass(frozen=True, slots=True)
class _Text:
    """Text of a message, with normalized whitespace."""

    position: int
    role: str
    text: str


def find_changes(before: Request, after: Request) -> list[Change]:
    """Return the content of `before` that is missing or changed in `after`."""
    return [*_text_changes(before, after), *_call_changes(before, after)]


def _text_changes(before: Request, after: Request) -> Iterator[Change]:
    old, new = _texts(before), _texts(after)
    positions: dict[tuple[str, str], list[int]] = {}
    for text in new:
        positions.setdefault((text.role, text.text), []).append(text.position)
    matched: list[int] = []
    missing: list[_Text] = []
    for text in old:
        found = positions.get((text.role, text.text))
        if found:
            position = found.pop(0)
            if text.role != "system":
                matched.append(position)
        else:
            missing.append(text)
    if matched != sorted(matched):
        index = next(i for i in range(1, len(matched)) if matched[i] < matched[i - 1])
        yield Change(
            "history/message-reordered",
            f"Messages were reordered: a later message of the prompt is at position "
            f"{matched[index - 1]} of the request, before an earlier one",
            0.85,
        )
    unmatched = {position for found in positions.values() for position in found}
    yield from _missing_changes(missing, [text for text in new if text.position in unmatched])


def _missing_changes(missing: list[_Text], left: list[_Text]) -> Iterator[Change]:
    """Classify missing texts: merged into another message, changed, or dropped."""
    merged: dict[int, list[_Text]] = {}
    unmerged: list[_Text] = []
    for text in missing[:MISSING_MAX]:
        target = next((new for new in left if _contains(new.text, text.text)), None)
        if target is None:
            unmerged.append(text)
        else:
            merged.setdefault(target.position, []).append(text)
    by_position = {new.position: new for new in left}
    for position, texts in merged.items():
        foreign = [text for text in texts if text.role != by_position[position].role]
        if foreign:
            yield _roles_merged(foreign[0], texts, by_position[position])
    used = set(merged)
    dropped: list[_Text] = []
    for text in unmerged:
        changed = next(
            (
                new
                for new in left
                if new.position not in used
                and new.role == text.role
                and _is_similar(text.text, new.text)
            ),
            None,
        )
        if changed is None:
            dropped.append(text)
            continue
        used.add(changed.position)
        yield Change(
            "history/content-changed",
            f"The {text.role} message at position {text.position} was changed: "
            f"{_first_change(text.text, changed.text)}",
            0.8,
        )
    if dropped:
        first = dropped[0]
        others = len(dropped) - 1
        more = f" and {others} more" if others else ""
        if len(missing) > MISSING_MAX:
            more = f" and at least {others} more"
        yield Change(
            "history/message-dropped",
            f"The {first.role} message at position {first.position} ({_quote(first.text)}){more} "
            "is missing from the request",
            0.85,
        )


def _contains(text: str, part: str) -> bool:
    """Return whether `part` occurs in the text; a short part counts only at an end."""
    if len(part) >= DISTINCTIVE_CHARS:
        return part in text
    return text.startswith(part) or text.endswith(part)


def _roles_merged(foreign: _Text, texts: list[_Text], target: _Text) -> Change:
    message = f"The {foreign.role} message at position {foreign.position} ({_quote(foreign.text)}) "
    if len(texts) > 1 or target.text != foreign.text:
        roles = list(dict.fromkeys([*(text.role for text in texts), target.role]))
        message += (
            f"was merged into the {target.role} message at position {target.position} "
            f"({' + '.join(roles)})"
        )
    else:
        message += f"was sent with the role {target.role}"
    return Change("history/roles-merged", message, 0.9)


def _call_changes(before: Request, after: Request) -> Iterator[Change]:
    """Compare tool calls and results by their ids."""
    calls = {c.id: _json_form(c.arguments) for m in after.messages for c in m.calls if c.id}
    results = {
        r.call_id: _normalize_space(r.text) for m in after.messages for r in m.results if r.call_id
    }
    changed: list[str] = []
    dropped: list[str] = []
    for message in before.messages:
        for call in message.calls:
            if call.id and call.id not in calls:
                dropped.append(f"the call {_name(call)}")
            elif call.id and calls[call.id] != _json_form(call.arguments):
                changed.append(f"the arguments of call {_name(call)}")
        for result in message.results:
            old = _normalize_space(result.text)
            if result.call_id and result.call_id not in results:
                dropped.append(f"the result of call {single_line(result.call_id, 60)}")
            elif result.call_id and results[result.call_id] != old:
                change = _first_change(old, results[result.call_id])
                changed.append(f"the result of call {single_line(result.call_id, 60)} ({change})")
    for kind, cases, verb in (
        ("history/content-changed", changed, "changed"),
        ("history/message-dropped", dropped, "is missing from the request"),
    ):
        if cases:
            more = f" (and {len(cases) - 1} more)" if len(cases) > 1 else ""
            yield Change(kind, f"Tool messages changed: {cases[0]} {verb}{more}", 0.85)


def _name(call: ToolCall) -> str:
    return f"{single_line(call.id or '', 60)} ({single_line(call.name, 60)})"


def _texts(request: Request) -> list[_Text]:
    texts = []
    for position, message in enumerate(request.messages):
        text = _normalize_space(_own_text(message))
        if text:
            texts.append(_Text(position, _role(message.role), text))
    return texts


def _own_text(message: Message) -> str:
    """Return the text without tool results, which are compared by id."""
    if message.results and (message.role == "tool" or message.text == message.results[0].text):
        return ""
    return message.text


def _role(role: str) -> str:
    return {"developer": "system", "model": "assistant"}.get(role, single_line(role, 20))


def _normalize_space(text: str) -> str:
    return " ".join(text.split())


def _json_form(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError):
        return _normalize_space(text)


def common_ends(old: str, new: str) -> tuple[int, int]:
    """Return the lengths of the common prefix and of the common suffix after it."""
    shorter = min(len(old), len(new))
    head = _common_prefix(old, new, shorter)
    tail = _common_prefix(old[head:][::-1], new[head:][::-1], shorter - head)
    return head, tail


def _common_prefix(old: str, new: str, bound: int) -> int:
    """Return the length of the common prefix, by bisection: comparing slices is fast."""
    low, high = 0, bound
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _is_similar(old: str, new: str) -> bool:
    if min(len(old), len(new)) < SIMILAR * max(len(old), len(new)):
        return False
    if old[:1] != new[:1] and old[-1:] != new[-1:]:
        return not old
    head, tail = common_ends(old, new)
    return head + tail >= SIMILAR * max(len(old), len(new), 1)


def _first_change(old: str, new: str) -> str:
    head, _ = common_ends(old, new)
    begin = max(0, head - 20)
    sizes = "" if len(old) == len(new) else f" ({len(old):,} -> {len(new):,} characters)"
    return f"{_quote(old[begin:])} became {_quote(new[begin:])}{sizes}"


def _quote(text: str) -> str:
    return '"' + single_line(text, 60).replace('"', "'") + '"'
