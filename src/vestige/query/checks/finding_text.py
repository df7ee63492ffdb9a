"""Descriptions of spans and failures in the messages of findings."""

from __future__ import annotations

from vestige.providers.chat_types import ToolCall
from vestige.query import formatting
from vestige.query.error_text import find_message
from vestige.query.evidence import Evidence
from vestige.record.run import SpanInfo

_ARGUMENTS_SHOWN = 100


def named(span: SpanInfo) -> str:
    """Return type, name and id of a span: `tool search (s12)`."""
    name = f"{formatting.single_line(span.type, 20)} {formatting.single_line(span.name, 60)}"
    return f"{name} ({span.short_id})"


def format_call(call: ToolCall) -> str:
    """Return a requested call in one line: `search({"q": "x"})`."""
    arguments = formatting.single_line(call.arguments, _ARGUMENTS_SHOWN)
    return f"{formatting.single_line(call.name, 60)}({arguments})"


def format_outcome(evidence: Evidence) -> str:
    return formatting.single_line(evidence.run.info.outcome, 20)


def format_error(evidence: Evidence, span: SpanInfo) -> str:
    """Return the error of a failed span in one line."""
    error, message = span.attributes.get("error.type"), span.attributes.get("error.message")
    code = span.attributes.get("exit_code")
    if not error and not message:
        output = formatting.single_line(evidence.output(span) or "", 120)
        if code is None:
            return output or "no message"
        return f"exit code {formatting.single_line(str(code), 20)} {output}".strip()
    return formatting.single_line(f"{error or 'error'}: {message}" if message else str(error), 160)


def describe_error(evidence: Evidence, span: SpanInfo) -> str:
    """Return the error of a failed span in one line, a provider's message before its class."""
    error, message = span.attributes.get("error.type"), span.attributes.get("error.message")
    answer = find_message(str(message or ""))
    if answer is None:
        return format_error(evidence, span)
    return formatting.single_line(f"{answer} ({error})" if error else answer, 160)
