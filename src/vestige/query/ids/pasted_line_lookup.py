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

BODY_SUFFIXES_MAX = 2
"""Suffixes to search in bodies as well. The answer of a model has no time before it."""

HITS_MAX = 50

_PREFIX_END = re.compile(r"[\]:|>)-] +|\b[A-Z]{4,8}\b:? +|\t")
"""The end of a time, a level or a logger name."""


def find_log_spans(store: Store, text: str) -> list[SpanRef]:
    """Return the spans that logged or streamed the line, newest first, without duplicates."""
    suffixes = list(_suffixes(text))
    for suffix in suffixes:
        if refs := _search(store, suffix, "logs"):
            return refs
    for suffix in suffixes[:BODY_SUFFIXES_MAX]:
        if refs := _search(store, suffix, "bodies"):
            return refs
    return []


def _search(store: Store, text: str, part: str) -> list[SpanRef]:
    query = build_search_query(text, GrepOptions(parts=(part,)))
    hits = store.search(query, None, HITS_MAX).hits
    refs = [hit.span_ref for hit in hits if part == "bodies" or hit.part == "log"]
    return list({(ref.run_id, ref.span_id): ref for ref in refs}.values())


def _suffixes(text: str) -> Iterator[str]:
    """Yield the line, then the line without its prefixes, the longest first."""
    text = text.splitlines()[0].strip()[:PATTERN_MAX]
    starts = [0, *(found.end() for found in _PREFIX_END.finditer(text))]
    for start in starts[:SUFFIXES_MAX]:
        suffix = text[start:]
        if len(suffix) < LINE_MIN or " " not in suffix:
            return
        yield suffix
