"""How answers are laid out: a head and an end that stay, rows that are cut to the budget.

Every verb's answer is an `Asked`: it knows where it was asked, so that the next
command that it prints works as it stands.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from vestige.query import formatting
from vestige.query.answer import Answer
from vestige.query.budget import CHARACTERS_A_TOKEN, count_fitting, count_tokens, fit_lines, within


class CommandAnswer(Answer):
    """An answer that names next commands."""

    at: str = ""
    """What every command needs to ask the same store: `--home DIR`; empty for the default."""

    def command(self, *parts: str) -> str:
        """`vestige show r7 --home x`: to be typed as it stands."""
        at = [self.at] if self.at else []
        return " ".join(["vestige", *(shell_word(part) for part in parts if part), *at])

    def text(self, budget: int | None = None) -> str:
        """As any answer; and where not even the next command fits, as much as does."""
        limit = within(budget, self.budget)
        lines = self.lines(limit)
        while len(lines) > 1 and count_tokens("\n".join(lines)) > limit:
            lines.pop(0)
        text = "\n".join(lines)
        return text if count_tokens(text) <= limit else text[: limit - 1] + "…"

    def placed(self, command: str) -> str:
        """A whole command that somebody else wrote (a check), for this place."""
        return formatting.single_line(f"{command} {self.at}".strip(), 300)


def shell_word(text: str) -> str:
    """A word for a shell; what a terminal would obey is written as an escape."""
    plain = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
    if plain != text:
        return "$'" + plain.replace("'", "\\'") + "'"
    return shlex.quote(text)


def cost(lines: Sequence[str]) -> int:
    """Tokens, line ends included."""
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
    """Head, as many rows as fit, end. In a budget too small for that, the end goes first."""
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
    """A page of rows that go on: `more(left_out)` where they are cut, else `end`.

    One row is always told, if only its beginning: a page without any, whose command goes on
    after the first, would hide a row for good. The head goes before it.
    """
    if not rows or cost(head) + cost(rows) + cost(end) <= budget:
        return [*head, *rows, *end]
    room = budget - max(cost(end), cost([more(len(rows) - 1)]))
    if cost(head) + cost(rows[:1]) > room:
        head = ()
    shown = count_fitting([count_tokens(row) + 1 for row in rows], room - cost(head))
    if shown == len(rows):
        return [*head, *rows, *end]
    told = rows[:shown] or [begin_of(rows[0], room)]
    return [*head, *told, more(len(rows) - len(told))]


def begin_of(row: str, room: int) -> str:
    """Of a line that does not fit, what does."""
    length = max(1, room - 2)
    return row[: length * CHARACTERS_A_TOKEN if row.isascii() else length] + "…"


def columns(table: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Cells as aligned text; the columns in `right` stand right."""
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
    """Foreign text, visibly a quotation."""
    return f'"{formatting.single_line(text, length_max)}"'
