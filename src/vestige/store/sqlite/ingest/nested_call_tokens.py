"""Count the tokens of nested model calls once.

A model call of the program contains that of the HTTP capture, of the same type, and both have the
tokens of one call. The outer span counts if it has ended and has tokens; until then, the inner one
counts. So the sums are right at any time: the end of the outer span subtracts its inner spans,
and they are added again if that end is subtracted.

    nested = NestedCalls(connection, spans, rollups)
    nested.adjust(span, run, 1)       # after a call was counted; -1: after it was subtracted

A call that is not nested costs one dict lookup. Spans of one writer arrive in order, so inner
calls of earlier batches are queried only for external exporters (external_spans.py).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from vestige.limits import SUM_MAX
from vestige.store.interface.stats import to_count
from vestige.store.sqlite.ingest.batch_rows import (
    SELECT_INNER,
    SELECT_INNER_EXTERNAL,
    SELECT_OUTER,
    RunRow,
    SpanRow,
    load_span,
)
from vestige.store.sqlite.ingest.daily_rollups import Rollups

Key = tuple[str, str]
"""Run id and span id."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class NestedCalls:
    """Adjust the sums of one batch. `spans` are its rows, by run and span id."""

    def __init__(
        self, connection: sqlite3.Connection, spans: Mapping[Key, SpanRow], rollups: Rollups
    ) -> None:
        self._connection = connection
        self._spans = spans
        self._rollups = rollups
        self._stored: dict[Key, tuple[str | None, bool]] = {}
        """The results of `_find_outer` for spans that are in the table and not in the batch."""
        self._inner: dict[Key, list[SpanRow]] = {}
        """Calls of the batch inside a model call, or inside a span that is not known yet."""
        self.any_order = False
        """True if an inner span may arrive before its outer span."""

    def adjust(self, span: SpanRow, run: RunRow, times: int) -> None:
        """Adjust the sums after a model call was counted (1) or subtracted (-1)."""
        if not _has_tokens(span.attributes):
            return
        parent_id = span.parent_id
        if parent_id is not None and parent_id != span.span_id:
            key = (run.run_id, parent_id)
            outer_type, counts = self._find_outer(key, run)
            if outer_type in (None, span.type) and times > 0:
                self._inner.setdefault(key, []).append(span)
            if counts and outer_type == span.type:
                self._count(span, run, -times)
        for inner in self._find_inner(span, run):
            self._count(inner, run, -times)

    def _find_outer(self, key: Key, run: RunRow) -> tuple[str | None, bool]:
        """Return the type of a span, None if it is not known yet, and whether its tokens count."""
        outer = self._spans.get(key)
        if outer is not None:
            if outer.seq is None:
                return None, False
            return outer.type, outer.status is not None and _has_tokens(outer.attributes)
        known = self._stored.get(key)
        if known is None:
            row = self._connection.execute(SELECT_OUTER, (key[1], run.id)).fetchone()
            known = (None, False)
            if row is not None:
                span_type, seq, status, text = row
                counts = status is not None and bool(text) and _has_tokens(_decode(text))
                known = (None, False) if seq is None else (span_type, counts)
            self._stored[key] = known
        return known

    def _find_inner(self, span: SpanRow, run: RunRow) -> Iterable[SpanRow]:
        """Return the counted model calls inside this one."""
        if span.id is None and not self._inner and not self.any_order:
            return ()
        key = (run.run_id, span.span_id)
        found = {each.span_id: each for each in self._inner.get(key, ())}
        if span.id is not None or self.any_order:
            after = 0 if self.any_order else span.id
            query = SELECT_INNER_EXTERNAL if self.any_order else SELECT_INNER
            for row in self._connection.execute(query, (run.id, after, span.span_id)).fetchall():
                inner = load_span(row)
                found.setdefault(inner.span_id, self._spans.get((run.run_id, inner.span_id), inner))
        return [
            each for each in found.values() if each.status is not None and each.type == span.type
        ]

    def _count(self, span: SpanRow, run: RunRow, times: int) -> None:
        attributes = span.attributes
        run.input_tokens += times * to_count(attributes.get("input_tokens"))
        run.output_tokens += times * to_count(attributes.get("output_tokens"))
        ended_ns = min(span.started_ns + (span.duration_ns or 0), SUM_MAX)
        self._rollups.add_tokens(ended_ns, span.component, span.type, span.name, attributes, times)


def _has_tokens(attributes: Mapping[str, Any]) -> bool:
    return bool(
        to_count(attributes.get("input_tokens")) or to_count(attributes.get("output_tokens"))
    )
