"""A model call inside a model call is the same call, told twice: its tokens count once.

A program's own `llm` span has the wire's in it, and both say what was used. What counts is the
outer one, if it has ended and tells tokens; until then, the inner one. So a sum is right at any
moment: when the outer one ends, what its inner ones added is taken off, and the other way round
when an end is taken back.

    nested = NestedCalls(connection, spans, rollups)
    nested.fold(span, run, 1)       # a call was just added up; -1: it is being taken back

The common case, a call that stands in no other, costs one look into a dict. An inner call that was
taken in by an earlier batch than the opening of the outer one, which no writer's own order allows, is
looked for only where spans come in any order (store/sqlite/ingest/external_spans.py).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from vestige.limits import SUM_MAX
from vestige.store.sqlite.ingest.rollups import Rollups, count_of
from vestige.store.sqlite.ingest.rows import (
    SELECT_ABOVE,
    SELECT_INNER,
    SELECT_INNER_ANY,
    RunRow,
    SpanRow,
    load_span,
)

Key = tuple[str, str]
"""A run's id and a span's."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class NestedCalls:
    """Of one batch; `spans` are its rows as they are folded, by run and span id."""

    def __init__(
        self, connection: sqlite3.Connection, spans: Mapping[Key, SpanRow], rollups: Rollups
    ) -> None:
        self._connection = connection
        self._spans = spans
        self._rollups = rollups
        self._stored: dict[Key, tuple[bool, bool]] = {}
        """Of spans that are in the table and not in the batch: is it a model call, does it count."""
        self._inner: dict[Key, list[SpanRow]] = {}
        """Calls of the batch that stand in a model call, or in a span that is not known yet."""
        self.any_order = False
        """Spans come before those that they stand in, too."""

    def fold(self, span: SpanRow, run: RunRow, times: int) -> None:
        """A model call was added up (1) or is taken back (-1): see to those above and inside it."""
        if not _tells(span.attributes):
            return
        parent_id = span.parent_id
        if parent_id is not None and parent_id != span.span_id:
            key = (run.run_id, parent_id)
            is_call, counts = self._look_above(key, run)
            if is_call and times > 0:
                self._inner.setdefault(key, []).append(span)
            if counts:
                self._count(span, run, -times)
        for inner in self._inside(span, run):
            self._count(inner, run, -times)

    def _look_above(self, key: Key, run: RunRow) -> tuple[bool, bool]:
        """Is it a model call (or may it become one), and does it count?"""
        above = self._spans.get(key)
        if above is not None:
            if above.seq is None:
                return True, False
            is_call = above.type == "llm"
            return is_call, is_call and above.status is not None and _tells(above.attributes)
        known = self._stored.get(key)
        if known is None:
            row = self._connection.execute(SELECT_ABOVE, (key[1], run.id)).fetchone()
            known = (True, False)
            if row is not None:
                kind, seq, status, text = row
                ended = seq is not None and status is not None
                counts = ended and kind == "llm" and bool(text) and _tells(_decode(text))
                known = (kind == "llm" or seq is None, counts)
            self._stored[key] = known
        return known

    def _inside(self, span: SpanRow, run: RunRow) -> Iterable[SpanRow]:
        """The model calls in this one that were added up."""
        if span.id is None and not self._inner and not self.any_order:
            return ()
        key = (run.run_id, span.span_id)
        found = {each.span_id: each for each in self._inner.get(key, ())}
        if span.id is not None or self.any_order:
            after = 0 if self.any_order else span.id
            query = SELECT_INNER_ANY if self.any_order else SELECT_INNER
            for row in self._connection.execute(query, (run.id, after, span.span_id)).fetchall():
                inner = load_span(row)
                found.setdefault(inner.span_id, self._spans.get((run.run_id, inner.span_id), inner))
        return [each for each in found.values() if each.status is not None]

    def _count(self, span: SpanRow, run: RunRow, times: int) -> None:
        attributes = span.attributes
        run.input_tokens += times * count_of(attributes.get("input_tokens"))
        run.output_tokens += times * count_of(attributes.get("output_tokens"))
        ended_ns = min(span.started_ns + (span.duration_ns or 0), SUM_MAX)
        self._rollups.add_tokens(ended_ns, span.component, span.type, span.name, attributes, times)


def _tells(attributes: Mapping[str, Any]) -> bool:
    return bool(
        count_of(attributes.get("input_tokens")) or count_of(attributes.get("output_tokens"))
    )
