"""Layout of answers: a fixed head and end, and rows that are cut to the budget.

Almost every answer is a `CommandAnswer`: it knows which store it came from, so the next
commands that it prints can be run unchanged. A text with several commands states the options
for the store once, in its last line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from typing import Final

from vestige.query import formatting
from vestige.query.answer import Answer
from vestige.query.token_budget import (
    CHARACTERS_A_TOKEN,
    count_fitting,
    count_tokens,
    fit_lines,
    within,
)
from vestige.record.redaction.output_redaction import redact_lines
from vestige.record.run import Run

Render = Callable[[int], list[tuple[str, str]]]
"""Return lines with their styles, within a number of tokens."""

ADD_OPTIONS: Final = "add to each command"
LAST_LINE_SHARE: Final = 5
"""An answer of less than this many times the length of the last line has no such line."""


class CommandAnswer(Answer):
    """An answer that prints next commands."""

    at: str = ""
    """Options that make a command read the same store: `--home DIR`; empty for the default."""

    _without_options: list[str] | None = None
    """The commands of the text that is being made, if its last line states `at` for all."""

    def command(self, *parts: str) -> str:
        """Return a command ready for a shell: `vestige show r7 --home x`."""
        words = ["vestige", *(shell_word(part) for part in parts if part)]
        if self.at and "--" in words:
            words.insert(words.index("--"), self.at)
            return " ".join(words)
        return self.add_options(" ".join(words))

    def placed(self, command: str) -> str:
        """Add the store's options to a complete command, such as one of a check."""
        return self.add_options(formatting.single_line(command, 300))

    def add_options(self, command: str) -> str:
        """Add the store's options to a command, unless the last line states them."""
        if self._without_options is None:
            return f"{command} {self.at}".strip()
        self._without_options.append(command)
        return command

    def text(self, budget: int | None = None) -> str:
        """Return the answer; if not even the next command fits, truncate it."""

        def render(limit: int) -> list[tuple[str, str]]:
            lines = self.lines(limit)
            while len(lines) > 1 and count_tokens("\n".join(lines)) > limit:
                lines.pop(0)
            text = "\n".join(lines)
            return [(text if count_tokens(text) <= limit else text[: limit - 1] + "…", "")]

        rows = self.state_options_once(render, within(budget, self.budget))
        return "\n".join(text for text, _ in rows)

    def state_options_once(self, render: Render, limit: int) -> list[tuple[str, str]]:
        """Return rendered lines; if they have several commands, the last states the options.

        A single command has them itself, and so have all commands of a very short answer.
        """
        last = redact_lines([f"{ADD_OPTIONS}: {self.at}"])
        if not self.at or LAST_LINE_SHARE * cost(last) > limit:
            return render(limit)
        self._without_options = []
        try:
            rows = render(limit - cost(last))
            commands = dict.fromkeys(self._without_options)
        finally:
            self._without_options = None
        text = "\n".join(text for text, _ in rows)
        shown = [command for command in commands if command in text]
        if not shown:
            return rows
        if len(shown) > 1 or text.count(shown[0]) > 1:
            return [*rows, (last[0], "log")]
        placed = f"{shown[0]} {self.at}"
        return [(text.replace(shown[0], placed), style) for text, style in rows]


def unread_line(unread: int) -> str:
    """Return the line of a page about a file of which only the beginning was read."""
    return (
        f"partial: only the beginning was read; about {unread} more events follow."
        " For all of them, import the file: vestige import"
    )


def shell_word(text: str) -> str:
    """Quote a word for a shell; control characters are written as escapes."""
    plain = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
    if plain != text:
        return "$'" + plain.replace("'", "\\'") + "'"
    return shlex.quote(text)


def cost(lines: Sequence[str]) -> int:
    """Count the tokens of lines, line ends included."""
    return sum(count_tokens(line) + 1 for line in lines)


def fit(
    head: Sequence[str],
    rows: Sequence[str],
    end: Sequence[str],
    budget: int,
    more: Callable[[int], str],
    *,
    keep_end: bool = False,
) -> list[str]:
    """Return head, as many rows as fit, and end; a very small budget drops the end first."""
    room = budget - cost(head) - cost(end)
    if rows and room < 2 * count_tokens(more(len(rows))) + 10 and cost(rows) > room:
        return fit_lines([*head, *rows, *end], budget, more)
    if not rows and room < 0:
        return fit_lines([*head, *end], budget, more)
    return [*head, *fit_lines(rows, room, more, keep_end=keep_end), *end]


def fit_page(
    head: Sequence[str],
    rows: Sequence[str],
    end: Sequence[str],
    budget: int,
    more: Callable[[int], str],
) -> list[str]:
    """Return a page of rows that ends with `more(left_out)` if rows are left out, else `end`.

    At least one row is shown, truncated if need be: the next page starts after it, so an empty
    page would hide it. A small budget drops the head first.
    """
    if not rows or cost(head) + cost(rows) + cost(end) <= budget:
        return [*head, *rows, *end]
    room = budget - max(cost(end), cost([more(len(rows) - 1)]))
    if cost(head) + cost(rows[:1]) > room:
        head = ()
    shown = count_fitting([count_tokens(row) + 1 for row in rows], room - cost(head))
    if shown == len(rows):
        return [*head, *rows, *end]
    page = rows[:shown] or [truncate_line(rows[0], room)]
    return [*head, *page, more(len(rows) - len(page))]


def truncate_line(row: str, room: int) -> str:
    """Truncate a line that does not fit."""
    length = max(1, room - 2)
    return row[: length * CHARACTERS_A_TOKEN if row.isascii() else length] + "…"


_SHORT_ID: Final = re.compile(r"\br\d+\.s\d+\b")


def show_recorded_ids(lines: Sequence[str], run: Run) -> list[str]:
    """Return the lines with the recorded ids of spans in place of the short ones."""
    ids = {span.short_id: span.id for span in run.spans}
    return [_SHORT_ID.sub(lambda found: ids.get(found[0], found[0]), line) for line in lines]


COLUMN_MIN: Final = 8
"""A column of text is not made narrower."""


def columns(
    table: Sequence[Sequence[str]], right: Sequence[int] = (), total: int | None = None
) -> list[str]:
    """Align cells in columns; those in `right` are right-aligned.

    If the lines are wider than `total`, the widest left-aligned columns are truncated.
    """
    if not table:
        return []
    widths = _column_widths(table)
    if total is not None:
        _shrink(widths, [n for n in range(len(widths)) if n not in right], total)
    lines = []
    for row in table:
        cells = []
        for column, (text, width) in enumerate(zip(row, widths, strict=True)):
            cell = formatting.truncate(text, width)
            space = " " * (width - formatting.width(cell))
            cells.append(space + cell if column in right else cell + space)
        lines.append("  ".join(cells).rstrip())
    return lines


def _column_widths(table: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(formatting.width, cells)) for cells in zip(*table, strict=True)]


def _shrink(widths: list[int], shrinkable: Sequence[int], total: int) -> None:
    """Take columns from the widest texts until the lines fit, or no text is wider than 8."""
    while table_width(widths) > total and shrinkable:
        widest = max(shrinkable, key=lambda column: widths[column])
        if widths[widest] <= COLUMN_MIN:
            return
        widths[widest] -= 1


def table_width(widths: Sequence[int]) -> int:
    """Return the width of a line with columns of these widths."""
    return sum(widths) + 2 * (len(widths) - 1)


def drop_columns(
    table: Sequence[Sequence[str]], headings: Sequence[str], total: int, text_max: int
) -> list[list[str]]:
    """Drop columns by heading, in this order, until the table fits with texts of `text_max`."""
    rows = [list(row) for row in table]
    for heading in headings:
        if table_width([min(width, text_max) for width in _column_widths(rows)]) <= total:
            break
        column = rows[0].index(heading)
        for row in rows:
            del row[column]
    return rows


def quoted(text: str, length_max: int) -> str:
    """Quote untrusted text on one line."""
    return f'"{formatting.single_line(text, length_max)}"'
