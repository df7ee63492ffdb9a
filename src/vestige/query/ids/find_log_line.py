"""Find who said a line: what a person has copied from a terminal or a log file.

    places_of_line(store, "2026-03-01 12:00:01,250 INFO shop: stock is low")

A line that was logged stands there behind its time, level and logger: if it is not found whole, it is
tried without more and more of its beginning. In the newest part of a large store.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from vestige.query.search.grep import PATTERN_MAX, GrepOptions, wanted
from vestige.store.protocol import SpanRef, Store

LINE_MIN = 8
"""Characters: fewer are an id that is misspelt, or stand everywhere."""

PARTS_TRIED = 8
"""Of one line, each a search."""

ANSWERS_TRIED = 2
"""Of them, searched for in bodies too: an answer of a model has no time before it."""

HITS_MAX = 50

_BEGINNING = re.compile(r"[\]:|>)-] +|\b[A-Z]{4,8}\b:? +|\t")
"""What ends a time, a level or a logger's name."""


def places_of_line(store: Store, text: str) -> list[SpanRef]:
    """Where it was said, newest first, each place once; nothing if nobody did."""
    for part in _parts(text):
        if said := _places(store, part, "logs"):
            return said
    for part in list(_parts(text))[:ANSWERS_TRIED]:
        if said := _places(store, part, "bodies"):
            return said
    return []


def _places(store: Store, text: str, where: str) -> list[SpanRef]:
    hits = store.search(wanted(text, GrepOptions(parts=(where,))), None, HITS_MAX).hits
    said = [hit.span_ref for hit in hits if where == "bodies" or hit.part == "log"]
    return list({(place.run_id, place.span_id): place for place in said}.values())


def _parts(text: str) -> Iterator[str]:
    """All of it, then what is behind its time, and so on: the longest first."""
    text = text.splitlines()[0].strip()[:PATTERN_MAX]
    starts = [0, *(found.end() for found in _BEGINNING.finditer(text))]
    for start in starts[:PARTS_TRIED]:
        part = text[start:]
        if len(part) < LINE_MIN or " " not in part:
            return
        yield part
