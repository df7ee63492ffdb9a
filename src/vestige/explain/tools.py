"""The tools of an investigation: read-only queries of its runs, and `report`.

Each tool is a query command (query/command_tools.py) with fewer options, to save tokens. No tool
writes, searches other runs, reads files or reaches the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from vestige.errors import VestigeError
from vestige.explain.chat_shapes import OfferedTool
from vestige.explain.readable_runs import Scope
from vestige.query.answer import Answer
from vestige.query.command_tools import BY_NAME, Parameter, ask, check_arguments

REPORT: Final = "report"

_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "overview": ("id",),
    "check": ("id", "after", "verbose"),
    "transcript": ("id", "step", "full"),
    "why": ("id",),
    "show": ("id", "errors", "type", "after"),
    "span": ("id",),
    "body": ("id", "in", "out", "text", "lines", "path"),
    "grep": ("pattern", "id", "regex", "ignore_case"),
    "diff": ("a", "b", "prev", "vs_good"),
}
"""The queries that are offered, and their options."""

_IDS: Final = ("id", "a", "b")
_NEEDS_ID: Final = {"diff": "a"}
"""The option with the run, where it is not `id`."""

_REPORT: Final = OfferedTool(
    REPORT,
    "End the investigation. Every claim needs evidence: a span, and a quote of 6 to 300 characters"
    " that occurs in exactly that span (its name, attributes, input, output or log lines).",
    {
        "type": "object",
        "properties": {
            "claims": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "verdict": {
                            "type": "string",
                            "enum": ["cause", "contributes", "ruled_out"],
                        },
                        "statement": {
                            "type": "string",
                            "description": "One sentence: what the span did, and what it should"
                            " have done; or what is ruled out.",
                        },
                        "evidence": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "properties": {
                                    "span": {"type": "string"},
                                    "quote": {"type": "string"},
                                },
                                "required": ["span", "quote"],
                            },
                        },
                    },
                    "required": ["verdict", "statement", "evidence"],
                },
            }
        },
        "required": ["claims"],
    },
)


def list_tools() -> list[OfferedTool]:
    """Return the tools that a request offers."""
    found = []
    for name, options in _OPTIONS.items():
        tool = BY_NAME[name]
        parameters = [each for each in tool.parameters if each.name in options]
        schema = {
            "type": "object",
            "properties": {each.name: _schema(each) for each in parameters},
            "required": [each.name for each in parameters if each.required and each.name != "id"],
        }
        found.append(OfferedTool(name, tool.gives, schema))
    return [*found, _REPORT]


def _schema(parameter: Parameter) -> dict[str, Any]:
    if parameter.name not in _IDS:
        return parameter.schema()
    return {"type": "string", "description": "A run or span: r7, r7.s12. Default: the run."}


def call_tool(scope: Scope, name: str, arguments: Mapping[str, Any] | None, budget: int) -> str:
    """Return the answer of a query within a budget, or an error that the model can correct."""
    if name not in _OPTIONS:
        return f"error: {name[:40]!r} is not a tool. Tools: {', '.join([*_OPTIONS, REPORT])}."
    if arguments is None:
        return f"error: {name}: the arguments are not a JSON object."
    try:
        return _answer(scope, name, dict(arguments)).text(budget)
    except VestigeError as error:
        return f"error: {error}"


def _answer(scope: Scope, name: str, arguments: dict[str, Any]) -> Answer:
    tool = BY_NAME[name]
    known = _OPTIONS[name]
    # Without an id, a query would read the latest run or all runs. None counts as missing.
    arguments = {key: arguments[key] for key in known if arguments.get(key) is not None}
    arguments.setdefault(_NEEDS_ID.get(name, "id"), scope.run.short_id)
    for option in _IDS:
        if isinstance(arguments.get(option), str):
            arguments[option] = scope.get_id(arguments[option])
    return ask(scope.debugger, tool, check_arguments(tool, arguments))
