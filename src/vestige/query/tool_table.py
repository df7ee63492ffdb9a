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
from vestige.limits import TRANSCRIPT_ITEMS_MAX
from vestige.query import formatting
from vestige.query.budget import TOKENS_MAX
from vestige.query.search.grep import parse_parts
from vestige.query.views.body_view import parse_range
from vestige.query.views.debug_surfaces import help_for
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
    "At most so many tokens of answer. Leave out: each tool has its own.",
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


_RUN = "A run: r7, the start of its id, or anything that leads to one."
_SPAN = "A span: r7.s12, its id, or the start of it."
_FLAG: Kind = "boolean"
_AFTER = Parameter(
    "after", "integer", "Go on here: the number that the answer before said.", least=0
)


TOOLS: tuple[Tool, ...] = (
    Tool(
        "doctor", "Where evidence lives, and whether any was lost.",
        "before you conclude that something did not happen, or when a run seems incomplete.",
        "to look into a run (overview).", {},
    ),
    Tool(
        "list", "Runs, newest first: short id, when, outcome, duration, spans, tokens, top finding.",
        "you have no id, or want runs like one.", "to look into one run (overview).",
        {"filter": "is:failed tool:search", "since": "2h"},
        (
            Parameter("filter", "string", "Terms that must all hold: is:failed tool:search model:gpt"
                      " cost>0.1 duration>5s tokens>10k since:2d name:x check:loop -is:ok \"free text\"."),
            Parameter("failed", _FLAG, "Only runs that did not end well."),
            Parameter("since", "string", "Only runs that began within this: 30m, 2h, 7d.",
                      parse=parse_duration),
            Parameter("name", "string", "Only runs whose name has this in it."),
            Parameter("conversation", "string", "Only runs of this conversation."),
            Parameter("like", "string", "Only runs that say this somewhere."),
            Parameter("all", _FLAG, "Also the runs of mere processes.", to="everything"),
            Parameter("cost", _FLAG, "Also what their model calls cost, in dollars."),
            Parameter("group", "string", "Only the newest run of each, with how many there are.",
                      choices=("conversation",)),
            Parameter("limit", "integer", "At most so many.", least=1, most=1_000),
            Parameter("after", "string", "Only runs older than this one: to go on."),
        ),
    ),
    Tool(
        "overview", "One run: outcome, shape, totals, top findings, the last good run like it, next steps.",
        "first, for any id.", "for one span (span) or the order of events (show).",
        {"id": "r7"}, (_id(_RUN),),
    ),
    Tool(
        "check", "Findings of a run, each with severity, confidence, cause span, evidence ids and the"
        " command that proves it; then what passed.",
        "after overview: it names most causes.", "again and again on the same run: the answer is the same.",
        {"id": "r7"},
        (_id(_RUN), _AFTER, Parameter("verbose", _FLAG, "Also the names of the checks that passed.")),
    ),
    Tool(
        "why", "The causal chain upward from a span, by parents and links, to the first finding.",
        "you know where it hurts and want where it began.", "to see all findings of a run (check).",
        {"id": "r7.s12"},
        (_id(_SPAN + " Of a run: from its gravest finding. Left out: the latest run.", required=False),),
    ),
    Tool(
        "show", "How a run unfolded: one line per span or log line, repeats folded, open spans marked.",
        "the order of events matters.", "as the first look at a long run (overview, check).",
        {"id": "r7", "errors": True},
        (
            _id(_RUN + " Left out: the latest.", required=False),
            Parameter("errors", _FLAG, "Only what failed, and what it stood in."),
            Parameter("type", "string", "Only spans of this type: llm, tool, step, ..."),
            Parameter("from", "mixed", "From here: seconds into the run, or a span of it.", to="from_"),
            Parameter("to", "mixed", "Up to here, likewise."),
            Parameter("depth", "integer", "At most so deep.", least=0),
            Parameter("no_fold", _FLAG, "Every repeat on a line of its own."),
            Parameter("limit", "integer", "At most so many lines; as data, spans and log lines.", least=1),
            _AFTER,
        ),
    ),
    Tool(
        "transcript", "A run read like a chat: what was said to a model, its answers, tool calls with their"
        " results, sub-agents indented; of each request only what is new.",
        "what was said matters more than how long it took.", "for exact bytes (body).",
        {"id": "r7"},
        (
            _id(_RUN + " Left out: the latest.", required=False),
            Parameter("after", "string", "Go on here: the cursor of the answer before, or a span."),
            Parameter("limit", "integer", "At most so many items.", least=1,
                      most=TRANSCRIPT_ITEMS_MAX),
        ),
    ),
    Tool(
        "outline", "The shape of a run: its tree with equal siblings added up, the longest first; as data, all"
        " of it in columns.",
        "a run has thousands of spans.", "for the order of events (show).",
        {"id": "r7"},
        (
            _id(_RUN + " Left out: the latest.", required=False),
            Parameter("after", "string", "As data: only what is new since this cursor."),
        ),
    ),
    Tool(
        "segments", "What the prompt of a model call is made of, by contributor, with sizes and shares.",
        "a prompt is too long or changes, and one asks whose part it is.", "for the text itself (body).",
        {"id": "r7.s12"}, (_id(_SPAN),),
    ),
    Tool(
        "state", "Snapshots of a session, each with what changed; or one of them (r7#3) with its items.",
        "the run has snapshots and a value in them is wrong.", "for what was done (show, transcript).",
        {"id": "r7#3", "than": 1},
        (
            _id("A run, or one snapshot of it: r7#3. Left out: the latest.", required=False),
            Parameter("than", "integer", "Against the snapshot of this number.", least=0),
            Parameter("after", "integer", "Only those after this number: to go on.", least=0),
        ),
    ),
    Tool(
        "files", "The files of a run, with sizes and beginnings, at its end or at a moment.",
        "the run captured files.", "for a whole file (body, of the span that it names).",
        {"id": "r7"},
        (
            _id(_RUN + " Left out: the latest.", required=False),
            Parameter("at", "mixed", "At this second of the run, or when this span began."),
        ),
    ),
    Tool(
        "span", "One span: attributes, parent, children, links, sizes and short previews of its bodies.",
        "a finding or a line names it.", "for exact bytes (body).",
        {"id": "r7.s12"}, (_id(_SPAN),),
    ),
    Tool(
        "notes", "What people or programs said about a run, or a span of it, afterwards.",
        "overview or span shows that there are notes, or you want to know what was found out before.",
        "to learn what happened: a note is an opinion (check, show).",
        {"id": "r7"}, (_id(_RUN + " Of a span: only those about it."),),
    ),
    Tool(
        "body", "An exact slice of a span's input or output.",
        "the claim depends on the very bytes.", "to read whole prompts: grep or diff find the place first.",
        {"id": "r7.s12", "lines": "1:40"},
        (
            _id(_SPAN),
            Parameter("in", _FLAG, "Its input."),
            Parameter("out", _FLAG, "Its output."),
            Parameter("head", _FLAG, "Its beginning only."),
            Parameter("lines", "string", "Lines a:b, from 1.", parse=lambda text: parse_range(text, 1)),
            Parameter("bytes", "string", "Bytes a:b, from 0.", parse=lambda text: parse_range(text, 0)),
            Parameter("path", "string", "A JSONPath: $.messages[-1].content."),
        ),
    ),
    Tool(
        "grep", "Where a text occurs: one hit per line with its span id and some characters around.",
        "you know words, an id or a value, and want the span.", "to count or group (sql, stats).",
        {"pattern": "card refused", "id": "r7"},
        (
            Parameter("pattern", "string", "The text.", required=True),
            _id("Only in this run. Left out: in all.", required=False),
            Parameter("in", "string", "Where: bodies, attrs, logs; several with commas.",
                      to="where", parse=parse_parts),
            Parameter("regex", _FLAG, "The text is a regular expression."),
            Parameter("ignore_case", _FLAG, "Upper and lower case are the same."),
            Parameter("after", "string", "Go on here: what the answer before said."),
        ),
    ),
    Tool(
        "diff", "What differs between two runs or spans: structure first, then bytes at the first divergence.",
        "there is a good one beside the bad one, or a step before this one.",
        "on runs of different programs (compare).",
        {"a": "r6", "b": "r7"},
        (
            Parameter("a", "string", "A run or a span.", required=True),
            Parameter("b", "string", "The other one, unless prev, before_after or vs_good finds it."),
            Parameter("prev", _FLAG, "Against the span of the same kind before it."),
            Parameter("before_after", _FLAG, "A transform's input against its output."),
            Parameter("vs_good", _FLAG, "Against the last good run like it."),
            Parameter("ignore", "array", "What not to compare: ids, times, numbers, or none. Of two runs: ids and times."),
        ),
    ),
    Tool(
        "stats", "Counts, durations, tokens, cost and error rates over all runs; tools by standing cost against use.",
        "to see whether it is this run or all of them.", "to explain one run.",
        {"by": "tool"},
        (
            Parameter("by", "string", "One line for each.",
                      choices=("name", "model", "tool", "component", "type", "day")),
            Parameter("since", "string", "Only what happened within this: 2h, 7d.",
                      parse=parse_duration),
        ),
    ),
    Tool(
        "trends", "Runs, failures, durations, tokens and cost over time, by day or hour.",
        "to see when it began.", "to explain one run.", {"since": "7d"},
        (
            Parameter("since", "string", "Only what happened within this: 12h, 30d.",
                      parse=parse_duration),
            Parameter("by", "string", "One bucket for each; left out: hours up to three days.",
                      choices=("day", "hour")),
        ),
    ),
    Tool(
        "compare", "What two groups of runs have that the other has not: attributes, tools, segments.",
        "some runs fail and some do not.", "with one run on each side (diff).",
        {"a": ["is:failed", "name:triage"], "b": ["is:ok", "name:triage"]},
        (
            Parameter("a", "array", "Runs of one group: ids, or terms of a filter (see list).", required=True),
            Parameter("b", "array", "Those of the other, likewise.", required=True),
        ),
    ),
    Tool(
        "sql", "Rows of a read-only SQL query (SQLite) over the store; time, rows and tokens are capped.",
        "no other tool answers the question. Call schema first.", "to write: it is refused.",
        {"query": "SELECT name, count(*) FROM spans WHERE status = 'error' GROUP BY name"},
        (
            Parameter("query", "string", "One SELECT.", required=True),
            _AFTER,
        ),
    ),
    Tool(
        "schema", "The store's tables with comments, and example queries.",
        "before sql.", "for anything else.", {"table": "spans"},
        (Parameter("table", "string", "One table in full."),),
    ),
    Tool(
        "help", "A component's own hints: how to read its spans, and queries that it offers.",
        "a component is under investigation and overview says that it has some.",
        "to learn about these tools: their descriptions say it all.",
        {"component": "billing"},
        (
            Parameter("component", "string", "Its name, as spans show it.", required=True),
            Parameter("run", "string", "As it stood in this run. Left out: the latest."),
        ),
    ),
)  # fmt: skip
BY_NAME = {tool.name: tool for tool in TOOLS}


# --- calls ------------------------------------------------------------------------------------


def get_tool(name: str) -> Tool:
    if name in BY_NAME:
        return BY_NAME[name]
    near = difflib.get_close_matches(name, BY_NAME, 3, 0.5)
    hint = f"Nearest: {', '.join(near)}." if near else f"There are: {', '.join(BY_NAME)}."
    raise UsageError(f"{formatting.single_line(name, 60)!r}: no such tool. {hint}")


def check_arguments(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return validated arguments by `Debugger` argument name; the error lists all problems."""
    known = {parameter.name: parameter for parameter in tool.all_parameters}
    problems: list[str] = []
    values: dict[str, Any] = {}
    for name, value in arguments.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 2, 0.5)
            hint = f"nearest: {', '.join(near)}" if near else f"there are: {', '.join(known)}"
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
