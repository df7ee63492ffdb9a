"""The origin of a run that `vestige replay` made, its forks, and other runs of its program.

find_lineage(store, run)         the replayed run, and where a fork began
find_family(store, run)          the same, with the forks of the run and the command that forks it
find_same_program(store, info)   the runs that its program opened, and its command if that failed
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from vestige.errors import VestigeError
from vestige.query import formatting
from vestige.query.answer import Answer
from vestige.query.ids.resolve import resolve
from vestige.query.token_budget import count_fitting, count_tokens
from vestige.record.redaction.output_redaction import redact_text
from vestige.record.run import NOT_FAILED, Run, RunInfo, SpanInfo
from vestige.store.protocol import RunFilter, Store, Term

if TYPE_CHECKING:
    from vestige.query.text_layout import CommandAnswer

RUN, SPAN, SET = "replay.run", "replay.span", "replay.set"
"""Attributes of a run: its origin, the call at which it was forked, and the changes."""
FORKS_MAX: Final = 20
"""Newest replays and forks of a run that are returned."""
SAME_PROGRAM_MAX: Final = 6
CHANGE_SHOWN: Final = 80
_ON_THE_WIRE: Final = frozenset(("method", "url", "attempt"))
"""Attributes of a call that was recorded with its HTTP request, so that it can be replayed."""


@dataclass(frozen=True)
class Lineage:
    """The origin of a run."""

    run_id: str
    run: str | None
    """Short id of the origin. None: it is not in this store."""
    span_id: str | None = None
    """The call of the origin at which the run was forked. None: the run is a plain replay."""
    span: str | None = None

    def line(self, answer: CommandAnswer, short_id: str) -> str:
        """Render the origin, and the command that compares the two runs."""
        run = self.run or f"{self.run_id} (not in this store)"
        text = f"replay of {run}"
        if self.span_id is not None:
            text = f"forked from {run} at {self.span or self.span_id}"
        return text if self.run is None else f"{text}: {answer.command('diff', self.run, short_id)}"

    def mark(self) -> str:
        """Return the words for a list: `fork of r1`."""
        noun = "replay" if self.span_id is None else "fork"
        return f"{noun} of {formatting.single_line(self.run or self.run_id, 40)}"

    def data(self) -> dict[str, Any]:
        return {
            "run": self.run or self.run_id,
            "run_id": self.run_id,
            "forked_at": self.span or self.span_id,
            "forked_at_id": self.span_id,
        }


def find_lineage(store: Store, run: Run) -> Lineage | None:
    """Return the origin of a run. None: it was not replayed or forked."""
    root = _find_root(run)
    run_id = None if root is None else root.attributes.get(RUN)
    if root is None or not isinstance(run_id, str):
        return None
    span_id = root.attributes.get(SPAN)
    span_id = span_id if isinstance(span_id, str) else None
    origin = _find_origin(store, run_id)
    if origin is None:
        return Lineage(run_id, None, span_id)
    span = None if span_id is None else _find_short_id(store, span_id)
    return Lineage(run_id, origin.short_id, span_id, span)


def _find_origin(store: Store, run_id: str) -> RunInfo | None:
    """Return the run with this id, and not one that only has it in an attribute: the fork."""
    try:
        run = resolve(store, run_id, "run").run
    except VestigeError:
        return None
    return run if run.id == run_id else None


_FIRST_SPANS: Final = 20


def find_origins(store: Store, run_ids: Sequence[str]) -> dict[str, Lineage]:
    """Return the origins of runs in a list, from the root span of each. Calls are not resolved.

    The root is among the first spans, but child processes may have been read before it."""
    found: dict[str, Lineage] = {}
    short_ids: dict[str, str | None] = {}
    for facts in store.read_span_facts(run_ids, _FIRST_SPANS):
        origin, span_id = facts.attributes.get(RUN), facts.attributes.get(SPAN)
        if not isinstance(origin, str):
            continue
        if origin not in short_ids:
            run = _find_origin(store, origin)
            short_ids[origin] = None if run is None else run.short_id
        span_id = span_id if isinstance(span_id, str) else None
        found[facts.run_id] = Lineage(origin, short_ids[origin], span_id)
    return found


def is_replay(run: Run) -> bool:
    """Return whether a run is a replay or a fork of another."""
    return any(span.parent_id is None and RUN in span.attributes for span in run.spans)


def _find_short_id(store: Store, span_id: str) -> str | None:
    """Return the short id of a span, which may be in a run that the origin started."""
    try:
        run_id = resolve(store, span_id, "span").run.id
    except VestigeError:
        return None
    spans = store.load_run(run_id).spans
    return next((span.short_id for span in spans if span.id == span_id), None)


@dataclass(frozen=True)
class Fork:
    """A run that was replayed or forked from another one."""

    run: RunInfo
    forked_at: str | None
    """The call of the origin. None: the run is a plain replay."""
    changes: Sequence[str]

    def data(self) -> dict[str, Any]:
        return {
            "run": self.run.short_id,
            "name": self.run.name,
            "outcome": self.run.outcome,
            "started_at": formatting.timestamp(self.run.started_ns),
            "forked_at": self.forked_at,
            "changes": list(self.changes),
        }


@dataclass
class Family(Answer):
    """The origin and the forks of a run."""

    verb: ClassVar[str] = "lineage"
    budget: ClassVar[int] = 600

    run: RunInfo
    origin: Lineage | None
    live_from: str | None
    """The first call of a fork that was sent. The calls before it are those of the origin."""
    changes: Sequence[str]
    """The changes of the fork."""
    forks: Sequence[Fork]
    command: str | None
    """The command of the program. None: it is not known, or the run cannot be replayed."""
    can_fork: bool

    def lines(self, budget: int) -> list[str]:
        origin = "not a replay"
        if self.origin is not None:
            origin = f"origin {self.origin.run or self.origin.run_id}"
        rows = [f"{self.run.short_id}: {origin}, {formatting.pluralize(len(self.forks), 'fork')}"]
        rows += [f"{fork.run.short_id} forked at {fork.forked_at or '-'}" for fork in self.forks]
        return rows[: count_fitting([count_tokens(row) + 1 for row in rows], budget)]

    def data(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "run": self.run.short_id,
            "origin": None if self.origin is None else self.origin.data(),
            "live_from": self.live_from,
            "changes": list(self.changes),
            "forks": [fork.data() for fork in self.forks],
            "command": self.command,
            "can_fork": self.can_fork,
        }


def find_same_program(store: Store, info: RunInfo) -> list[RunInfo]:
    """Return the newest runs that the program of a run opened, and its command if that failed."""
    of_process = RunFilter(of_process=info.id, tenant_of=info.id, limit=SAME_PROGRAM_MAX)
    opened = [run for run in store.list_runs(of_process) if run.id != info.id]
    if info.process_run is None:
        return opened
    command = [run for run in store.find_runs(info.process_run) if run.id == info.process_run]
    return [run for run in command if run.outcome not in NOT_FAILED] + opened


def find_family(store: Store, run: Run) -> Family:
    """Return the origin and the newest forks of a run."""
    root = _find_root(run)
    attributes = {} if root is None else root.attributes
    calls = _find_calls(run)
    origin = find_lineage(store, run)
    return Family(
        run.info,
        origin,
        _find_first_sent(store, origin, calls),
        _read_changes(attributes.get(SET)),
        _find_forks(store, run.info),
        _find_command(store, run),
        bool(calls),
    )


def _find_root(run: Run) -> SpanInfo | None:
    return next((span for span in run.spans if span.parent_id is None), None)


def _find_command(store: Store, run: Run) -> str | None:
    """Return the command that made a run: that of `vestige run`, else that of its process."""
    spans = list(run.spans)
    if run.info.process_run is not None and run.info.process_run != run.info.id:
        spans += store.load_run(run.info.process_run).spans
    for span in spans:
        if span.type == "run" and (command := _read_words(span.attributes.get("command"))):
            return shlex.join(command)
    for span in spans:
        words = _read_words(span.attributes.get("argv")) if span.type == "process" else []
        if words and not words[0].startswith("-"):  # the code of `python -c` is not in it
            program = Path(words[0])
            return shlex.join(["python", *words]) if program.suffix == ".py" else shlex.join(words)
    return None


def _find_calls(run: Run) -> list[SpanInfo]:
    calls = [span for span in run.spans if span.attributes.keys() >= _ON_THE_WIRE]
    return sorted(calls, key=lambda span: span.started_ns)


def _find_first_sent(store: Store, origin: Lineage | None, calls: Sequence[SpanInfo]) -> str | None:
    """Return the call of a fork at the place of the origin's call at which it was forked."""
    if origin is None or origin.run is None or origin.span_id is None:
        return None
    before = _find_calls(store.load_run(origin.run_id))
    place = next((at for at, call in enumerate(before) if call.id == origin.span_id), None)
    return None if place is None or place >= len(calls) else calls[place].short_id


def _find_forks(store: Store, origin: RunInfo) -> list[Fork]:
    newer = RunFilter(
        since_ns=origin.started_ns,
        terms=(Term("text", ":", origin.id),),
        with_implicit=True,
        limit=FORKS_MAX,
        tenant_of=origin.id,
    )
    forks = []
    for info in store.list_runs(newer):
        run = store.load_run(info.id)
        root = _find_root(run)
        if root is None or root.attributes.get(RUN) != origin.id:
            continue
        span_id = root.attributes.get(SPAN)
        at = None if not isinstance(span_id, str) else _find_short_id(store, span_id) or span_id
        forks.append(Fork(info, at, _read_changes(root.attributes.get(SET))))
    return forks


def _read_changes(recorded: object) -> list[str]:
    """Return the changes of the latest fork, as they are written for `--set`."""
    try:
        levels = msgspec.json.decode(str(recorded), type=list[list[dict[str, Any]]])
    except (msgspec.DecodeError, ValueError):
        return []
    return [_render_change(change) for change in levels[-1]] if levels else []


def _render_change(change: dict[str, Any]) -> str:
    steps = change.get("path")
    path = "".join(
        f"[{step}]" if isinstance(step, int) else f".{step}"
        for step in (steps if isinstance(steps, list) else ())
    ).removeprefix(".")
    value = change.get("value")
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return formatting.single_line(redact_text(f"{path}={text}"), CHANGE_SHOWN)


def _read_words(recorded: object) -> list[str]:
    try:
        return msgspec.json.decode(str(recorded), type=list[str])
    except (msgspec.DecodeError, ValueError):
        return []
