"""The arguments of a tool span, short enough for its line."""

from __future__ import annotations

from typing import Final

from vestige.errors import VestigeError
from vestige.query.evidence import Evidence
from vestige.query.trajectory.headline import short_arguments
from vestige.record.run import SpanInfo

SIZE_MAX: Final = 64 * 1024
"""Longer inputs are not read for a line."""


def describe_arguments(evidence: Evidence, span: SpanInfo) -> str:
    """Return `(q=order 7)`; empty if the input of the span is missing or large."""
    ref = span.input
    if ref is None or ref.id is None or ref.size_bytes > SIZE_MAX:
        return ""
    try:
        text = short_arguments((evidence.input(span) or "").strip())
    except VestigeError:
        return ""  # The store was closed before the answer was printed.
    return f"({text})" if text else ""
