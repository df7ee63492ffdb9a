"""Records of a process about itself: losses and misuse, its stacks, and how it dies.

They have the component `vestige`, and belong to the process's span unless a better one is known.
They are written by the journal's thread (`check`, about once a second), at the end, or when an
exception is about to end the process; never on the hot path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from vestige._runtime.clock import Clock
from vestige.emit import context
from vestige.emit.emitter import Emitter
from vestige.emit.logger import Logger
from vestige.emit.span import Span
from vestige.limits import OPEN_SPANS_NAMED_MAX, SNAPSHOT_RUNS_MAX
from vestige.record.types import OWN_COMPONENT, VERSION, Attributes, Log, Status

if TYPE_CHECKING:
    from pathlib import Path

    from vestige.emit.process.stall_watch import StackRequest, StallWatch


class JournalStats(Protocol):
    """The counters of a journal."""

    written_bytes: int

    @property
    def dropped(self) -> int: ...

    def take_losses(self) -> Counter[Any]:
        """Return the losses since the last call: (reason, run id or "") and their count."""
        ...


class SelfReporter:
    """Records about one process. `emitters` are those of its open recorders."""

    def __init__(
        self,
        clock: Clock,
        journal: JournalStats,
        emitters: list[Emitter],
        process_span: Callable[[], Span | None],
    ) -> None:
        self._clock = clock
        self._journal = journal
        self._emitters = emitters
        self._process_span = process_span
        self._watch: StallWatch | None = None
        self._silence_s = 0.0
        self._reported_faults = 0
        self._died = False
        self.files_reopened = 0
        """The number of files that were opened again because the program had closed them."""
        self.death: BaseException | None = None
        """The uncaught exception that ends this process."""

    def _logger(self, span: Span | None = None) -> Logger:
        return Logger(self._emitters[0], OWN_COMPONENT, span or self._process_span())

    # --- losses and misuse -----------------------------------------------------------------------

    def report(self) -> None:
        """Record losses and misuse since the last report, before this process dies."""
        if not self._emitters:
            return
        for (reason, run_id), count in self._journal.take_losses().items():
            self._report_gap(run_id, f"{reason} ({count})", {"gap": reason, "count": count})
        log = self._logger()
        if self.files_reopened:
            # A collector that passed meanwhile took this process for dead. This record corrects it.
            count, self.files_reopened = self.files_reopened, 0
            message = "the program closed the recorder's files; recording continues in new ones"
            log._record("info", message, {"files_reopened": count})
        faults: dict[str, int] = {}
        for emitter in list(self._emitters):
            # `dict()` copies atomically while other threads count. `list(items())` allocates
            # tuples, which may run the garbage collector and switch threads.
            for reason, count in dict(emitter.faults).items():
                faults[reason] = faults.get(reason, 0) + count
        total = sum(faults.values())
        if total > self._reported_faults:
            self._reported_faults = total
            log._record("warn", "misuse or failure was counted", faults)

    def _report_gap(self, run_id: str, message: str, attributes: Attributes) -> None:
        """Record a loss on the run that lost records, whatever log level the program has set."""
        emitter = self._emitters[0]
        is_known = run_id not in ("", emitter.process_run_id)
        emitter.send(
            Log(
                VERSION,
                emitter.writer,
                next(emitter.seq),
                emitter.now_ns(),
                run_id if is_known else emitter.process_run_id,
                OWN_COMPONENT,
                "warn",
                message,
                None if is_known else emitter.process_span_id,
                attributes,
            )
        )

    def report_deleted_journal(self) -> None:
        """Record on each open run that records of it are missing.

        Their number is known to the reader alone: a collector may have imported some of them.
        """
        spans = [span for emitter in self._emitters for span in list(emitter.open_spans.values())]
        for run_id in list(dict.fromkeys(span.run_id for span in spans)):
            message = "the journal was deleted; earlier records may be missing"
            self._report_gap(run_id, message, {"gap": "the journal was deleted"})

    # --- stacks -----------------------------------------------------------------------------

    def watch(self, ask_file: Path, silence_s: float | None = None) -> None:
        """Start to watch for stalls and stack requests. `silence_s` defaults to the last value."""
        from vestige.emit.process.stall_watch import StallWatch  # not with `import vestige`

        self._silence_s = self._silence_s if silence_s is None else silence_s
        self._watch = StallWatch(self._clock, self._silence_s, ask_file)

    def check(self) -> None:
        """Report, and record stacks if they are due. Called by the journal's thread."""
        self.report()
        for emitter in list(self._emitters):
            emitter.flush()
        watch = self._watch
        if watch is None or not self._emitters:
            return
        request = watch.due(self._journal.written_bytes)
        if request is None:
            return
        try:
            self._record_stacks(request)
        except Exception as error:  # noqa: BLE001  # stacks change while they are read
            self._emitters[0].fault(f"stacks could not be read: {type(error).__name__}")
        watch.ignore_until(self._journal.written_bytes)

    def _record_stacks(self, request: StackRequest) -> None:
        from vestige.emit.process.stack_snapshot import capture_stacks

        snapshot = capture_stacks()
        attributes: dict[str, Any] = {
            "standing": True,
            "threads": snapshot.threads,
            "tasks": snapshot.tasks,
        }
        if request.request_id:
            attributes["asked"] = request.request_id
        message = f"{request.reason}; at {snapshot.at or 'no line of its own'}"
        for span in self._innermost(request.run_id):
            self._logger(span)._record("info", message, attributes, snapshot.text)

    def _innermost(self, run_id: str) -> Sequence[Span | None]:
        """Return the last opened span of the run, or of each open run. None is the process."""
        found: dict[str, Span] = {}
        for emitter in list(self._emitters):
            found |= {span.run_id: span for span in list(emitter.open_spans.values())}
        if run_id:
            return [found.get(run_id)]
        process = self._process_span()
        if process is not None and len(found) > 1:
            found.pop(process.run_id, None)
        return [*found.values()][-SNAPSHOT_RUNS_MAX:] or [None]

    # --- the end ----------------------------------------------------------------------------

    def record_exit(self, how: str, error: BaseException | None, **more: Any) -> None:
        """Record how this process, a thread or a task ends, with the open spans."""
        from vestige.emit.process.process_info import rss_bytes

        # A thread or task may end while the process continues.
        if "thread" not in how and "asyncio" not in how:
            self._died, self.death = True, error
        spans = [span for emitter in self._emitters for span in list(emitter.open_spans.values())]
        named = [f"{span.type} {span.name}" for span in spans[-OPEN_SPANS_NAMED_MAX:]]
        self._logger(context.SPAN.get()).error(
            how,
            error=error,
            last_words=how,
            rss_bytes=rss_bytes(),
            open_spans=len(spans),
            open_span_names=" > ".join(named),
            **more,
        )

    def final_status(self) -> Status:
        if not self._died:
            return "ok"
        return "cancelled" if isinstance(self.death, KeyboardInterrupt) else "error"
