"""How findings name a span and its failure."""

from __future__ import annotations

from vestige.query import formatting
from vestige.query.evidence import Evidence
from vestige.record.run import SpanInfo


def named(span: SpanInfo) -> str:
    """A span as a message names it."""
    return f"{formatting.single_line(span.type, 20)} {formatting.single_line(span.name, 60)} ({span.short_id})"


def format_outcome(evidence: Evidence) -> str:
    return formatting.single_line(evidence.run.info.outcome, 20)


def format_error(evidence: Evidence, span: SpanInfo) -> str:
    """What a failed span says of its failure, in one line."""
    error, message = span.attributes.get("error.type"), span.attributes.get("error.message")
    code = span.attributes.get("exit_code")
    if not error and not message:
        said = formatting.single_line(evidence.output(span) or "", 120)
        told = f"exit code {formatting.single_line(str(code), 20)} {said}".strip()
        return told if code is not None else said or "no message"
    return formatting.single_line(f"{error or 'error'}: {message}" if message else str(error), 160)
