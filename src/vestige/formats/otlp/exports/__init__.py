"""Exports of tools that store OpenTelemetry spans in shapes of their own.

    to_otlp(document)       # an OTLP/JSON request with the same spans, or None

Each module has `is_export(document)` and `iter_spans(document)`, which yields spans in the shape
of OTLP/JSON. Attributes get the names of the conventions that formats/otlp/span_types.py reads.

    trail.py       Patronus: nested spans (`child_spans`), as in the TRAIL benchmark
    phoenix.py     Phoenix: spans of its client, or rows of a data frame
    mlflow.py      MLflow: traces as JSON, versions 2 and 3
    langfuse.py    Langfuse: a trace of the UI or API, or observations of a blob export
"""

from __future__ import annotations

from typing import Any, Final

from vestige.formats.otlp.any_value import Object
from vestige.formats.otlp.exports import langfuse, mlflow, phoenix, trail

SIGNATURES: Final = (
    b'"child_spans"',
    b'"context.span_id"',
    b'"span_kind"',
    b'"mlflow.',
    b'"parentObservationId"',
    b'"parent_observation_id"',
)
"""Texts of which every such export has one."""

_MODULES: Final = (trail, mlflow, phoenix, langfuse)


def to_otlp(document: Any) -> Object | None:
    """Return the spans of an export as a request; None if it is not an export of these tools."""
    for module in _MODULES:
        if module.is_export(document):
            groups: list[Object] = []
            for resource, span in module.iter_spans(document):
                attributes = [{"key": key, "value": value} for key, value in resource.items()]
                if not groups or groups[-1]["resource"]["attributes"] != attributes:
                    scope: Object = {"scope": {"name": module.NAME}, "spans": []}
                    resource_part = {"attributes": attributes}
                    groups.append({"resource": resource_part, "scopeSpans": [scope]})
                groups[-1]["scopeSpans"][0]["spans"].append(span)
            return {"resourceSpans": groups}
    return None
