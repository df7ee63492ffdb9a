"""Log records that are messages of a model call: `gen_ai.user.message` and its like."""

from __future__ import annotations

from vestige.formats.otlp.chat import Told
from vestige.formats.otlp.spans import Event, OtelLine
from vestige.formats.otlp.values import any_value, object_of, text_of


def event_of(line: OtelLine) -> Event | None:
    """The line as an event of its span; None: it is no message, or of no span."""
    name = line.event_name or text_of(line.attributes.get("event.name"))
    if not line.span_id or not name.startswith("gen_ai."):
        return None
    told = line.attributes | object_of(any_value(line.body))
    return Event(line.time_ns, name, told) if Told().take(name, told) else None
