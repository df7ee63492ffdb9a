"""What is new in each request of a run: a model is sent its whole history again, every turn.

    histories = Histories(evidence)
    told = histories.new_in(call)         # messages that no request shortly before it had
    histories.asker(tool)                 # the call whose answer asked for a tool span
    histories.result_of(call, "call_7")   # what a later request says that the tool gave

Only calls near each other are compared, so that a page from the middle of a long run costs what
the first one does, and says the same as if everything had been read.
"""

from __future__ import annotations

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
"""Calls before and after that are looked at: sub-agents at work side by side take turns."""


@dataclass(frozen=True, slots=True)
class HistoryItem:
    """A request's messages, as far as they are news."""

    messages: Sequence[Message]
    """Those after what a request before it had."""
    total: int
    repeated: int


class Histories:
    """The model calls of a run, each seen beside its neighbours."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.calls = evidence.model_calls
        self._place = {span.id: place for place, span in enumerate(self.calls)}
        self._order = {span.id: place for place, span in enumerate(evidence.run.spans)}
        self._keys: dict[str, list[int]] = {}
        self._tools = evidence.of_type("tool")
        self._by_call_id: dict[str, list[SpanInfo]] = {}
        for tool in self._tools:
            call_id = get_call_id(tool)
            if call_id is not None:
                self._by_call_id.setdefault(call_id, []).append(tool)

    def is_call(self, span: SpanInfo) -> bool:
        """Whether it met a provider: of a client's span and the wire's in it, the inner one."""
        return span.id in self._place

    def request(self, span: SpanInfo) -> Request | None:
        return self.evidence.request(span) if _size(span.input) <= BODY_READ_MAX else None

    def response(self, span: SpanInfo) -> Response | None:
        return self.evidence.response(span) if _size(span.output) <= BODY_READ_MAX else None

    # --- what is new ------------------------------------------------------------------------------

    def new_in(self, span: SpanInfo) -> HistoryItem | None:
        """None: the request is none that we know, or gone."""
        request = self.request(span)
        if request is None:
            return None
        own = self._keys_of(span)
        repeated = max(
            (_common(self._keys_of(before), own) for before in self._before(span)), default=0
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
        """The latest first."""
        place = self._place[span.id]
        return self.calls[max(0, place - NEAR) : place][::-1]

    def _after(self, span: SpanInfo) -> Sequence[SpanInfo]:
        place = self._place[span.id]
        return self.calls[place + 1 : place + 1 + NEAR]

    # --- who asked for what -----------------------------------------------------------------------

    def execution(self, span: SpanInfo, call: ToolCall, nth: int = 0) -> SpanInfo | None:
        """The tool span of a call in this span's answer: by its id, else by name, before the next call.

        `nth`: how many calls before it in the answer have its name.
        """
        begin = self._order[span.id]
        if call.id is not None:
            later = (t for t in self._by_call_id.get(call.id, ()) if self._order[t.id] > begin)
            found = next(later, None)
            if found is not None:
                return found
        following = self._after(span)
        end = self._order[following[0].id] if following else len(self._order)
        named = (
            tool
            for tool in self.evidence.run.spans[begin + 1 : min(end, begin + 1 + 1000)]
            if tool.type == "tool"
            and get_call_id(tool) is None
            and get_tool_name(tool) == call.name
        )
        return next(islice(named, nth, None), None)

    def asker(self, tool: SpanInfo) -> tuple[SpanInfo, ToolCall] | None:
        """The call near before it whose answer asked for this tool."""
        call_id, name, place = get_call_id(tool), get_tool_name(tool), self._order[tool.id]
        for span in self._calls_before(place):
            response = self.response(span)
            for call in response.calls if response is not None else ():
                if call.id == call_id if call_id is not None else call.name == name:
                    return span, call
        return None

    def _calls_before(self, place: int) -> Iterator[SpanInfo]:
        low, high = 0, len(self.calls)
        while low < high:
            middle = (low + high) // 2
            if self._order[self.calls[middle].id] < place:
                low = middle + 1
            else:
                high = middle
        yield from reversed(self.calls[max(0, low - NEAR) : low])

    def was_executed(self, call_id: str | None) -> bool:
        return call_id is not None and call_id in self._by_call_id

    def result_of(
        self, span: SpanInfo, call: ToolCall, nth: int = 0, alike: int = 1
    ) -> ToolResult | None:
        """What a later request says that a call of this span's answer gave.

        `nth` of `alike` calls of that name in the answer: results that name only their tool stand
        in the order of the calls.
        """
        for later in self._after(span):
            request = self.request(later)
            results = (
                [each for message in request.messages for each in message.results]
                if request
                else []
            )
            own = [each for each in results if each.call_id is not None and each.call_id == call.id]
            named = [each for each in results if each.call_id and each.call_id == call.name]
            if own or named:
                return own[-1] if own else next(iter(named[-alike:][nth:]), None)
        return None

    def was_answered_here(self, span: SpanInfo, call_id: str | None) -> bool:
        """Whether the call that a result belongs to was told at a call near before."""
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


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    count = 0
    for one, other in zip(a, b, strict=False):
        if one != other:
            break
        count += 1
    return count


def _size(ref: BodyRef | None) -> int:
    return 0 if ref is None or ref.id is None else ref.size_bytes
