"""The steps of a text search, which all engines share: parts, hits, limits, cursors.

return collect_hits(scan, query, after, limit)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from vestige.errors import UsageError
from vestige.store.cancellation import check_cancelled
from vestige.store.interface.search import Hit, SearchQuery, SearchResult


class Scan(Protocol):
    """A running search. The iterators yield a cursor and a hit, or None between two steps."""

    def iter_rows(self, part: str, last: int | None) -> Iterator[tuple[str, Hit | None]]: ...

    def iter_bodies(self, part: str, last: int | None) -> Iterator[tuple[str, Hit | None]]: ...

    def is_over(self) -> bool:
        """Return True if the search has reached a limit."""
        ...

    def format_limit(self) -> str:
        """Return the limit that the search has reached, for people to read."""
        ...


def collect_hits(scan: Scan, query: SearchQuery, after: str | None, limit: int) -> SearchResult:
    """Return up to `limit` hits, and a cursor if the search is not complete."""
    first_part, last = parse_cursor(after, query)
    hits: list[Hit] = []
    runs: set[str] = set()
    for part in query.parts[query.parts.index(first_part) :]:
        iter_part = scan.iter_bodies if part == "bodies" else scan.iter_rows
        for cursor, hit in iter_part(part, last if part == first_part else None):
            check_cancelled()
            if hit is not None:
                if query.once_per_run and hit.span_ref.run_id in runs:
                    continue
                runs.add(hit.span_ref.run_id)
                hits.append(hit)
                if len(hits) >= limit:
                    return SearchResult(hits, cursor, f"{limit} hits")
            elif scan.is_over():
                return SearchResult(hits, cursor, scan.format_limit())
    return SearchResult(hits, None, "")


def parse_cursor(after: str | None, query: SearchQuery) -> tuple[str, int | None]:
    """Return the part and the row of a cursor such as `bodies:4711`."""
    if after is None:
        return query.parts[0], None
    part, _, number = after.partition(":")
    if part not in query.parts or not number.isdecimal():
        raise UsageError(
            f"--after {after!r}: not a cursor of this search. Use the cursor of its last answer."
        )
    return part, int(number[:18])
