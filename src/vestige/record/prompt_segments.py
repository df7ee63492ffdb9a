"""Segments: who put which part into a prompt, and how long it is.

    span.segments([("persona", persona), ("skill:web", skill), ("user", question)], body=request)

A request's body is stored anyway; segments are only a map over it. Their ranges are
bytes of that body when the caller knows them or gives the body to look them up in, and
else bytes of the parts put one after the other: `Assembly.ranges` says which.

Elsewhere: the `prompt.assembly` span is made in emit/span.py and read by
query/checks/model/prompt_cache.py, which names the contributor whose part changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from vestige.record.coercion import clean_name, clean_text

SPAN_TYPE = "prompt.assembly"

SEGMENTS_MAX = 2_000
"""Of one prompt. A longer list is a history told message by message: its rest goes into one."""

Ranges = Literal["body", "parts"]


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """One contribution to a prompt."""

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
    """Segments of whatever a caller has: mappings, or pairs of a contributor and its text."""
    drafts = [_draft(part) for part in parts]
    where = None if body is None else (body if isinstance(body, bytes) else body.encode())
    if where is not None:
        _locate(drafts, where)
    known = bool(drafts) and all(draft["begin"] is not None for draft in drafts)
    if not known:
        _lay_out(drafts)
    segments = [Segment(**{k: v for k, v in draft.items() if k != "text"}) for draft in drafts]
    return Assembly(segments=_fold_rest(segments), ranges="body" if known else "parts")


def render_segments(segments: list[Segment]) -> str:
    """The body of a `prompt.assembly` span: a JSON list, one object for each segment."""
    return msgspec.json.encode(segments).decode()


def parse_segments(text: str | None) -> list[Segment]:
    """Segments as they were rendered; none where this is no such list."""
    try:
        return msgspec.json.decode(text or "[]", type=list[Segment])
    except (msgspec.DecodeError, ValueError):
        return []


def _draft(part: Any) -> dict[str, Any]:
    if isinstance(part, Segment):
        return {**msgspec.structs.asdict(part), "text": None}
    given = part if isinstance(part, Mapping) else _of_tuple(part)
    contributor = clean_name(given.get("contributor") or given.get("name") or "unnamed")
    text = given.get("text")
    raw = clean_text(text if isinstance(text, str) else str(text)).encode() if text else None
    begin, end = _count(given.get("begin")), _count(given.get("end"))
    if begin is None or end is None or end < begin:
        begin = end = None
    length = _count(given.get("length"))
    if length is None:
        length = len(raw) if raw is not None else (end or 0) - (begin or 0)
    role = given.get("role")
    return {
        "contributor": contributor,
        "kind": clean_name(given.get("kind") or contributor.partition(":")[0]),
        "role": None if role is None else clean_name(role),
        "length": length,
        "begin": begin,
        "end": end,
        "text": raw,
    }


def _of_tuple(part: Any) -> dict[str, Any]:
    """(contributor, text), or (contributor, kind, text)."""
    contributor, *kind, text = part
    return {"contributor": contributor, "kind": kind[0] if kind else None, "text": text or ""}


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**62 else None


def _locate(drafts: list[dict[str, Any]], body: bytes) -> None:
    """Find each text in the body, as it is or as JSON writes it; each after the one before,
    or, where a body has another order, anywhere."""
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
    """A text's forms in a body: in JSON, in JSON that is all ASCII, and plain."""
    import json  # the standard writer, whose ASCII form is the one that bodies have

    plain = text.decode()
    forms = (
        json.dumps(plain, ensure_ascii=ascii_only)[1:-1].encode() for ascii_only in (False, True)
    )
    return list(dict.fromkeys((*forms, text)))


def _lay_out(drafts: list[dict[str, Any]]) -> None:
    """One after the other."""
    at = 0
    for draft in drafts:
        draft["begin"], at = at, at + draft["length"]
        draft["end"] = at


def _fold_rest(segments: list[Segment]) -> list[Segment]:
    if len(segments) <= SEGMENTS_MAX:
        return segments
    kept, rest = segments[: SEGMENTS_MAX - 1], segments[SEGMENTS_MAX - 1 :]
    last = Segment(
        contributor=f"{len(rest)} more",
        kind="rest",
        length=sum(segment.length for segment in rest),
        begin=min(segment.begin for segment in rest),
        end=max(segment.end for segment in rest),
    )
    return [*kept, last]
