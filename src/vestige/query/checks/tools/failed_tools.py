"""Tools that failed, and answers whose action failed: code, a malformed call, a missing file.

The finding is on the failed tool, and the model call that requested it is linked. The model call
itself is the cause if the error is about its arguments: a parameter that does not exist, a value
that the error quotes, a file that is not there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from vestige.query import formatting
from vestige.query.checks import check, make_finding
from vestige.query.checks.answer_effects import FAILED, Action, action_of, agent_actions, get_error
from vestige.query.checks.process.failed_starts import could_not_start
from vestige.query.checks.requested_calls import get_tool_name, parse_json
from vestige.query.checks.tools.soft_errors import find_soft_error
from vestige.query.error_text import find_innermost
from vestige.query.evidence import Evidence
from vestige.query.trajectory.actions import simplify_arguments
from vestige.record.finding import Finding
from vestige.record.run import SpanInfo

FINDINGS_MAX = 5
EVIDENCE_MAX = 10
PRINTED_MAX = 400
"""Longer output contains data, whatever else it contains."""
QUOTED_MIN = 4
"""Shortest argument whose occurrence in an error shows that the error is about it."""

_ABOUT_ARGUMENTS = re.compile(
    r"unexpected keyword argument|missing \d+ required|required positional argument"
    r"|takes \d+ positional|got multiple values for|positional arguments? but"
    r"|validation ?error|invalid (?:argument|parameter|input|value|query)|bad request"
    r"|missing required|is required|field required|not a valid|does not match (?:the )?schema"
    r"|unsupported (?:format|type|file)|formats? .{0,80}not supported|additional propert"
    r"|no such file or directory|file not found|filenotfounderror|cannot be parsed|malformed"
    r"|json ?decode|not supported between|unknown (?:argument|parameter|option)",
    re.IGNORECASE,
)
_MISSING = re.compile(
    r"no such file or directory|file ?not ?found|\b404\b.{0,40}not found", re.IGNORECASE
)
_NO_RESULTS = re.compile(
    r"\bno (?:\w+ )?(?:results?|matches|hits|records|documents)\b|\bnothing (?:was )?found\b"
    r"|\bfound (?:no|0|zero) ",
    re.IGNORECASE,
)
_NOT_ARGUMENTS = re.compile(
    r"connection|timed? ?out|timeout|unreachable|refused|reset by peer|rate.?limit"
    r"|too many requests"
    r"|\b(?:401|403|407|408|429|5\d\d)\b|unauthori[sz]ed|forbidden|quota|overloaded|unavailable"
    r"|out of memory|disk full|UnboundLocalError",
    re.IGNORECASE,
)
_REJECTED = re.compile(
    r"pars(?:e|ing)|SyntaxError|IndentationError|invalid json|json ?decode|regex pattern"
    r"|output ?parser|could not extract|not found in (?:the )?(?:output|answer|text)"
    r"|expected format|malformed|invalid (?:tool call|action|format)",
    re.IGNORECASE,
)
_EXECUTES = re.compile(
    r"python|interpreter|(?:run|exec)\w*_?code|code_?exec|jupyter|ipython|terminal|executor"
    r"|sandbox",
    re.IGNORECASE,
)
_EXCEPTION = re.compile(r"Traceback \(most recent|^\s*[A-Z]\w*(?:Error|Exception)\b", re.MULTILINE)
_PARSER_ERROR = re.compile(
    r"\w*(?:Syntax|Indentation|Tab|Decode|Pars\w*|Validation|Format\w*|Schema|ToolCall)"
    r"(?:Error|Exception)"
)
"""Exceptions of the code that reads an answer, not of the code that it contains."""
_OUTPUT_LABEL = re.compile(r"\s*exitcode: 0 \([^)\n]*\)\s*Code output:[ \t]*\n?")
_PRINTS = re.compile(r"\bprint(?:ln|f)?\s*\(|\bconsole\.log\s*\(")
_NOTHING = re.compile(r"\s*(?:\[\s*\]|\{\s*\}|None|null)?\s*")
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+|'[^']{0,200}'|\"[^\"]{0,200}\"")


@dataclass(slots=True)
class _Group:
    """Failures of one tool with the same kind of error."""

    spans: list[SpanInfo] = field(default_factory=list)
    actions: list[Action | None] = field(default_factory=list)
    error: str = ""
    """The error of the first."""


@check(
    "failed-tool",
    title="Tool call failed",
    looks_at="failed tool spans with their error and its cause, the llm span that requested them, "
    "and code that printed only an error, or nothing",
    severity="warning",
    confidence=0.8,
    false_positives="an error that the agent expected, as a test that fails before the fix",
    version=3,
)
def failed_tool(evidence: Evidence) -> Iterator[Finding]:
    groups: dict[object, _Group] = {}
    for span in evidence.of_type("tool"):
        if could_not_start(evidence, span):
            continue
        error = (
            get_error(evidence, span) if span.status in FAILED else _find_printed(evidence, span)
        )
        if not error and span.status not in FAILED:
            continue
        action = action_of(evidence, span)
        at_fault = action is not None and (
            span.status not in FAILED or _are_arguments_at_fault(evidence, span, error)
        )
        group = groups.setdefault((get_tool_name(span), at_fault, normalize(error)), _Group())
        group.error = group.error or error
        group.spans.append(span)
        group.actions.append(action if at_fault else None)
    for group in islice(groups.values(), FINDINGS_MAX):
        action = group.actions[0]
        if action is not None:
            yield _arguments_finding(evidence, group, action)
        else:
            yield _failed_finding(evidence, group)


def _find_printed(evidence: Evidence, span: SpanInfo) -> str:
    """Return the error that code printed before it ended without an exception; else nothing."""
    if span.input is None or _EXECUTES.search(get_tool_name(span)) is None:
        return ""
    output = _OUTPUT_LABEL.sub("", (evidence.output(span) or "")[: PRINTED_MAX + 200], count=1)
    if len(output) > PRINTED_MAX:
        return ""
    if _NOTHING.fullmatch(output):
        # Many commands print nothing on success. Code that prints results should have some.
        prints = _PRINTS.search(evidence.input(span) or "") is not None
        return f"it printed {output.strip() or 'nothing'}" if prints else ""
    return find_soft_error(output) or ""


def _failed_finding(evidence: Evidence, group: _Group) -> Finding:
    span = group.spans[0]
    action = action_of(evidence, span)
    requester = [action.call.id] if action is not None else []
    return make_finding(
        evidence,
        "failed-tool",
        kind="tool/failed",
        cause=span.id,
        evidence=[*(each.id for each in group.spans), *requester][:EVIDENCE_MAX],
        message=f"{_name(span)} failed{_count(group)}: {_format(group.error)}{_format_cause(span)}",
    )


def _arguments_finding(evidence: Evidence, group: _Group, action: Action) -> Finding:
    span = group.spans[0]
    arguments = formatting.single_line(simplify_arguments(evidence.input(span) or ""), 80)
    executes = _EXECUTES.search(get_tool_name(span)) is not None
    calls = dict.fromkeys(each.call.id for each in group.actions if each is not None)
    return make_finding(
        evidence,
        "failed-tool",
        kind="action/failed" if executes else _arguments_kind(group.error),
        basis="hypothesis",
        cause=action.call.id,
        evidence=[*calls, *(each.id for each in group.spans)][:EVIDENCE_MAX],
        message=f"{_describe(span, group, executes, arguments)}: {_format(group.error)}",
    )


def _describe(span: SpanInfo, group: _Group, executes: bool, arguments: str) -> str:
    name, count = _name(span), _count(group)
    if executes:
        return f"The model's code failed in {name}{count}"
    if _NO_RESULTS.search(group.error[:2000]):
        return f"{name} found nothing for the model's query{count} ({arguments})"
    return f"The model called {name} with arguments that failed{count} ({arguments})"


def _arguments_kind(error: str) -> str:
    if _MISSING.search(error[:2000]):
        return "resource/missing"
    return "tool/no-results" if _NO_RESULTS.search(error[:2000]) else "tool/bad-arguments"


def find_call_at_fault(evidence: Evidence, span: SpanInfo, error: str) -> SpanInfo | None:
    """Return the model call whose arguments made a tool fail; None if the tool is at fault."""
    action = action_of(evidence, span)
    if action is None or not _are_arguments_at_fault(evidence, span, error):
        return None
    return action.call


def _are_arguments_at_fault(evidence: Evidence, span: SpanInfo, error: str) -> bool:
    """Return whether an error is about the arguments: it says so, or it quotes one of them.

    The argument of a tool that executes code is the code: an exception, or an exit code that the
    program itself returned, is about that.
    """
    if _EXECUTES.search(get_tool_name(span)) and span.input is not None:
        output = (evidence.output(span) or "")[-4000:]
        return bool(span.attributes.get("exit_code")) or bool(
            _EXCEPTION.search(f"{error}\n{output}")
        )
    if _NOT_ARGUMENTS.search(error[:2000]):
        return False
    if _ABOUT_ARGUMENTS.search(error[:2000]):
        return True
    return any(value in error for value in _argument_texts(evidence.input(span) or ""))


def _argument_texts(arguments: str) -> Iterator[str]:
    value = parse_json(arguments) if len(arguments) <= 64_000 else None
    yield from islice(_texts(value), 50)


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        if QUOTED_MIN <= len(value) <= 2000:
            yield value
    elif depth < 5 and isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each, depth + 1)


# --- actions that failed without a failed tool ----------------------------------------------------


@check(
    "failed-action",
    title="Action of the model failed",
    looks_at="failed steps with a model call and no failed tool: the answer was not parsed, or "
    "its code raised an exception",
    severity="warning",
    confidence=0.75,
    false_positives="a step that failed for another reason than its model's answer",
    version=2,
)
def failed_action(evidence: Evidence) -> Iterator[Finding]:
    groups: dict[tuple[bool, str], list[Action]] = {}
    for action in agent_actions(evidence):
        failure = action.failure
        if failure is None or failure.span.type == "tool":
            continue
        if _NOT_ARGUMENTS.search(failure.error[:500]) and not action.code:
            continue
        rejected = _was_rejected(failure.error)
        groups.setdefault((rejected, normalize(failure.error)), []).append(action)
    for (rejected, _), actions in islice(groups.items(), FINDINGS_MAX):
        failure = actions[0].failure
        assert failure is not None
        count = f" ({len(actions)} times)" if len(actions) > 1 else ""
        event = "The answer was rejected by its parser" if rejected else "The model's action failed"
        yield make_finding(
            evidence,
            "failed-action",
            kind="output/rejected" if rejected else "action/failed",
            cause=actions[0].call.id,
            evidence=[
                span_id
                for action in actions
                for span_id in (action.call.id, action.failure.span.id if action.failure else "")
                if span_id
            ][:EVIDENCE_MAX],
            message=f"{event}{count}: {_format(failure.error)}",
        )


def _was_rejected(error: str) -> bool:
    """Return whether an answer was not parsed. Code that ran and raised was parsed."""
    if _REJECTED.search(error[:300]) is None:
        return False
    innermost = find_innermost(error)
    return innermost is None or _PARSER_ERROR.fullmatch(innermost[1]) is not None


# --- texts --------------------------------------------------------------------------------------


def normalize(error: str) -> str:
    """Return an error without numbers and quoted values: equal for the same kind of error."""
    return _NUMBERS.sub("*", error[:400])[:160]


def _count(group: _Group) -> str:
    return f" {len(group.spans)} times" if len(group.spans) > 1 else ""


def _name(span: SpanInfo) -> str:
    return formatting.single_line(get_tool_name(span), 60)


def _format(error: str) -> str:
    shown = formatting.single_line(error, 200) or "no message"
    innermost = find_innermost(error)
    if innermost is None or innermost[0] in shown:
        return shown
    cause = error[innermost.start() :].split("\n", 1)[0]
    return f"{formatting.single_line(cause, 120)} ({formatting.single_line(error, 100)})"


def _format_cause(span: SpanInfo) -> str:
    """Return the innermost cause of an exception, if it is another one."""
    kind, message = (span.attributes.get(f"error.cause.{name}") for name in ("type", "message"))
    if not kind and not message:
        return ""
    cause = f"{kind or 'error'}: {message}" if message else str(kind)
    return f" (caused by {formatting.single_line(cause, 160)})"
