"""Request the stacks of the live processes of a run.

    with stack_requests(home, store, run) as request:
        ...                             # a second later, when their journals are imported
        request.answers(run)            # the log records with the stacks, by writer

A request is a file in the home. The process checks for it once a second and deletes it
(emit/process/stall_watch.py). Signals would not do, because the program may use all of them. The
answer is a log record of the run, and stays there.
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
    """A request to some processes."""

    key: str
    processes: tuple[WriterInfo, ...]

    def answers(self, run: Run) -> Mapping[str, LogInfo]:
        """Return the answers so far, by writer."""
        return {
            log.writer: log
            for log in run.logs
            if log.component == OWN_COMPONENT and log.attributes.get("asked") == self.key
        }


@contextmanager
def stack_requests(home: Home, store: Store, run: Run) -> Iterator[StackRequest]:
    """Send a request to every live process with open spans in a run. Withdraw it at the end."""
    request = StackRequest(clock.SYSTEM.span_id(), tuple(_live_processes(home, store, run)))
    home.asks.mkdir(mode=0o700, exist_ok=True)
    for process in request.processes:
        # Renamed into place: the process must not read half of it.
        unfinished = home.ask_file(f".{process.writer}")
        unfinished.write_text(f"{run.info.id} {request.key}")
        os.replace(unfinished, home.ask_file(process.writer))
    try:
        yield request
    finally:
        for process in request.processes:
            home.ask_file(process.writer).unlink(missing_ok=True)


def _live_processes(home: Home, store: Store, run: Run) -> Iterator[WriterInfo]:
    """Iterate over the live processes, without `vestige run`, which only waits for its child."""
    unfinished = store.writers(unfinished=True)
    supervisors = {process.supervisor for process in unfinished}
    open_in = {span.writer for span in run.spans if span.status is None}
    alive = {writer for writer, _, path in home.journal_files() if file_locks.is_held(path)}
    for process in unfinished:
        if process.writer in open_in & alive - supervisors:
            yield process
