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
from vestige.query.checks.requested_calls import iter_requested_calls, latest_results
from vestige.query.evidence import Evidence
from vestige.query.formatting import single_line
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


@dataclass(frozen=True, slots=True)
class _Case:
    """A result with an error message."""

    cause: SpanInfo
    error: str
    command: str
    """The command that shows the result."""


@check(
    "soft-error",
    title="Tool returned an error as a result",
    looks_at="short outputs of tool spans with status ok, or results in the latest requests of a "
    "run without tool spans: texts that start with an error, and JSON with an error field",
    severity="hint",
    confidence=0.6,
    false_positives="a tool that searches logs or documentation for errors",
    version=2,
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
        yield make_finding(
            evidence,
            "soft-error",
            kind="tool/soft-error",
            basis="hypothesis",
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
            yield span.name, _Case(span, error, f"vestige body {span.short_id}")


def _request_cases(evidence: Evidence) -> Iterator[tuple[str, _Case]]:
    """Yield errors in the tool results of model requests."""
    calls = {each.call.id: each for each in iter_requested_calls(evidence) if each.call.id}
    for model_span, result in latest_results(evidence):
        requested = calls.pop(result.call_id or "", None)  # each result once, though it is resent
        error = result.text[:200] if result.is_error else None
        if error is None and len(result.text) <= SOFT_READ_MAX:
            error = find_soft_error(result.text)
        if error is not None and requested is not None:
            command = f"vestige body {model_span.short_id} --in"
            yield requested.call.name, _Case(requested.span, error, command)


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
    match = _SOFT_BEGIN.match(stripped)
    return stripped[:200] if match else None


def _find_error_field(value: dict[str, object]) -> str | None:
    for key in ("error", "errors", "exception"):
        if value.get(key):
            return f"{key}: {value[key]}"
    for key in ("isError", "is_error"):
        if value.get(key) is True:
            return f"{key}: true"
    for key in ("success", "ok"):
        if value.get(key) is False:
            return f"{key}: false"
    for key in ("exit_code", "returncode"):
        if type(value.get(key)) is int and value[key] != 0:
            return f"{key}: {value[key]}"
    return None
