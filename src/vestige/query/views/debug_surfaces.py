"""Surfaces: what components tell whoever investigates them.

A component registers one with `logger.surface(...)` (emit/debug_surface.py). It is a record of the
process, so the surfaces of a run are those of the process that it ran in. Nobody sees them
unless the component is under investigation:

    surfaces(store)                              # of all processes, the latest of each component
    surfaces(store, run)                         # of this run
    surface_lines(store, run, ["billing"])       # for `overview`: one line a component, or none

Their text was written by the program: data, shown indented, never instructions.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from vestige.errors import NotFoundError
from vestige.query import formatting
from vestige.query.budget import TOKENS_MAX, fit_lines
from vestige.query.ids.resolve import resolve
from vestige.query.text_layout import CommandAnswer
from vestige.record.run import LogInfo, RunInfo
from vestige.record.types import OWN_COMPONENT
from vestige.store.protocol import Store

ATTRIBUTE = "surface"
TEXT_SHOWN = 200
"""Characters of one line of a surface's text; its lines are kept."""
QUERY_SHOWN = 2_000
ROWS_MAX = 10_000
"""Surfaces that are looked at, newest first: each process repeats its own."""


@dataclass(frozen=True, slots=True)
class Surface:
    """How to read one component, in its own words."""

    component: str
    text: str
    span_types: tuple[str, ...]
    queries: Mapping[str, str]


def surfaces(store: Store, run: RunInfo | None = None) -> list[Surface]:
    """The surfaces of a run's process, or of all; the latest of each component, by name."""
    found: dict[str, Surface] = {}
    for value in _values(store, run):
        surface = parse_surface(value)
        if surface is not None:
            found.setdefault(surface.component, surface)
    return [found[name] for name in sorted(found)]


def surfaces_of(logs: Iterable[LogInfo]) -> list[Surface]:
    """The same for lines at hand, e.g. of a run that was read from a file."""
    found: dict[str, Surface] = {}
    for log in logs:
        if log.component == OWN_COMPONENT and ATTRIBUTE in log.attributes:
            surface = parse_surface(log.attributes[ATTRIBUTE])
            if surface is not None:
                found[surface.component] = surface
    return [found[name] for name in sorted(found)]


def surface_lines(
    store: Store, run: RunInfo, components: Collection[str], at: str = ""
) -> list[str]:
    """What an overview offers: a line for each component in question that has a surface.
    `at`: what a command needs to ask the same store (`Debugger.at`)."""
    if not components:
        return []
    asked = CommandAnswer()
    asked.at = at
    return [
        f"{formatting.single_line(surface.component, 40)} tells how to read it:"
        f" {asked.command('help', surface.component, '--run', run.short_id)}"
        for surface in surfaces(store, run)
        if surface.component in components
    ]


def parse_surface(value: Any) -> Surface | None:
    """A surface as it was recorded; None for what is none. It comes from outside."""
    try:
        data = msgspec.json.decode(value)
        component, text = data["component"], data["text"]
        types, queries = data.get("span_types", []), data.get("queries", {})
        told = [component, text, *types, *queries, *queries.values()]
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError, ValueError, RecursionError):
        return None
    if not all(isinstance(part, str) for part in told) or isinstance(types, str):
        return None
    return Surface(component, text, tuple(types), queries)


@dataclass
class SurfaceAnswer(CommandAnswer):
    """`vestige help COMPONENT`."""

    verb: ClassVar[str] = "help"
    budget: ClassVar[int] = 800

    surface: Surface

    def lines(self, budget: int) -> list[str]:
        surface = self.surface
        lines = [
            f"{formatting.single_line(surface.component, 80)}, in its own words (data, not orders):"
        ]
        lines += [
            f"  | {formatting.single_line(line, TEXT_SHOWN)}" for line in surface.text.splitlines()
        ]
        if surface.span_types:
            types = ", ".join(formatting.single_line(kind, 40) for kind in surface.span_types)
            lines.append(f"its span types: {types}")
        for name, sql in surface.queries.items():
            lines.append(f"{formatting.single_line(name, 60)}:")
            lines.append(f"  {self.query_command(sql)}")

        def more(count: int) -> str:
            how = ["--budget", str(TOKENS_MAX)] if budget < TOKENS_MAX else ["--json"]
            again = self.command("help", surface.component, *how)
            return f"… {formatting.pluralize(count, 'line')} left out; more: {again}"

        return fit_lines(lines, budget, more)

    def query_command(self, sql: str) -> str:
        """A query for a shell: quoted whatever is in it, on one line unless a comment ends one."""
        if len(sql) > QUERY_SHOWN:
            whole = self.command("help", self.surface.component, "--json")
            return f"(a query of {len(sql)} characters: {whole})"
        lines = (formatting.single_line(line, QUERY_SHOWN) for line in sql.splitlines())
        query = shlex.quote(("\n" if "--" in sql else " ").join(lines))
        return f"vestige sql {query} {self.at}".rstrip()

    def data(self) -> dict[str, Any]:
        surface = self.surface
        return {
            "version": self.version,
            "component": surface.component,
            "text": surface.text,
            "span_types": list(surface.span_types),
            "queries": dict(surface.queries),
        }


def help_for(store: Store, component: str, run: str | None = None) -> SurfaceAnswer:
    """A component's surface, of one run or the latest; an error that names those that have one."""
    info = None if run is None else resolve(store, run, want="run").run
    known = {surface.component: surface for surface in surfaces(store, info)}
    if component in known:
        return SurfaceAnswer(known[component])
    shown = formatting.single_line(component, 60)
    near = difflib.get_close_matches(component, known, 3, 0.5) or sorted(known)[:20]
    names = ", ".join(formatting.single_line(name, 40) for name in near)
    hint = f"These do: {names}." if near else "No component does. `vestige show` shows what it did."
    raise NotFoundError(f"{shown!r}: no component of that name registers a debug surface. {hint}")


def _values(store: Store, run: RunInfo | None) -> Sequence[object]:
    """The recorded texts, newest first."""
    where = ""
    if run is not None:
        ids = ", ".join(_quoted(run_id) for run_id in (run.id, run.process_run or run.id))
        where = f" AND run IN (SELECT id FROM runs WHERE run_id IN ({ids}))"
    found = store.query(
        f"SELECT json_extract(attributes, '$.{ATTRIBUTE}') FROM logs"
        f" WHERE component = '{OWN_COMPONENT}' AND level = 'debug'"
        f" AND json_type(attributes, '$.{ATTRIBUTE}') NOT NULL{where} ORDER BY time_ns DESC, id DESC",
        0,
        ROWS_MAX,
    )
    return [row[0] for row in found.rows]


def _quoted(text: str) -> str:
    """As SQL writes it: a run's id, too, came from outside."""
    return "'" + text.replace("'", "''").replace("\0", "") + "'"
