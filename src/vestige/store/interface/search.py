"""Search text, and run a user's SQL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

import msgspec

from vestige.store.interface.spans import SpanRef


class SearchQuery(msgspec.Struct, frozen=True):
    """A full-text search: its pattern and its scope."""

    pattern: re.Pattern[str]
    """Matches the text both plain and as it is escaped in JSON."""
    literals: tuple[str, ...]
    """Every match in a name, message or attribute contains one of these. Empty: unknown."""
    ignore_case: bool
    """True if literals match in any case. It applies to ASCII letters only."""
    run_id: str | None
    parts: tuple[str, ...]
    """Any of `attrs`, `logs` and `bodies`, in the order of the search."""
    expression: bool = False
    """True if the user wrote the pattern, so matching may take arbitrarily long."""
    once_per_run: bool = False
    """True if one hit of a run is enough, because only the runs are of interest."""


class Hit(msgspec.Struct, frozen=True):
    """A text that matches. A text that occurs in several bodies is one hit."""

    cursor: str
    """The cursor to continue the search after this hit."""
    span_ref: SpanRef
    part: str
    """`attrs`, `log`, `input`, `output`, `log body`."""
    before: str
    match: str
    after: str
    start_byte: int | None
    """The offset of the match in its body."""
    count: int
    """The number of matches in this text."""
    bodies: int
    """The number of bodies that contain this text."""


class SearchResult(msgspec.Struct, frozen=True):
    """Hits, and the cursor at which the search stopped if it is not complete."""

    hits: Sequence[Hit]
    cursor: str | None
    stopped: str
    """The reason why it stopped, for people to read; empty if the search is complete."""


class QueryRows(msgspec.Struct, frozen=True):
    """The result of a user's SQL query."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    more: bool


class TableInfo(msgspec.Struct, frozen=True):
    """A table or view that a user's SQL can read."""

    name: str
    sql: str
    """The statement that creates it, with comments."""
    columns: Sequence[str]
    is_view: bool


class StoreSchema(msgspec.Struct, frozen=True):
    """The tables of a store, and the version of their layout."""

    version: int
    tables: Sequence[TableInfo]
    examples: Sequence[str]
    """Queries to begin with."""


class TextSearcher(Protocol):
    """The methods that search text and run queries."""

    def search(
        self, query: SearchQuery, after: str | None = None, limit: int = 100
    ) -> SearchResult:
        """Search texts, newest first. A regular expression can be stopped at its time limit."""

    def query(self, sql: str, skip: int, limit: int) -> QueryRows:
        """Run a user's read-only query, bounded in time and rows."""
