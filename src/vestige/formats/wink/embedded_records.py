"""The records of a run inside a bundle: `vestige/records.ndjson`, as journal lines.

The components of the format store state, logs and files. This member stores the spans, links and
bodies of the run, so that importing a bundle restores the same run.

    RecordParts(run_to_write).extras()              # export
    read_records(content, run_id, problems)         # import, with bodies

Writers and sequence numbers are derived from the run's id and the order of the records, so a second
round trip changes nothing. Records of one writer stay together.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final

import msgspec

from vestige.errors import NotFoundError
from vestige.formats.protocol import Problem, RunToWrite, derived_writer
from vestige.formats.wink.bundle_content import Extra
from vestige.formats.wink.embedded_bodies import BODIES, PIECES, Packer, Unpacker
from vestige.formats.wink.read import ZipContent
from vestige.limits import BUNDLE_TOTAL_MAX, KIB, LINE_MAX
from vestige.record.codec import encode, parse_lines
from vestige.record.coercion import inline_bytes
from vestige.record.run import BodyRef, LinkInfo, LogInfo, Node, Run, SpanInfo, in_order
from vestige.record.run_id import is_run_id
from vestige.record.types import (
    VERSION,
    AnyRecord,
    BodyInfo,
    KnownRecord,
    Link,
    Log,
    SpanClose,
    SpanOpen,
    SpanUpdate,
    Unknown,
)

RECORDS: Final = "vestige/records.ndjson"
INLINE_MAX: Final = 2 * KIB
"""A body up to this size is in its line; a longer one may be shared, and goes to the pieces."""
BATCH: Final = 2_000
"""Records encoded at once."""
HEAD: Final = 200
"""Records among which the root of the run is looked for; it is the first, or follows its
process."""

TOLD_FIRST: Final = ("run", "snapshot", "file")
"""Spans that open with their attributes, for readers in order (formats/wink/to_records.py).
All others close with them: a span that was open in an earlier bundle of the run is known, and its
end is what is new."""

BodyFinder = Callable[[int], tuple[str, int | None] | None]
"""Body id -> the member of the bundle (and the line of it) that holds these bytes anyway."""


def _held_nowhere(body_id: int) -> tuple[str, int | None] | None:
    return None


class RecordParts:
    """The extra components of a run: its records, and the bodies behind them."""

    def __init__(self, source: RunToWrite, find_body: BodyFinder = _held_nowhere) -> None:
        self._source = source
        self._find_body = find_body
        self._packer = Packer()
        self._described: dict[int, tuple[str | None, BodyInfo | None]] = {}

    def extras(self) -> Iterator[Extra]:
        """Return the extra records in this order, so that references point to known records."""
        run = self._source.run
        count = len(run.logs) + sum(1 + (span.status is not None) for span in run.spans)
        yield Extra("records", RECORDS, count, self._lines)
        if self._packer.recipes:
            yield Extra("bodies", BODIES, len(self._packer.recipes), self._packer.index)
            yield Extra("pieces", PIECES, None, self._packer.pieces)

    def _lines(self) -> Iterator[bytes]:
        batch: list[KnownRecord] = []
        for record in records_of(self._source.run, self._describe):
            batch.append(record)
            if len(batch) >= BATCH:
                yield encode(batch)
                batch = []
        if batch:
            yield encode(batch)

    def _describe(self, ref: BodyRef) -> tuple[str | None, BodyInfo | None]:
        """Return a body as a record has it: inline, or by its hash."""
        if ref.id is None:
            return None, BodyInfo(spilled_bytes=ref.size_bytes)
        known = self._described.get(ref.id)
        if known is None:
            known = self._described[ref.id] = self._place(ref.id, ref.size_bytes)
        text, info = known
        if ref.cut is not None and (note := _note(ref.cut)):
            info = msgspec.structs.replace(info or BodyInfo(), **note)
        return text, info

    def _place(self, body_id: int, size: int) -> tuple[str | None, BodyInfo | None]:
        try:
            data = self._source.read_body(body_id)
        except NotFoundError:  # retention took it
            return None, BodyInfo(spilled_bytes=size)
        place = self._find_body(body_id)
        if place is not None:
            digest = self._packer.refer(data, *place)
        elif len(data) <= INLINE_MAX:
            return inline_bytes(data)
        else:
            digest = self._packer.add(data)
        return None, BodyInfo(spilled_bytes=len(data), sha256=digest)


def _note(cut: str) -> dict[str, Any]:
    """Return the store's note about a truncated body."""
    try:
        note = msgspec.json.decode(cut)
    except msgspec.DecodeError:
        return {}
    if not isinstance(note, dict) or type(note.get("original_bytes")) is not int:
        return {}
    return {"original_bytes": note["original_bytes"], "original_sha256": note.get("sha256")}


Describe = Callable[[BodyRef], tuple[str | None, BodyInfo | None]]


class _Numbers:
    """Writers by the order in which they appear, and their records by theirs."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._seqs: dict[str, list[Any]] = {}

    def next(self, writer: str) -> tuple[str, int]:
        counter = self._seqs.get(writer)
        if counter is None:
            name = derived_writer("wink", f"{self._run_id}\0{len(self._seqs)}")
            counter = self._seqs[writer] = [name, 0]
        counter[1] += 1
        return counter[0], counter[1]


def records_of(run: Run, describe: Describe) -> Iterator[KnownRecord]:
    """Yield records from which this run can be built again, in order of time."""
    numbers = _Numbers(run.info.id)
    links: dict[str, list[Link]] = {}
    for link in run.links:
        links.setdefault(link.span_id, []).append(_link(link))
    pending: dict[str, list[tuple[int, int, SpanInfo]]] = {}
    nodes: list[Node] = [*run.spans, *run.logs]
    for place, node in enumerate(in_order(nodes)):
        closing = pending.setdefault(node.writer, [])
        if isinstance(node, LogInfo):
            while closing and closing[0][0] <= node.time_ns:
                yield _close(run, heapq.heappop(closing)[2], numbers, describe)
            yield _log(run, node, numbers, describe)
            continue
        while closing and closing[0][0] <= node.started_ns:
            yield _close(run, heapq.heappop(closing)[2], numbers, describe)
        yield _open(run, node, links.get(node.id), numbers, describe)
        if node.status is not None:
            # Of two that end together, the one that began later is inside the other.
            heapq.heappush(closing, (_ended_ns(run, node), -place, node))
    for closing in pending.values():
        while closing:
            yield _close(run, heapq.heappop(closing)[2], numbers, describe)


def _ended_ns(run: Run, span: SpanInfo) -> int:
    if span.type == "run" and span.parent_id is None and run.info.ended_ns is not None:
        return run.info.ended_ns
    return span.started_ns + (span.duration_ns or 0)


def _link(link: LinkInfo) -> Link:
    return Link(link.target_span, link.target_run, link.reason)


def _open(
    run: Run, span: SpanInfo, links: list[Link] | None, numbers: _Numbers, describe: Describe
) -> SpanOpen:
    writer, seq = numbers.next(span.writer)
    body, info = describe(span.input) if span.input is not None else (None, None)
    root = span.type == "run" and span.parent_id is None
    is_reported = span.status is None or span.type in TOLD_FIRST
    return SpanOpen(
        VERSION,
        writer,
        seq,
        span.started_ns,
        run.info.id,
        span.id,
        span.component,
        span.type,
        span.name,
        span.parent_id,
        run.info.conversation_id if root else None,
        span.attributes if is_reported else {},
        links,
        body,
        info,
        span.redacted or None,
    )


def _close(run: Run, span: SpanInfo, numbers: _Numbers, describe: Describe) -> SpanClose:
    writer, seq = numbers.next(span.writer)
    body, info = describe(span.output) if span.output is not None else (None, None)
    assert span.status is not None
    return SpanClose(
        VERSION,
        writer,
        seq,
        _ended_ns(run, span),
        run.info.id,
        span.id,
        span.status,
        span.duration_ns or 0,
        span.attributes,
        body,
        info,
    )


def _log(run: Run, log: LogInfo, numbers: _Numbers, describe: Describe) -> Log:
    writer, seq = numbers.next(log.writer)
    body, info = describe(log.body) if log.body is not None else (None, None)
    return Log(
        VERSION,
        writer,
        seq,
        log.time_ns,
        run.info.id,
        log.component,
        log.level,
        log.message,
        log.span_id,
        log.attributes,
        body,
        info,
        log.redacted or None,
    )


# --- and back ---------------------------------------------------------------------------------


def has_records(content: ZipContent) -> bool:
    return content.has(RECORDS)


def read_records(
    content: ZipContent, run_id: str, problems: list[Problem]
) -> Iterator[KnownRecord]:
    """Yield the records of one run with their bodies and new sequence numbers."""
    component = content.manifest.component("records")
    bodies = Unpacker(content)
    number = _Numbers(run_id).next
    unreadable = others = lost = 0
    chunks = content.salvaged(RECORDS, component.sha256 if component else None)
    for records, malformed in _batches(chunks):
        unreadable += malformed
        for record in records:
            # By exact type: this runs for every record there is.
            if record.run_id != run_id or type(record) is Unknown:
                others += 1
                continue
            known: Any = record
            known.writer, known.seq = number(known.writer)
            if type(known) is not SpanUpdate and known.body_info is not None:
                lost += not _fill(known, bodies)
            yield known
    for count, rule, what in (
        (unreadable, "record-unreadable", "lines that hold no record"),
        (others, "record-not-of-the-run", "records of another run or an unknown kind"),
        (lost - bodies.beyond, "body-missing", "bodies that are not in the bundle"),
        (bodies.beyond, "body-beyond", f"bodies behind {BUNDLE_TOTAL_MAX} bytes; passed over"),
    ):
        if count:
            where = f"{content.path}: {RECORDS}"
            problems.append(Problem(where, "", rule, f"{count} {what}.", severity="warning"))


def _batches(chunks: Iterator[bytes]) -> Iterator[tuple[Sequence[AnyRecord], int]]:
    """Yield records of many lines at once, which takes half the time."""
    rest = b""
    for chunk in chunks:
        data = rest + chunk
        end = data.rfind(b"\n") + 1
        rest = data[end:]
        if len(rest) > LINE_MAX:
            rest = b"?"  # the rest of it is not a record
        if end:
            yield parse_lines(data[:end])
    if rest.strip():
        yield parse_lines(rest)


def _fill(record: SpanOpen | SpanClose | Log, bodies: Unpacker) -> bool:
    """Put a body from elsewhere in the bundle into the record. Return False if it is missing."""
    info = record.body_info
    assert info is not None
    if info.spilled_bytes is None:
        return True
    data = bodies.read(info.sha256) if info.sha256 is not None else None
    if data is None:
        # The store says so too: there was one, of this size.
        return info.sha256 is None
    record.body, inline = inline_bytes(data)
    record.body_info = None
    if inline is not None or info.original_bytes is not None:
        record.body_info = BodyInfo(
            inline.encoding if inline else "text",
            original_bytes=info.original_bytes,
            original_sha256=info.original_sha256,
        )
    return True


def find_run_id(content: ZipContent) -> str | None:
    """Return the run of the records: the first run that a program opened."""
    first: str | None = None
    # By stretches, for as many as are needed: a root with long attributes may fill several.
    batches = (records for records, _ in _batches(content.salvaged(RECORDS, keep=True)))
    for record in islice(chain.from_iterable(batches), HEAD):
        if isinstance(record, Unknown) or not is_run_id(record.run_id):
            continue
        if first is None:
            first = record.run_id
        if (
            isinstance(record, SpanOpen)
            and (record.type, record.parent_id) == ("run", None)
            and record.attributes.get("implicit") is not True
        ):
            return record.run_id
    return first


__all__ = ["RECORDS", "RecordParts", "find_run_id", "has_records", "read_records", "records_of"]
