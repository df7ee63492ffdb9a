"""Stamp dead writers: close their open spans as interrupted, and record how they ended.

A writer holds the lock of its journal while it lives, and a free journal is deleted once it is read
to its end. So a writer without a file is taken for dead. The lock alone is not enough: a process
may write and exit after we read.

It may still be alive: a program that closes descriptors in bulk frees the lock, and the writer
continues in a new file a moment later. So the records of a stamp have seqs of their own, which no
record of the writer has (record/crash_stamp_seq.py). When the next one arrives, the stamp is
withdrawn (store/sqlite/ingest/withdraw_crash_stamps.py).

Only the parent knows how a process ended. `vestige run` writes that to its own journal, and until
then its child is not stamped.

A machine that disappeared never reports its dead writers. They are stamped after a long silence.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from vestige.collector.outbox import delete_or_outbox
from vestige.home import PARTIAL_SUFFIX, Home
from vestige.limits import BODY_INLINE_MAX, OPEN_SPANS_NAMED_MAX, PARTIAL_MAX, REMOTE_SILENT_S
from vestige.record.coercion import inline_bytes
from vestige.record.crash_stamp_seq import stamp_seq
from vestige.record.types import OWN_COMPONENT, VERSION, Attributes, Log, SpanClose, Status
from vestige.store.protocol import OpenSpan, Store, WriterInfo

TERMINATED = "terminated by SIGTERM"
_WORKER = re.compile(
    r'multiprocessing/(?:process\.py", line \d+ in _bootstrap'  # what `multiprocessing` calls first
    r'|spawn\.py", line \d+ in spawn_main|forkserver\.py", line \d+ in main)'
    r'|/vestige/(?:process_writer|recorder)\.py", line \d+ in (?:_record_os_exit|close)'
    r"|Current thread .*\n +<no Python frame>"  # like the line before: at its end already
)
"""A line in the stacks of a process that may be stopped at any time."""


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of a child process, as its parent saw it."""

    code: int
    """The `Popen.returncode`: a negative number is a signal."""
    at_ns: int
    oom_kills: int = 0
    """Processes that the OOM killer killed in the same control group meanwhile."""
    max_rss_bytes: int = 0
    """Peak memory of the process, or of a child that it waited for."""
    stopped: str = ""
    """The reason for which `vestige run` stopped it; empty if it did not."""

    @property
    def is_oom(self) -> bool:
        return self.code == -signal.SIGKILL and self.oom_kills > 0

    def __str__(self) -> str:
        if self.is_oom:
            peak = f", {self.max_rss_bytes // 10**6} MB at most" if self.max_rss_bytes else ""
            return f"killed by SIGKILL of the kernel's OOM killer: out of memory{peak}"
        if self.code < 0:
            return f"killed by {signal_name(-self.code)}"
        return f"exit status {self.code}"

    @property
    def attributes(self) -> Attributes:
        attributes: Attributes = {"exit_code": self.code}
        if self.code < 0:
            attributes = {"signal": signal_name(-self.code)}
        if self.oom_kills > 0:
            attributes["oom_kills"] = self.oom_kills
        if self.max_rss_bytes:
            attributes["max_rss_bytes"] = self.max_rss_bytes
        if self.stopped:
            attributes["stopped"] = self.stopped
        return attributes


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def signal_number(name: str) -> int:
    try:
        return signal.Signals[name].value
    except KeyError:
        return int(name.removeprefix("signal ")) if name[-1:].isdecimal() else 0


def stamp_dead(home: Home, store: Store) -> int:
    """Stamp every dead writer, and return how many were stamped."""
    # Other machines watch their own writers, which are alive until they report the end.
    unfinished = {
        writer for writer, _, _ in home.journal_files()
    } | store.find_running_remote_writers()
    stamped = 0
    writers = store.writers(unfinished=True)
    with_children = {writer.supervisor for writer in writers if writer.writer in unfinished}
    for writer in writers:
        # If `vestige run` was killed, its program goes on, and so does the run.
        if writer.writer in unfinished or writer.writer in with_children:
            continue
        ended = _find_exit(store, writer)
        if ended is None and writer.supervisor in unfinished:
            continue
        fault = home.fault_file(writer.writer)
        stacks = _read_fault(fault) or store.find_remote_fault(writer.writer)
        spans = store.open_spans(writer.writer)
        partials = _read_partials(home, writer.writer, spans)
        records = _stamp(writer, spans, ended, stacks, partials)
        store.stamp_writer(writer, records, writer.ended or "interrupted")
        if stacks is not None or partials:
            store.sync()
        delete_or_outbox(home, fault)
        for leftover in home.bodies.glob(f"{writer.writer}-*{PARTIAL_SUFFIX}"):
            leftover.unlink(missing_ok=True)
        home.reserve_file(writer.writer).unlink(missing_ok=True)
        stamped += bool(records)
    store.finish_rootless_runs()
    return stamped


def stamp_silent(store: Store, now_ns: int) -> int:
    """Close the open spans of remote writers that were silent for long. Return their number."""
    before_ns = now_ns - int(REMOTE_SILENT_S * 1e9)
    if not store.find_silent_remote_writers(before_ns):
        return 0
    with store.transaction():  # Records may arrive at any moment.
        silent = store.find_silent_remote_writers(before_ns)
        for writer in store.writers(unfinished=True):
            if writer.writer in silent:
                as_silent = msgspec.structs.replace(writer, ended="silent")
                spans = store.open_spans(writer.writer)
                stamp = _stamp(as_silent, spans, None, None)
                store.stamp_writer(writer, stamp, writer.ended or "interrupted")
    return len(silent)


def _find_exit(store: Store, writer: WriterInfo) -> Exit | None:
    """Return the end that `vestige run` recorded, if this writer was its child."""
    found = store.find_supervised_end(writer.writer)
    if found is None or found.attributes.get("pid") != writer.pid:
        return None
    code = found.attributes.get("exit_code")
    if not isinstance(code, int):
        code = -signal_number(str(found.attributes.get("signal")))
    kills, peak = (found.attributes.get(name) for name in ("oom_kills", "max_rss_bytes"))
    return Exit(
        code,
        found.at_ns,
        kills if isinstance(kills, int) else 0,
        peak if isinstance(peak, int) else 0,
        str(found.attributes.get("stopped") or ""),
    )


def _read_partials(home: Home, writer: str, spans: Sequence[OpenSpan]) -> dict[str, bytes]:
    """Read the partially received responses of a dead process, by span."""
    found = {}
    for span in spans:
        try:
            with open(home.partial_body(writer, span.span_id), "rb") as file:
                found[span.span_id] = file.read(2 * PARTIAL_MAX)
        except OSError:
            continue
    return found


def _stamp(
    writer: WriterInfo,
    open_spans: Sequence[OpenSpan],
    ended: Exit | None,
    fault: str | None,
    partials: Mapping[str, bytes] | None = None,
) -> list[Log | SpanClose]:
    records: list[Log | SpanClose] = []
    # Without a parent that saw the end, the last record is the only known time.
    at_ns = max(writer.last_ns, ended.at_ns) if ended is not None else writer.last_ns
    status: Status = "ok" if _is_stopped_worker(open_spans, fault) else "interrupted"
    by_run: dict[str, list[OpenSpan]] = {}
    for span in open_spans:
        by_run.setdefault(span.run_id, []).append(span)
    # The log record comes before the closes, because it belongs to the open span.
    for run_id, spans in by_run.items():
        seq = stamp_seq(writer.last_seq, len(records) + 1)
        records.append(_end_log(writer, seq, at_ns, run_id, spans, ended, fault))
    for span in reversed(open_spans):
        seq = stamp_seq(writer.last_seq, len(records) + 1)
        partial = (partials or {}).get(span.span_id)
        attributes: Attributes = {"response.partial": True} if partial else {}
        body, info = inline_bytes(partial) if partial else (None, None)
        records.append(
            SpanClose(
                VERSION,
                writer.writer,
                seq,
                at_ns,
                span.run_id,
                span.span_id,
                status,
                max(0, at_ns - span.started_ns),
                attributes,
                body,
                info,
            )
        )
    return records


def _end_log(
    writer: WriterInfo,
    seq: int,
    at_ns: int,
    run_id: str,
    spans: list[OpenSpan],
    ended: Exit | None,
    fault: str | None,
) -> Log:
    last = spans[-1]
    level = "error"
    if _is_stopped_worker(spans, fault):
        level, message = "info", f"worker stopped between two spans: {last.type} {last.name}"
    elif writer.ended == "silent":
        hours = REMOTE_SILENT_S / 3600
        message = f"its machine sent nothing for {hours:g} h after {last.type} {last.name}"
    elif writer.ended == "exited":
        message = f"process exited and left {last.type} {last.name} open"
    elif ended is not None and ended.stopped:
        reason = ended.stopped.removesuffix(".")
        message = f"stopped by vestige run: {reason}, after {last.type} {last.name}"
    elif last.type == "process":
        message = f"process {last.name} exited unexpectedly"
    else:
        message = f"process exited unexpectedly after {last.type} {last.name}"
    if ended is not None:
        message += f" ({ended})"
    attributes: Attributes = {}
    if level == "error":
        attributes["crash"] = writer.ended not in ("exited", "silent")
    attributes |= {
        "pid": writer.pid,
        "last_span": last.span_id,
        "open_spans": len(spans),
        "open_span_names": " > ".join(
            f"{span.type} {span.name}" for span in spans[-OPEN_SPANS_NAMED_MAX:]
        ),
    }
    if ended is not None:
        attributes |= ended.attributes
    if fault:
        attributes["fault"] = _fault_title(fault)
    return Log(
        VERSION,
        writer.writer,
        seq,
        at_ns,
        run_id,
        OWN_COMPONENT,
        level,
        message,
        last.span_id,
        attributes,
        fault,
    )


def _is_stopped_worker(spans: Sequence[OpenSpan], fault: str | None) -> bool:
    """Return True if SIGTERM ended a worker that had nothing to do, or nothing more.

    Pools and servers stop their workers like this, also if all is well. The parent of a worker is
    recorded, or the stacks show that it is one."""
    if not fault or _fault_title(fault) != TERMINATED:
        return False
    if any(span.type not in ("run", "process") for span in spans):
        return False
    return spans[0].parent_type not in (None, "run") or _WORKER.search(fault) is not None


def _fault_title(fault: str) -> str:
    """Return the first line of a fault file. For SIGTERM, it has only the stacks."""
    first = fault.strip().partition("\n")[0]
    return first[:200] if first.startswith("Fatal ") else TERMINATED


def _read_fault(path: Path) -> str | None:
    """Read the stacks that faulthandler wrote at a fatal signal or SIGTERM."""
    try:
        with open(path, "rb") as file:
            return file.read(BODY_INLINE_MAX).decode(errors="replace") or None
    except OSError:
        return None
