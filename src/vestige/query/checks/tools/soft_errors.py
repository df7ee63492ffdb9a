"""Tool results that describe an error although the tool succeeded.

They are found in the outputs of tool spans, or in model requests if a run has no tool spans.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from vestige.limits import KIB
from vestige.query.checks import check, make_finding
from vestige.query.evidence import Evidence
from vestige.query.formatting import single_line
from vestige.query.trajectory import build_trajectory
from vestige.query.trajectory.seen_contents import strip_labels
from vestige.record.finding import Finding
from vestige.record.run import SpanInfo

SOFT_READ_MAX = 16 * KIB
"""Longer results are not error messages."""

EVIDENCE_MAX = 6

_SOFT_BEGIN = re.compile(
    r"\s*(?:[\w.]*(?:Error|Exception)\b\s*[:(]|error\b\s*[:\-—]|\[?error\]|exception\b\s*:|"
    r"traceback \(most recent call last\)|fatal:|failed to |"
    r"(?:bash: .{0,80}: )?(?:command not found|no such file or directory|permission denied)|"
    r"(?:file|resource|page|key|record|item|user|path)\b.{0,80} "
    r"(?:was )?(?:not found|does not exist)|"
    r"not found\b|unauthori[sz]ed\b|(?:request )?timed? ?out\b|"
    r"4\d\d (?:bad request|unauthorized|forbidden|not found)|"
    r"5\d\d (?:internal server error|bad gateway|service unavailable))",
    re.IGNORECASE,
)


_FRAMEWORK_BEGIN = re.compile(
    r"[\s\"']*(?:An error occurred while running the tool"  # OpenAI Agents
    r"|(?:Error:\s*)?Code execution failed at line"  # smolagents
    r"|Error executing (?:tool|code)|Error when executing tool"  # CrewAI, smolagents, MCP
    r"|Execution error in \w"  # DSPy
    r"|Error invoking tool|Error: .{1,200}\n? ?Please fix your mistakes"  # LangChain, LangGraph
    r"|Tool (?:error|execution (?:failed|error))\b|Error running tool"
    r"|Error: .{0,80}tool .{0,80}(?:failed|raised)|I encountered an error while trying to use"
    r"|.{0,400}Fix the errors and try again"  # PydanticAI
    r"|Error: \w+(?:Error|Exception) - )",  # Strands
    re.IGNORECASE | re.DOTALL,
)
"""Default texts of frameworks for a tool that raised an exception."""

_FAILED_LINE = re.compile(
    r"(?:failed|stopped|error)\b.{0,40}? line ['\"](.{1,400}?)['\"] due to", re.DOTALL
)
"""The line of code that raised an exception, as smolagents reports it."""
_CALLED = re.compile(r"([A-Za-z_]\w*)\(")


@dataclass(frozen=True, slots=True)
class _Case:
    """A result with an error message."""

    cause: SpanInfo
    error: str
    command: str
    """The command that shows the result."""
    sure: bool = False
    """The result is marked as an error, or has the text of a framework for failed tools."""


@check(
    "soft-error",
    title="Tool returned an error as a result",
    looks_at="short outputs of tool spans with status ok, or results in requests of a run without "
    "tool spans, in every conversation: texts that start with an error, the default texts of "
    "frameworks, and JSON with an error field",
    severity="hint",
    confidence=0.6,
    false_positives="a tool that searches logs or documentation for errors",
    version=4,
)
def soft_error(evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding per tool."""
    cases = _span_cases(evidence) if evidence.of_type("tool") else _request_cases(evidence)
    by_tool: dict[str, list[_Case]] = {}
    for name, case in cases:
        by_tool.setdefault(name, []).append(case)
    for name, tool_cases in by_tool.items():
        first = tool_cases[0]
        times = f" ({len(tool_cases)} times)" if len(tool_cases) > 1 else ""
        if len({case.error for case in tool_cases}) > 1:
            times = f" ({len(tool_cases)} times, with different messages)"
        yield make_finding(
            evidence,
            "soft-error",
            kind="tool/soft-error",
            severity="warning" if first.sure else "hint",
            confidence=0.85 if first.sure else 0.6,
            basis="measured" if first.sure else "hypothesis",
            message=f"{single_line(name, 60)} returned an error as its result{times}: "
            f"{single_line(first.error, 120)}",
            cause=first.cause.id,
            evidence=[case.cause.id for case in tool_cases[:EVIDENCE_MAX]],
            command=first.command,
        )


def _span_cases(evidence: Evidence) -> Iterator[tuple[str, _Case]]:
    """Yield errors in the outputs of tool spans. Equal outputs have one id, and are read once."""
    errors: dict[int, str | None] = {}
    for span in evidence.of_type("tool"):
        body = span.output
        if span.status != "ok" or body is None or body.id is None:
            continue
        if not 0 < body.size_bytes <= SOFT_READ_MAX:
            continue
        if body.id not in errors:
            errors[body.id] = find_soft_error(evidence.output(span) or "")
        error = errors[body.id]
        if error:
            sure = _FRAMEWORK_BEGIN.match(evidence.output(span) or "") is not None
            yield span.name, _Case(span, error, f"vestige body {span.short_id}", sure)


def _request_cases(evidence: Evidence) -> Iterator[tuple[str, _Case]]:
    """Yield errors in the results that later requests contain, as text or as tool results."""
    for step in evidence.once(build_trajectory).steps:
        for action in step.actions:
            result = action.result
            if result is None or action.span_id is not None or step.span is None:
                continue
            error = result.text[:200] if result.is_error else None
            sure = result.is_error or _FRAMEWORK_BEGIN.match(result.text) is not None
            if error is None and len(result.text) <= SOFT_READ_MAX:
                error = find_soft_error(result.text)
            if error is not None:
                sent_in = evidence.spans[result.span_id]
                command = f"vestige body {sent_in.short_id} --in"
                name = _find_failed_name(result.text) if action.kind == "code" else action.name
                yield name, _Case(step.span, strip_labels(error), command, sure)


def _find_failed_name(error: str) -> str:
    """Return the function in the line of code that failed, or `code`."""
    line = _FAILED_LINE.search(error[:2_000])
    names = _CALLED.findall(line[1]) if line is not None else []
    return next((name for name in names if name != "print"), "code")


def find_soft_error(text: str) -> str | None:
    """Return the error message in a result, or None."""
    stripped = text.lstrip()
    if stripped[:1] == "{":
        try:
            value = msgspec.json.decode(stripped)
        except (msgspec.DecodeError, ValueError):
            value = None
        if isinstance(value, dict):
            return _find_error_field(value)
    if stripped[:1] == '"':
        stripped = stripped[1:]
    match = _SOFT_BEGIN.match(stripped) or _FRAMEWORK_BEGIN.match(stripped)
    return stripped[:200].rstrip('"') if match else None


def _find_error_field(value: dict[str, object]) -> str | None:
    for key in ("error", "errors", "exception"):
        if value.get(key):
            return f"{key}: {value[key]}"
    for key in ("isError", "is_error"):
        if value.get(key) is True:
            return f"{key}: true"
    if str(value.get("status")).lower() in ("error", "failed", "failure"):  # Google ADK
        reason = value.get("error_message") or value.get("message") or value.get("reason")
        return f"status: {value['status']}" + (f", {reason}" if reason else "")
    kind = value.get("error_type")
    message = value.get("error_message") or value.get("error_details")
    if kind and message:
        return f"{kind}: {message}"
    for key in ("success", "ok"):
        if value.get(key) is False:
            return f"{key}: false"
    for key in ("exit_code", "returncode"):
        if type(value.get(key)) is int and value[key] != 0:
            return f"{key}: {value[key]}"
    return None
