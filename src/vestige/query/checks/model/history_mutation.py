"""What a transform did to a conversation: the prompt that was meant against the request that left.

Providers differ in how they write a message, so both sides are cut into atoms: a text with its
role, a tool call, a tool result. Adding is a transform's trade (a system prompt, a marker), and
so is joining what one role says; what was there and is not any more is what we tell.

Elsewhere: query/checks/model/history.py finds the two sides in a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from vestige.providers.models import Message, Request, ToolCall
from vestige.query.formatting import single_line

SIMILAR = 0.5
"""Two texts with this share in common at their ends are one text, changed."""

LOST_MAX = 20
"""Texts that are looked for elsewhere, of one request: a transform that changes all of them is
known by the first."""

TELLING_MIN = 16
"""Characters of a text that does not stand inside another by chance."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that a transform did."""

    kind: str
    message: str
    confidence: float


@dataclass(frozen=True, slots=True)
class _Text:
    """A message's text: where it stands, who speaks, what is said but for blanks."""

    position: int
    role: str
    text: str


def find_changes(before: Request, after: Request) -> list[Change]:
    """What of `before` is not in `after` as it was."""
    return [*_text_changes(before, after), *_call_changes(before, after)]


def _text_changes(before: Request, after: Request) -> Iterator[Change]:
    old, new = _texts(before), _texts(after)
    places: dict[tuple[str, str], list[int]] = {}
    for atom in new:
        places.setdefault((atom.role, atom.text), []).append(atom.position)
    kept: list[int] = []
    lost: list[_Text] = []
    for atom in old:
        at = places.get((atom.role, atom.text))
        if at:
            position = at.pop(0)
            if atom.role != "system":
                kept.append(position)
        else:
            lost.append(atom)
    if kept != sorted(kept):
        at_index = next(i for i in range(1, len(kept)) if kept[i] < kept[i - 1])
        yield Change(
            "history/message-reordered",
            f"Messages leave in another order: one that came later in the prompt stands at "
            f"position {kept[at_index - 1]} of the request, before one from earlier",
            0.85,
        )
    unmatched = {position for at in places.values() for position in at}
    yield from _lost_changes(lost, [atom for atom in new if atom.position in unmatched])


def _lost_changes(lost: list[_Text], left: list[_Text]) -> Iterator[Change]:
    """Where did they go: into another's message, into a changed one, or nowhere."""
    within: dict[int, list[_Text]] = {}
    gone: list[_Text] = []
    for atom in lost[:LOST_MAX]:
        home = next((new for new in left if _holds(new.text, atom.text)), None)
        if home is None:
            gone.append(atom)
        else:
            within.setdefault(home.position, []).append(atom)
    by_position = {new.position: new for new in left}
    for position, atoms in within.items():
        foreign = [atom for atom in atoms if atom.role != by_position[position].role]
        if foreign:
            yield _merged(foreign[0], atoms, by_position[position])
    taken = set(within)
    dropped: list[_Text] = []
    for atom in gone:
        changed = next(
            (
                n
                for n in left
                if n.position not in taken and n.role == atom.role and _alike(atom.text, n.text)
            ),
            None,
        )
        if changed is None:
            dropped.append(atom)
            continue
        taken.add(changed.position)
        yield Change(
            "history/content-changed",
            f"The {atom.role} message at position {atom.position} leaves with another text: "
            f"{_first_change(atom.text, changed.text)}",
            0.8,
        )
    if dropped:
        first = dropped[0]
        others = len(dropped) - 1
        more = f" and {others} more" if others else ""
        if len(lost) > LOST_MAX:
            more = f" and {others} or more others"
        yield Change(
            "history/message-dropped",
            f"The {first.role} message at position {first.position} ({_quote(first.text)}){more} "
            "is in the prompt and not in the request",
            0.85,
        )


def _holds(whole: str, part: str) -> bool:
    """A short text is found in any long one: it counts at an end only."""
    if len(part) >= TELLING_MIN:
        return part in whole
    return whole.startswith(part) or whole.endswith(part)


def _merged(foreign: _Text, atoms: list[_Text], into: _Text) -> Change:
    roles = list(dict.fromkeys([*(atom.role for atom in atoms), into.role]))
    if len(atoms) > 1 or into.text != foreign.text:
        what = (
            f"Roles merged: the {foreign.role} message at position {foreign.position} "
            f"({_quote(foreign.text)}) leaves inside the {into.role} message at position "
            f"{into.position} ({' + '.join(roles)})"
        )
        return Change("history/roles-merged", what, 0.9)
    return Change(
        "history/roles-merged",
        f"The {foreign.role} message at position {foreign.position} ({_quote(foreign.text)}) "
        f"leaves with the role {into.role}",
        0.9,
    )


def _call_changes(before: Request, after: Request) -> Iterator[Change]:
    """Tool calls and results, by their id."""
    calls = {c.id: _json_form(c.arguments) for m in after.messages for c in m.calls if c.id}
    results = {r.call_id: _squeeze(r.text) for m in after.messages for r in m.results if r.call_id}
    changed: list[str] = []
    dropped: list[str] = []
    for message in before.messages:
        for call in message.calls:
            if call.id and call.id not in calls:
                dropped.append(f"the call {_name(call)}")
            elif call.id and calls[call.id] != _json_form(call.arguments):
                changed.append(f"the arguments of call {_name(call)}")
        for result in message.results:
            old = _squeeze(result.text)
            if result.call_id and result.call_id not in results:
                dropped.append(f"the result of call {single_line(result.call_id, 60)}")
            elif result.call_id and results[result.call_id] != old:
                told = _first_change(old, results[result.call_id])
                changed.append(f"the result of call {single_line(result.call_id, 60)}: {told}")
    for kind, cases, verb in (
        ("history/content-changed", changed, "leaves changed"),
        ("history/message-dropped", dropped, "is in the prompt and not in the request"),
    ):
        if cases:
            more = f" (and {len(cases) - 1} more)" if len(cases) > 1 else ""
            yield Change(
                kind, f"A transform changed the tools' part: {cases[0]} {verb}{more}", 0.85
            )


def _name(call: ToolCall) -> str:
    return f"{single_line(call.id or '', 60)} ({single_line(call.name, 60)})"


def _texts(request: Request) -> list[_Text]:
    texts = []
    for position, message in enumerate(request.messages):
        text = _squeeze(_own_text(message))
        if text:
            texts.append(_Text(position, _role(message.role), text))
    return texts


def _own_text(message: Message) -> str:
    """Without the results: those have ids, and are compared by them."""
    if message.results and (message.role == "tool" or message.text == message.results[0].text):
        return ""
    return message.text


def _role(role: str) -> str:
    return {"developer": "system", "model": "assistant"}.get(role, single_line(role, 20))


def _squeeze(text: str) -> str:
    return " ".join(text.split())


def _json_form(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError):
        return _squeeze(text)


def ends_in_common(one: str, other: str) -> tuple[int, int]:
    """How many characters the two share at the beginning, and then at the end."""
    shorter = min(len(one), len(other))
    head = _common(one, other, shorter)
    tail = _common(one[head:][::-1], other[head:][::-1], shorter - head)
    return head, tail


def _common(one: str, other: str, bound: int) -> int:
    """Length of the common beginning, by halving: comparing slices is quick."""
    low, high = 0, bound
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _alike(one: str, other: str) -> bool:
    if min(len(one), len(other)) < SIMILAR * max(len(one), len(other)):
        return False
    if one[:1] != other[:1] and one[-1:] != other[-1:]:
        return not one
    head, tail = ends_in_common(one, other)
    return head + tail >= SIMILAR * max(len(one), len(other), 1)


def _first_change(one: str, other: str) -> str:
    head, _ = ends_in_common(one, other)
    begin = max(0, head - 20)
    sizes = "" if len(one) == len(other) else f" ({len(one):,} -> {len(other):,} characters)"
    return f"{_quote(one[begin:])} became {_quote(other[begin:])}{sizes}"


def _quote(text: str) -> str:
    return '"' + single_line(text, 60).replace('"', "'") + '"'
