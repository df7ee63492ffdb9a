"""Stamp what died: close the open spans of a writer that is gone, and say how it went.

A writer holds its journal's lock while it lives, and a journal that is free and read to
its end is deleted: a writer without a file has nothing more to come. What it left open
was interrupted. (The lock alone would not do: a process may write and exit between our
reading and our asking, and the stamp would take the numbers of its last records.)

The stamp's records get the writer's next numbers, so stamping twice changes nothing.
How the process ended is known only to its parent: a `vestige run` writes it into its own
journal, and until it has, what it watches over is not stamped.

A machine that vanished never tells of its dead. After a long silence what it left open is closed
too, by a writer of our own: should it come back, its records find their numbers free, and the ends
that they bring are the last ones, which stand.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from vestige._runtime import clock
from vestige.collector.outbox import delete_or_outbox
from vestige.home import PARTIAL_SUFFIX, Home
from vestige.limits import BODY_INLINE_MAX, OPEN_SPANS_NAMED_MAX, PARTIAL_MAX, REMOTE_SILENT_S
from vestige.record.coercion import inline_bytes
from vestige.record.types import (
    OWN_COMPONENT,
    VERSION,
    Attributes,
    KnownRecord,
    Log,
    SpanClose,
)
from vestige.store.protocol import OpenSpan, Store, WriterInfo

TERMINATED = "terminated by SIGTERM"


@dataclass(frozen=True, slots=True)
class Exit:
    """How a child process ended, as its parent saw it."""

    code: int
    """As `Popen.returncode`: negative is a signal."""
    at_ns: int
    oom_kills: int = 0
    """How many processes the kernel killed there for want of memory meanwhile."""
    max_rss_bytes: int = 0
    """The most memory that it, or a process that it waited for, had at once."""

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
        how: Attributes = {"exit_code": self.code}
        if self.code < 0:
            how = {"signal": signal_name(-self.code)}
        if self.oom_kills > 0:
            how["oom_kills"] = self.oom_kills
        if self.max_rss_bytes:
            how["max_rss_bytes"] = self.max_rss_bytes
        return how


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
    """Stamp every writer that died; how many."""
    # What other machines run is theirs to watch: until they say so, nobody is dead there.
    unfinished = {
        writer for writer, _, _ in home.journal_files()
    } | store.find_running_remote_writers()
    stamped = 0
    for writer in store.writers(unfinished=True):
        if writer.writer in unfinished:
            continue
        ended = _find_exit(store, writer)
        if ended is None and writer.supervisor in unfinished:
            continue
        fault = home.fault_file(writer.writer)
        told = _read_fault(fault) or store.find_remote_fault(writer.writer)
        spans = store.open_spans(writer.writer)
        partials = _read_partials(home, writer.writer, spans)
        records = _stamp(writer, spans, ended, told, partials)
        store.append(records, tenant=writer.tenant)
        store.end_writer(writer.writer, writer.ended or "interrupted")
        if told is not None or partials:
            store.sync()
        delete_or_outbox(home, fault)
        for leftover in home.bodies.glob(f"{writer.writer}-*{PARTIAL_SUFFIX}"):
            leftover.unlink(missing_ok=True)
        stamped += bool(records)
    return stamped


def stamp_silent(store: Store, now_ns: int) -> int:
    """Close what writers of other machines left open that were not heard of for long; how many."""
    before_ns = now_ns - int(REMOTE_SILENT_S * 1e9)
    if not store.find_silent_remote_writers(before_ns):
        return 0
    with store.transaction():  # a parcel may come at any moment: it is before all this, or after it
        silent = store.find_silent_remote_writers(before_ns)
        for writer in store.writers(unfinished=True):
            if writer.writer in silent:
                ours = msgspec.structs.replace(
                    writer, writer=clock.SYSTEM.writer_id(), last_seq=0, ended="silent"
                )
                spans = store.open_spans(writer.writer)
                store.append(_stamp(ours, spans, None, None), tenant=writer.tenant)
                store.end_writer(ours.writer, "exited")
    return len(silent)


def _find_exit(store: Store, writer: WriterInfo) -> Exit | None:
    """What `vestige run` wrote about the end of its child, if this writer was that child."""
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
    )


def _read_partials(home: Home, writer: str, spans: Sequence[OpenSpan]) -> dict[str, bytes]:
    """By span, what had arrived of its answer when its process died."""
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
) -> list[KnownRecord]:
    records: list[KnownRecord] = []
    seq = writer.last_seq
    # Without a parent who saw it, the last word is all that is known of the time.
    at_ns = max(writer.last_ns, ended.at_ns) if ended is not None else writer.last_ns
    by_run: dict[str, list[OpenSpan]] = {}
    for span in open_spans:
        by_run.setdefault(span.run_id, []).append(span)
    # The line comes before the closes: it belongs inside what it explains.
    for run_id, spans in by_run.items():
        seq += 1
        records.append(_line(writer, seq, at_ns, run_id, spans, ended, fault))
    for span in reversed(open_spans):
        seq += 1
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
                "interrupted",
                max(0, at_ns - span.started_ns),
                attributes,
                body,
                info,
            )
        )
    return records


def _line(
    writer: WriterInfo,
    seq: int,
    at_ns: int,
    run_id: str,
    spans: list[OpenSpan],
    ended: Exit | None,
    fault: str | None,
) -> Log:
    last = spans[-1]
    if writer.ended == "silent":
        hours = REMOTE_SILENT_S / 3600
        message = f"its machine sent nothing for {hours:g} h after {last.type} {last.name}"
    elif writer.ended == "exited":
        message = f"process exited and left {last.type} {last.name} open"
    else:
        message = f"process exited unexpectedly after {last.type} {last.name}"
    if ended is not None:
        message += f" ({ended})"
    attributes: Attributes = {
        "crash": writer.ended not in ("exited", "silent"),
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
        "error",
        message,
        last.span_id,
        attributes,
        fault,
    )


def _fault_title(fault: str) -> str:
    """What faulthandler writes of a fatal signal begins with its name; of SIGTERM, with the stacks."""
    first = fault.strip().partition("\n")[0]
    return first[:200] if first.startswith("Fatal ") else TERMINATED


def _read_fault(path: Path) -> str | None:
    """What faulthandler left: the stacks of all threads at a fatal signal, or at SIGTERM."""
    try:
        with open(path, "rb") as file:
            return file.read(BODY_INLINE_MAX).decode(errors="replace") or None
    except OSError:
        return None
