"""Model calls whose request is the one that was sent, not one rebuilt from messages.

Traces of OpenTelemetry and lists of messages are read into requests and answers of a common form,
so that views can show them. Roles, empty parts and the order of keys are then those of the reader:
rules about bytes and about a provider's format do not apply to them.
"""

from __future__ import annotations

from vestige.query.evidence import Evidence
from vestige.record.run import SpanInfo


def was_sent(span: SpanInfo) -> bool:
    """Return whether the bodies of a span were recorded, not rebuilt from an import."""
    # A span of an external exporter has an order of its own (record/otlp_sequence_numbers.py).
    is_external = span.writer[2:] == span.id
    return not is_external and "message_index" not in span.attributes


def sent_calls(evidence: Evidence) -> list[SpanInfo]:
    """Return the model calls with recorded bodies."""
    return [span for span in evidence.model_calls if was_sent(span)]
