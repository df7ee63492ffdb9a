"""Layout of answers: a fixed head and end, and rows that are cut to the budget.

Almost every answer is a `CommandAnswer`: it knows which store it came from, so the next
commands that it prints can be run unchanged.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from vestige.query import formatting
from vestige.query.answer import Answer
from vestige.query.budget import CHARACTERS_A_TOKEN, count_fitting, count_tokens, fit_lines, within


class CommandAnswer(Answer):
    """An answer that prints next commands."""

    at: str = ""
    """Options that make a command read the same store: `--home DIR`; empty for the default."""

    def command(self, *parts: str) -> str:
        """Return a command ready for a shell: `vestige show r7 --home x`."""
        at = [self.at] if self.at else []
        return " ".join(["vestige", *(shell_word(part) for part in parts if part), *at])

    def text(self, budget: int | None = None) -> str:
        """Return the answer; if not even the next command fits, truncate it."""
        limit = within(budget, self.budget)
        lines = self.lines(limit)
        while len(lines) > 1 and count_tokens("\n".join(lines)) > limit:
            lines.pop(0)
        text = "\n".join(lines)
        return text if count_tokens(text) <= limit else text[: limit - 1] + "…"

    def placed(self, command: str) -> str:
        """Add the store's options to a complete command, such as one of a check."""
        return formatting.single_line(f"{command} {self.at}".strip(), 300)


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


def columns(table: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Align cells in columns; those in `right` are right-aligned."""
    if not table:
        return []
    widths = [
        max(formatting.width(row[column]) for row in table) for column in range(len(table[0]))
    ]
    lines = []
    for row in table:
        cells = []
        for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
            space = " " * (width - formatting.width(cell))
            cells.append(space + cell if column in right else cell + space)
        lines.append("  ".join(cells).rstrip())
    return lines


def quoted(text: str, length_max: int) -> str:
    """Quote untrusted text on one line."""
    return f'"{formatting.single_line(text, length_max)}"'
