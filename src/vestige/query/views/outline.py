"""`outline`: a run as columns, for the viewer; as text, a summary of its tree.

A hundred thousand spans fit into a few megabytes: the columns come straight from the rows and
hold only what a tree, a waterfall or a log list draws. Repeated texts are stored once, in
`strings`. With `after`, an answer has only new and changed rows, which follows a live run.

    outline_answer(store, info)                       # the complete run
    outline_answer(store, info, after=answer.next)    # rows added or changed since

A span is identified by its number (`r7.s12` is 12), which never changes; 0 means "none".
Elsewhere: the rows, store/interface/spans.py; the text in query/views/tree_summary.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Any, ClassVar

import msgspec

from vestige.errors import UsageError, VestigeError
from vestige.limits import LABEL_MAX, LABELLED_ARGUMENTS_MAX, OUTLINE_MESSAGE_MAX, OUTLINE_ROWS_MAX
from vestige.query import formatting
from vestige.query.run_as_data import run_data
from vestige.query.stats.costs import Cost, run_costs
from vestige.query.text_layout import CommandAnswer, fit
from vestige.query.views.lines.common_attributes import (
    REPEATED_KINDS,
    TOKEN_TOTALS,
    find_common_attributes,
    find_repeated_attributes,
)
from vestige.query.views.timeline import NOT_SHOWN, format_attributes
from vestige.query.views.tree_summary import render_tree
from vestige.record.otlp_sequence_numbers import order_group
from vestige.record.run import RunInfo, put_in_order
from vestige.store.interface.stats import to_count
from vestige.store.protocol import Losses, OutlineLink, OutlineLog, OutlineRows, OutlineSpan, Store

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_LABELLED_BYTES = 2_000
"""Longest body of tool arguments that is read for a label."""
LOG_ATTRIBUTES_MAX = 8_000
"""Characters of the attributes of a log record, as JSON; longer ones have only a label."""

_NOT_IN_LABELS = (
    NOT_SHOWN
    | REPEATED_KINDS
    | TOKEN_TOTALS
    | {"tool_name", "tool_call_id", "tool_call.matched", "provider"}
)
"""Attributes that add nothing to a span's type, name, model and tokens."""

COMMON_AMONG = 1_000
"""Spans among which attributes that all have are looked for."""

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
        head = [
            f"{info.short_id} {formatting.single_line(info.name, 80)}:"
            f" {formatting.single_line(info.outcome, 20)}{formatting.after(info.elapsed_ns)},"
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
            "losses": msgspec.structs.asdict(self.losses),
            "next": self.next,
            "more": self.more,
        }


def outline_answer(
    store: Store, info: RunInfo, after: str | None = None, limit: int = OUTLINE_ROWS_MAX
) -> OutlineAnswer:
    """Return a run, or what is new since a cursor; at most `limit` rows of each kind."""
    found = _read_rows(store, info, after, limit)
    strings = Strings()
    writer_of = found.writers.get
    spans = put_in_order(
        found.spans,
        lambda row: order_group(writer_of(row.writer, ""), row.span_id, row.seq),
        attrgetter("seq"),
        attrgetter("started_ns"),
    )
    logs = put_in_order(
        found.logs,
        lambda row: order_group(writer_of(row.writer, ""), row.span_id, row.seq),
        attrgetter("seq"),
        attrgetter("time_ns"),
    )

    def number_of(span_id: str | None) -> int:
        return found.numbers.get(span_id or "", 0)

    arguments = _read_arguments(store, spans)
    return OutlineAnswer(
        info,
        strings,
        _span_columns(spans, info.started_ns, strings, number_of, arguments),
        _log_columns(logs, info.started_ns, strings, number_of),
        [_link_data(row, number_of) for row in found.links],
        store.read_losses(info.short_id),
        run_costs(store, [info.id]).get(info.id),
        found.cursor,
        found.more,
    )


def _read_rows(store: Store, info: RunInfo, after: str | None, limit: int) -> OutlineRows:
    try:
        return store.read_outline(info.short_id, after, limit, OUTLINE_MESSAGE_MAX)
    except ValueError:
        raise UsageError(
            f"after {formatting.single_line(after or '', 40)!r}: not a cursor"
            " (expected `next` of a previous answer)."
        ) from None


# --- columns ------------------------------------------------------------------------------------


def _span_columns(
    rows: Sequence[OutlineSpan],
    base_ns: int,
    strings: Strings,
    number_of: Callable[[str | None], int],
    arguments: dict[int, str],
) -> dict[str, list[Any]]:
    text = strings.number
    attributes = [_decode(row.attributes) if row.attributes else {} for row in rows]
    sample = attributes[:COMMON_AMONG]
    common = find_common_attributes(sample) | find_repeated_attributes(sample)
    columns: dict[str, list[Any]] = {
        "number": [row.number for row in rows],
        "id": [row.span_id for row in rows],
        "parent": [_parent(row, number_of) for row in rows],
        "type": [text(row.type) for row in rows],
        "name": [text(row.name) for row in rows],
        "component": [text(row.component) for row in rows],
        "status": [text(row.status) for row in rows],
        "start_us": [(row.started_ns - base_ns) // 1000 for row in rows],
        "duration_us": [
            None if row.duration_ns is None else row.duration_ns // 1000 for row in rows
        ],
        "input_bytes": [-1 if row.input_bytes is None else row.input_bytes for row in rows],
        "output_bytes": [-1 if row.output_bytes is None else row.output_bytes for row in rows],
        "model": [text(_string_or_empty(own.get("model"))) for own in attributes],
        "label": [
            text(format_label(row.status, own, arguments.get(row.input_body or 0), common))
            for row, own in zip(rows, attributes, strict=True)
        ],
    }
    for name in _TOKENS:
        short = name.removesuffix("_tokens") if name.startswith("cache") else name
        columns[short] = [to_count(own[name]) if name in own else -1 for own in attributes]
    return columns


def _parent(row: OutlineSpan, number_of: Callable[[str | None], int]) -> int:
    """Return the parent's number; 0 if a span names itself as its parent."""
    number = number_of(row.parent_id) if row.parent_id else 0
    return 0 if number == row.number else number


def _string_or_empty(value: Any) -> str:
    return value if isinstance(value, str) else ""


def format_label(
    status: str | None,
    attributes: dict[str, Any],
    arguments: str | None = None,
    common: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """Describe in half a line how a span failed, its arguments, or its own attributes.

    `common` are attributes of nearly all spans, which tell none apart.
    """
    if status not in ("ok", None):
        kind, message = attributes.get("error.type"), attributes.get("error.message")
        if kind is not None or message is not None:
            return formatting.single_line(
                ": ".join(str(part) for part in (kind, message) if part), LABEL_MAX
            )
    if arguments is not None:
        return formatting.single_line(arguments, LABEL_MAX)
    shown = {
        key: value
        for key, value in attributes.items()
        if key not in _NOT_IN_LABELS and (key not in common or common[key] != value)
    }
    if not shown:
        return ""
    label = " ".join(format_attributes(shown))
    return label if len(label) <= LABEL_MAX else label[: LABEL_MAX - 1] + "…"


def _read_arguments(store: Store, rows: Sequence[OutlineSpan]) -> dict[int, str]:
    """Return the short arguments of tools by body id, at most LABELLED_ARGUMENTS_MAX."""
    body_ids: dict[int, None] = {}
    for row in rows:
        if (
            row.type == "tool"
            and row.input_body is not None
            and (row.input_bytes or 0) <= _LABELLED_BYTES
        ):
            body_ids[row.input_body] = None
            if len(body_ids) == LABELLED_ARGUMENTS_MAX:
                break
    try:
        found = list(store.read_bodies(list(body_ids))) if body_ids else []
    except VestigeError:
        return {}  # labels are optional: a damaged body must not fail the outline
    return {body: raw.decode(errors="replace") for body, raw in found}


def _log_columns(
    rows: Sequence[OutlineLog],
    base_ns: int,
    strings: Strings,
    number_of: Callable[[str | None], int],
) -> dict[str, list[Any]]:
    text = strings.number
    return {
        "seq": [row.seq for row in rows],
        "span": [number_of(row.span_id) for row in rows],
        "time_us": [(row.time_ns - base_ns) // 1000 for row in rows],
        "level": [text(row.level) for row in rows],
        "component": [text(row.component) for row in rows],
        "message": [row.message for row in rows],
        "label": [
            text(format_label(None, _decode(row.attributes))) if row.attributes else 0
            for row in rows
        ],
        "attributes": [
            text(row.attributes or "") if len(row.attributes or "") <= LOG_ATTRIBUTES_MAX else 0
            for row in rows
        ],
        "cut": [index for index, row in enumerate(rows) if row.message_length > len(row.message)],
    }


def _link_data(row: OutlineLink, number_of: Callable[[str | None], int]) -> dict[str, Any]:
    return {
        "span": number_of(row.span_id),
        "target_run": row.target_run,
        "target_span": row.target_span,
        "reason": row.reason,
    }
