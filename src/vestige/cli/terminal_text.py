"""Lines of an answer on a terminal: colours by field, and wrapping at the width.

A line is plain text with a style, such as `error` or `head ok`. Only its fields are coloured: the
status mark, ids and times, the name. The text of an error stays readable in the usual colour.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import click

from vestige.query.formatting import width

COLOURS: Final[dict[str, str]] = {
    "ok": "green",
    "error": "red",
    "failed": "red",
    "timeout": "red",
    "interrupted": "red",
    "stamp": "red",
    "warn": "yellow",
    "warning": "yellow",
    "open": "yellow",
    "cancelled": "yellow",
    "running": "cyan",
    "info": "cyan",
}
_COMPLETE: Final[dict[str, dict[str, str | bool]]] = {
    "log": {"dim": True},
    "added": {"fg": "green"},
    "removed": {"fg": "red"},
}
"""Styles of complete lines."""

_ID: Final = r"(?:r\d+(?:\.s\d+)?|s\d+|g[0-9a-f]{6})"
_HEAD: Final = re.compile(rf"(?P<dim>{_ID}) (?P<bold>.*?): (?P<outcome>\w+)(?= after|,|$)")
_FIELDS: Final = re.compile(
    rf"""^(?P<id>\s*(?:{_ID}|·)(?=\s))
    |(?P<time>(?:(?<=\s)|^)(?:\+[\d.]+s|\+\d+[hm]\d+[ms]|\d+:\d\d(?::\d\d)?)(?=\s\s))
    |(?P<mark>[✕■⚠●]|!!)
    |(?P<level>(?<=\ \ )(?:ERROR|CRITICAL|WARNING|WARN)(?=\ \ ))
    |^(?P<severity>\[(?:error|warning|info)\])
    |(?P<arrow>→\ (?:error|open|timeout|cancelled)\b)
    |^(?P<label>(?:Task|Cause|Finding|Answer|task|answer|next|…\ next)\b:?)
    |(?P<see>^\s+See:)
    |(?P<match>«[^»]*»)""",
    re.VERBOSE,
)


def style_line(text: str, style: str) -> str:
    """Return the line with colours for its fields."""
    if not text:
        return text
    if style in _COMPLETE:
        return click.style(text, **_COMPLETE[style])  # type: ignore[arg-type]
    kind, _, outcome = style.rpartition(" ")
    if kind and (head := _HEAD.match(text)):
        return _style_head(text, head, outcome)
    text = _colour_outcome(text, outcome) if not kind and outcome in COLOURS else text
    colour = COLOURS.get(outcome, "red")
    return _FIELDS.sub(lambda found: _style_field(found, colour), text)


def _style_head(text: str, head: re.Match[str], outcome: str) -> str:
    shown = click.style(head["outcome"], fg=COLOURS.get(outcome, "red"), bold=True)
    start = f"{click.style(head['dim'], dim=True)} {click.style(head['bold'], bold=True)}: {shown}"
    return start + text[head.end() :]


def _colour_outcome(text: str, outcome: str) -> str:
    """Colour the outcome in a row of a table, where it is a cell of its own."""
    cell = f"  {outcome}  "
    return text.replace(cell, f"  {click.style(outcome, fg=COLOURS[outcome])}  ", 1)


def _style_field(found: re.Match[str], colour: str) -> str:
    text = found[0]
    if found["id"] or found["time"] or found["label"] or found["see"]:
        return click.style(text, dim=True)
    if found["severity"]:
        return click.style(text, fg=COLOURS[text.strip("[]")], bold=True)
    if found["match"]:
        return click.style(text, bold=True)
    if text == "⚠" or text.startswith("WARN"):
        colour = "yellow"
    return click.style(text, fg="red" if colour == "green" else colour, bold=True)


# --- wrapping -----------------------------------------------------------------------------------

_PREFIX: Final = re.compile(r"(?P<space>\s*)(?P<bar>[|>=] ?)?")
HANGING: Final = 4
"""Columns by which the rest of a wrapped line is indented."""
_ROOM_LEAST: Final = 20


def wrap_line(text: str, columns: int) -> list[str]:
    """Break a line between words; what follows keeps the indent, or the bar of quoted text."""
    if width(text) <= columns:
        return [text]
    found = _PREFIX.match(text)
    assert found is not None  # The pattern matches an empty text.
    prefix = found[0] if found["bar"] else found["space"] + " " * HANGING
    if columns - width(prefix) < _ROOM_LEAST:
        return [text]
    return list(_break(text, prefix, columns))


def _break(text: str, prefix: str, columns: int) -> Iterator[str]:
    while width(text) > columns:
        end = min(len(text), columns)
        while width(text[:end]) > columns:
            end -= 1
        at = text.rfind(" ", len(prefix) + 1, end + 1)
        at = at if at > len(prefix) else end  # a word that is longer than a line
        yield text[:at].rstrip()
        text = prefix + text[at:].lstrip(" ")
    yield text
