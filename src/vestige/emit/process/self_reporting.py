"""What a process says about itself: losses and misuse, where it stands, and its last words.

Its lines are of the component `vestige`, in the process's own span unless they belong in another. Said in the journal's
thread (`check`, about once a second), at the end, or where an exception is about to end the process; never on the hot path.
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
from vestige.limits import OPEN_SPANS_NAMED_MAX, STANDING_RUNS_MAX
from vestige.record.types import OWN_COMPONENT, Status

if TYPE_CHECKING:
    from pathlib import Path

    from vestige.emit.process.stall_watch import StackRequest, StallWatch


class JournalStats(Protocol):
    """What a journal tells about what it wrote, and what it could not."""

    dropped: int
    written_bytes: int

    def take_losses(self) -> Counter[str]: ...

    def return_losses(self, what: str, count: int) -> None: ...


class SelfReporter:
    """Of one process. `emitters`: those of its recorders, as they come and go."""

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
        self.death: BaseException | None = None
        """The exception that ends this process, once nobody caught it."""

    def _logger(self, within: Span | None = None) -> Logger:
        return Logger(self._emitters[0], OWN_COMPONENT, within or self._process_span())

    # --- losses and misuse -----------------------------------------------------------------------

    def report(self) -> None:
        """Losses and misuse since the last report, as records: they must not stay a number
        in a process that may die."""
        if not self._emitters:
            return
        log = self._logger()
        for what, count in self._journal.take_losses().items():
            dropped = self._journal.dropped
            # Whatever level the program wants: what was lost is no line of its own.
            log._say("warn", f"{what} ({count})", {"gap": what, "count": count})
            if self._journal.dropped > dropped:  # the telling itself was lost
                self._journal.return_losses(what, count)
        faults: dict[str, int] = {}
        for emitter in list(self._emitters):
            # A copy at one stroke: others count meanwhile. A list of the items would make objects, and
            # with them Python may look for garbage, and let another thread in.
            for what, count in dict(emitter.faults).items():
                faults[what] = faults.get(what, 0) + count
        total = sum(faults.values())
        if total > self._reported_faults:
            self._reported_faults = total
            log._say("warn", "misuse or failure was counted", faults)

    # --- where it stands ---------------------------------------------------------------------------

    def watch(self, ask_file: Path, silence_s: float | None = None) -> None:
        """From now on (emit/process/stall_watch.py). `silence_s`: as before, where it is not given."""
        from vestige.emit.process.stall_watch import (
            StallWatch,  # with the first recorder, not with vestige
        )

        self._silence_s = self._silence_s if silence_s is None else silence_s
        self._watch = StallWatch(self._clock, self._silence_s, ask_file)

    def check(self) -> None:
        """About once a second, in the journal's thread."""
        self.report()
        for emitter in list(self._emitters):
            emitter.flush()
        watch = self._watch
        if watch is None or not self._emitters:
            return
        due = watch.due(self._journal.written_bytes)
        if due is None:
            return
        try:
            self._say_where_it_stands(due)
        except Exception as error:  # noqa: BLE001  # stacks move while one looks; the journal's thread goes on
            self._emitters[0].fault(f"where it stands is not known: {type(error).__name__}")
        watch.spoke(self._journal.written_bytes)

    def _say_where_it_stands(self, due: StackRequest) -> None:
        from vestige.emit.process.stack_snapshot import capture_stacks

        standing = capture_stacks()
        told: dict[str, Any] = {
            "standing": True,
            "threads": standing.threads,
            "tasks": standing.tasks,
        }
        if due.asked:
            told["asked"] = due.asked
        message = f"{due.why}; stands at {standing.at or 'no line of its own'}"
        for span in self._innermost(due.run_id):
            self._logger(span)._say("info", message, told, standing.text)

    def _innermost(self, run_id: str) -> Sequence[Span | None]:
        """What was last begun in each open run, or in the one that is meant; if none is, the process."""
        found: dict[str, Span] = {}
        for emitter in list(self._emitters):
            found |= {span.run_id: span for span in list(emitter.open_spans.values())}
        if run_id:
            return [found.get(run_id)]
        process = self._process_span()
        if process is not None and len(found) > 1:
            found.pop(process.run_id, None)
        return [*found.values()][-STANDING_RUNS_MAX:] or [None]

    # --- the end -----------------------------------------------------------------------------------

    def say_last_words(self, how: str, error: BaseException | None, **more: Any) -> None:
        from vestige.emit.process.process_info import rss_bytes

        # A thread or task may die while the process goes on.
        if "thread" not in how and "asyncio" not in how:
            self._died, self.death = True, error
        spans = [span for emitter in self._emitters for span in list(emitter.open_spans.values())]
        named = [f"{span.type} {span.name}" for span in spans[-OPEN_SPANS_NAMED_MAX:]]
        self._logger(context.SPAN.get()).error(
            f"last words: {how}",
            error=error,
            last_words=how,
            rss_bytes=rss_bytes(),
            open_spans=len(spans),
            open_span_names=" > ".join(named),
            **more,
        )

    def how_it_ends(self) -> Status:
        if not self._died:
            return "ok"
        return "cancelled" if isinstance(self.death, KeyboardInterrupt) else "error"
