"""A stored run as records again: openings, closes and lines, in the order in which they were written.

What a store folded together (an opening and its updates) comes back as one opening; bodies are
read one at a time. The numbers are new: 1, 2, 3 under the writer that the caller names.
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
"""Time (held, so that it never runs back within a writer), writer, seq, its end?, place, what."""


def records_of(source: RunToWrite, writer: str) -> Iterator[KnownRecord]:
    """All records of a run, as `writer` would have written them."""
    links: dict[str, list[Link]] = {}
    for link in source.run.links:
        links.setdefault(link.span_id, []).append(
            Link(link.target_span, link.target_run, link.reason)
        )
    run = source.run.info
    for seq, (*_, ends, _, node) in enumerate(moments_of(source), 1):
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
            took_ns = node.duration_ns or 0
            yield SpanClose(
                VERSION,
                writer,
                seq,
                ended_at_ns(source, node),
                run.id,
                node.id,
                node.status or "ok",
                took_ns,
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


def ended_at_ns(source: RunToWrite, span: SpanInfo) -> int:
    """By the wall clock where that is known; durations are another clock's."""
    info = source.run.info
    if info.ended_ns is not None and span.type == "run" and span.parent_id is None:
        return info.ended_ns
    return span.started_ns + (span.duration_ns or 0)


def _body(source: RunToWrite, ref: BodyRef | None) -> tuple[str | None, BodyInfo | None]:
    if ref is None:
        return None, None
    data = source.body(ref)
    if data is None:  # gone: a reader will find that there was one, and how large
        return None, BodyInfo(spilled_bytes=ref.size_bytes)
    text, info = inline_bytes(data)
    if ref.cut is not None and (original := _original_bytes(ref.cut)) is not None:
        encoding = info.encoding if info is not None else "text"
        info = BodyInfo(encoding=encoding, original_bytes=original)
    return text, info


def _original_bytes(cut: str) -> int | None:
    words = cut.split()
    return int(words[2]) if cut.startswith("truncated from ") and words[2].isdecimal() else None


def moments_of(source: RunToWrite) -> list[Moment]:
    """Openings and lines in each writer's own order; every close where its writer put it.

    What formats tell event by event is told in this order. Bodies are not read."""
    nodes: dict[str, list[SpanInfo | LogInfo]] = {}
    everything: list[SpanInfo | LogInfo] = [*source.run.spans, *source.run.logs]
    for node in everything:
        nodes.setdefault(node.writer, []).append(node)
    moments: list[Moment] = []
    for writer, own in nodes.items():
        own.sort(key=_seq)
        seqs = [_seq(node) for node in own]
        held = list(accumulate(map(time_ns, own), max))
        for seq, at, node in zip(seqs, held, own, strict=True):
            moments.append((at, writer, seq, False, len(moments), node))
            if isinstance(node, SpanInfo) and node.status is not None:
                at, end_seq = _close(node, ended_at_ns(source, node), seq, seqs, held)
                moments.append((at, writer, end_seq, True, len(moments), node))
    moments.sort()  # their places are unique: it never comes to comparing nodes
    for place in range(len(moments) - 1, -1, -1):
        ended_ns, _, _, ends, _, node = moments[place]
        if ended_ns < moments[-1][0]:
            break
        if ends and isinstance(node, SpanInfo) and node.parent_id is None:
            moments.append(moments.pop(place))  # at the same moment as others: the run is last
            break
    return moments


def _close(
    span: SpanInfo, ended_ns: int, seq: int, seqs: list[int], held: list[int]
) -> tuple[int, float]:
    """When, and after which number of its writer."""
    end_seq: float | None = span.end_seq
    if end_seq is not None and span.parent_id is None and ended_ns >= held[-1]:
        # A root may be closed by another writer (a stamp), in whose numbers it came early.
        end_seq = max(end_seq, seqs[-1] + 1)
    if end_seq is None or end_seq <= seq:
        end_seq = max(seq, seqs[bisect_right(held, ended_ns) - 1]) + 0.5
    before = bisect_right(seqs, end_seq) - 1
    at = held[before]
    return max(ended_ns, at) if before + 1 == len(held) else at, end_seq


def _seq(node: SpanInfo | LogInfo) -> int:
    return node.seq or 0
