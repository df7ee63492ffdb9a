"""Mark spans that are recorded here, when the program exports them to this machine.

A program that is recorded may also export its spans to `vestige server start --otlp` or
`vestige ui`. The mark, an attribute of the resource, names the journal that has the same spans, so
that they are not a second run. Only spans for an address of this machine are marked.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final
from urllib.parse import urlsplit

from vestige.emit import context
from vestige.formats.otlp.constants import RECORDED_BY
from vestige.integrations.failure_counts import guarded

_LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "::1"))
_MARK: Final = "_vestige_recorded"


def install(module: ModuleType) -> None:
    """Wrap the exporter. `module` is a trace_exporter of opentelemetry.exporter.otlp.proto."""
    cls = module.OTLPSpanExporter
    original = cls.export

    @functools.wraps(original)
    def export(self: Any, spans: Any, *args: Any, **kwargs: Any) -> Any:
        return original(self, guarded(_mark_all)(self, spans) or spans, *args, **kwargs)

    cls.export = export


def mark_recorded(span: Any) -> None:
    """Remember that a span of the SDK, which has ended, is recorded."""
    setattr(span, _MARK, True)


def _mark_all(exporter: Any, spans: Sequence[Any]) -> Sequence[Any]:
    writer = getattr(context.default(), "writer", None)
    if not writer or not is_loopback(str(exporter._endpoint)):
        return spans
    resources: dict[int, Any] = {}
    return [_with_writer(span, writer, resources) for span in spans]


def _with_writer(span: Any, writer: str, resources: dict[int, Any]) -> Any:
    """Return a copy of a recorded span, whose resource names the journal."""
    if not getattr(span, _MARK, False):
        return span
    resource = span.resource
    marked = resources.get(id(resource))
    if marked is None:
        attributes = {**resource.attributes, RECORDED_BY: writer}
        marked = resources[id(resource)] = type(resource)(attributes, resource.schema_url)
    found = copy.copy(span)
    found._resource = marked
    return found


def is_loopback(endpoint: str) -> bool:
    """Return whether an endpoint, a URL or `host:port`, is on this machine."""
    try:
        host = urlsplit(endpoint if "//" in endpoint else f"//{endpoint}").hostname
    except ValueError:
        return False
    return host in _LOOPBACK
