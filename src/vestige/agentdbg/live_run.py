"""A running run: writes each of its records as events and enforces its guardrails.

    live = LiveRun(run_id, settings, limits, recorder)      # before the run's first record
    LIVE[run_id]                                            # until it ends

Records come from all recorders of the process (emit/run_sinks.py), in the thread that made
them. The end of the root span becomes RUN_END, the last event. Then run.json is written a second
time and the run is removed from LIVE.

The mapping is that of the exporter (formats/agentdbg/from_records.py), so the files are equal to
those of a later `vestige export --format agentdbg`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from vestige._runtime.clock import monotonic
from vestige.agentdbg.guardrails import Guardrails
from vestige.agentdbg.run_directory import RunDirectory
from vestige.agentdbg.settings import Settings
from vestige.emit import run_sinks
from vestige.errors import AgentDbgGuardrailExceeded
from vestige.formats.agentdbg import constants
from vestige.formats.agentdbg.event_values import Shaper
from vestige.formats.agentdbg.file_structs import (
    EVENTS_FILE,
    Event,
    no_counts,
    render_event,
    render_run,
)
from vestige.formats.agentdbg.from_records import Mapper
from vestige.limits import LINE_MAX
from vestige.record.coercion import text_of_bytes
from vestige.record.loop_detector import Loop, LoopDetector
from vestige.record.redaction.masking import KeyRule, secret_word
from vestige.record.redaction.redactor import Redactor
from vestige.record.types import (
    OWN_COMPONENT,
    VERSION,
    Attributes,
    KnownRecord,
    Log,
    SpanClose,
    SpanOpen,
)

if TYPE_CHECKING:
    from vestige.emit.span import Span
    from vestige.recorder import Recorder

EVIDENCE_MAX = 200
"""Ids that a warning names: the first rounds say it all."""

_STEPS = frozenset(("LLM_CALL", "TOOL_CALL", "STATE_UPDATE"))
_ENDS = frozenset(("RUN_START", "RUN_END"))
R = TypeVar("R", SpanOpen, SpanClose, KnownRecord)
_sorted = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode


class LiveRun:
    """The sink of one run. Any thread may emit into it."""

    def __init__(
        self, run_id: str, settings: Settings, limits: Guardrails, recorder: Recorder
    ) -> None:
        self.run_id = run_id
        self.root: Span | None = None
        self.broken: AgentDbgGuardrailExceeded | None = None
        """The first exceeded limit. It fails the run, even if the exception was swallowed."""
        self._recorder = recorder
        self._limits: tuple[Guardrails, ...] = (limits,) if limits.any else ()
        self._key_rules = settings.redact
        self._mapper = Mapper(run_id, shaper=_shaper(settings))
        self._loops = LoopDetector(
            settings.loop_window,
            settings.loop_repetitions,
            limits.stop_on_loop_min_repetitions if limits.stop_on_loop else 0,
        )
        self._directory = RunDirectory(settings.data_dir, run_id)
        # Reentrant: a loop's warning is a record too, and last words may come at any point.
        self._lock = threading.RLock()
        self._begun_s = monotonic()
        LIVE[run_id] = run_sinks.SINKS[run_id] = self

    # --- limits of a part ------------------------------------------------------------------------

    def add_limits(self, limits: Guardrails) -> None:
        """Add the limits of a traced part of the run, which hold until it ends."""
        with self._lock:
            self._limits = (*self._limits, limits)

    def drop_limits(self, limits: Guardrails) -> None:
        with self._lock:
            remaining = list(self._limits)
            if limits in remaining:
                remaining.remove(limits)
            self._limits = tuple(remaining)

    # --- records come in -------------------------------------------------------------------------

    def take(
        self,
        record: KnownRecord,
        unredacted: KnownRecord,
        source: run_sinks.RecordSource,
    ) -> None:
        """Write a record as events; see `RunSink`.

        Raise a guardrail if a limit is exceeded, and nothing else.
        """
        if unredacted is not record and not self._key_rules:
            record = self._redactor().without_key_rules().record(unredacted)
        record = _with_body(record, source)
        with self._lock:
            if self._is_end(record) and self._directory.others_wrote():
                self._mapper.counts = _counts_on_disk(self._directory.path, self._mapper.counts)
            events = self._mapper.take(record)
            loop = self._keep(events)
        if events:
            self._after(events[-1], loop)

    def take_both(
        self, opened: SpanOpen, closed: SpanClose, source: run_sinks.RecordSource
    ) -> None:
        """See `RunSink`."""
        if opened.body_info is not None:
            opened = _with_body(opened, source)
        if closed.body_info is not None:
            closed = _with_body(closed, source)
        with self._lock:
            events = self._mapper.take_both(opened, closed)
            loop = self._keep(events)
        if events and (loop is not None or self._limits):
            self._after(events[-1], loop)

    def _keep(self, events: Sequence[Event]) -> Loop | None:
        """On disk, and in mind: the loop that the last of them completes a round of."""
        loop = None
        for event in events:
            self._directory.append(render_event(event))
            event_type = event.event_type
            if event_type in _STEPS:
                loop = self._loop_of(event)
            elif event_type in _ENDS:
                self._directory.write_run(render_run(self._mapper.run_file()))
        return loop

    def _redactor(self) -> Redactor:
        return self._recorder._writer.redactor

    def _is_end(self, record: KnownRecord) -> bool:
        root = self.root
        return isinstance(record, SpanClose) and root is not None and record.span_id == root.id

    def _after(self, event: Event, loop: Loop | None) -> None:
        """Update counts and check guardrails after an event is written."""
        if event.event_type == "RUN_END":
            self.forget()
        elif event.event_type in _STEPS:
            if loop is not None and self._loops.is_new(loop):
                self._warn(loop)
            if self._limits:
                self._check(loop)

    def forget(self) -> None:
        """End the run. Later records are only in the journal."""
        LIVE.pop(self.run_id, None)
        run_sinks.SINKS.pop(self.run_id, None)
        with self._lock:  # another thread may be about to write: not to a number that was let go
            self._directory.close()

    # --- limits ----------------------------------------------------------------------------------

    def _check(self, loop: Loop | None) -> None:
        elapsed_s = monotonic() - self._begun_s
        for limits in self._limits:
            broken = limits.broken(self._mapper.counts, self._mapper.events, elapsed_s)
            if broken is None and loop is not None:
                broken = limits.broken_by_loop(loop.repetitions)
            if broken is not None:
                self.broken = self.broken or broken
                raise broken

    # --- loops -----------------------------------------------------------------------------------

    def _loop_of(self, event: Event) -> Loop | None:
        event_type, payload, add = event.event_type, event.payload, self._loops.add
        if event_type == "TOOL_CALL":
            return add(f"TOOL_CALL:{event.name}", event.event_id, _normal(payload["args"]))
        if event_type == "LLM_CALL":
            return add(f"LLM_CALL:{event.name}", event.event_id, None, payload["prompt"])
        return add("STATE_UPDATE", event.event_id, None, (payload["state"], payload["diff"]))

    def _warn(self, loop: Loop) -> None:
        root = self.root
        if root is None:
            return
        emitter = self._recorder._emitter
        attributes: Attributes = {
            constants.LOOP_PATTERN: loop.pattern,
            constants.LOOP_REPETITIONS: loop.repetitions,
            constants.LOOP_WINDOW: len(loop.evidence),
            constants.LOOP_EVIDENCE: _sorted(loop.evidence[:EVIDENCE_MAX]).decode(),
        }
        emitter.send(
            Log(
                VERSION,
                emitter.writer,
                next(emitter.seq),
                emitter.now_ns(),
                self.run_id,
                OWN_COMPONENT,
                "warn",
                f"loop: {loop.pattern}, {loop.repetitions} times in a row",
                root.id,
                attributes,
            )
        )

    def forked(self) -> None:
        """Replace the lock in a forked child: its owner may be a thread of the parent."""
        self._lock = threading.RLock()


LIVE: dict[str, LiveRun] = {}
"""The runs of this process that are open, by their ids."""


def _shaper(settings: Settings) -> Shaper:
    extra = extra_keys(settings)
    if not settings.redact or not extra:
        return Shaper(settings.max_field_bytes)
    find = KeyRule(extra).find
    return Shaper(settings.max_field_bytes, lambda key: find(key) is not None)


def extra_keys(settings: Settings) -> tuple[str, ...]:
    """Keys that were asked for and are not known anyway: the rules that know `token` also know
    that `prompt_tokens` holds none."""
    return tuple(key for key in settings.redact_keys if secret_word(key) is None)


def _with_body(record: R, source: run_sinks.RecordSource) -> R:
    """Include a long body up to the limit of a line: its file may soon be deleted."""
    info = getattr(record, "body_info", None)
    if info is None or info.spilled_bytes is None:
        return record
    assert not isinstance(record, SpanOpen) or record.body is None
    try:
        path = source.home.spilled_body(record.writer, record.seq)
        with open(path, "rb") as file:
            text = text_of_bytes(file.read(LINE_MAX))
    except (OSError, ValueError) as error:
        text = f"<body lost: {type(error).__name__}>"
    return msgspec.structs.replace(record, body=text, body_info=None)


def _counts_on_disk(path: str, known: Any) -> Any:
    """Count the events of all processes that wrote to this run."""
    counts = no_counts()
    try:
        with open(os.path.join(path, EVENTS_FILE), "rb") as file:
            for line in file:
                try:
                    counts.add(_type_of(line).event_type)
                except msgspec.MsgspecError:
                    continue
    except OSError:
        return known
    return counts


class _Typed(msgspec.Struct, gc=False):
    event_type: str


_type_of = msgspec.json.Decoder(_Typed).decode


def _normal(value: Any) -> str | bytes:
    """Normalize arguments for comparison: the order of keys does not matter."""
    try:
        if isinstance(value, msgspec.Raw):
            value = _decode(value)
        return _sorted(value)
    except Exception:  # noqa: BLE001  # values that cannot be sorted are compared unsorted
        return str(value)


def _after_fork() -> None:
    for live in LIVE.values():
        live.forked()


os.register_at_fork(after_in_child=_after_fork)
