"""`segments`: the parts of a prompt by contributor, with their sizes.

The basis is `recorded` if the program declared its segments (`span.segments`). Otherwise it is
`parsed` from the request: tools, system prompt and messages, in the provider's order.

    segments_answer(evidence, span_id)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

from vestige.errors import NotFoundError
from vestige.limits import PREVIEW_MAX
from vestige.providers.chat_types import PromptPart, Request
from vestige.query import formatting
from vestige.query.evidence import Evidence
from vestige.query.text_layout import CommandAnswer, columns, fit
from vestige.query.token_budget import CHARACTERS_A_TOKEN
from vestige.record.prompt_segments import SPAN_TYPE, Segment, parse_segments
from vestige.record.run import SpanInfo

SEGMENTS_MAX = 2_000
"""Parts of a prompt that the JSON answer lists; the sums include all parts."""


@dataclass(frozen=True, slots=True)
class Part:
    """A contiguous part of a prompt."""

    contributor: str
    kind: str
    role: str | None
    size_bytes: int
    begin: int
    end: int
    path: str | None
    preview: str | None


@dataclass
class SegmentsAnswer(CommandAnswer):
    """The parts of one prompt."""

    verb: ClassVar[str] = "segments"
    budget: ClassVar[int] = 800

    span: SpanInfo
    """The model call; without one, the span with the recorded segments."""
    basis: Literal["recorded", "parsed"]
    ranges: str | None
    """The text of the offsets `begin` and `end`: the request `body`, or the joined `parts`."""
    parts: Sequence[Part]
    request: Request | None
    request_bytes: int | None

    @cached_property
    def total(self) -> int:
        return sum(part.size_bytes for part in self.parts)

    def by_contributor(self) -> list[tuple[str, str, int, int]]:
        """Return (contributor, kind, bytes, parts), the largest first."""
        sums: dict[str, list[Any]] = {}
        for part in self.parts:
            known = sums.setdefault(part.contributor, [part.kind, 0, 0])
            known[1] += part.size_bytes
            known[2] += 1
        found = [(name, kind, size, count) for name, (kind, size, count) in sums.items()]
        return sorted(found, key=lambda each: (-each[2], each[0]))

    def lines(self, budget: int) -> list[str]:
        short = self.span.short_id
        basis = "recorded by the program"
        if self.basis == "parsed":
            basis = "parsed from the request"
        size = f" of {formatting.size(self.request_bytes)}" if self.request_bytes else ""
        head = [
            f"{short} {formatting.single_line(self.span.name, 60)}:"
            f" {formatting.pluralize(len(self.parts), 'part')},"
            f" {formatting.size(self.total)}{size}, {basis}"
        ]
        table = [["contributor", "kind", "bytes", "~tokens", "share", "parts"]]
        for name, kind, size_bytes, count in self.by_contributor():
            row = [
                formatting.single_line(name, 40),
                formatting.single_line(kind, 20),
                formatting.size(size_bytes),
            ]
            row += [str(size_bytes // CHARACTERS_A_TOKEN), f"{self._share(size_bytes):.0%}"]
            table.append([*row, str(count)])
        titles, *rows = columns(table, right=(2, 3, 4, 5))
        full = self.command("segments", short, "--json")
        end = [*self._cache(), f"next: {self.command('body', short, '--in')}"]
        return fit([*head, titles], rows, end, budget, lambda left: f"… {left} more lines: {full}")

    def _share(self, size_bytes: int) -> float:
        return size_bytes / self.total if self.total else 0.0

    def _cache(self) -> list[str]:
        read, wrote = (
            self.span.attributes.get(f"cache_{which}_tokens") for which in ("read", "write")
        )
        if not isinstance(read, int) and not isinstance(wrote, int):
            return []
        return [f"cache: {read or 0} tokens read, {wrote or 0} written"]

    def data(self) -> dict[str, Any]:
        attributes, request = self.span.attributes, self.request
        return {
            "version": self.version,
            "span": self.span.short_id,
            "basis": self.basis,
            "ranges": self.ranges,
            "request_bytes": self.request_bytes,
            "covered_bytes": self.total,
            "segments": [
                {
                    "contributor": part.contributor,
                    "kind": part.kind,
                    "role": part.role,
                    "size_bytes": part.size_bytes,
                    "begin": part.begin,
                    "end": part.end,
                    "path": part.path,
                    "share": round(self._share(part.size_bytes), 4),
                    "tokens_estimated": part.size_bytes // CHARACTERS_A_TOKEN,
                    "preview": part.preview,
                }
                for part in self.parts[:SEGMENTS_MAX]
            ],
            "segments_left_out": max(0, len(self.parts) - SEGMENTS_MAX),
            "contributors": [
                {
                    "contributor": name,
                    "kind": kind,
                    "size_bytes": size,
                    "share": round(self._share(size), 4),
                    "tokens_estimated": size // CHARACTERS_A_TOKEN,
                    "count": count,
                }
                for name, kind, size, count in self.by_contributor()
            ],
            "cache": {
                "read_tokens": attributes.get("cache_read_tokens"),
                "write_tokens": attributes.get("cache_write_tokens"),
                "breakpoints": [] if request is None else request.breakpoints,
                "prefix_end": None if request is None else request.prefix_end,
            },
        }


def segments_answer(evidence: Evidence, span_id: str) -> SegmentsAnswer:
    span = evidence.spans[span_id]
    assembly = span if span.type == SPAN_TYPE else evidence.assembly(span)
    call = span
    if span.type == SPAN_TYPE:
        above = evidence.spans.get(span.parent_id or "")
        call = above if above is not None and above.type == "llm" else span
    body = (evidence.input(call) or "").encode(errors="replace")
    request = evidence.request(call)
    size = None if call.input is None else call.input.size_bytes
    recorded = parse_segments(evidence.output(assembly)) if assembly is not None else []
    if assembly is not None and recorded:
        ranges = str(assembly.attributes.get("ranges") or "parts")
        located = body if ranges == "body" else b""
        parts = [_part_of_segment(segment, located) for segment in recorded]
        return SegmentsAnswer(call, "recorded", ranges, parts, request, size)
    if request is None or not request.prompt:
        raise NotFoundError(
            f"{span.short_id}: has no prompt segments (expected a model call with a request in a"
            " known format, or with recorded segments)."
            f" See `vestige span {span.short_id}`."
        )
    names = [tool.name for tool in request.tools]
    parts = [_part_of_prompt(part, names, body) for part in request.prompt]
    return SegmentsAnswer(call, "parsed", "body", parts, request, size)


def _part_of_segment(segment: Segment, body: bytes) -> Part:
    preview = _preview(body, segment.begin, segment.end) if body else None
    return Part(
        segment.contributor,
        segment.kind,
        segment.role,
        segment.length,
        segment.begin,
        segment.end,
        None,
        preview,
    )


def _part_of_prompt(part: PromptPart, tools: Sequence[str], body: bytes) -> Part:
    contributor = part.kind
    if part.kind == "tool":
        contributor = f"tool:{tools[part.index]}" if part.index < len(tools) else "tool"
    elif part.kind == "message":
        contributor = f"message:{part.role or '?'}"
    elif part.kind == "setting":
        contributor = f"setting:{part.path}"
    size = max(0, part.end - part.begin)
    preview = _preview(body, part.begin, part.end)
    return Part(contributor, part.kind, part.role, size, part.begin, part.end, part.path, preview)


def _preview(body: bytes, begin: int, end: int) -> str:
    return body[begin : min(end, begin + PREVIEW_MAX * 4)].decode(errors="replace")[:PREVIEW_MAX]
