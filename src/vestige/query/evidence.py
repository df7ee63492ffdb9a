"""Evidence: a run, and its bodies when a check asks for them.

Checks are pure functions over this. Bodies are read once, bounded, and parsed once; the
children of a span, the model calls and the tool calls are at hand. So whoever asks much of one
run opens it once, and each question costs what it is about, not what the run is long.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from vestige.providers.models import Request, Response
from vestige.providers.prices import NO_PRICES
from vestige.query.body_cache import BODIES_HELD_MAX, BodyCache, ReadBodies, ReadBody, Side
from vestige.query.stats.user_prices import load_user_prices
from vestige.record.prompt_segments import SPAN_TYPE as ASSEMBLY
from vestige.record.run import BodyRef, LinkInfo, LogInfo, Run, RunInfo, SpanInfo
from vestige.settings import ModelPrice
from vestige.store.protocol import Store

Parsed = TypeVar("Parsed", Request, Response)
Made = TypeVar("Made")


class Evidence:
    """What a check may look at."""

    def __init__(
        self,
        run: Run,
        read_body: ReadBody,
        conversation: Sequence[RunInfo] = (),
        read_bodies: ReadBodies | None = None,
        prices: Mapping[str, ModelPrice] = NO_PRICES,
    ) -> None:
        self.run = run
        self.whole = self
        """What this is a part of, if it is one (query/failures/suite_cases.py)."""
        self.case: str | None = None
        """Of a part: the test that it is the inside of."""
        self.prices = prices
        """What the user says that models cost (query/stats/user_prices.py)."""
        self.conversation = conversation
        """The runs of the same conversation, oldest first, this one included."""
        self._bodies = BodyCache(run.spans, read_body, read_bodies)
        self._requests: dict[int, Request | None] = {}
        self._responses: dict[int, Response | None] = {}
        self._parsed = 0
        self._of_types: dict[tuple[str, ...], list[SpanInfo]] = {}
        self._beside: dict[str, dict[str | None, list[SpanInfo]]] = {}
        self._made: dict[Callable[[Evidence], Any], Any] = {}

    def part(self, run: Run, case: str | None = None) -> Evidence:
        """Some of it, with the same bodies. `case`: the test that it is the inside of."""
        found = Evidence(run, self._bodies.read_body, self.conversation, None, self.prices)
        found._bodies, found.whole, found.case = self._bodies, self.whole, case
        return found

    # --- the skeleton ---------------------------------------------------------------------------

    @cached_property
    def spans(self) -> dict[str, SpanInfo]:
        return {span.id: span for span in self.run.spans}

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each span stands in the run's order."""
        return {span.id: place for place, span in enumerate(self.run.spans)}

    @cached_property
    def short_ids(self) -> dict[str, str]:
        return {span.id: span.short_id for span in self.run.spans}

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
        if types not in self._of_types:
            self._of_types[types] = [span for span in self.run.spans if span.type in types]
        return self._of_types[types].copy()

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

    def last_before(self, type: str, span: SpanInfo) -> SpanInfo | None:
        """The last of a type that stands before this one, with the same parent."""
        beside = self.beside(type, span)
        at = bisect_left(beside, self.places[span.id], key=lambda each: self.places[each.id])
        return beside[at - 1] if at else None

    def assembly(self, call: SpanInfo) -> SpanInfo | None:
        """The segments of a model call's prompt: in it, or the last before it beside it."""
        own = [span for span in self.children.get(call.id, []) if span.type == ASSEMBLY]
        return own[-1] if own else self.last_before(ASSEMBLY, call)

    @cached_property
    def root(self) -> SpanInfo | None:
        return next((s for s in self.run.spans if s.type == "run" and s.parent_id is None), None)

    def once(self, make: Callable[[Evidence], Made]) -> Made:
        """What some verb makes of the whole run, made when it is first needed."""
        if make not in self._made:
            self._made[make] = make(self)
        made: Made = self._made[make]
        return made

    # --- bodies -----------------------------------------------------------------------------------

    def input(self, span: SpanInfo) -> str | None:
        """What went in, as text; None where there is none, or it is gone."""
        return self._bodies.text(span, "input")

    def output(self, span: SpanInfo) -> str | None:
        return self._bodies.text(span, "output")

    def raw(self, ref: BodyRef) -> bytes | None:
        """A body as it is, as far as one is read; None where it is gone."""
        return None if ref.id is None else self._bodies.raw(ref.id)

    def is_gone(self, body_id: int) -> bool:
        """Whether a body can no longer be read: evicted, or damaged."""
        return self._bodies.is_gone(body_id)

    def request(self, span: SpanInfo) -> Request | None:
        """What a model was asked; None where the body is no request that we know."""
        return self._parse(span, "input", self._requests, _parse_request)

    def response(self, span: SpanInfo) -> Response | None:
        """What a model answered; None where the body is no answer that we know."""
        return self._parse(span, "output", self._responses, _parse_response)

    def _parse(
        self,
        span: SpanInfo,
        side: Side,
        known: dict[int, Parsed | None],
        parse: Callable[[str, str | None], Parsed | None],
    ) -> Parsed | None:
        """Once for each body; what is held is bounded as bodies are."""
        ref = span.input if side == "input" else span.output
        if ref is None or ref.id is None:
            return None
        if ref.id in known:
            return known[ref.id]
        text = self._bodies.text(span, side)
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


def _parse_request(text: str, provider: str | None) -> Request | None:
    from vestige.providers.parsing import parse_request

    return parse_request(text, provider)


def _parse_response(text: str, provider: str | None) -> Response | None:
    from vestige.providers.parsing import parse_response

    return parse_response(text, provider)


def open_run(store: Store, run_id: str) -> Evidence:
    """A run of a store, with its bodies at hand."""
    return Evidence(
        store.load_run(run_id),
        store.read_body,
        read_bodies=store.read_bodies,
        prices=load_user_prices(store),
    )
