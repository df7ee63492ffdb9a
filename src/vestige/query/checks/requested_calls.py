"""Model calls of a run: the tools they offered, the calls they requested, the results they sent.

They are parsed once per evidence and shared by all checks. A request repeats the entire history,
so only a small part of each is kept: its tools, its result ids, the last text of the user.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from vestige.limits import MIB
from vestige.providers.chat_types import Request, Response, ToolCall, ToolResult, ToolSchema
from vestige.query.body_cache import BODY_READ_MAX
from vestige.query.evidence import Evidence
from vestige.record.run import BodyRef, SpanInfo

REQUESTS_READ_MAX = 16 * MIB
"""Limit for all requests of a run, latest first: later requests contain the earlier ones."""

LATEST_REQUESTS = 3
"""Requests that are searched for results of tools without spans: each contains the history."""


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A tool call that a model requested."""

    span: SpanInfo
    """The model call whose output contains it."""
    call: ToolCall


@dataclass(slots=True)
class ModelCall:
    """The parsed facts of one model call."""

    span: SpanInfo
    tools: Mapping[str, ToolSchema] = field(default_factory=dict)
    """Tools of the request, by name."""
    results: Counter[str] = field(default_factory=Counter)
    """Number of tool results in the request by call id, or by name if a provider has no ids."""
    earlier_calls: Counter[str] = field(default_factory=Counter)
    """Number of tool calls in the request's history, by call id and by name."""
    user_text: str = ""
    """Last text of the user."""
    opening: str = ""
    """First text of the user, which is the same in every request of a conversation."""
    response: Response | None = None
    unread: bool = False
    """The request is missing or too large to read, so its content is unknown."""

    @property
    def finish_reason(self) -> str | None:
        reason = self.span.attributes.get("finish_reason")
        if isinstance(reason, str):
            return reason
        return self.response.finish_reason if self.response is not None else None

    @property
    def is_answer(self) -> bool:
        """The model returned text without tool calls, which ends a turn."""
        response = self.response
        return (
            response is not None
            and not response.calls
            and bool(response.text.strip())
            and self.finish_reason in ("stop", "end_turn", "completed")
        )


_known: WeakKeyDictionary[Evidence, list[ModelCall]] = WeakKeyDictionary()


def model_calls(evidence: Evidence) -> list[ModelCall]:
    """Return the run's model calls, in order."""
    known = _known.get(evidence)
    if known is None:
        known = _known[evidence] = _read_all(evidence)
    return known


def iter_requested_calls(evidence: Evidence) -> Iterator[RequestedCall]:
    """Yield every tool call that a model requested, in order."""
    for model in model_calls(evidence):
        if model.response is not None:
            for call in model.response.calls:
                yield RequestedCall(model.span, call)


def latest_results(evidence: Evidence) -> Iterator[tuple[SpanInfo, ToolResult]]:
    """Yield the tool results of every conversation with their model call, latest first.

    A request repeats the results of the earlier ones, so only requests with new ones are parsed.
    """
    seen: set[tuple[str, str]] = set()
    for model in reversed(model_calls(evidence)):
        keys = {(model.opening, call_id) for call_id in model.results}
        if not keys or keys <= seen:
            continue
        request = evidence.request(model.span)
        for message in request.messages if request is not None else ():
            for result in message.results:
                if (model.opening, result.call_id or "") not in seen:
                    yield model.span, result
        seen |= keys


def latest_texts(evidence: Evidence) -> list[str]:
    """Return the texts of the latest requests: some agents write tool calls and results as text."""
    requests = map(evidence.request, evidence.model_calls[: -LATEST_REQUESTS - 1 : -1])
    return [
        message.text
        for request in requests
        for message in (request.messages if request is not None else ())
        if message.role in ("assistant", "user") and message.text
    ]


def _read_all(evidence: Evidence) -> list[ModelCall]:
    spans = evidence.model_calls
    to_read: set[str] = set()
    size = 0
    for span in reversed(spans):
        size += _size(span.input)
        if size > REQUESTS_READ_MAX:
            break
        to_read.add(span.id)
    offers: dict[bytes, dict[str, ToolSchema]] = {}
    return [_read(evidence, span, span.id in to_read, offers) for span in spans]


def _read(
    evidence: Evidence, span: SpanInfo, with_input: bool, offers: dict[bytes, dict[str, ToolSchema]]
) -> ModelCall:
    model = ModelCall(span)
    if _size(span.output) <= BODY_READ_MAX:
        model.response = evidence.response(span)
    if with_input and _size(span.input) <= BODY_READ_MAX:
        request = evidence.request(span)
        if request is not None:
            _add_request(model, request, offers)
            return model
        model.unread = span.input is not None and evidence.input(span) is None
    else:
        model.unread = span.input is not None
    return model


def _add_request(
    model: ModelCall, request: Request, offers: dict[bytes, dict[str, ToolSchema]]
) -> None:
    # Most turns offer the same tools, which are stored once.
    key = msgspec.json.encode(request.tools)
    model.tools = offers.setdefault(key, {tool.name: tool for tool in request.tools})
    for message in request.messages:
        model.results.update(result.call_id for result in message.results if result.call_id)
        model.earlier_calls.update(
            key for call in message.calls for key in (call.id, call.name) if key
        )
        if message.role == "user" and message.text:
            model.user_text = message.text[-2000:]
            model.opening = model.opening or message.text[:500]


def _size(ref: BodyRef | None) -> int:
    return 0 if ref is None or ref.id is None else ref.size_bytes


# --- executions ---------------------------------------------------------------------------------


def get_call_id(span: SpanInfo) -> str | None:
    value = span.attributes.get("tool_call_id")
    return str(value) if value not in (None, "") else None


def get_tool_name(span: SpanInfo) -> str:
    value = span.attributes.get("tool_name")
    return value if isinstance(value, str) and value else span.name


class CallIndex:
    """Finds the requested call that a tool span executed."""

    def __init__(self, evidence: Evidence) -> None:
        self._order = {span.id: index for index, span in enumerate(evidence.run.spans)}
        self._by_id: dict[str, list[RequestedCall]] = {}
        self._by_name: dict[str, list[RequestedCall]] = {}
        for requested in iter_requested_calls(evidence):
            self._by_name.setdefault(requested.call.name, []).append(requested)
            if requested.call.id is not None:
                self._by_id.setdefault(requested.call.id, []).append(requested)

    def find(self, tool: SpanInfo) -> tuple[RequestedCall, bool] | None:
        """Return the call, and whether its id matches.

        It is the latest call before the span: some providers reuse ids in every turn.
        """
        call_id = get_call_id(tool)
        by_id = self._last_before(tool, self._by_id.get(call_id or "", []))
        if by_id is not None:
            return by_id, True
        by_name = self._last_before(tool, self._by_name.get(get_tool_name(tool), []))
        if by_name is None or (call_id is not None and by_name.call.id is not None):
            return None  # both have ids, and they differ
        return by_name, False

    def count(self, call_id: str) -> int:
        """Return how often a call with this id was requested."""
        return len(self._by_id.get(call_id, ()))

    def _last_before(self, tool: SpanInfo, calls: list[RequestedCall]) -> RequestedCall | None:
        index = bisect_left(calls, self._order[tool.id], key=lambda c: self._order[c.span.id])
        return calls[index - 1] if index else None


def parse_json(text: str) -> Any:
    """Return the value of JSON text, or None if it is not JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
