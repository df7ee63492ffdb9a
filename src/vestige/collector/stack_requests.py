"""Ask the living processes of a run where they stand.

    with asking(home, store, run) as question:
        ...                             # a second later, when their journals were taken in
        question.answers(run)           # what each of them said, by its writer

A question is a file in the home, which the process looks for once a second (emit/process/stall_watch.py) and takes away. No signal: a
program may have its own use for every one of them. What it answers is a log line of the run, there for ever.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec

from vestige._runtime import clock, file_locks
from vestige.home import Home
from vestige.record.run import LogInfo, Run
from vestige.record.types import OWN_COMPONENT
from vestige.store.protocol import Store, WriterInfo


class StackRequest(msgspec.Struct, frozen=True):
    """One question, put to some processes."""

    key: str
    asked: tuple[WriterInfo, ...]

    def answers(self, run: Run) -> Mapping[str, LogInfo]:
        """What was answered so far, by writer."""
        return {
            log.writer: log
            for log in run.logs
            if log.component == OWN_COMPONENT and log.attributes.get("asked") == self.key
        }


@contextmanager
def stack_requests(home: Home, store: Store, run: Run) -> Iterator[StackRequest]:
    """Put it to every process that lives and has something open in a run. It is taken back at the end."""
    question = StackRequest(clock.SYSTEM.span_id(), tuple(_living(home, store, run)))
    home.asks.mkdir(mode=0o700, exist_ok=True)
    for process in question.asked:
        # There at once: a process that looks meanwhile must not find half of it.
        half = home.ask_file(f".{process.writer}")
        half.write_text(f"{run.info.id} {question.key}")
        os.replace(half, home.ask_file(process.writer))
    try:
        yield question
    finally:
        for process in question.asked:
            home.ask_file(process.writer).unlink(missing_ok=True)


def _living(home: Home, store: Store, run: Run) -> Iterator[WriterInfo]:
    """Without `vestige run` itself, which only waits for the program."""
    unfinished = store.writers(unfinished=True)
    supervisors = {process.supervisor for process in unfinished}
    open_in = {span.writer for span in run.spans if span.status is None}
    alive = {writer for writer, _, path in home.journal_files() if file_locks.is_held(path)}
    for process in unfinished:
        if process.writer in open_in & alive - supervisors:
            yield process
