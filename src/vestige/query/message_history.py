"""The new messages of each request in a run: clients send the full history every turn.

    histories = Histories(evidence)
    item = histories.new_in(call)           # messages that no nearby earlier request had
    histories.find_requester(tool)          # the model call that requested a tool span
    histories.result_of(span, tool_call)    # the tool's result, from a later request

Only nearby calls are compared. So a page from the middle of a long run costs as much as the
first page, and does not depend on which pages were read before.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from vestige.providers.models import Message, Request, Response, ToolCall, ToolResult
from vestige.query.body_cache import BODY_READ_MAX
from vestige.query.checks.requested_calls import get_call_id, get_tool_name
from vestige.query.evidence import Evidence
from vestige.record.run import BodyRef, SpanInfo

NEAR: Final = 8
"""Neighbouring calls that are compared: concurrent sub-agents interleave their calls."""


@dataclass(frozen=True, slots=True)
class HistoryItem:
    """The new messages of a request."""

    messages: Sequence[Message]
    """The messages after those that an earlier request had."""
    total: int
    repeated: int


class Histories:
    """The model calls of a run, each compared with its neighbours."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.calls = evidence.model_calls
        self._call_index = {span.id: index for index, span in enumerate(self.calls)}
        self._span_index = {span.id: index for index, span in enumerate(evidence.run.spans)}
        self._keys: dict[str, list[int]] = {}
        self._tools = evidence.of_type("tool")
        self._by_call_id: dict[str, list[SpanInfo]] = {}
        for tool in self._tools:
            call_id = get_call_id(tool)
            if call_id is not None:
                self._by_call_id.setdefault(call_id, []).append(tool)

    def is_call(self, span: SpanInfo) -> bool:
        """Return True for a request to a provider, False for a client span around one."""
        return span.id in self._call_index

    def request(self, span: SpanInfo) -> Request | None:
        return self.evidence.request(span) if _size(span.input) <= BODY_READ_MAX else None

    def response(self, span: SpanInfo) -> Response | None:
        return self.evidence.response(span) if _size(span.output) <= BODY_READ_MAX else None

    # --- new messages -----------------------------------------------------------------------------

    def new_in(self, span: SpanInfo) -> HistoryItem | None:
        """Return the new messages; None if the request is missing or of an unknown format."""
        request = self.request(span)
        if request is None:
            return None
        own = self._keys_of(span)
        repeated = max(
            (_common_length(self._keys_of(before), own) for before in self._before(span)), default=0
        )
        answers = {
            key
            for before in self._before(span)
            if (response := self.response(before)) is not None
            for key in [_answer_key(response.text, response.calls)]
        }
        new = [
            message
            for message in request.messages[repeated:]
            if message.role != "assistant"
            or _answer_key(message.text, message.calls) not in answers
        ]
        return HistoryItem(new, len(request.messages), repeated)

    def _keys_of(self, span: SpanInfo) -> list[int]:
        known = self._keys.get(span.id)
        if known is None:
            request = self.request(span)
            known = [_key(message) for message in request.messages] if request else []
            self._keys[span.id] = known
        return known

    def _before(self, span: SpanInfo) -> Sequence[SpanInfo]:
        """Return the nearby earlier calls, the latest first."""
        index = self._call_index[span.id]
        return self.calls[max(0, index - NEAR) : index][::-1]

    def _after(self, span: SpanInfo) -> Sequence[SpanInfo]:
        index = self._call_index[span.id]
        return self.calls[index + 1 : index + 1 + NEAR]

    # --- tool calls -------------------------------------------------------------------------------

    def execution(self, span: SpanInfo, call: ToolCall, nth: int = 0) -> SpanInfo | None:
        """Return the tool span of a call in this span's answer.

        It is found by call id, else by name before the next model call. `nth` is the number of
        earlier calls of the same name in the answer.
        """
        begin = self._span_index[span.id]
        if call.id is not None:
            later = (t for t in self._by_call_id.get(call.id, ()) if self._span_index[t.id] > begin)
            found = next(later, None)
            if found is not None:
                return found
        following = self._after(span)
        end = self._span_index[following[0].id] if following else len(self._span_index)
        named = (
            tool
            for tool in self.evidence.run.spans[begin + 1 : min(end, begin + 1 + 1000)]
            if tool.type == "tool"
            and get_call_id(tool) is None
            and get_tool_name(tool) == call.name
        )
        return next(islice(named, nth, None), None)

    def find_requester(self, tool: SpanInfo) -> tuple[SpanInfo, ToolCall] | None:
        """Return the nearby earlier model call that requested this tool, and the request."""
        call_id, name = get_call_id(tool), get_tool_name(tool)
        for span in self._calls_before(self._span_index[tool.id]):
            response = self.response(span)
            for call in response.calls if response is not None else ():
                if call.id == call_id if call_id is not None else call.name == name:
                    return span, call
        return None

    def _calls_before(self, index: int) -> Iterator[SpanInfo]:
        end = bisect_left(self.calls, index, key=lambda call: self._span_index[call.id])
        yield from reversed(self.calls[max(0, end - NEAR) : end])

    def was_executed(self, call_id: str | None) -> bool:
        return call_id is not None and call_id in self._by_call_id

    def result_of(
        self, span: SpanInfo, call: ToolCall, nth: int = 0, same_name: int = 1
    ) -> ToolResult | None:
        """Return the result of a tool call in this span's answer, from a later request.

        The call is number `nth` of the `same_name` calls of that name in the answer: results
        that have only the tool's name are in the order of the calls.
        """
        for later in self._after(span):
            request = self.request(later)
            messages = request.messages if request else ()
            results = [each for message in messages for each in message.results]
            own = [each for each in results if each.call_id is not None and each.call_id == call.id]
            named = [each for each in results if each.call_id and each.call_id == call.name]
            if own or named:
                return own[-1] if own else next(iter(named[-same_name:][nth:]), None)
        return None

    def was_requested_nearby(self, span: SpanInfo, call_id: str | None) -> bool:
        """Return True if a nearby earlier answer requested the call with this id."""
        for before in self._before(span):
            response = self.response(before)
            for call in response.calls if response is not None else ():
                if call_id is not None and call_id in (call.id, call.name):
                    return True
        return False


def _key(message: Message) -> int:
    return hash(
        (
            message.role,
            message.text,
            tuple((call.id, call.name, call.arguments) for call in message.calls),
            tuple((result.call_id, result.text) for result in message.results),
        )
    )


def _answer_key(text: str, calls: Sequence[ToolCall]) -> tuple[str, tuple[str, ...]]:
    return text.strip(), tuple(call.id or call.name for call in calls)


def _common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the length of the common prefix."""
    count = 0
    for left, right in zip(a, b, strict=False):
        if left != right:
            break
        count += 1
    return count


def _size(ref: BodyRef | None) -> int:
    return 0 if ref is None or ref.id is None else ref.size_bytes
