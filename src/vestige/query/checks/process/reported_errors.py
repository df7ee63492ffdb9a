"""Errors that the program logged, or whose traceback it printed.

An exception that was caught and logged does not appear in any status, so the run may succeed. If a
model call raised it, the call is the cause.

Elsewhere: query/checks/process/crash.py reports the exception that ended the run or its process,
query/checks/process/failed_recorded_tests.py the assertion that failed a test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from vestige.query import formatting
from vestige.query.checks import check, make_finding
from vestige.query.checks.process.crash import call_behind
from vestige.query.evidence import Evidence
from vestige.query.failures.traceback_parsing import format_location
from vestige.record.finding import Finding
from vestige.record.run import LogInfo
from vestige.record.types import OWN_COMPONENT

FINDINGS_MAX = 10
"""Kinds of errors that are reported, each once with its count."""

EVIDENCE_MAX = 6

_NOT_FATAL = re.compile(r"\bnon-?fatal\b", re.IGNORECASE)
"""A library that says so itself, such as a tracer whose backend cannot be reached."""


@check(
    "reported-error",
    title="Error logged by the program",
    looks_at="log records of level error, and tracebacks printed under `vestige run`",
    severity="warning",
    confidence=0.7,
    false_positives="an error that was expected and handled; a library that logs retries as errors",
)
def reported_error(evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding per kind: the same exception and location, or the same message."""
    final_errors = _final_errors(evidence)
    kinds: dict[object, list[LogInfo]] = {}
    for log in evidence.run.logs:
        if log.level != "error" or log.component == OWN_COMPONENT:
            continue
        if _error(log) not in final_errors and not _is_span_error(evidence, log):
            kinds.setdefault(_kind(log), []).append(log)
    for logs in islice(kinds.values(), FINDINGS_MAX):
        call = call_behind(evidence, logs[0])
        ids = dict.fromkeys([call.id if call else None, *(log.span_id for log in logs)])
        spans = [span_id for span_id in ids if span_id is not None and span_id in evidence.spans]
        yield make_finding(
            evidence,
            "reported-error",
            kind="error/reported",
            severity="hint" if _NOT_FATAL.search(logs[0].message) else "warning",
            cause=spans[0] if spans else None,
            evidence=spans[:EVIDENCE_MAX],
            message=_format_message(logs[0], len(logs)),
        )


def _final_errors(evidence: Evidence) -> set[tuple[object, object]]:
    """Return the exceptions that ended the run or its process."""
    errors = {_error(log) for log in evidence.run.logs if "last_words" in log.attributes}
    if evidence.root is not None:
        attributes = evidence.root.attributes
        errors.add((attributes.get("error.type"), attributes.get("error.message")))
    return errors - {(None, None)}


def _is_span_error(evidence: Evidence, log: LogInfo) -> bool:
    """Return whether the log repeats the error of its span, as for a failed test."""
    span = evidence.spans.get(log.span_id or "")
    return span is not None and span.attributes.get("error.message") == log.message


def _error(log: LogInfo) -> tuple[object, object]:
    return log.attributes.get("error.type"), log.attributes.get("error.message")


def _kind(log: LogInfo) -> object:
    error = log.attributes.get("error.type")
    if error is None:
        return log.component, log.message
    return (
        error,
        format_location(log.attributes.get("error.stack")),
        log.attributes.get("code.file"),
    )


def _format_message(log: LogInfo, count: int) -> str:
    text = formatting.single_line(log.message, 120)
    error_type, location = log.attributes.get("error.type"), ""
    if error_type is not None:
        message = str(log.attributes.get("error.message") or "")
        error = f"{formatting.single_line(str(error_type), 60)}: "
        error += formatting.single_line(message, 120)
        text = error if text == error else f"{text}: {error}"
        location = format_location(log.attributes.get("error.stack"))
    if not location:
        file = formatting.single_line(str(log.attributes.get("code.file") or ""), 120)
        location = file.rpartition("/")[2]
    suffix = f" at {location}" if location else ""
    times = f" ({count} times)" if count > 1 else ""
    return f"{formatting.single_line(log.component, 60)} logged: {text}{suffix}{times}."
