"""The query commands as tools of MCP and HTTP: names, descriptions, arguments.

Mostly data. Every option of a command is an argument with the same name, so the next command
that an answer prints is also a valid call.

    tool = get_tool("show")
    ask(debugger, tool, check_arguments(tool, {"id": "r7", "errors": True}))
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from vestige.errors import UsageError
from vestige.limits import OUTLINE_ROWS_MAX, TRANSCRIPT_ITEMS_MAX
from vestige.query import formatting
from vestige.query.search.grep import parse_parts
from vestige.query.search.run_order import SORTS
from vestige.query.token_budget import TOKENS_MAX
from vestige.query.views.body import parse_range
from vestige.query.views.debugging_hints import help_for
from vestige.settings import parse_duration

if TYPE_CHECKING:
    from vestige.query.answer import Answer
    from vestige.query.debugger import Debugger

Kind = Literal["string", "integer", "mixed", "boolean", "array"]
_KINDS: dict[Kind, tuple[Any, str]] = {
    "string": (str, "a text"),
    "integer": (int, "a whole number"),
    "mixed": ((int, float, str), "a number or a text"),
    "boolean": (bool, "true or false"),
    "array": (list, "a list of texts"),
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument of a tool."""

    name: str
    kind: Kind
    meaning: str
    required: bool = False
    choices: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    to: str | None = None
    """The name of the `Debugger` method's argument, if it differs."""
    parse: Callable[[str], Any] | None = None
    """Converts the text; raises ValueError with what was expected."""

    def schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": self.kind, "description": self.meaning}
        if self.kind == "mixed":
            schema["type"] = ["number", "string"]
        if self.kind == "array":
            schema["items"] = {"type": "string"}
        if self.choices:
            schema["enum"] = list(self.choices)
        if self.least is not None:
            schema["minimum"] = self.least
        if self.most is not None:
            schema["maximum"] = self.most
        return schema

    def expected(self) -> str:
        if self.choices:
            return "one of " + ", ".join(self.choices)
        bounds = [
            *([f"from {self.least}"] if self.least is not None else ()),
            *([f"to {self.most}"] if self.most is not None else ()),
        ]
        return " ".join([_KINDS[self.kind][1], *bounds])

    def take(self, value: Any) -> Any:
        """Validate and convert a value; raise ValueError with what was expected."""
        if not self._accepts(value):
            raise ValueError(f"expected {self.expected()}")
        return value if self.parse is None else self.parse(value)

    def _accepts(self, value: Any) -> bool:
        if isinstance(value, bool) and self.kind != "boolean":  # bool is a subclass of int
            return False
        if not isinstance(value, _KINDS[self.kind][0]):
            return False
        if self.kind == "array":
            return bool(value) and all(isinstance(item, str) and item for item in value)
        if self.choices:
            return value in self.choices
        if self.kind == "integer":
            return (self.least is None or value >= self.least) and (
                self.most is None or value <= self.most
            )
        return self.kind != "string" or not self.required or bool(value.strip())


BUDGET = Parameter(
    "budget",
    "integer",
    "Limit the answer to this many tokens. Default: a limit of the tool.",
    least=50,
    most=TOKENS_MAX,
)


@dataclass(frozen=True, slots=True)
class Tool:
    """A query command as a tool for models."""

    name: str
    gives: str
    use: str
    avoid: str
    example: Mapping[str, Any]
    parameters: tuple[Parameter, ...] = field(default=())

    @property
    def all_parameters(self) -> tuple[Parameter, ...]:
        return (*self.parameters, BUDGET)

    def description(self) -> str:
        return (
            f"{self.gives}\nUse when: {self.use}\nDo not use: {self.avoid}\n"
            f"Example: {json.dumps(self.example)}"
        )

    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {each.name: each.schema() for each in self.all_parameters},
            "required": [each.name for each in self.parameters if each.required],
            "additionalProperties": False,
        }


def _id(meaning: str, *, required: bool = True) -> Parameter:
    return Parameter("id", "string", meaning, required)


_RUN = "A run: r7, the start of its id, or any id that leads to a run."
_LATEST = " Default: the latest run."
_SPAN = "A span: r7.s12, its id, or the start of its id."
_FLAG: Kind = "boolean"
_AFTER = Parameter("after", "integer", "Continue after this number, from the last answer.", least=0)
_IDS = Parameter("ids", _FLAG, "Show recorded span ids instead of short ones.")


TOOLS: tuple[Tool, ...] = (
    Tool(
        "overview", "Summary of a run: outcome, structure, totals, main findings, last successful"
        " run of the same name, next steps.",
        "first, for any id.", "for one span (span) or the order of events (show).",
        {"id": "r7"}, (_id(_RUN), _IDS),
    ),
    Tool(
        "check", "Findings of a run, each with severity, cause span, evidence ids and the command"
        " that shows the evidence; then the number of passed checks.",
        "after overview: it names most causes.",
        "repeatedly on the same run: the answer does not change.",
        {"id": "r7"},
        (
            _id(_RUN), _AFTER,
            Parameter("verbose", _FLAG, "Also evidence, confidence and passed checks."),
            _IDS,
        ),
    ),
    Tool(
        "why", "The causal chain from a span back to the first finding, by parents and links.",
        "you know the failed span and want its cause.", "to see all findings of a run (check).",
        {"id": "r7.s12"},
        (_id(_SPAN + " For a run: its most severe finding." + _LATEST, required=False),),
    ),
    Tool(
        "show", "The steps of a run: one line per span or log record, repeats collapsed.",
        "the order of events matters.", "as the first look at a long run (overview, check).",
        {"id": "r7", "errors": True},
        (
            _id(_RUN + _LATEST, required=False),
            Parameter("errors", _FLAG, "Only failed spans, with their parents."),
            Parameter("type", "string", "Only spans of this type: llm, tool, step, ..."),
            Parameter("from", "mixed", "Start at this second of the run, or at a span.",
                      to="from_"),
            Parameter("to", "mixed", "Stop at this second of the run, or at a span."),
            Parameter("depth", "integer", "Maximum depth.", least=0),
            Parameter("ids", _FLAG, "Also show full ids."),
            Parameter("no_fold", _FLAG, "Do not collapse repeated lines."),
            Parameter("limit", "integer", "Show at most this many lines (in JSON: spans and log"
                      " records).", least=1),
            _AFTER,
        ),
    ),
    Tool(
        "transcript", "A run step by step: new messages, answers, code, tool calls and results;"
        " each text once, sub-agents indented.",
        "the content of messages matters more than timing.", "for exact bytes (body).",
        {"id": "r7"},
        (
            _id(_RUN + _LATEST, required=False),
            Parameter("step", "string", "Only step 3, or steps 3:7."),
            Parameter("agent", "string", "Only the steps of this agent."),
            Parameter("full", _FLAG, "Fold no text."),
            _IDS,
            Parameter("after", "string", "Continue from a cursor or span."),
            Parameter("limit", "integer", "Show at most this many items.", least=1,
                      most=TRANSCRIPT_ITEMS_MAX),
        ),
    ),
    Tool(
        "body", "An exact part of a span's input or output.",
        "a claim depends on the exact bytes.",
        "to read complete prompts: find the position with grep or diff first.",
        {"id": "r7.s12", "lines": "1:40"},
        (
            _id(_SPAN),
            Parameter("in", _FLAG, "Its input."),
            Parameter("out", _FLAG, "Its output."),
            Parameter("text", _FLAG, "Messages as text, strings without escapes."),
            Parameter("head", _FLAG, "Only the first lines."),
            Parameter("lines", "string", "Lines a:b, starting at 1.",
                      parse=lambda text: parse_range(text, 1)),
            Parameter("bytes", "string", "Bytes a:b, starting at 0.",
                      parse=lambda text: parse_range(text, 0)),
            Parameter("path", "string", "A JSONPath: $.messages[-1].content."),
        ),
    ),
    Tool(
        "grep", "Occurrences of a text: one line per match, with its span id and some context.",
        "you know a word, id or value and want the span.", "to count or group (sql, stats).",
        {"pattern": "card refused", "id": "r7"},
        (
            Parameter("pattern", "string", "The text.", required=True),
            _id("Only in this run. Default: all runs.", required=False),
            Parameter("in", "string", "Parts to search, comma-separated: bodies, attrs, logs.",
                      to="where", parse=parse_parts),
            Parameter("regex", _FLAG, "The text is a regular expression."),
            Parameter("ignore_case", _FLAG, "Ignore case."),
            Parameter("words", _FLAG, "All words, near each other, in any order."),
            Parameter("after", "string", "Continue from a cursor."),
        ),
    ),
    Tool(
        "span", "One span: attributes, parent, children, links, sizes and previews of its"
        " payloads.",
        "a finding or a line names it.", "for exact bytes (body).",
        {"id": "r7.s12"}, (_id(_SPAN), Parameter("ids", _FLAG, "Also show full ids.")),
    ),
    Tool(
        "list", "Runs, newest first or sorted: short id, start, outcome, duration, spans, tokens,"
        " finding.",
        "you have no id, or want similar runs.", "to inspect one run (overview).",
        {"filter": "is:failed tool:search", "since": "2h"},
        (
            Parameter("filter", "string", "Terms that must all match: is:failed tool:search"
                      " model:gpt cost>0.1 duration>5s tokens>10k since:2d name:x check:loop"
                      " -is:ok \"free text\"."),
            Parameter("failed", _FLAG, "Only failed runs."),
            Parameter("since", "string", "Only runs that started in the last 30m, 2h, 7d, ...",
                      parse=parse_duration),
            Parameter("name", "string", "Only runs whose name contains this."),
            Parameter("conversation", "string", "Only runs of this conversation."),
            Parameter("like", "string", "Only runs that contain this text."),
            Parameter("all", _FLAG, "Include runs without any recorded activity.",
                      to="everything"),
            Parameter("cost", _FLAG, "Show cost (USD)."),
            Parameter("sort", "string", "Sort by this column, largest first.", choices=SORTS),
            Parameter("reverse", _FLAG, "Reverse the order."),
            Parameter("totals", _FLAG, "Add up all runs that match."),
            Parameter("buckets", _FLAG, "Add them up by hour or day, too."),
            Parameter("group", "string", "Only the newest run of each group, with the number of"
                      " runs.", choices=("conversation",)),
            Parameter("limit", "integer", "Show at most this many runs.", least=1, most=1_000),
            Parameter("after", "string", "Start after this run."),
        ),
    ),
    Tool(
        "diff", "Differences between two runs or spans: structure first, then the first different"
        " bytes.",
        "there is a successful run to compare with, or a previous call.",
        "on runs of different programs (compare).",
        {"a": "r6", "b": "r7"},
        (
            Parameter("a", "string", "A run or a span.", required=True),
            Parameter("b", "string", "The other run or span; omit it with prev, before_after or"
                      " vs_good."),
            Parameter("prev", _FLAG, "Compare with the previous similar call."),
            Parameter("before_after", _FLAG, "Compare the input of a transform with its output."),
            Parameter("vs_good", _FLAG, "Compare with the last successful run of this task."),
            Parameter("ignore", "array", "Ignore ids, times or numbers; or none. Default for runs:"
                      " ids and times."),
        ),
    ),
    Tool(
        "compare", "What sets two groups of runs apart: attributes, tools, prompt sources.",
        "some runs fail and others do not.", "with one run on each side (diff).",
        {"a": ["is:failed", "name:triage"], "b": ["is:ok", "name:triage"]},
        (
            Parameter("a", "array", "First group: ids, or terms of a filter (see list).",
                      required=True),
            Parameter("b", "array", "Second group: ids, or terms of a filter.", required=True),
        ),
    ),
    Tool(
        "groups", "Failed runs grouped by cause: count, first and last time, trend, versions, the"
        " newest example, and what sets each group apart from successful runs.",
        "many runs failed, or to see how often a failure occurs.", "to explain one run (check).",
        {"filter": "name:triage", "since": "7d"},
        (
            Parameter("filter", "string", "Terms that must all match, as for list."),
            Parameter("like", "string", "A run: only the group that it belongs to."),
            Parameter("since", "string", "Only the last 2h, 7d, ...", parse=parse_duration),
            Parameter("seconds", "integer", "Answer after this time, with the runs examined so"
                      " far. The next call continues.", least=0, most=600),
            _AFTER,
        ),
    ),
    Tool(
        "stats", "Counts, durations, tokens, cost and error rates over all runs; for tools, prompt"
        " cost vs. usage.",
        "to see whether one run or all runs are affected.", "to explain one run.",
        {"by": "tool"},
        (
            Parameter("by", "string", "Group by this field.",
                      choices=("name", "model", "tool", "component", "type", "day")),
            Parameter("since", "string", "Only the last 2h, 7d, ...", parse=parse_duration),
        ),
    ),
    Tool(
        "trends", "Runs, failures, durations, tokens and cost over time, by day or hour.",
        "to see when a problem started.", "to explain one run.", {"since": "7d"},
        (
            Parameter("since", "string", "Only the last 12h, 30d, ...", parse=parse_duration),
            Parameter("by", "string", "Interval. Default: hour for up to three days.",
                      choices=("day", "hour")),
        ),
    ),
    Tool(
        "sql", "Rows of a read-only SQL query (SQLite) over the store; time and rows are limited.",
        "no other tool answers the question. Look at the tables first (schema).",
        "to write: it is refused.",
        {"query": "SELECT name, count(*) FROM spans WHERE status = 'error' GROUP BY name"},
        (
            Parameter("query", "string", "One SELECT.", required=True),
            _AFTER,
        ),
    ),
    Tool(
        "schema", "The tables of the store with comments, and example queries.",
        "before sql.", "for anything else.", {"table": "spans"},
        (Parameter("table", "string", "One table in full."),),
    ),
    Tool(
        "outline", "The tree of a run with identical siblings merged, longest first; in JSON, the"
        " complete run as columns.",
        "a run has thousands of spans.", "for the order of events (show).",
        {"id": "r7"},
        (
            _id(_RUN + _LATEST, required=False),
            Parameter("after", "string", "In JSON: only changes since this cursor."),
            Parameter("limit", "integer", "In JSON: at most this many spans.", least=1,
                      most=OUTLINE_ROWS_MAX),
        ),
    ),
    Tool(
        "segments", "A prompt broken down by source, with sizes and shares.",
        "a prompt is too long or changes unexpectedly.", "for the text itself (body).",
        {"id": "r7.s12"}, (_id(_SPAN),),
    ),
    Tool(
        "state", "State snapshots, each with its changes; or one snapshot (r7#3) with its items.",
        "the run has snapshots and a value in them is wrong.",
        "for the order of events (show, transcript).",
        {"id": "r7#3", "than": 1},
        (
            _id("A run, or one snapshot of it: r7#3." + _LATEST, required=False),
            Parameter("than", "integer", "Compare with the snapshot of this number.", least=0),
            Parameter("after", "integer", "Start after the snapshot of this number.", least=0),
        ),
    ),
    Tool(
        "files", "The files of a run, with sizes and previews, at its end or at another moment.",
        "the run captured files.", "for a complete file (body, with the span id shown).",
        {"id": "r7"},
        (
            _id(_RUN + _LATEST, required=False),
            Parameter("at", "mixed", "At this second of the run, or when this span started."),
        ),
    ),
    Tool(
        "notes", "Notes that people or programs added to a run or span.",
        "overview or span mentions notes, or you want earlier conclusions.",
        "to learn what happened: a note is an opinion (check, show).",
        {"id": "r7"}, (_id(_RUN + " For a span: only its notes."),),
    ),
    Tool(
        "doctor", "The state of the data directory, and whether any data is missing.",
        "before you conclude that something did not happen, or when a run seems incomplete.",
        "to inspect a run (overview).", {},
    ),
    Tool(
        "help", "Debugging hints of a component: how to read its spans, and example queries.",
        "a component is under investigation and overview mentions its hints.",
        "to learn about these tools: see their descriptions.",
        {"component": "billing"},
        (
            Parameter("component", "string", "Its name, as shown on spans.", required=True),
            Parameter("run", "string", "The hints in this run." + _LATEST),
        ),
    ),
)  # fmt: skip
BY_NAME = {tool.name: tool for tool in TOOLS}


# --- calls ------------------------------------------------------------------------------------


def get_tool(name: str) -> Tool:
    if name in BY_NAME:
        return BY_NAME[name]
    near = difflib.get_close_matches(name, BY_NAME, 3, 0.5)
    hint = f"Nearest: {', '.join(near)}." if near else f"Tools: {', '.join(BY_NAME)}."
    raise UsageError(f"{formatting.single_line(name, 60)!r}: unknown tool. {hint}")


def check_arguments(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return validated arguments by `Debugger` argument name; the error lists all problems."""
    known = {parameter.name: parameter for parameter in tool.all_parameters}
    problems: list[str] = []
    values: dict[str, Any] = {}
    for name, value in arguments.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 2, 0.5)
            hint = f"nearest: {', '.join(near)}" if near else f"expected one of: {', '.join(known)}"
            problems.append(
                f"{formatting.single_line(name, 60)!r} is not an argument of {tool.name} ({hint})"
            )
        elif value is not None:
            try:
                values[known[name].to or name] = known[name].take(value)
            except ValueError as error:
                shown = formatting.single_line(
                    json.dumps(value, ensure_ascii=False, default=str), 60
                )
                problems.append(f"{name}: {shown} does not fit ({error})")
    problems += [
        f"{parameter.name} is missing (expected {parameter.expected()}: {parameter.meaning})"
        for parameter in tool.parameters
        if parameter.required and arguments.get(parameter.name) is None
    ]
    if problems:
        raise UsageError(f"{tool.name}: {'; '.join(problems)}. Example: {json.dumps(tool.example)}")
    return values


def ask(debugger: Debugger, tool: Tool, values: dict[str, Any]) -> Answer:
    """Run a tool with the values that `check_arguments` returned."""
    if tool.name == "help":
        return help_for(debugger.store, **values)
    answer: Answer = getattr(debugger, tool.name)(**_convert_flags(tool, values))
    return answer


def _convert_flags(tool: Tool, values: dict[str, Any]) -> dict[str, Any]:
    """Convert command-line flags to the arguments of the `Debugger` method."""
    if tool.name == "show" and values.pop("no_fold", False):
        values["fold"] = False
    if tool.name == "body":
        is_input, is_output = values.pop("in", False), values.pop("out", False)
        if is_input and is_output:
            raise UsageError("body: in and out exclude each other. Use one of them.")
        if is_input or is_output:
            values["part"] = "input" if is_input else "output"
    return values
