"""The tools that an MCP client is offered, those that find causes first.

Views of one run are options of `show`, as on the command line. A client that has the name of an
unlisted query in its configuration (`transcript`, `state`, ...) can still call it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from vestige.query.command_tools import BY_NAME, Parameter, Tool, get_tool

VIEWS: Final = ("steps", "overview", "transcript", "outline", "state", "files", "notes")
"""The values of `view`, an argument of `show`; each but the first is a query by itself."""

SWITCHES: Final = {"span": ("prompt", "segments"), "stats": ("trends", "trends"),
                   "sql": ("schema", "schema")}  # fmt: skip
"""Tools with a flag that selects another query: tool, flag, query."""


def _with(name: str, *parameters: Parameter, without: tuple[str, ...] = ()) -> Tool:
    """Return a tool with more parameters; those in `without` are replaced or dropped."""
    tool = BY_NAME[name]
    own = tuple(each for each in tool.parameters if each.name not in without)
    return replace(tool, parameters=(*own, *parameters))


LISTED: Final[tuple[Tool, ...]] = (
    BY_NAME["overview"],
    BY_NAME["check"],
    BY_NAME["why"],
    _with(
        "show",
        Parameter(
            "view",
            "string",
            "steps (default); transcript: messages, tool calls and results, like a chat; outline:"
            " identical spans merged; state: snapshots; files; notes; overview.",
            choices=VIEWS,
        ),
        Parameter("at", "mixed", "(files) At this second of the run, or when a span started."),
        Parameter("than", "integer", "(state) Compare with the snapshot of this number.", least=0),
        Parameter("after", "mixed", "Continue after the line, cursor or span of the last answer."),
        without=("after",),
    ),
    BY_NAME["body"],
    BY_NAME["grep"],
    _with("span", Parameter("prompt", "boolean", "Break down its prompt by source.")),
    BY_NAME["list"],
    BY_NAME["diff"],
    BY_NAME["compare"],
    _with("groups", without=("seconds",)),
    _with("stats", Parameter("trends", "boolean", "Show trends over time, by day or hour.")),
    _with(
        "sql",
        Parameter("query", "string", "One SELECT; with schema, the name of a table or nothing."),
        Parameter("schema", "boolean", "Show the tables and example queries instead."),
        without=("query",),
    ),
    BY_NAME["doctor"],
    BY_NAME["help"],
)


def select_query(name: str, arguments: Mapping[str, Any]) -> tuple[Tool, dict[str, Any]]:
    """Return the query behind a call, and its arguments.

    >>> tool, arguments = select_query("show", {"id": "r7", "view": "transcript"})
    >>> tool.name, arguments
    ('transcript', {'id': 'r7'})
    """
    values = {key: value for key, value in arguments.items() if value is not None}
    if name == "show" and values.get("view") in VIEWS:
        view = values.pop("view")
        return get_tool("show" if view == "steps" else view), values
    flag, query = SWITCHES.get(name, ("", ""))
    if isinstance(values.get(flag), bool) and values.pop(flag):
        if query == "schema" and "query" in values:
            values["table"] = values.pop("query")
        return get_tool(query), values
    return get_tool(name), values
