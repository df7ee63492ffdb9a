"""Convert a run to its records: starts, ends and log records, in order.

A start and its updates, which a store merges, become one start. Bodies are read one at a time.
Sequence numbers are new: 1, 2, 3 under the writer of the caller.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

from vestige.formats.protocol import RunToWrite
from vestige.record.coercion import inline_bytes
from vestige.record.run import BodyRef, LogInfo, SpanInfo, time_ns
from vestige.record.types import VERSION, BodyInfo, KnownRecord, Link, Log, SpanClose, SpanOpen

Moment = tuple[int, str, float, bool, int, "SpanInfo | LogInfo"]
"""Time, writer, seq, whether it is a span's end, index, and the span or log record.

Times never decrease within a writer.
"""


def run_to_records(source: RunToWrite, writer: str) -> Iterator[KnownRecord]:
    """Yield all records of a run, as `writer` would have written them."""
    links: dict[str, list[Link]] = {}
    for link in source.run.links:
        links.setdefault(link.span_id, []).append(
            Link(link.target_span, link.target_run, link.reason)
        )
    run = source.run.info
    for seq, (*_, ends, _, node) in enumerate(order_moments(source), 1):
        if isinstance(node, LogInfo):
            body, info = _body(source, node.body)
            yield Log(
                VERSION,
                writer,
                seq,
                node.time_ns,
                run.id,
                node.component,
                node.level,
                node.message,
                node.span_id,
                node.attributes,
                body,
                info,
                node.redacted or None,
            )
        elif ends:
            body, info = _body(source, node.output)
            yield SpanClose(
                VERSION,
                writer,
                seq,
                get_end_ns(source, node),
                run.id,
                node.id,
                node.status or "ok",
                node.duration_ns or 0,
                {},
                body,
                info,
            )
        else:
            body, info = _body(source, node.input)
            is_root = node.type == "run" and node.parent_id is None
            yield SpanOpen(
                VERSION,
                writer,
                seq,
                node.started_ns,
                run.id,
                node.id,
                node.component,
                node.type,
                node.name,
                node.parent_id,
                run.conversation_id if is_root else None,
                node.attributes,
                links.get(node.id),
                body,
                info,
                node.redacted or None,
            )


def get_end_ns(source: RunToWrite, span: SpanInfo) -> int:
    """Return the end by the wall clock if it is known. Durations are from a monotonic clock."""
    info = source.run.info
    if info.ended_ns is not None and span.type == "run" and span.parent_id is None:
        return info.ended_ns
    return span.started_ns + (span.duration_ns or 0)


def _body(source: RunToWrite, ref: BodyRef | None) -> tuple[str | None, BodyInfo | None]:
    if ref is None:
        return None, None
    data = source.body(ref)
    if data is None:  # missing: the record still has its size
        return None, BodyInfo(spilled_bytes=ref.size_bytes)
    text, info = inline_bytes(data)
    if (original := get_original_bytes(ref)) is not None:
        encoding = info.encoding if info is not None else "text"
        info = BodyInfo(encoding=encoding, original_bytes=original)
    return text, info


def get_original_bytes(ref: BodyRef) -> int | None:
    """Return the size of a truncated body before it was truncated."""
    words = (ref.cut or "").split()
    if len(words) > 2 and words[:2] == ["truncated", "from"] and words[2].isdecimal():
        return int(words[2])
    return None


def order_moments(source: RunToWrite) -> list[Moment]:
    """Return starts, ends and log records in order: by time, and by seq within a writer.

    Formats with events write them in this order. Bodies are not read.
    """
    nodes: dict[str, list[SpanInfo | LogInfo]] = {}
    everything: list[SpanInfo | LogInfo] = [*source.run.spans, *source.run.logs]
    for node in everything:
        nodes.setdefault(node.writer, []).append(node)
    moments: list[Moment] = []
    for writer, own in nodes.items():
        own.sort(key=_seq)
        seqs = [_seq(node) for node in own]
        times = list(accumulate(map(time_ns, own), max))
        for seq, at, node in zip(seqs, times, own, strict=True):
            moments.append((at, writer, seq, False, len(moments), node))
            if isinstance(node, SpanInfo) and node.status is not None:
                at, end_seq = _end_position(node, get_end_ns(source, node), seq, seqs, times)
                moments.append((at, writer, end_seq, True, len(moments), node))
    moments.sort()  # indexes are unique, so nodes are never compared
    for index in range(len(moments) - 1, -1, -1):
        ended_ns, _, _, ends, _, node = moments[index]
        if ended_ns < moments[-1][0]:
            break
        if ends and isinstance(node, SpanInfo) and node.parent_id is None:
            moments.append(moments.pop(index))  # of several at the same time, the run ends last
            break
    return moments


def _end_position(
    span: SpanInfo, ended_ns: int, seq: int, seqs: list[int], times: list[int]
) -> tuple[int, float]:
    """Return the time and the seq of a span's end within its writer."""
    end_seq: float | None = span.end_seq
    if end_seq is not None and span.parent_id is None and ended_ns >= times[-1]:
        # Another writer (crash detection) may close a root, with a lower seq of its own.
        end_seq = max(end_seq, seqs[-1] + 1)
    if end_seq is None or end_seq <= seq:
        end_seq = max(seq, seqs[bisect_right(times, ended_ns) - 1]) + 0.5
    before = bisect_right(seqs, end_seq) - 1
    at = times[before]
    return max(ended_ns, at) if before + 1 == len(times) else at, end_seq


def _seq(node: SpanInfo | LogInfo) -> int:
    return node.seq or 0
