"""Find the spans that logged a line copied from a terminal or a log file.

    find_log_spans(store, "2026-03-01 12:00:01,250 INFO shop: stock is low")

A copied line may start with a time, a level and a logger name. If it is not found, it is
searched again without these prefixes. In a large store only the newest suffix is searched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from vestige.query.search.grep import PATTERN_MAX, GrepOptions, build_search_query
from vestige.store.protocol import SpanRef, Store

LINE_MIN = 8
"""Characters. A shorter text is a misspelt id, or occurs everywhere."""

SUFFIXES_MAX = 8
"""Suffixes of one line to search."""

HITS_MAX = 50

_PREFIX_END = re.compile(r"[\]:|>)-] +|\b[A-Z]{4,8}\b:? +|\t")
"""The end of a time, a level or a logger name."""


def find_log_spans(store: Store, text: str) -> list[SpanRef]:
    """Return the spans that logged the line, newest first, without duplicates."""
    for suffix in _suffixes(text):
        query = build_search_query(suffix, GrepOptions(parts=("logs",)))
        hits = store.search(query, None, HITS_MAX).hits
        refs = [hit.place for hit in hits if hit.part == "log"]
        if refs:
            return list({(ref.run_id, ref.span_id): ref for ref in refs}.values())
    return []


def _suffixes(text: str) -> Iterator[str]:
    """Yield the line, then the line without its prefixes, the longest first."""
    text = text.splitlines()[0].strip()[:PATTERN_MAX]
    starts = [0, *(found.end() for found in _PREFIX_END.finditer(text))]
    for start in starts[:SUFFIXES_MAX]:
        suffix = text[start:]
        if len(suffix) < LINE_MIN or " " not in suffix:
            return
        yield suffix
