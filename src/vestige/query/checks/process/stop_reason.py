"""The reason for which `vestige run` or `vestige watch` stopped a program."""

from __future__ import annotations

from typing import Final

from vestige.query import formatting
from vestige.query.checks import make_finding
from vestige.query.checks.finding_text import named
from vestige.query.evidence import Evidence
from vestige.record.finding import Finding
from vestige.record.run import LogInfo
from vestige.record.types import OWN_COMPONENT

STOPPED_KIND: Final = "crash/stopped"


def find_stop(evidence: Evidence) -> LogInfo | None:
    """Return the log record with the first reason."""
    for log in evidence.run.logs:
        if log.component == OWN_COMPONENT and log.attributes.get("stopped_by"):
            return log
    return None


def describe_stop(evidence: Evidence, stop: LogInfo) -> Finding:
    """Return the finding, which leads to the last call."""
    span = evidence.spans.get(stop.span_id or "")
    if span is None:
        span = next(reversed(evidence.model_calls), None)
    reason = formatting.single_line(stop.message, 240).removesuffix(".")
    after = f", after {named(span)}" if span is not None else ""
    return make_finding(
        evidence,
        "crash",
        kind=STOPPED_KIND,
        basis="measured",
        confidence=1.0,
        cause=span.id if span is not None else None,
        evidence=[span.id] if span is not None else [],
        message=f"{reason}{after}.",
    )
