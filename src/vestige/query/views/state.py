"""`state`: the snapshots of a run, one snapshot in full, or a comparison of two.

    state_answer(evidence)                     # all, each with the changes since the previous
    state_answer(evidence, index=3)            # `r7#3`: the slices and items of one
    state_answer(evidence, index=3, than=1)    # the changes from 1 to 3

A session snapshot has typed slices. An AgentDbg `state` span is one value, read as one slice.
Elsewhere: the comparison of two snapshots in query/views/state_diff.py.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Final

import msgspec

from vestige.formats.wink.jsonl_entries import (
    SnapshotPayload,
    SnapshotSlice,
    count_items,
    parse_snapshot,
)
from vestige.limits import MIB
from vestige.query import formatting
from vestige.query.evidence import Evidence
from vestige.query.ids.resolve import STATES, get_state, states_by_index
from vestige.query.run_as_data import run_data
from vestige.query.text_layout import CommandAnswer, fit
from vestige.query.views.state_diff import SliceChange, diff_states, short_type
from vestige.record.run import Run, SpanInfo

STATES_MAX: Final = 200
"""Snapshots in one answer."""
READ_MAX: Final = 64 * MIB
"""Bytes of snapshots read for one answer."""
ITEMS_MAX: Final = 500
"""Items of one slice in the JSON answer; the span's body has all of them."""
ITEMS_BYTES_MAX: Final = MIB
"""Bytes of all items in the JSON answer."""


@dataclass(frozen=True, slots=True)
class State:
    """A snapshot with its parsed content."""

    index: int
    span: SpanInfo
    payload: SnapshotPayload
    changes: list[SliceChange] = field(default_factory=list)


@dataclass
class StateAnswer(CommandAnswer):
    """Snapshots of a run."""

    verb: ClassVar[str] = "state"
    budget: ClassVar[int] = 1_200

    run: Run
    states: Sequence[State]
    selected: State | None
    than: State | None
    """The snapshot that `selected` is compared with."""
    next: int | None
    """The index of the first snapshot on the next page."""

    def lines(self, budget: int) -> list[str]:
        info = self.run.info
        name = f"{info.short_id} {formatting.single_line(info.name, 60)}"
        if self.selected is not None:
            return self._selected_lines(name, self.selected, budget)
        total = sum(span.type in STATES for span in self.run.spans)
        head = [f"{name}: {formatting.pluralize(total, 'snapshot')}"]
        rows: list[str] = []
        for state in self.states:
            rows.append(self._summary(state))
            for change in state.changes:
                rows.append(f"      {change.summary()}")
                rows += [f"        {formatting.single_line(text, 240)}" for text in change.examples]
        end = []
        if self.next is not None:
            command = self.command("state", info.short_id, "--after", str(self.next - 1))
            end = [f"… continue: {command}"]
        elif self.states:
            last = self.states[-1].index
            end = [f"next: {self.command('state', f'{info.short_id}#{last}')}"]
        full = self.command("state", info.short_id, "--json")
        return fit(head, rows, end, budget, lambda left: f"… {left} lines hidden: {full}")

    def _summary(self, state: State) -> str:
        at_s = max(0, state.span.started_ns - self.run.info.started_ns) / 1e9
        slices = state.payload.slices
        text = (
            f"#{state.index:<4} {state.span.short_id}  +{at_s:.3f}s"
            f"  {len(slices)} slices {count_items(slices)} items"
        )
        if state.payload.errors:
            errors = formatting.single_line("; ".join(state.payload.errors), 160)
            return f"{text}  invalid: {errors}"
        return text if state.changes or not state.index else f"{text}  no change"

    def _selected_lines(self, name: str, state: State, budget: int) -> list[str]:
        short = f"{self.run.info.short_id}#{state.index}"
        rows: list[str] = []
        if self.than is not None:
            head = [f"{name}: #{self.than.index} → #{state.index}"]
            for change in state.changes:
                rows.append(change.summary())
                rows += [f"  {formatting.single_line(text, 300)}" for text in change.examples]
            rows = rows or ["no change"]
        else:
            head = [f"{name}: {self._summary(state)}"]
            for part in state.payload.slices:
                title = formatting.single_line(short_type(part.slice_type), 60)
                rows.append(f"{title}: {formatting.pluralize(len(part.items), 'item')}")
                rows += [f"  | {formatting.single_line(_json(item), 300)}" for item in part.items]
        side = "--in" if _body_side(state.span) == "input" else "--out"
        body = self.command("body", state.span.short_id, side)
        diff = f" | {self.command('diff', short, '--prev')}" if state.index else ""
        end = [f"next: {body}{diff}"]
        return fit(head, rows, end, budget, lambda left: f"… {left} lines hidden: {body}")

    def data(self) -> dict[str, Any]:
        selected, than = self.selected, self.than
        diff = None
        if selected is not None and than is not None:
            diff = {
                "from": than.index,
                "to": selected.index,
                "changes": [change.data() for change in selected.changes],
            }
        return {
            "version": self.version,
            "run": run_data(self.run.info),
            "snapshots": [self._state_data(state) for state in self.states],
            "snapshot": None if selected is None else self._data_with_items(selected),
            "diff": diff,
            "next": None if self.next is None else self.states[-1].index,
        }

    @cached_property
    def _common_tags(self) -> frozenset[str]:
        """The tags that all snapshots of the run have with the same value."""
        spans = [span for span in self.run.spans if span.type in STATES]
        if len(spans) < 2:
            return frozenset()
        first, *others = (span.attributes for span in spans)
        return frozenset(
            key
            for key, value in first.items()
            if key.startswith("tag.") and all(each.get(key) == value for each in others)
        )

    def _state_data(self, state: State) -> dict[str, Any]:
        span, payload = state.span, state.payload
        body = span.input if _body_side(span) == "input" else span.output
        return {
            "index": state.index,
            "span": span.short_id,
            "type": span.type,
            "at_us": (span.started_ns - self.run.info.started_ns) // 1000,
            "created_at": payload.created_at or formatting.timestamp(span.started_ns),
            "session_id": payload.session_id,
            "reason": _reason(span, self._common_tags),
            "status": span.status or "open",
            "errors": list(payload.errors),
            "size_bytes": None if body is None else body.size_bytes,
            "slices": [
                {
                    "slice_type": part.slice_type,
                    "item_type": part.item_type,
                    "item_count": len(part.items),
                }
                for part in payload.slices
            ],
            "changes": [change.data() for change in state.changes],
        }

    def _data_with_items(self, state: State) -> dict[str, Any]:
        data = self._state_data(state)
        room = ITEMS_BYTES_MAX
        for slice_data, part in zip(data["slices"], state.payload.slices, strict=True):
            items: list[Any] = []
            for item in part.items[:ITEMS_MAX]:
                room -= len(_json(item))
                if room < 0:
                    break
                items.append(item)
            slice_data["items"] = items
            slice_data["cut"] = len(items) < len(part.items)
        data["body"] = {"span": state.span.short_id, "which": _body_side(state.span)}
        return data


def _reason(span: SpanInfo, common: Collection[str]) -> str | None:
    """Return why a snapshot was taken: its reason or trigger, else the tags that not all have."""
    facts = span.attributes
    for key in ("reason", "tag.reason", "trigger", "tag.trigger", "tag.phase"):
        if facts.get(key):
            return str(facts[key])
    tagged = {key for key in facts if key.startswith("tag.")} - set(common)
    tags = [f"{key[4:]}={value}" for key, value in facts.items() if key in tagged]
    return ", ".join(sorted(tags)) or None


def state_answer(
    evidence: Evidence,
    index: int | None = None,
    than: int | None = None,
    after: int | None = None,
) -> StateAnswer:
    run = evidence.run
    numbered = states_by_index(run)
    if index is not None:
        state = _load_state(evidence, index, get_state(run, index))
        base = None if than is None else _load_state(evidence, than, get_state(run, than))
        previous = base or _find_previous(evidence, numbered, state)
        changes = diff_states(previous.payload if previous else None, state.payload)
        return StateAnswer(run, [], State(index, state.span, state.payload, changes), base, None)
    return _load_page(evidence, run, numbered, -1 if after is None else after)


def _load_page(
    evidence: Evidence, run: Run, numbered: dict[int, SpanInfo], after: int
) -> StateAnswer:
    found: list[State] = []
    latest: dict[str | None, SnapshotPayload] = {}
    room = READ_MAX
    for index, span in numbered.items():
        if index < after:
            continue  # an earlier page: only the previous snapshot of each session is needed
        body = span.input if _body_side(span) == "input" else span.output
        room -= 0 if body is None else body.size_bytes
        if index > after and found and (room < 0 or len(found) == STATES_MAX):
            return StateAnswer(run, found, None, None, index)
        state = _load_state(evidence, index, span)
        session = state.payload.session_id
        if index > after:
            if session not in latest and after >= 0 and state.payload.valid:
                earlier = _find_previous(evidence, numbered, state)  # maybe on an earlier page
                if earlier is not None:
                    latest[session] = earlier.payload
            changes = diff_states(latest.get(session), state.payload)
            found.append(State(index, span, state.payload, changes))
        if state.payload.valid:
            latest[session] = state.payload
    return StateAnswer(run, found, None, None, None)


def _find_previous(evidence: Evidence, numbered: dict[int, SpanInfo], state: State) -> State | None:
    """Return the latest valid snapshot of the same session among the 50 before it."""
    for index in [each for each in numbered if each < state.index][::-1][:50]:
        earlier = _load_state(evidence, index, numbered[index])
        if earlier.payload.valid and earlier.payload.session_id == state.payload.session_id:
            return earlier
    return None


def _load_state(evidence: Evidence, index: int, span: SpanInfo) -> State:
    text = evidence.input(span) if _body_side(span) == "input" else evidence.output(span)
    if span.type == "snapshot":
        return State(index, span, parse_snapshot(text or "", index))
    try:
        value: Any = msgspec.json.decode(text or "null")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = text
    items = () if text is None else (value,)
    return State(index, span, SnapshotPayload("", "", (SnapshotSlice("state", "", items),)))


def _body_side(span: SpanInfo) -> str:
    """Return where the state is: a snapshot is the output, AgentDbg's state the input."""
    return "input" if span.type == "state" and span.input is not None else "output"


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (RecursionError, TypeError, ValueError):
        return "…"
