"""What the program itself says went wrong: errors that it logged, or whose traceback it printed.

An exception that was caught, told and forgotten is in no status: the run may end well. Where it is about
a model call, the call is the cause. What other witnesses tell better is left to them: the exception
that ended the run or its process (query/checks/process/crash.py), the assertion that failed a case (query/checks/process/test_suite.py).
"""

from __future__ import annotations

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
"""Kinds of errors; of each the first, and how many."""

EVIDENCE_MAX = 6


@check(
    "reported-error",
    title="The program says that something failed",
    looks_at="log lines of level error, and tracebacks that were printed below `vestige run`",
    severity="warning",
    confidence=0.7,
    false_positives="an error that was expected and dealt with; a library that calls a retry an error",
)
def reported_error(evidence: Evidence) -> Iterator[Finding]:
    """One for each kind: the same exception from the same place, or the same words."""
    told = _told_by_others(evidence)
    kinds: dict[object, list[LogInfo]] = {}
    for log in evidence.run.logs:
        if log.level != "error" or log.component == OWN_COMPONENT:
            continue
        if _error(log) not in told and not _is_of_span(evidence, log):
            kinds.setdefault(_kind(log), []).append(log)
    for alike in islice(kinds.values(), FINDINGS_MAX):
        call = call_behind(evidence, alike[0])
        ids = [call.id if call else None, *(log.span_id for log in alike)]
        spans = list(
            dict.fromkeys(each for each in ids if each is not None and each in evidence.spans)
        )
        yield make_finding(
            evidence,
            "reported-error",
            kind="error/reported",
            cause=spans[0] if spans else None,
            evidence=spans[:EVIDENCE_MAX],
            message=_say(alike[0], len(alike)),
        )


def _told_by_others(evidence: Evidence) -> set[tuple[object, object]]:
    """Exceptions that left the run, or its process."""
    ends = [log for log in evidence.run.logs if "last_words" in log.attributes]
    told = {_error(log) for log in ends}
    if evidence.root is not None:
        attributes = evidence.root.attributes
        told.add((attributes.get("error.type"), attributes.get("error.message")))
    return told - {(None, None)}


def _is_of_span(evidence: Evidence, log: LogInfo) -> bool:
    """Does its span tell the same of itself, as a case of a suite does with what was asserted?"""
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


def _say(log: LogInfo, count: int) -> str:
    said = formatting.single_line(log.message, 120)
    error = log.attributes.get("error.type")
    if error is not None:
        message = log.attributes.get("error.message") or ""
        told = (
            f"{formatting.single_line(str(error), 60)}: {formatting.single_line(str(message), 120)}"
        )
        said = told if said == told else f"{said}: {told}"
    place = format_location(log.attributes.get("error.stack")) if error is not None else ""
    if not place:
        place = formatting.single_line(str(log.attributes.get("code.file") or ""), 120).rpartition(
            "/"
        )[2]
    where = f", at {place}" if place else ""
    times = f", {count} times" if count > 1 else ""
    return f"{formatting.single_line(log.component, 60)} says: {said}{where}{times}."
