"""`state`: what a session or an agent held, snapshot by snapshot; one in full; two against each other.

    state_answer(evidence)                     # all, each with what changed since the one before
    state_answer(evidence, index=3)            # `r7#3`: one, its slices and items
    state_answer(evidence, index=3, than=1)    # how 3 differs from 1

Snapshots of sessions have typed slices; a `state` span (AgentDbg's) is one value, told as one slice.
Elsewhere: what changed between two, in query/views/state_diff.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Final

import msgspec

from vestige.formats.wink.jsonl_entries import SnapshotPayload, SnapshotSlice, parse_snapshot
from vestige.limits import MIB
from vestige.query import formatting
from vestige.query.evidence import Evidence
from vestige.query.ids.resolve import STATES, get_state, states_by_index
from vestige.query.text_layout import CommandAnswer, fit
from vestige.query.views.show import run_data
from vestige.query.views.state_diff import SliceChange, diff_states, short_type
from vestige.record.run import Run, SpanInfo

STATES_MAX: Final = 200
"""Of one answer; a number goes on."""
READ_MAX: Final = 64 * MIB
"""Of their bodies, for one answer."""
ITEMS_MAX: Final = 500
"""Of one slice, and so many bytes of all of them; the whole is the span's body."""
ITEMS_BYTES_MAX: Final = MIB


@dataclass(frozen=True, slots=True)
class State:
    """One snapshot, read."""

    index: int
    span: SpanInfo
    payload: SnapshotPayload
    changes: list[SliceChange] = field(default_factory=list)


@dataclass
class StateAnswer(CommandAnswer):
    """Snapshots of one run."""

    verb: ClassVar[str] = "state"
    budget: ClassVar[int] = 1_200

    run: Run
    states: Sequence[State]
    one: State | None
    than: State | None
    """What `one` is compared with."""
    next: int | None
    """The index to go on with; as data, the one after which to go on: what `after` takes."""

    def lines(self, budget: int) -> list[str]:
        info = self.run.info
        name = f"{info.short_id} {formatting.single_line(info.name, 60)}"
        if self.one is not None:
            return self._lines_of_one(name, self.one, budget)
        total = sum(span.type in STATES for span in self.run.spans)
        head = [f"{name}: {formatting.pluralize(total, 'snapshot')}"]
        rows: list[str] = []
        for state in self.states:
            rows.append(self._say(state))
            for change in state.changes:
                rows.append(f"      {change.summary()}")
                rows += [f"        {formatting.single_line(told, 240)}" for told in change.told]
        end = []
        if self.next is not None:
            end = [f"… on: {self.command('state', info.short_id, '--after', str(self.next - 1))}"]
        elif self.states:
            last = self.states[-1].index
            end = [f"next: {self.command('state', f'{info.short_id}#{last}')}"]
        whole = self.command("state", info.short_id, "--json")
        return fit(head, rows, end, budget, lambda left: f"… {left} lines left out: {whole}")

    def _say(self, state: State) -> str:
        at_s = max(0, state.span.started_ns - self.run.info.started_ns) / 1e9
        items = sum(len(one.items) for one in state.payload.slices)
        text = f"#{state.index:<4} {state.span.short_id}  +{at_s:.3f}s  {len(state.payload.slices)} slices {items} items"
        if state.payload.errors:
            return (
                f"{text}  invalid: {formatting.single_line('; '.join(state.payload.errors), 160)}"
            )
        return text if state.changes or not state.index else f"{text}  no change"

    def _lines_of_one(self, name: str, state: State, budget: int) -> list[str]:
        short = f"{self.run.info.short_id}#{state.index}"
        rows: list[str] = []
        if self.than is not None:
            head = [f"{name}: #{self.than.index} → #{state.index}"]
            for change in state.changes:
                rows.append(change.summary())
                rows += [f"  {formatting.single_line(told, 300)}" for told in change.told]
            rows = rows or ["no change"]
        else:
            head = [f"{name}: {self._say(state)}"]
            for one in state.payload.slices:
                rows.append(
                    f"{formatting.single_line(short_type(one.slice_type), 60)}: {formatting.pluralize(len(one.items), 'item')}"
                )
                rows += [f"  | {formatting.single_line(_json(item), 300)}" for item in one.items]
        whole = self.command(
            "body", state.span.short_id, "--in" if _side(state.span) == "input" else "--out"
        )
        end = (
            [f"next: {whole} | {self.command('diff', short, '--prev')}"]
            if state.index
            else [f"next: {whole}"]
        )
        return fit(head, rows, end, budget, lambda left: f"… {left} lines left out: {whole}")

    def data(self) -> dict[str, Any]:
        one, than = self.one, self.than
        return {
            "version": self.version,
            "run": run_data(self.run.info),
            "snapshots": [self._data_of(state) for state in self.states],
            "snapshot": None if one is None else self._whole(one),
            "diff": None
            if one is None or than is None
            else {
                "from": than.index,
                "to": one.index,
                "changes": [_change_data(change) for change in one.changes],
            },
            "next": None if self.next is None else self.states[-1].index,
        }

    def _data_of(self, state: State) -> dict[str, Any]:
        span, payload = state.span, state.payload
        body = span.input if _side(span) == "input" else span.output
        return {
            "index": state.index,
            "span": span.short_id,
            "type": span.type,
            "at_us": (span.started_ns - self.run.info.started_ns) // 1000,
            "created_at": payload.created_at or formatting.timestamp(span.started_ns),
            "session_id": payload.session_id,
            "status": span.status or "open",
            "errors": list(payload.errors),
            "size_bytes": None if body is None else body.size_bytes,
            "slices": [
                {
                    "slice_type": one.slice_type,
                    "item_type": one.item_type,
                    "item_count": len(one.items),
                }
                for one in payload.slices
            ],
            "changes": [_change_data(change) for change in state.changes],
        }

    def _whole(self, state: State) -> dict[str, Any]:
        told = self._data_of(state)
        room = ITEMS_BYTES_MAX
        for slice_data, one in zip(told["slices"], state.payload.slices, strict=True):
            items: list[Any] = []
            for item in one.items[:ITEMS_MAX]:
                room -= len(_json(item))
                if room < 0:
                    break
                items.append(item)
            slice_data["items"] = items
            slice_data["cut"] = len(items) < len(one.items)
        told["body"] = {"span": state.span.short_id, "which": _side(state.span)}
        return told


def state_answer(
    evidence: Evidence,
    index: int | None = None,
    than: int | None = None,
    after: int | None = None,
) -> StateAnswer:
    run = evidence.run
    numbered = states_by_index(run)
    if index is not None:
        one = _state(evidence, index, get_state(run, index))
        other = None if than is None else _state(evidence, than, get_state(run, than))
        before = other or _before(evidence, numbered, one)
        changes = diff_states(before.payload if before else None, one.payload)
        one = State(one.index, one.span, one.payload, changes)
        return StateAnswer(run, [], one, other, None)
    return _all(evidence, run, numbered, -1 if after is None else after)


def _all(evidence: Evidence, run: Run, numbered: dict[int, SpanInfo], after: int) -> StateAnswer:
    found: list[State] = []
    latest: dict[str | None, SnapshotPayload] = {}
    room = READ_MAX
    for index, span in numbered.items():
        if index < after:
            continue  # of the page before, only the last of each session is needed
        body = span.input if _side(span) == "input" else span.output
        room -= 0 if body is None else body.size_bytes
        if index > after and found and (room < 0 or len(found) == STATES_MAX):
            return StateAnswer(run, found, None, None, index)
        state = _state(evidence, index, span)
        session = state.payload.session_id
        if index > after:
            if session not in latest and after >= 0 and state.payload.valid:
                earlier = _before(evidence, numbered, state)  # it may stand on the page before
                if earlier is not None:
                    latest[session] = earlier.payload
            changes = diff_states(latest.get(session), state.payload)
            found.append(State(index, span, state.payload, changes))
        if state.payload.valid:
            latest[session] = state.payload
    return StateAnswer(run, found, None, None, None)


def _before(evidence: Evidence, numbered: dict[int, SpanInfo], one: State) -> State | None:
    """The valid one before it, of the same session."""
    for index in [each for each in numbered if each < one.index][::-1][:50]:
        state = _state(evidence, index, numbered[index])
        if state.payload.valid and state.payload.session_id == one.payload.session_id:
            return state
    return None


def _state(evidence: Evidence, index: int, span: SpanInfo) -> State:
    text = evidence.input(span) if _side(span) == "input" else evidence.output(span)
    if span.type == "snapshot":
        return State(index, span, parse_snapshot(text or "", index))
    try:
        value: Any = msgspec.json.decode(text or "null")
    except (msgspec.DecodeError, RecursionError):
        value = text  # a text, not JSON
    items = () if text is None else (value,)
    return State(index, span, SnapshotPayload("", "", (SnapshotSlice("state", "", items),)))


def _side(span: SpanInfo) -> str:
    """A snapshot is what came out; AgentDbg's state went in."""
    return "input" if span.type == "state" and span.input is not None else "output"


def _change_data(change: SliceChange) -> dict[str, Any]:
    return {**asdict(change), "told": list(change.told)}


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (RecursionError, TypeError, ValueError):
        return "…"
