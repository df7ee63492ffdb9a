"""Check tool calls: the model that requested them, their arguments, whether and how often they ran.

A failed tool is often a symptom: the cause is the model call that requested it. Calls and tool
spans are matched by the attribute `tool_call_id`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from vestige.providers.chat_types import ToolCall, ToolSchema
from vestige.query import formatting
from vestige.query.checks import check, make_finding
from vestige.query.checks.finding_text import format_call, named
from vestige.query.checks.requested_calls import (
    CallIndex,
    ModelCall,
    get_call_id,
    get_tool_name,
    model_calls,
    parse_json,
)
from vestige.query.checks.sent_requests import was_sent
from vestige.query.checks.tools.argument_schema import find_problem
from vestige.query.evidence import Evidence
from vestige.record.finding import Finding
from vestige.record.run import SpanInfo

FINDINGS_MAX = 5
EVIDENCE_MAX = 10


# --- executions ---------------------------------------------------------------------------------


@check(
    "duplicate-result",
    title="Duplicate tool execution or result",
    looks_at="tool_call_id of tool and queue.deliver spans, and the results in llm requests",
    severity="error",
    confidence=0.9,
    false_positives="nested tool spans of one call; ids that a provider reuses",
    version=3,
)
def duplicate_result(evidence: Evidence) -> Iterator[Finding]:
    executions = _by_call_id(evidence, "tool")
    yield from islice(_executed_twice(evidence, executions), FINDINGS_MAX)
    yield from islice(_in_request_twice(evidence, executions), FINDINGS_MAX)
    yield from islice(_delivered_twice(evidence, executions), FINDINGS_MAX)


def _delivered_twice(
    evidence: Evidence, executions: dict[str, list[SpanInfo]]
) -> Iterator[Finding]:
    for call_id, delivered in _by_call_id(evidence, "queue.deliver").items():
        ran = executions.get(call_id, [])
        if len(delivered) > max(1, len(ran)):
            yield make_finding(
                evidence,
                "duplicate-result",
                kind="duplicate-result/deliveries",
                cause=delivered[1].id,
                evidence=[span.id for span in (*delivered[1:], delivered[0], *ran)][:EVIDENCE_MAX],
                message=f"The result of tool call {formatting.single_line(call_id, 60)} was "
                f"delivered {len(delivered)} times; {_format_executions(ran)}.",
            )


def _executed_twice(evidence: Evidence, executions: dict[str, list[SpanInfo]]) -> Iterator[Finding]:
    requested_calls = CallIndex(evidence)
    for call_id, spans in executions.items():
        ids = {span.id for span in spans}
        done = [s for s in spans if s.status == "ok" and s.parent_id not in ids]
        equal = _largest_equal_group(done)
        if len(done) > max(1, requested_calls.count(call_id)) and len(equal) > 1:
            yield make_finding(
                evidence,
                "duplicate-result",
                kind="duplicate-result/executions",
                cause=equal[1].id,
                evidence=[span.id for span in equal[:EVIDENCE_MAX]],
                message=f"{named(equal[0])} ran {len(equal)} times for one tool call "
                f"({formatting.single_line(call_id, 60)}).",
            )


def _largest_equal_group(spans: list[SpanInfo]) -> list[SpanInfo]:
    """Return the spans with the same tool and arguments. Others are of a call with a reused id."""
    groups: dict[object, list[SpanInfo]] = {}
    for span in spans:
        body = span.input.id if span.input is not None else None
        groups.setdefault((get_tool_name(span), body), []).append(span)
    return max(groups.values(), key=len, default=[])


def _in_request_twice(
    evidence: Evidence, executions: dict[str, list[SpanInfo]]
) -> Iterator[Finding]:
    reported: set[str] = set()
    for model in model_calls(evidence):
        if not was_sent(model.span):
            continue  # a framework that repeats a result as text has not delivered it twice
        for call_id, count in model.results.items():
            if count <= max(1, model.earlier_calls[call_id]) or call_id in reported:
                continue
            reported.add(call_id)
            ran = executions.get(call_id) or _tools_by_name(evidence, call_id)
            yield make_finding(
                evidence,
                "duplicate-result",
                kind="duplicate-result/deliveries",
                cause=model.span.id,
                evidence=[model.span.id, *(span.id for span in ran)][:EVIDENCE_MAX],
                message=f"The request of {named(model.span)} contains the result of tool call "
                f"{formatting.single_line(call_id, 60)} {count} times; {_format_executions(ran)}.",
            )


def _tools_by_name(evidence: Evidence, name: str) -> list[SpanInfo]:
    return [span for span in evidence.of_type("tool") if get_tool_name(span) == name]


def _format_executions(ran: list[SpanInfo]) -> str:
    if not ran:
        return "the tool's execution was not recorded"
    return f"the tool ran {formatting.pluralize(len(ran), 'time')}"


def _by_call_id(evidence: Evidence, type: str) -> dict[str, list[SpanInfo]]:
    spans: dict[str, list[SpanInfo]] = {}
    for span in evidence.of_type(type):
        call_id = get_call_id(span)
        if call_id is not None:
            spans.setdefault(call_id, []).append(span)
    return spans


# --- tools of the request -------------------------------------------------------------------------


@check(
    "unknown-tool",
    title="Unknown tool",
    looks_at="tool calls in llm outputs, and the tools of the same request",
    severity="error",
    confidence=0.95,
    false_positives="a proxy that renames tools after the request was recorded",
    version=3,
)
def unknown_tool(evidence: Evidence) -> Iterator[Finding]:
    found = 0
    for model in model_calls(evidence):
        if not model.tools or model.response is None or _finds_more_tools(model.tools):
            continue
        for call in model.response.calls:
            if call.name in model.tools or found >= FINDINGS_MAX:
                continue
            found += 1
            offered = ", ".join(formatting.single_line(name, 30) for name in list(model.tools)[:6])
            yield make_finding(
                evidence,
                "unknown-tool",
                cause=model.span.id,
                evidence=[model.span.id],
                message=f"{named(model.span)} called {formatting.single_line(call.name, 60)}, "
                f"not one of the {len(model.tools)} tools of its request ({offered}).",
            )


def _finds_more_tools(offered: Iterable[str]) -> bool:
    """Return whether one of the tools finds others, which the request does not list."""
    return any(name.startswith("tool_search") for name in offered)


@check(
    "bad-arguments",
    title="Invalid tool arguments",
    looks_at="arguments of tool calls in llm outputs, and the JSON Schema in the same request",
    severity="error",
    confidence=0.9,
    false_positives="a program that repairs or completes arguments before it runs the tool",
    version=3,
)
def bad_arguments(evidence: Evidence) -> Iterator[Finding]:
    found = 0
    models = model_calls(evidence)
    for model in models:
        for call in model.response.calls if model.response is not None else ():
            schema = model.tools.get(call.name)
            if schema is None or schema.parameters is None or found >= FINDINGS_MAX:
                continue  # a tool without a schema may take free text
            problem = _find_argument_problem(call.arguments, schema.parameters)
            problem = problem or _find_removed_argument(call, schema, model, models)
            if problem is None:
                continue
            found += 1
            ran = [s for s in evidence.of_type("tool") if call.id and get_call_id(s) == call.id]
            yield make_finding(
                evidence,
                "bad-arguments",
                cause=model.span.id,
                evidence=[model.span.id, *(span.id for span in ran)][:EVIDENCE_MAX],
                message=f"{named(model.span)} called "
                f"{format_call(call)}: "
                f"{formatting.single_line(problem, 160)}.",
            )


def _find_argument_problem(arguments: str, schema: object) -> str | None:
    value = parse_json(arguments.strip() or "{}")
    if value is None and arguments.strip() != "null":
        return "the arguments are not JSON"
    return find_problem(schema, value)


def _find_removed_argument(
    call: ToolCall, schema: ToolSchema, model: ModelCall, models: Sequence[ModelCall]
) -> str | None:
    """Return an argument that the tool had in an earlier request of the run, and has no more."""
    value = parse_json(call.arguments)
    offered = _get_properties(schema)
    if not isinstance(value, dict) or offered is None or offered.keys() >= value.keys():
        return None
    for earlier in models:
        if earlier is model:
            break
        before = earlier.tools.get(call.name)
        known = _get_properties(before) if before is not None else None
        removed = [key for key in value if key not in offered and key in (known or ())]
        if removed:
            return (
                f"{removed[0]} was a parameter in the request of {earlier.span.short_id}, and is "
                "not one of the definition that was sent here"
            )
    return None


def _get_properties(schema: ToolSchema) -> dict[str, Any] | None:
    """Return the parameters of a tool, if its schema lists them at its top level."""
    properties = (schema.parameters or {}).get("properties")
    return properties if isinstance(properties, dict) and properties else None


# --- text of the model -----------------------------------------------------------------------

_MARKUP = (
    r"<tool_call>|<\|tool_call|\[TOOL_CALLS\]|<function=|<function_call|<invoke\s|<tool_use>"
    r"|<\|python_tag\|>|\bto=functions\.|```tool_code"
)
_NAMED_IN_JSON = (
    r"""["'](?:name|tool|tool_name|function|recipient_name|action)["']\s*:\s*"""
    r"""["'](?:functions\.)?{name}["']"""
)
_ARGUMENTS = r"""["'](?:arguments|parameters|input|args|action_input|tool_input)["']\s*:"""


@check(
    "call-as-text",
    title="Tool call written as text",
    looks_at="llm outputs without a tool call whose text contains a JSON or XML call of a tool of "
    "the request",
    severity="error",
    confidence=0.85,
    false_positives="a text that explains how to call a tool; a program that parses calls from "
    "text",
    version=2,
)
def call_as_text(evidence: Evidence) -> Iterator[Finding]:
    found = 0
    ran = {get_tool_name(span) for span in evidence.of_type("tool")}
    for model in model_calls(evidence):
        if model.response is None or model.response.calls or found >= FINDINGS_MAX:
            continue
        name = _find_call_in_text(model.response.text, list(model.tools))
        if name is None:
            continue
        found += 1
        # If a tool of this name ran, the program may have parsed the call from the text.
        yield make_finding(
            evidence,
            "call-as-text",
            severity="hint" if name in ran else "error",
            confidence=0.4 if name in ran else 0.85,
            cause=model.span.id,
            evidence=[model.span.id],
            message=f"{named(model.span)} wrote a call of {formatting.single_line(name, 60)} as "
            f'text, without a tool call: "{formatting.single_line(model.response.text, 120)}".',
        )


def _find_call_in_text(text: str, names: list[str]) -> str | None:
    if not names or not ("{" in text or "<" in text or "```" in text):
        return None
    text = text[:100_000]
    for name in names:
        escaped = re.escape(name)
        if name not in text:
            continue
        if re.search(_NAMED_IN_JSON.replace("{name}", escaped), text) and re.search(
            _ARGUMENTS, text
        ):
            return name
        if re.search(f"(?:{_MARKUP}).{{0,200}}?{escaped}", text, re.DOTALL):
            return name
        if re.search(rf"<{escaped}>\s*<\w+>.{{0,2000}}?</{escaped}>", text, re.DOTALL):
            return name
    return None


_ASKS_FOR_DATA = re.compile(
    r"\b(?:look up|find|fetch|search|get me|list|show me|check|how many|how much|what is the"
    r"|what's the|latest|current|today|now|status of|read|query|weather|price)\b",
    re.IGNORECASE,
)


@check(
    "answer-without-tool",
    title="Answered without using tools",
    looks_at="runs that offered tools, ended with an answer, and called none",
    severity="hint",
    confidence=0.3,
    false_positives="a question that the model could answer by itself; a text that only looks like "
    "a question for data",
)
def answer_without_tool(evidence: Evidence) -> Iterator[Finding]:
    calls = model_calls(evidence)
    if evidence.of_type("tool") or any(m.response and m.response.calls for m in calls):
        return
    answers = [m for m in calls if m.tools and m.is_answer and not m.results]
    if answers and _ASKS_FOR_DATA.search(answers[-1].user_text):
        last = answers[-1]
        yield make_finding(
            evidence,
            "answer-without-tool",
            basis="hypothesis",
            cause=last.span.id,
            evidence=[last.span.id],
            message=f"{named(last.span)} answered without using any of its {len(last.tools)} tools;"
            f' the user wrote: "{formatting.single_line(last.user_text, 100)}".',
        )


@check(
    "steps-after-answer",
    title="Tools ran after the final answer",
    looks_at="tool spans after an llm output that ended the turn, which no later llm call "
    "requested",
    severity="hint",
    confidence=0.4,
    false_positives="tools that a program uses for cleanup after the answer",
    version=2,
)
def steps_after_answer(evidence: Evidence) -> Iterator[Finding]:
    by_span = {model.span.id: model for model in model_calls(evidence)}
    requested_calls = CallIndex(evidence)
    final: ModelCall | None = None
    after: list[SpanInfo] = []
    for span in evidence.of_type("llm", "tool"):
        model = by_span.get(span.id)
        if model is not None:
            final = model if model.is_answer else None
            after = []
        elif span.type == "tool" and final is not None:
            if not _is_later(final.span, span) or requested_calls.find(span) is not None:
                continue  # part of the answer, or requested by a model
            after.append(span)
    if final is not None and after:
        yield make_finding(
            evidence,
            "steps-after-answer",
            basis="hypothesis",
            cause=after[0].id,
            evidence=[final.span.id, *(span.id for span in after)][:EVIDENCE_MAX],
            message=f"{formatting.pluralize(len(after), 'tool call')} after the final answer of "
            f"{named(final.span)}, first {formatting.single_line(after[0].name, 60)}, which no "
            "model requested.",
        )


def _is_later(answer: SpanInfo, tool: SpanInfo) -> bool:
    """Return whether the tool started after the answer ended, and is not a child of it."""
    ended_ns = answer.started_ns + (answer.duration_ns or 0)
    return tool.started_ns >= ended_ns and tool.parent_id != answer.id
