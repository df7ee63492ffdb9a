"""Values in the column of a secret: CSV, tables of Markdown and of database shells, INSERT."""

from __future__ import annotations

from collections.abc import Iterator

from vestige._runtime.re_compat import re
from vestige.record.redaction.keyed.key_context import KeyContext
from vestige.record.redaction.secret_likelihood import WEAK
from vestige.record.redaction.secret_patterns import Hit

_SIDE_MAX = 300
"""Characters of a header on either side of the key."""
_ROW_MAX = 4096
_ROWS_MAX = 1000
_NAME = re.compile(r"[ \t]*[\"'`]?[A-Za-z_][\w .-]{0,40}[\"'`]?[ \t\r]*")
_RULE = re.compile(r"[|+:=\s-]+")
_VALUES = re.compile(r"(?P<rest>[^()\n]{0,300})\)\s{0,8}(?i:values)\s{0,8}(?=\()")
_ROW = re.compile(
    r"\s{0,8},?\s{0,8}\((?P<row>(?:'(?:[^'\\\n]|''|\\.){0,512}'|[^'()\n]){1,1024}+)\)", re.DOTALL
)
_ITEM = re.compile(r"\s*(?:'(?P<v>(?:[^'\\\n]|''|\\.)*+)'|[^',]*+)\s*(?:,|\Z)")


def find_in_columns(context: KeyContext) -> Iterator[Hit]:
    """Yield the values below the name of a secret in a table's header."""
    text = context.text
    if inserted := _VALUES.match(text, context.end):
        yield from _find_inserted(context, inserted)
        return
    header = _find_header(text, context.start, context.end)
    if header is None or context.is_code:
        return
    separator, column, count, at = header
    for _ in range(_ROWS_MAX):
        end = text.find("\n", at, at + _ROW_MAX)
        end = end if end >= 0 else min(len(text), at + _ROW_MAX)
        row = text[at:end]
        if row.count(separator) != count and _RULE.fullmatch(row) is None:
            return
        if _RULE.fullmatch(row) is None:
            yield _cell_hit(context, row, at, separator, column)
        at = end + 1
        if at >= len(text):
            return


def _find_header(text: str, start: int, end: int) -> tuple[str, int, int, int] | None:
    """Return the separator, the column of the key, the number of separators, and the next line."""
    low = text.rfind("\n", max(0, start - _SIDE_MAX), start) + 1
    if low == 0 and start > _SIDE_MAX:
        return None
    high = text.find("\n", end, end + _SIDE_MAX)
    if high < 0:
        return None
    line = text[low:high]
    for separator in ("|", "\t", ",", ";"):
        cells = line.split(separator)
        if separator in ",;" and not cells[-1].strip():
            continue  # a line of a list in source code: `'pwd',`
        if separator == "|" and sum(map(bool, map(str.strip, cells))) < 2:
            continue  # a type in TypeScript: `| "token"`
        if len(cells) > 1 and all(not c.strip() or _NAME.fullmatch(c) for c in cells):
            column = text.count(separator, low, start)
            if cells[column].strip(" \t\r\"'`") == text[start:end]:
                return separator, column, len(cells) - 1, high + 1
    return None


def _cell_hit(context: KeyContext, row: str, at: int, separator: str, column: int) -> Hit:
    cells = row.split(separator)
    low = at + sum(len(cell) + 1 for cell in cells[:column])
    cell = cells[column]
    value = cell.strip(" \t\r\"'`")
    low += cell.find(value) if value else 0
    return context.hit(low, low + len(value), WEAK)


def _find_inserted(context: KeyContext, inserted: re.Match[str]) -> Iterator[Hit]:
    """Yield the values of `INSERT INTO users (name, password) VALUES ('bob', 'x')`."""
    text = context.text
    opening = text.rfind("(", max(0, context.start - _SIDE_MAX), context.start)
    if opening < 0:
        return
    column = text.count(",", opening, context.start)
    at = inserted.end()
    for _ in range(_ROWS_MAX):
        row = _ROW.match(text, at)
        if row is None:
            return
        at = row.end()
        for number, item in enumerate(_ITEM.finditer(text, *row.span("row"))):
            if number == column:
                if item["v"] is not None:
                    yield context.hit(*item.span("v"), WEAK)
                break
