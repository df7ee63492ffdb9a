"""`outline`: a run as columns, for the viewer; as text, a summary of its tree.

A hundred thousand spans fit into a few megabytes: the columns come straight from the rows and
hold only what a tree, a waterfall or a log list draws. Repeated texts are stored once, in
`strings`. With `after`, an answer has only new and changed rows, which follows a live run.

    outline_answer(store, info)                       # the complete run
    outline_answer(store, info, after=answer.next)    # rows added or changed since

A span is identified by its number (`r7.s12` is 12), which never changes; 0 means "none".
Elsewhere: rows in store/sqlite/read/outline_rows.py; the text in query/views/tree_summary.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import Any, ClassVar

import msgspec

from vestige.errors import UsageError, VestigeError
from vestige.limits import LABEL_MAX, LABELLED_ARGUMENTS_MAX, OUTLINE_MESSAGE_MAX, OUTLINE_ROWS_MAX
from vestige.query import formatting
from vestige.query.stats.costs import Cost, run_costs
from vestige.query.text_layout import CommandAnswer, fit
from vestige.query.views.show import run_data
from vestige.query.views.timeline import NOT_SHOWN, format_attributes
from vestige.query.views.tree_summary import render_tree
from vestige.record.external_seq import voice
from vestige.record.run import RunInfo, put_in_order
from vestige.store.protocol import Store
from vestige.store.sqlite.ingest.rollups import to_count
from vestige.store.sqlite.read import outline_rows
from vestige.store.sqlite.read.outline_rows import Cursor, Losses
from vestige.store.sqlite.read.reports import connection_of

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_LABELLED_BYTES = 2_000
"""Longest body of tool arguments that is read for a label."""

_NOT_IN_LABELS = NOT_SHOWN | {"tool_name", "tool_call_id", "tool_call.matched", "provider"}
"""Attributes that add nothing to a span's name and model."""

_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


class Strings:
    """An interning table of texts; number 0 is the empty text."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {"": 0}

    def number(self, text: str | None) -> int:
        return self.numbers.setdefault(text or "", len(self.numbers))

    def all(self) -> list[str]:
        return list(self.numbers)


@dataclass
class OutlineAnswer(CommandAnswer):
    """A run, or the new part of it, as columns."""

    verb: ClassVar[str] = "outline"
    budget: ClassVar[int] = 800
    dense: ClassVar[bool] = True

    run: RunInfo
    strings: Strings
    spans: dict[str, list[Any]]
    logs: dict[str, list[Any]]
    links: list[dict[str, Any]]
    losses: Losses
    cost: Cost | None
    next: str
    """Cursor for the next request."""
    more: bool

    def lines(self, budget: int) -> list[str]:
        info = self.run
        took = info.duration_ns if info.duration_ns is not None else info.last_ns - info.started_ns
        head = [
            f"{info.short_id} {formatting.single_line(info.name, 80)}:"
            f" {formatting.single_line(info.outcome, 20)} after {formatting.duration(took)},"
            f" {formatting.pluralize(info.span_count, 'span')},"
            f" {formatting.pluralize(info.log_count, 'log line')}"
        ]
        rows = render_tree(self.spans, self.strings.all())
        if self.more:
            head.append(f"first {formatting.pluralize(len(self.spans['number']), 'span')}:")
        show = self.command("show", info.short_id)
        end = [f"next: {show} | {self.command('transcript', info.short_id)}"]
        return fit(
            head, rows, end, budget, lambda left: f"… {left} lines hidden; every span: {show}"
        )

    def data(self) -> dict[str, Any]:
        cost = self.cost
        return {
            "version": self.version,
            "run": {
                **run_data(self.run),
                "cost_usd": None if cost is None else cost.dollars,
                "unpriced_models": [] if cost is None else list(cost.unknown),
            },
            "base_us": self.run.started_ns // 1000,
            "strings": self.strings.all(),
            "spans": self.spans,
            "logs": self.logs,
            "links": self.links,
            "losses": asdict(self.losses),
            "next": self.next,
            "more": self.more,
        }


def outline_answer(
    store: Store, info: RunInfo, after: str | None = None, limit: int = OUTLINE_ROWS_MAX
) -> OutlineAnswer:
    """Return a run, or what is new since a cursor; at most `limit` rows of each kind."""
    connection = connection_of(store)
    run = int(info.short_id[1:])
    found = outline_rows.read_rows(
        connection, run, _parse_cursor(after), limit, OUTLINE_MESSAGE_MAX
    )
    strings = Strings()
    numbers = _Numbers(connection, run, found.spans, found.logs, found.links)
    writers = outline_rows.read_writers(
        connection, {row[4] for row in found.spans} | {row[3] for row in found.logs}
    )
    spans = put_in_order(
        found.spans,
        lambda row: voice(writers.get(row[4], ""), row[2], row[5]),
        itemgetter(5),
        itemgetter(6),
    )
    logs = put_in_order(
        found.logs,
        lambda row: voice(writers.get(row[3], ""), row[2], row[1]),
        itemgetter(1),
        itemgetter(4),
    )
    arguments = _read_arguments(store, spans)
    return OutlineAnswer(
        info,
        strings,
        _span_columns(spans, info.started_ns, strings, numbers.get, arguments),
        _log_columns(logs, info.started_ns, strings, numbers.get),
        [_link_data(row, numbers.get) for row in found.links],
        outline_rows.read_losses(connection, run),
        run_costs(store, [info.id]).get(info.id),
        str(found.cursor),
        found.more,
    )


def _parse_cursor(text: str | None) -> Cursor:
    if text is None:
        return Cursor()
    try:
        return outline_rows.parse_cursor(text)
    except ValueError:
        raise UsageError(
            f"after {formatting.single_line(text, 40)!r}: not a cursor"
            " (expected `next` of a previous answer)."
        ) from None


class _Numbers:
    """Span numbers by span id; ids outside these rows are looked up in one query."""

    def __init__(self, connection: Any, run: int, *tables: list[tuple[Any, ...]]) -> None:
        spans, logs, links = tables
        self._known: dict[str, int] = {row[2]: row[1] for row in spans}
        used = {row[3] for row in spans} | {row[2] for row in logs} | {row[1] for row in links}
        missing = [span_id for span_id in used if span_id and span_id not in self._known]
        if missing:
            self._known |= outline_rows.read_numbers(connection, run, missing)

    def get(self, span_id: str | None) -> int:
        return self._known.get(span_id or "", 0)


# --- columns ------------------------------------------------------------------------------------


def _span_columns(
    rows: Sequence[tuple[Any, ...]],
    base_ns: int,
    strings: Strings,
    number_of: Callable[[str | None], int],
    arguments: dict[int, str],
) -> dict[str, list[Any]]:
    text = strings.number
    attributes = [_decode(row[12]) if row[12] else {} for row in rows]
    columns = {
        "number": [row[1] for row in rows],
        "id": [row[2] for row in rows],
        "parent": [_parent(row, number_of) for row in rows],
        "type": [text(row[7]) for row in rows],
        "name": [text(row[8]) for row in rows],
        "component": [text(row[9]) for row in rows],
        "status": [text(row[10]) for row in rows],
        "start_us": [(row[6] - base_ns) // 1000 for row in rows],
        "duration_us": [None if row[11] is None else row[11] // 1000 for row in rows],
        "input_bytes": [-1 if row[14] is None else row[14] for row in rows],
        "output_bytes": [-1 if row[15] is None else row[15] for row in rows],
        "model": [text(_string_or_empty(own.get("model"))) for own in attributes],
        "label": [
            text(format_label(row[10], own, arguments.get(row[13])))
            for row, own in zip(rows, attributes, strict=True)
        ],
    }
    for name in _TOKENS:
        short = name.removesuffix("_tokens") if name.startswith("cache") else name
        columns[short] = [to_count(own[name]) if name in own else -1 for own in attributes]
    return columns


def _parent(row: tuple[Any, ...], number_of: Callable[[str | None], int]) -> int:
    """Return the parent's number; 0 if a span names itself as its parent."""
    number = number_of(row[3]) if row[3] else 0
    return 0 if number == row[1] else number


def _string_or_empty(value: Any) -> str:
    return value if isinstance(value, str) else ""


def format_label(
    status: str | None, attributes: dict[str, Any], arguments: str | None = None
) -> str:
    """Describe in half a line how a span failed, its arguments, or its attributes."""
    if status not in ("ok", None):
        kind, message = attributes.get("error.type"), attributes.get("error.message")
        if kind is not None or message is not None:
            return formatting.single_line(
                ": ".join(str(part) for part in (kind, message) if part), LABEL_MAX
            )
    if arguments is not None:
        return formatting.single_line(arguments, LABEL_MAX)
    shown = {key: value for key, value in attributes.items() if key not in _NOT_IN_LABELS}
    if not shown:
        return ""
    label = " ".join(format_attributes(shown))
    return label if len(label) <= LABEL_MAX else label[: LABEL_MAX - 1] + "…"


def _read_arguments(store: Store, rows: Sequence[tuple[Any, ...]]) -> dict[int, str]:
    """Return the short arguments of tools by body id, at most LABELLED_ARGUMENTS_MAX."""
    body_ids: dict[int, None] = {}
    for row in rows:
        if row[7] == "tool" and row[13] is not None and (row[14] or 0) <= _LABELLED_BYTES:
            body_ids[row[13]] = None
            if len(body_ids) == LABELLED_ARGUMENTS_MAX:
                break
    try:
        found = list(store.read_bodies(list(body_ids))) if body_ids else []
    except VestigeError:
        return {}  # labels are optional: a damaged body must not fail the outline
    return {body: raw.decode(errors="replace") for body, raw in found}


def _log_columns(
    rows: Sequence[tuple[Any, ...]],
    base_ns: int,
    strings: Strings,
    number_of: Callable[[str | None], int],
) -> dict[str, list[Any]]:
    text = strings.number
    return {
        "seq": [row[1] for row in rows],
        "span": [number_of(row[2]) for row in rows],
        "time_us": [(row[4] - base_ns) // 1000 for row in rows],
        "level": [text(row[5]) for row in rows],
        "component": [text(row[6]) for row in rows],
        "message": [row[7] for row in rows],
        "label": [text(format_label(None, _decode(row[9]))) if row[9] else 0 for row in rows],
        "cut": [index for index, row in enumerate(rows) if row[8] > len(row[7])],
    }


def _link_data(row: tuple[Any, ...], number_of: Callable[[str | None], int]) -> dict[str, Any]:
    return {
        "span": number_of(row[1]),
        "target_run": row[2],
        "target_span": row[3],
        "reason": row[4],
    }
