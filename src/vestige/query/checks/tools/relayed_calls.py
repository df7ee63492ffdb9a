"""Compare what a program passed on with what it received: a model's arguments, a tool's result.

arguments of the requested call    ->  arguments of the tool span
output of the tool span            ->  the result in the next request
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vestige.providers.chat_types import ToolResult
from vestige.query.checks import check, make_finding
from vestige.query.checks.finding_text import named
from vestige.query.checks.requested_calls import (
    RequestedCall,
    get_call_id,
    get_tool_name,
    iter_requested_calls,
    latest_results,
    parse_json,
)
from vestige.query.evidence import Evidence
from vestige.query.formatting import pluralize, single_line
from vestige.record.finding import Finding
from vestige.record.run import SpanInfo

FINDINGS_MAX = 5

COMPARED_MAX = 1_000_000
"""Longer outputs are not compared."""

CUT_RESULT_MIN = 40
"""Characters without white space; a shorter result may be a part of the output by chance."""

CUT_REST_MIN = 100
"""Missing characters that matter."""

_UNAWAITED = re.compile(r"<(?:coroutine|async_generator) object ([\w.<>]+) at 0x[0-9a-fA-F]+>")
_OBJECT = re.compile(r"<(?:[^<>\n]|<[^<>\n]*>){1,200} at 0x[0-9a-fA-F]+>")
"""The default text of a Python object."""


# --- arguments ------------------------------------------------------------------------------------


@check(
    "changed-arguments",
    title="Tool ran with other arguments",
    looks_at="arguments of requested calls, and of the tool spans that ran for them",
    severity="warning",
    confidence=0.65,
    false_positives="a program that limits or converts arguments on purpose",
)
def changed_arguments(evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding per tool and argument."""
    cases: dict[tuple[str, str], list[_Changed]] = {}
    for requested, tool in _executions(evidence):
        for key, before, after in _find_changes(requested, evidence.input(tool)):
            case = _Changed(requested.span, tool, before, after)
            cases.setdefault((requested.call.name, key), []).append(case)
    for (name, key), found in list(cases.items())[:FINDINGS_MAX]:
        first = found[0]
        times = f" ({len(found)} times)" if len(found) > 1 else ""
        yield make_finding(
            evidence,
            "changed-arguments",
            kind="tool/changed-arguments",
            cause=first.tool.id,
            evidence=[first.tool.id, first.model.id],
            message=f"{single_line(name, 60)} ran with {single_line(key, 40)}="
            f"{single_line(str(first.after), 60)}, but {first.model.short_id} requested "
            f"{single_line(str(first.before), 60)}{times}.",
        )


@dataclass(frozen=True, slots=True)
class _Changed:
    """An argument that a tool span has with another value than its model call."""

    model: SpanInfo
    tool: SpanInfo
    before: Any
    after: Any


def _executions(evidence: Evidence) -> Iterator[tuple[RequestedCall, SpanInfo]]:
    """Yield the requested calls that ran exactly once, with their tool span.

    A span without a call id belongs to the call whose result in a later request is its output.
    """
    by_id: dict[str, list[RequestedCall]] = {}
    for requested in iter_requested_calls(evidence):
        if requested.call.id:
            by_id.setdefault(requested.call.id, []).append(requested)
    spans: dict[str, list[SpanInfo]] = {}
    others: dict[tuple[str, str], list[SpanInfo]] = {}
    for tool in evidence.of_type("tool"):
        call_id = get_call_id(tool)
        if call_id is not None:
            spans.setdefault(call_id, []).append(tool)
        elif (output := _squeeze(evidence.output(tool))) is not None:
            others.setdefault((get_tool_name(tool), output), []).append(tool)
    if others:
        for _, result in latest_results(evidence):
            calls = by_id.get(result.call_id or "", [])
            if len(calls) == 1 and result.call_id not in spans:
                key = calls[0].call.name, _squeeze(result.text) or ""
                spans[result.call_id or ""] = others.get(key, [])
    for call_id, calls in by_id.items():
        ran = spans.get(call_id, [])
        if len(calls) == 1 and len(ran) == 1 and ran[0].attributes.get("inferred") is not True:
            yield calls[0], ran[0]


def _find_changes(requested: RequestedCall, ran_with: str | None) -> Iterator[tuple[str, Any, Any]]:
    """Yield the arguments that are plain values on both sides, and differ in more than form."""
    before, after = parse_json(requested.call.arguments), parse_json(ran_with or "")
    if not isinstance(before, dict) or not isinstance(after, dict):
        return
    for key, value in before.items():
        if key in after and _differ(value, after[key]):
            yield key, value, after[key]


def _differ(before: object, after: object) -> bool:
    if isinstance(before, bool) or isinstance(after, bool):
        return isinstance(before, bool) and isinstance(after, bool) and before != after
    if not isinstance(before, str | int | float) or not isinstance(after, str | int | float):
        return False
    first, second = _plain(before), _plain(after)
    if isinstance(first, float) or isinstance(second, float):
        return isinstance(first, float) and isinstance(second, float) and first != second
    # A path that was made absolute, a quoted text, a text cut to a limit.
    return bool(first) and bool(second) and first not in second and second not in first


def _plain(value: str | float) -> str | float:
    """Return a number, also if it is text; other text without case, white space and marks."""
    try:
        return float(value)
    except ValueError:
        return "".join(char for char in str(value).casefold() if char.isalnum())


# --- results --------------------------------------------------------------------------------------


@check(
    "cut-result",
    title="Tool result cut by the program",
    looks_at="outputs of tool spans, and the results with the same call ids in later requests",
    severity="warning",
    confidence=0.7,
    false_positives="a limit that is intended: only a hint if the rest is still readable",
)
def cut_result(evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding per tool whose result reaches the model only in part, without a mark."""
    tools = {call_id: tool for tool in evidence.of_type("tool") if (call_id := get_call_id(tool))}
    cases: dict[str, list[tuple[SpanInfo, SpanInfo, ToolResult, int]]] = {}
    for model, result in latest_results(evidence):
        tool = tools.get(result.call_id or "")
        output = evidence.output(tool) if tool is not None else None
        if tool is None or output is None or len(output) > COMPARED_MAX or result.parts:
            continue
        output_text, sent = _squeeze(output) or "", _squeeze(result.text) or ""
        rest = len(output_text) - len(sent)
        if len(sent) >= CUT_RESULT_MIN and rest >= CUT_REST_MIN and output_text.startswith(sent):
            cases.setdefault(get_tool_name(tool), []).append((model, tool, result, rest))
    for name, found in list(cases.items())[:FINDINGS_MAX]:
        model, tool, result, rest = found[-1]  # the first one: results come latest first
        broken = _is_json(evidence.output(tool) or "") and not _is_json(result.text)
        times = f" ({len(found)} times)" if len(found) > 1 else ""
        effect = "and is malformed JSON" if broken else "without a mark"
        yield make_finding(
            evidence,
            "cut-result",
            kind="tool/cut-result",
            severity="warning" if broken else "hint",
            cause=tool.id,
            evidence=[tool.id, model.id],
            message=f"The result of {single_line(name, 60)} ({tool.short_id}) ends after "
            f"{pluralize(len(result.text), 'character')} in the request of {model.short_id}, "
            f"{effect}: about {rest} more were returned{times}.",
            command=f"vestige body {model.short_id} --in",
        )


def _squeeze(text: str | None) -> str | None:
    """Return a text without white space; JSON in a string is taken out of it."""
    if not text or len(text) > COMPARED_MAX:
        return None
    value = parse_json(text) if text[:1] == '"' else None
    return "".join((value if isinstance(value, str) else text).split()) or None


def _is_json(text: str) -> bool:
    value = parse_json(text)
    value = parse_json(value) if isinstance(value, str) else value
    return isinstance(value, dict | list)


@check(
    "object-result",
    title="Python object instead of a tool result",
    looks_at="tool results in requests that are only the default text of a Python object",
    severity="error",
    confidence=0.95,
    false_positives="none known",
)
def object_result(evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding per tool. A model cannot use `<coroutine object search at 0x7f...>`."""
    names = {requested.call.id: requested for requested in iter_requested_calls(evidence)}
    seen: set[str] = set()
    for model, result in sorted(latest_results(evidence), key=lambda e: evidence.places[e[0].id]):
        text = result.text.strip().strip('"')
        unawaited = _UNAWAITED.fullmatch(text)
        if unawaited is None and _OBJECT.fullmatch(text) is None:
            continue
        requested = names.get(result.call_id)
        name = requested.call.name if requested is not None else "A tool"
        if name in seen or len(seen) >= FINDINGS_MAX:
            continue
        seen.add(name)
        what = (
            f"a coroutine that was not awaited ({unawaited[1]})"
            if unawaited is not None
            else "a Python object, not its content"
        )
        cause = requested.span if requested is not None else model
        yield make_finding(
            evidence,
            "object-result",
            kind="tool/not-awaited" if unawaited is not None else "tool/object-result",
            severity="error" if unawaited is not None else "warning",
            cause=_find_tool(evidence, result.call_id, cause).id,
            evidence=list(dict.fromkeys([model.id, cause.id])),
            message=f"The result of {single_line(name, 60)} in the request of {named(model)} is "
            f"{what}: {single_line(text, 100)}",
            command=f"vestige body {model.short_id} --in",
        )


def _find_tool(evidence: Evidence, call_id: str | None, default: SpanInfo) -> SpanInfo:
    tools = (tool for tool in evidence.of_type("tool") if call_id and get_call_id(tool) == call_id)
    return next(tools, default)
