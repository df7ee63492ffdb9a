"""Who asked for what: the run's model calls with what they offered, asked for and were given.

Made once per evidence, for all checks that ask. A request resends its whole history, so what
is kept of one is small: the tools on offer, the results in it, the last word of the user.
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
from vestige.providers.models import Request, Response, ToolCall, ToolResult, ToolSchema
from vestige.query.body_cache import BODY_READ_MAX
from vestige.query.evidence import Evidence
from vestige.record.run import BodyRef, SpanInfo

REQUESTS_READ_MAX = 16 * MIB
"""Of all requests of a run, the latest first: they hold what the earlier ones held."""

REQUESTS_LOOKED_AT = 3
"""The latest, for the results of tools that are not recorded themselves: each holds the history."""


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A tool call that a model asked for."""

    span: SpanInfo
    """The model call whose output it is in."""
    call: ToolCall


@dataclass(slots=True)
class ModelCall:
    """One model call, read."""

    span: SpanInfo
    tools: Mapping[str, ToolSchema] = field(default_factory=dict)
    """What the request offered, by name."""
    results: Counter[str] = field(default_factory=Counter)
    """Tool results in the request, by call id (by name, where a provider has no ids): how often each is there."""
    asked_before: Counter[str] = field(default_factory=Counter)
    """Tool calls in the request's history, by call id and by name: a result may say either."""
    user_text: str = ""
    """The last thing the user said."""
    opening: str = ""
    """How the conversation begins: what is the same in every request of it."""
    response: Response | None = None
    unread: bool = False
    """There was a request, and it is gone or too much to read: what it holds is not known."""

    @property
    def finish_reason(self) -> str | None:
        said = self.span.attributes.get("finish_reason")
        if isinstance(said, str):
            return said
        return self.response.finish_reason if self.response is not None else None

    @property
    def is_answer(self) -> bool:
        """It said something and asked for nothing: the end of a turn."""
        answer = self.response
        return (
            answer is not None
            and not answer.calls
            and bool(answer.text.strip())
            and self.finish_reason in ("stop", "end_turn", "completed")
        )


_known: WeakKeyDictionary[Evidence, list[ModelCall]] = WeakKeyDictionary()


def model_calls(evidence: Evidence) -> list[ModelCall]:
    """The run's model calls, in order."""
    known = _known.get(evidence)
    if known is None:
        known = _known[evidence] = _read_all(evidence)
    return known


def asked_calls(evidence: Evidence) -> Iterator[RequestedCall]:
    """Every tool call that a model asked for, in order."""
    for model in model_calls(evidence):
        if model.response is not None:
            for call in model.response.calls:
                yield RequestedCall(model.span, call)


def latest_results(evidence: Evidence) -> Iterator[tuple[SpanInfo, ToolResult]]:
    """What the latest requests say that tools gave, and in which request; the latest first."""
    for call in evidence.model_calls[: -REQUESTS_LOOKED_AT - 1 : -1]:
        request = evidence.request(call)
        for message in request.messages if request is not None else ():
            for result in message.results:
                yield call, result


def latest_texts(evidence: Evidence) -> list[str]:
    """What the latest requests tell as plain text: some agents write calls and their results so."""
    requests = map(evidence.request, evidence.model_calls[: -REQUESTS_LOOKED_AT - 1 : -1])
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
    evidence: Evidence, span: SpanInfo, wanted: bool, offers: dict[bytes, dict[str, ToolSchema]]
) -> ModelCall:
    model = ModelCall(span)
    if _size(span.output) <= BODY_READ_MAX:
        model.response = evidence.response(span)
    if wanted and _size(span.input) <= BODY_READ_MAX:
        request = evidence.request(span)
        if request is not None:
            _keep(model, request, offers)
            return model
        model.unread = span.input is not None and evidence.input(span) is None
    else:
        model.unread = span.input is not None
    return model


def _keep(model: ModelCall, request: Request, offers: dict[bytes, dict[str, ToolSchema]]) -> None:
    # The same tools are offered in every turn: kept once.
    key = msgspec.json.encode(request.tools)
    model.tools = offers.setdefault(key, {tool.name: tool for tool in request.tools})
    for message in request.messages:
        model.results.update(result.call_id for result in message.results if result.call_id)
        model.asked_before.update(
            key for call in message.calls for key in (call.id, call.name) if key
        )
        if message.role == "user" and message.text:
            model.user_text = message.text[-2000:]
            model.opening = model.opening or message.text[:500]


def _size(ref: BodyRef | None) -> int:
    return 0 if ref is None or ref.id is None else ref.size_bytes


# --- executions ---------------------------------------------------------------------------------


def call_id_of(span: SpanInfo) -> str | None:
    value = span.attributes.get("tool_call_id")
    return str(value) if value not in (None, "") else None


def tool_name_of(span: SpanInfo) -> str:
    value = span.attributes.get("tool_name")
    return value if isinstance(value, str) and value else span.name


class Askers:
    """Finds who asked for an execution."""

    def __init__(self, evidence: Evidence) -> None:
        self._order = {span.id: place for place, span in enumerate(evidence.run.spans)}
        self._by_id: dict[str, list[RequestedCall]] = {}
        self._by_name: dict[str, list[RequestedCall]] = {}
        for asked in asked_calls(evidence):
            self._by_name.setdefault(asked.call.name, []).append(asked)
            if asked.call.id is not None:
                self._by_id.setdefault(asked.call.id, []).append(asked)

    def find(self, tool: SpanInfo) -> tuple[RequestedCall, bool] | None:
        """The request, and whether an id says so; else the last one before that asked for
        this tool. (Some providers count ids anew in every turn: the latest before it is meant.)"""
        call_id = call_id_of(tool)
        by_id = self._last_before(tool, self._by_id.get(call_id or "", []))
        if by_id is not None:
            return by_id, True
        by_name = self._last_before(tool, self._by_name.get(tool_name_of(tool), []))
        if by_name is None or (call_id is not None and by_name.call.id is not None):
            return None  # it was asked for by another id
        return by_name, False

    def count(self, call_id: str) -> int:
        """How often a call of this id was asked for."""
        return len(self._by_id.get(call_id, ()))

    def _last_before(self, tool: SpanInfo, asked: list[RequestedCall]) -> RequestedCall | None:
        place = self._order[tool.id]
        at = bisect_left(asked, place, key=lambda each: self._order[each.span.id])
        return asked[at - 1] if at else None


def as_json(text: str) -> Any:
    """What JSON text holds; None where it is none."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
