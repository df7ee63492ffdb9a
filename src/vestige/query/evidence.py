"""Evidence: a run with its indexes, and its bodies on demand.

Checks are pure functions of an `Evidence`. Indexes are built once, and bodies are read and
parsed once within a bound. So one `Evidence` serves many queries of a run, and the cost of
each depends on what it reads, not on the length of the run.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from vestige.providers.chat_types import Request, Response
from vestige.providers.prices import NO_PRICES
from vestige.query.body_cache import CACHED_BYTES_MAX, BodyCache, ReadBodies, ReadBody, Side
from vestige.query.stats.user_prices import load_user_prices
from vestige.record.prompt_segments import SPAN_TYPE as ASSEMBLY
from vestige.record.run import BodyRef, LinkInfo, LogInfo, Run, RunInfo, SpanInfo
from vestige.settings import ModelPrice
from vestige.store.protocol import SpanFacts, Store

Parsed = TypeVar("Parsed", Request, Response)
Made = TypeVar("Made")
ReadFacts = Callable[[Sequence[str]], Iterable[SpanFacts]]
"""Read the spans of other runs, by their ids."""


class Evidence:
    """A run as the checks and views read it."""

    def __init__(
        self,
        run: Run,
        read_body: ReadBody,
        conversation: Sequence[RunInfo] = (),
        read_bodies: ReadBodies | None = None,
        prices: Mapping[str, ModelPrice] = NO_PRICES,
        read_facts: ReadFacts | None = None,
    ) -> None:
        self.run = run
        self.full = self
        """The evidence of the full run. A part of it covers one recorded test case."""
        self.case: str | None = None
        """The test case that this part covers."""
        self.first_step = 1
        """The number of its first step: of a part of a long run (query/trajectory/run_parts.py)."""
        self.prices = prices
        """The user's own model prices (query/stats/user_prices.py)."""
        self.conversation = conversation
        """The runs of the same conversation, oldest first, this one included."""
        self._read_facts = read_facts
        self._bodies = BodyCache(run.spans, read_body, read_bodies)
        self._requests: dict[int, Request | None] = {}
        self._responses: dict[int, Response | None] = {}
        self._parsed_bytes = 0
        self._of_types: dict[tuple[str, ...], list[SpanInfo]] = {}
        self._beside: dict[str, dict[str | None, list[SpanInfo]]] = {}
        self._made: dict[Callable[[Evidence], Any], Any] = {}

    def add_related(self, conversation: Sequence[RunInfo], read_facts: ReadFacts) -> None:
        """Add the other runs that checks compare this one with."""
        self.conversation, self._read_facts = conversation, read_facts

    def part(self, run: Run, case: str | None = None) -> Evidence:
        """Return the evidence of a part of the run, such as a test case, with shared bodies."""
        part = Evidence(
            run, self._bodies.read_body, self.conversation, None, self.prices, self._read_facts
        )
        part._bodies, part.full, part.case = self._bodies, self.full, case
        return part

    # --- indexes --------------------------------------------------------------------------------

    @cached_property
    def spans(self) -> dict[str, SpanInfo]:
        return {span.id: span for span in self.run.spans}

    @cached_property
    def places(self) -> dict[str, int]:
        """Index of each span in the run's order."""
        return {span.id: index for index, span in enumerate(self.run.spans)}

    @cached_property
    def short_ids(self) -> dict[str, str]:
        return {span.id: span.short_id for span in self.run.spans}

    @cached_property
    def children(self) -> dict[str | None, list[SpanInfo]]:
        """Spans by parent id, in order."""
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
        """Return the spans of these types, in order: `llm`, `tool`, `queue.deliver`, ..."""
        if types not in self._of_types:
            self._of_types[types] = [span for span in self.run.spans if span.type in types]
        return self._of_types[types].copy()

    @cached_property
    def model_calls(self) -> list[SpanInfo]:
        """The `llm` spans of provider requests.

        If a client's span contains the span of the HTTP call, only the inner one counts.
        """
        calls = self.of_type("llm")
        outer = {span.parent_id for span in calls if span.input is not None}
        return [span for span in calls if span.id not in outer]

    def beside(self, type: str, span: SpanInfo) -> list[SpanInfo]:
        """Return the spans of a type with the same parent as this one, in order."""
        if type not in self._beside:
            found: dict[str | None, list[SpanInfo]] = {}
            for each in self.of_type(type):
                found.setdefault(each.parent_id, []).append(each)
            self._beside[type] = found
        return self._beside[type].get(span.parent_id, [])

    def last_before(self, type: str, span: SpanInfo) -> SpanInfo | None:
        """Return the last span of a type before this one, with the same parent."""
        beside = self.beside(type, span)
        at = bisect_left(beside, self.places[span.id], key=lambda each: self.places[each.id])
        return beside[at - 1] if at else None

    def assembly(self, call: SpanInfo) -> SpanInfo | None:
        """Return the span with the prompt segments of a model call: a child, or the last before."""
        own = [span for span in self.children.get(call.id, []) if span.type == ASSEMBLY]
        return own[-1] if own else self.last_before(ASSEMBLY, call)

    @cached_property
    def root(self) -> SpanInfo | None:
        return next((s for s in self.run.spans if s.type == "run" and s.parent_id is None), None)

    def once(self, make: Callable[[Evidence], Made]) -> Made:
        """Return `make(self)`, computed on first use and then cached."""
        if make not in self._made:
            self._made[make] = make(self)
        made: Made = self._made[make]
        return made

    def facts_of(self, run_ids: Sequence[str]) -> Iterable[SpanFacts]:
        """Yield spans of other runs of the same tenant; none if the store is not at hand."""
        return () if self._read_facts is None else self._read_facts(run_ids)

    # --- bodies -----------------------------------------------------------------------------------

    def input(self, span: SpanInfo) -> str | None:
        """Return the input as text; None if there is none or it is missing."""
        return self._bodies.text(span, "input")

    def output(self, span: SpanInfo) -> str | None:
        return self._bodies.text(span, "output")

    def raw(self, ref: BodyRef) -> bytes | None:
        """Return a body's bytes, at most BODY_READ_MAX; None if it is missing."""
        return None if ref.id is None else self._bodies.raw(ref.id)

    def is_gone(self, body_id: int) -> bool:
        """Return True if a body cannot be read: deleted by retention, or damaged."""
        return self._bodies.is_gone(body_id)

    def request(self, span: SpanInfo) -> Request | None:
        """Return the parsed request; None if it is missing or of an unknown format."""
        return self._parse(span, "input", self._requests, _parse_request)

    def response(self, span: SpanInfo) -> Response | None:
        """Return the parsed response; None if it is missing or of an unknown format."""
        return self._parse(span, "output", self._responses, _parse_response)

    def _parse(
        self,
        span: SpanInfo,
        side: Side,
        known: dict[int, Parsed | None],
        parse: Callable[[str, str | None], Parsed | None],
    ) -> Parsed | None:
        """Parse each body once; the cache is bounded by the size of the bodies."""
        ref = span.input if side == "input" else span.output
        if ref is None or ref.id is None:
            return None
        if ref.id in known:
            return known[ref.id]
        text = self._bodies.text(span, side)
        provider = span.attributes.get("provider")
        hint = provider if isinstance(provider, str) else None
        parsed = None if text is None else parse(text, hint)
        if self._parsed_bytes + ref.size_bytes > CACHED_BYTES_MAX:
            self._requests.clear()
            self._responses.clear()
            self._parsed_bytes = 0
        known[ref.id] = parsed
        self._parsed_bytes += ref.size_bytes
        return parsed


def _parse_request(text: str, provider: str | None) -> Request | None:
    from vestige.providers.parsing import parse_request

    return parse_request(text, provider)


def _parse_response(text: str, provider: str | None) -> Response | None:
    from vestige.providers.parsing import parse_response

    return parse_response(text, provider)


def open_run(store: Store, run_id: str) -> Evidence:
    """Load a run of a store, redacted before a view shortens its texts."""
    from vestige.record.redaction.output_redaction import redact_run

    return Evidence(
        redact_run(store.load_run(run_id)),
        store.read_body,
        read_bodies=store.read_bodies,
        prices=load_user_prices(store),
    )
