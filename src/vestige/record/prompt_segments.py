"""Prompt segments: the parts of a prompt, each with its contributor and length.

    span.segments([("persona", persona), ("skill:web", skill), ("user", question)], body=request)

A request's body is stored anyway; segments are only a map of it. Their ranges are byte
offsets in that body if the caller knows them or passes the body, and otherwise byte
offsets in the concatenated parts (`Assembly.ranges`).

emit/span.py writes the `prompt.assembly` span; query/checks/model/prompt_cache.py reads
it and names the contributor whose part changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.record.coercion import clean_name, clean_text

SPAN_TYPE = "prompt.assembly"

SEGMENTS_MAX = 2_000
"""Segments per prompt. The rest of a longer list, such as a long history, becomes one segment."""

Ranges = Literal["body", "parts"]


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A contribution to a prompt."""

    contributor: str
    """Who put it there: `persona`, `skill:web`, `tool:read_file`."""
    kind: str
    """`persona`, `tool-def`, `skill`, `agent-profile`, `history`, `user-msg`, ...: an open set."""
    role: str | None = None
    length: int
    """In bytes, as the contributor wrote it."""
    begin: int
    end: int


class Assembly(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt's segments in order, and what their ranges are ranges of."""

    segments: list[Segment]
    ranges: Ranges

    @property
    def size_bytes(self) -> int:
        return sum(segment.length for segment in self.segments)


def make_assembly(parts: Iterable[Any], body: str | bytes | None = None) -> Assembly:
    """Build an assembly of segments, mappings, or pairs of a contributor and its text."""
    drafts = [_draft(part) for part in parts]
    raw = None if body is None else (body if isinstance(body, bytes) else body.encode())
    if raw is not None:
        _locate(drafts, raw)
    known = bool(drafts) and all(draft["begin"] is not None for draft in drafts)
    if not known:
        _lay_out(drafts)
    segments = [Segment(**{k: v for k, v in draft.items() if k != "text"}) for draft in drafts]
    return Assembly(segments=_fold_rest(segments), ranges="body" if known else "parts")


def render_segments(segments: list[Segment]) -> str:
    """Return the body of a `prompt.assembly` span: a JSON list of segments."""
    return msgspec.json.encode(segments).decode()


def parse_segments(text: str | None) -> list[Segment]:
    """Return the segments of a rendered list; an empty list if the text is not one."""
    try:
        return msgspec.json.decode(text or "[]", type=list[Segment])
    except (msgspec.DecodeError, ValueError):
        return []


def _draft(part: Any) -> dict[str, Any]:
    if isinstance(part, Segment):
        return {**msgspec.structs.asdict(part), "text": None}
    fields = part if isinstance(part, Mapping) else _tuple_fields(part)
    contributor = clean_name(fields.get("contributor") or fields.get("name") or "unnamed")
    text = fields.get("text")
    raw = clean_text(text if isinstance(text, str) else str(text)).encode() if text else None
    begin, end = _count(fields.get("begin")), _count(fields.get("end"))
    if begin is None or end is None or end < begin:
        begin = end = None
    length = _count(fields.get("length"))
    if length is None:
        length = len(raw) if raw is not None else (end or 0) - (begin or 0)
    role = fields.get("role")
    return {
        "contributor": contributor,
        "kind": clean_name(fields.get("kind") or contributor.partition(":")[0]),
        "role": None if role is None else clean_name(role),
        "length": length,
        "begin": begin,
        "end": end,
        "text": raw,
    }


def _tuple_fields(part: Any) -> dict[str, Any]:
    """Return the fields of (contributor, text) or (contributor, kind, text)."""
    contributor, *kind, text = part
    return {"contributor": contributor, "kind": kind[0] if kind else None, "text": text or ""}


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**62 else None


def _locate(drafts: list[dict[str, Any]], body: bytes) -> None:
    """Find each text in the body, plain or as JSON, after the previous text or else anywhere."""
    at = 0
    for draft in drafts:
        if draft["begin"] is not None or not draft["text"]:
            continue
        for needle in _as_written(draft["text"]):
            found = body.find(needle, at)
            if found < 0:
                found = body.find(needle)
            if found >= 0:
                draft["begin"], draft["end"] = found, found + len(needle)
                at = found + len(needle)
                break


def _as_written(text: bytes) -> list[bytes]:
    """Return the forms that a text can have in a body: JSON, ASCII-only JSON, and plain."""
    import json  # most SDKs write their bodies with it, including the ASCII form

    plain = text.decode()
    forms = (
        json.dumps(plain, ensure_ascii=ascii_only)[1:-1].encode() for ascii_only in (False, True)
    )
    return list(dict.fromkeys((*forms, text)))


def _lay_out(drafts: list[dict[str, Any]]) -> None:
    """Set the ranges as if the parts were concatenated."""
    at = 0
    for draft in drafts:
        draft["begin"], at = at, at + draft["length"]
        draft["end"] = at


def _fold_rest(segments: list[Segment]) -> list[Segment]:
    if len(segments) <= SEGMENTS_MAX:
        return segments
    first, rest = segments[: SEGMENTS_MAX - 1], segments[SEGMENTS_MAX - 1 :]
    last = Segment(
        contributor=f"{len(rest)} more",
        kind="rest",
        length=sum(segment.length for segment in rest),
        begin=min(segment.begin for segment in rest),
        end=max(segment.end for segment in rest),
    )
    return [*first, last]
