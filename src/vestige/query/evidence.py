"""Evidence: a run, and its bodies when a check asks for them.

Checks are pure functions over this. Bodies are read once, bounded, and parsed once; the
children of a span, the model calls and the tool calls are at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeVar

from vestige.errors import VestigeError
from vestige.limits import MIB
from vestige.providers.shapes import Request, Response
from vestige.record.run import BodyRef, LinkInfo, LogInfo, Run, RunInfo, SpanInfo

BODY_READ_MAX = 8 * MIB
"""Of one body. A check that needs more than this of one has lost its thread."""

BODIES_HELD_MAX = 64 * MIB
"""Of all bodies that are held at once; older ones are read again when needed."""

ReadBody = Callable[[int, int, int | None], bytes]
Parsed = TypeVar("Parsed", Request, Response)


class Evidence:
    """What a check may look at."""

    def __init__(self, run: Run, read_body: ReadBody, conversation: Sequence[RunInfo] = ()) -> None:
        self.run = run
        self.conversation = conversation
        """The runs of the same conversation, oldest first, this one included."""
        self._read_body = read_body
        self._bodies: dict[int, str] = {}
        self._held = 0
        self._requests: dict[int, Request | None] = {}
        self._responses: dict[int, Response | None] = {}
        self._parsed = 0
        self._beside: dict[str, dict[str | None, list[SpanInfo]]] = {}

    # --- the skeleton ---------------------------------------------------------------------------

    @cached_property
    def spans(self) -> dict[str, SpanInfo]:
        return {span.id: span for span in self.run.spans}

    @cached_property
    def children(self) -> dict[str | None, list[SpanInfo]]:
        """By parent id, in order."""
        found: dict[str | None, list[SpanInfo]] = {}
        for span in self.run.spans:
            found.setdefault(span.parent_id, []).append(span)
        return found

    @cached_property
    def logs_of(self) -> dict[str | None, list[LogInfo]]:
        found: dict[str | None, list[LogInfo]] = {}
        for log in self.run.logs:
            found.setdefault(log.span_id, []).append(log)
        return found

    @cached_property
    def links_of(self) -> dict[str, list[LinkInfo]]:
        found: dict[str, list[LinkInfo]] = {}
        for link in self.run.links:
            found.setdefault(link.span_id, []).append(link)
        return found

    def of_type(self, *types: str) -> list[SpanInfo]:
        """Spans of these types, in order: `llm`, `tool`, `queue.deliver`, ..."""
        return [span for span in self.run.spans if span.type in types]

    @cached_property
    def model_calls(self) -> list[SpanInfo]:
        """The `llm` spans that met a provider: of one inside another (a client's own span, and
        the wire's in it), the inner one."""
        calls = self.of_type("llm")
        outer = {span.parent_id for span in calls if span.input is not None}
        return [span for span in calls if span.id not in outer]

    def beside(self, type: str, span: SpanInfo) -> list[SpanInfo]:
        """Spans of a type with the same parent as this one, in order."""
        if type not in self._beside:
            found: dict[str | None, list[SpanInfo]] = {}
            for each in self.of_type(type):
                found.setdefault(each.parent_id, []).append(each)
            self._beside[type] = found
        return self._beside[type].get(span.parent_id, [])

    @cached_property
    def root(self) -> SpanInfo | None:
        return next((s for s in self.run.spans if s.type == "run" and s.parent_id is None), None)

    # --- bodies -----------------------------------------------------------------------------------

    def input(self, span: SpanInfo) -> str | None:
        """What went in, as text; None where there is none, or it is gone."""
        return self._body(span.input)

    def output(self, span: SpanInfo) -> str | None:
        return self._body(span.output)

    def request(self, span: SpanInfo) -> Request | None:
        """What a model was asked; None where the body is no request that we know."""
        from vestige.providers.read import parse_request

        return self._parse(span, span.input, self._requests, parse_request)

    def response(self, span: SpanInfo) -> Response | None:
        """What a model answered; None where the body is no answer that we know."""
        from vestige.providers.read import parse_response

        return self._parse(span, span.output, self._responses, parse_response)

    def _parse(
        self,
        span: SpanInfo,
        ref: BodyRef | None,
        known: dict[int, Parsed | None],
        parse: Callable[[str, str | None], Parsed | None],
    ) -> Parsed | None:
        """Once for each body; what is held is bounded as bodies are."""
        if ref is None or ref.id is None:
            return None
        if ref.id in known:
            return known[ref.id]
        text = self._body(ref)
        provider = span.attributes.get("provider")
        hint = provider if isinstance(provider, str) else None
        parsed = None if text is None else parse(text, hint)
        if self._parsed + ref.size_bytes > BODIES_HELD_MAX:
            self._requests.clear()
            self._responses.clear()
            self._parsed = 0
        known[ref.id] = parsed
        self._parsed += ref.size_bytes
        return parsed

    def _body(self, ref: BodyRef | None) -> str | None:
        if ref is None or ref.id is None:
            return None
        known = self._bodies.get(ref.id)
        if known is not None:
            return known
        try:
            raw = self._read_body(ref.id, 0, BODY_READ_MAX)
        except VestigeError:
            return None  # evicted, or damaged: a check works with what there is
        text = raw.decode(errors="replace")
        if self._held + len(raw) > BODIES_HELD_MAX:
            self._bodies.clear()
            self._held = 0
        self._bodies[ref.id] = text
        self._held += len(raw)
        return text
