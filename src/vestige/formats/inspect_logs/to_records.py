"""A sample as a run: model and tool events are spans, agents contain theirs.

a model event       a span `llm` with the messages that are new to its agent
a tool event        a span `tool`
a span of an agent  a span `agent`; other spans of Inspect are passed over
other events        log records: errors, scores on the way, approvals, limits
scores              attributes and notes of the run
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from vestige.formats.inspect_logs.messages import (
    SampleContent,
    as_object,
    as_objects,
    content_text,
    get_calls,
    get_thinking,
    to_openai_content,
    usage_attributes,
)
from vestige.formats.inspect_logs.outcome import (
    error_attributes,
    limit_attributes,
    score_attributes,
)
from vestige.formats.openai_bodies import LABEL_MAX, render_request, render_response
from vestige.formats.record_builder import RecordBuilder, encode_json
from vestige.formats.times_and_outcomes import parse_time_ns
from vestige.record.coercion import clean_name, truncate
from vestige.record.types import KnownRecord

FORMAT: Final = "inspect_logs"

Object = dict[str, Any]

_LOGGED: Final = {
    "error": "error",
    "sample_limit": "warn",
    "approval": "info",
    "info": "info",
    "input": "info",
    "score": "info",
    "logger": "info",
}
"""Events that are log records, and their levels."""
_LEVELS: Final = {"warning": "warn", "error": "error", "critical": "error", "debug": "debug"}
_SPANS_MAX: Final = 100_000
_FINISH: Final = {"max_tokens": "length", "model_length": "length"}


class _Place(msgspec.Struct):
    """A span of Inspect, and the span of ours that its events belong to."""

    parent: str | None
    ours: str | None
    """None: the events belong to the parent's."""


class SampleRecords:
    """Converts the events of one sample, in order."""

    def __init__(
        self,
        sample: Object,
        evaluation: Object,
        builder: RecordBuilder,
    ) -> None:
        self._sample, self._evaluation, self._builder = sample, evaluation, builder
        self._content = SampleContent(sample)
        self._places: dict[str, _Place] = {}
        self._waiting: list[tuple[str, str, str | None]] = []
        """Spans of tools that no event has yet: id, name, parent."""
        self._seen: dict[str, set[str]] = {}
        """Ids of the messages that each agent has sent."""
        self._count = 0
        self._began: dict[str, tuple[str, int]] = {}
        """Open agents: their span and the time of their begin."""
        self._agents: dict[str, str] = {}
        """Names of agents, by the id of our span of the agent or of a tool inside it."""
        self._last_text = ""

    def records(self) -> Iterator[KnownRecord]:
        builder, sample = self._builder, self._sample
        builder.advance(parse_time_ns(sample.get("started_at")))
        yield builder.open(
            builder.root_id,
            "run",
            self._name(),
            component=self._component,
            attributes=self._run_attributes(),
            body=content_text(self._content.resolve(sample.get("input"))) or None,
        )
        events = as_objects(sample.get("events"))
        for event in events:
            yield from self._event(event, builder.root_id)
        if not any(event.get("event") == "model" for event in events):
            yield from self._messages_only()
        for ours, began_ns in self._began.values():  # spans that never ended
            yield self._close_agent(ours, began_ns)
        attributes = score_attributes(sample) | error_attributes(sample) | limit_attributes(sample)
        builder.advance(parse_time_ns(sample.get("completed_at")))
        yield builder.end_run(
            "error" if "error.message" in attributes else "ok",
            len(events),
            attributes=attributes,
            body=self._final_text() or None,
        )

    # --- the run --------------------------------------------------------------------------------

    @property
    def _component(self) -> str:
        return clean_name(str(self._evaluation.get("task") or "inspect"))

    def _name(self) -> str:
        name = f"{self._component} {self._sample.get('id', '')}".strip()
        epoch = self._sample.get("epoch")
        return f"{name} (epoch {epoch})" if isinstance(epoch, int) and epoch > 1 else name

    def _run_attributes(self) -> Object:
        sample, evaluation = self._sample, self._evaluation
        facts: Object = {
            "sample_id": sample.get("id"),
            "epoch": sample.get("epoch"),
            "task": evaluation.get("task"),
            "model": evaluation.get("model"),
            "eval_id": evaluation.get("eval_id"),
        }
        target = sample.get("target")
        facts["target"] = "\n".join(map(str, target)) if isinstance(target, list) else target
        metadata = as_object(sample.get("metadata"))
        facts |= {f"metadata.{key}": value for key, value in list(metadata.items())[:40]}
        scalars = (str, int, float, bool)
        return {key: value for key, value in facts.items() if isinstance(value, scalars)}

    def _final_text(self) -> str:
        output = as_object(self._sample.get("output"))
        text = self._content.resolve(output.get("completion"))
        return text if isinstance(text, str) and text else self._last_text

    def _messages_only(self) -> Iterator[KnownRecord]:
        """Yield the messages of a sample whose events were not logged, as model calls."""
        pending: list[Object] = []
        for message in as_objects(self._sample.get("messages")):
            if message.get("role") == "assistant":
                event = {
                    "output": {"choices": [{"message": message}]},
                    "model": message.get("model"),
                }
                yield from self._model_call(event, self._builder.root_id, pending)
                pending = []
            else:
                pending.append(self._content.to_openai(message))
                if message.get("role") == "tool":
                    yield from self._tool(
                        {
                            "function": message.get("function"),
                            "id": message.get("tool_call_id"),
                            "result": message.get("content"),
                            "error": message.get("error"),
                        },
                        self._builder.root_id,
                    )

    # --- events ---------------------------------------------------------------------------------

    def _event(self, event: Object, around: str) -> Iterator[KnownRecord]:
        """Yield the records of an event. `around`: the span of a log without span ids."""
        kind = event.get("event")
        self._builder.advance(parse_time_ns(event.get("timestamp")))
        parent = self._find_parent(event.get("span_id"), around)
        match kind:
            case "span_begin":
                yield from self._begin_span(event, around)
            case "span_end":
                yield from self._end_span(event)
            case "model":
                new = self._new_messages(event, parent)
                yield from self._model_call(event, parent, new)
            case "tool":
                yield from self._tool(event, parent)
            case str() if kind in _LOGGED:
                yield self._log(kind, event, parent)

    def _begin_span(self, event: Object, around: str) -> Iterator[KnownRecord]:
        theirs, name = event.get("id"), event.get("name")
        parent = event.get("parent_id")
        if not isinstance(theirs, str) or len(self._places) >= _SPANS_MAX:
            return
        parent_place = parent if isinstance(parent, str) else None
        self._places[theirs] = place = _Place(parent_place, None)
        if event.get("type") == "tool":
            self._waiting.append((theirs, str(name), parent_place))
        elif event.get("type") == "agent":
            place.ours = self._builder.span_id("span", theirs)
            self._began[theirs] = (place.ours, self._builder.time_ns)
            self._agents[place.ours] = str(name)
            yield self._builder.open(
                place.ours,
                "agent",
                str(name),
                component=str(name),
                parent_id=self._find_parent(parent_place, around),
                attributes={"agent.name": str(name)},
            )

    def _end_span(self, event: Object) -> Iterator[KnownRecord]:
        theirs = str(event.get("id"))
        if theirs in self._began:
            yield self._close_agent(*self._began.pop(theirs))

    def _close_agent(self, ours: str, began_ns: int) -> KnownRecord:
        return self._builder.close(ours, duration_ns=self._builder.time_ns - began_ns)

    def _find_parent(self, theirs: Any, around: str) -> str:
        for _ in range(len(self._places) + 1):
            place = self._places.get(theirs) if isinstance(theirs, str) else None
            if place is None:
                return around
            if place.ours is not None:
                return place.ours
            theirs = place.parent
        return around

    def _new_messages(self, event: Object, parent: str) -> list[Object]:
        """Return the messages that this agent sends for the first time."""
        seen = self._seen.setdefault(parent, set())
        new: list[Object] = []
        for message in self._content.input_of(event):
            key = message.get("id")
            key = key if isinstance(key, str) and key else encode_json(message)
            if key not in seen:
                seen.add(key)
                new.append(self._content.to_openai(message))
        answer = _answer(event)
        if isinstance(answer.get("id"), str):
            seen.add(answer["id"])
        return new

    def _model_call(self, event: Object, parent: str, new: list[Object]) -> Iterator[KnownRecord]:
        builder = self._builder
        output = as_object(event.get("output"))
        answer = self._content.resolve(_answer(event))
        model = output.get("model") or event.get("model")
        model = clean_name(model) if isinstance(model, str) and model else None
        attributes: Object = {"message_index": self._count}
        self._count += 1
        if model:
            attributes["model"] = model
        attributes |= usage_attributes(as_object(output.get("usage")))
        if event.get("cache") == "read":
            attributes["inspect.cache"] = "read"
        span_id = builder.span_id("model", str(event.get("uuid") or self._count))
        began_ns, ended_ns = self._times(event, output.get("time"))
        yield builder.open(
            span_id,
            "llm",
            model or "model",
            component=self._agents.get(parent, self._component),
            parent_id=parent,
            attributes=attributes,
            body=render_request(new, model),
        )
        choice = next(iter(as_objects(output.get("choices"))), {})
        reason = choice.get("stop_reason")
        error = event.get("error") or output.get("error")
        failed = isinstance(error, str) and bool(error)
        text = content_text(answer.get("content"))
        self._last_text = truncate(text, LABEL_MAX) or self._last_text
        response = render_response(
            to_openai_content(answer.get("content")),
            get_calls(answer),
            thinking=get_thinking(answer),
            model=model,
            finish_reason=_FINISH.get(reason, reason) if isinstance(reason, str) else None,
        )
        yield builder.close(
            span_id,
            "error" if failed else "ok",
            attributes={"error.message": truncate(str(error), LABEL_MAX)} if failed else {},
            body=response if answer else None,
            duration_ns=ended_ns - began_ns,
            time_ns=ended_ns,
        )

    def _tool(self, event: Object, parent: str) -> Iterator[KnownRecord]:
        builder = self._builder
        name = event.get("function")
        name = clean_name(name) if isinstance(name, str) and name else "tool"
        call_id = event.get("id")
        attributes: Object = {"message_index": max(0, self._count - 1), "tool_name": name}
        if isinstance(call_id, str) and call_id:
            attributes["tool_call_id"] = call_id
        span_id = builder.span_id("tool", str(event.get("uuid") or f"{call_id} {self._count}"))
        self._claim_span(name, event.get("span_id"), span_id)
        self._agents[span_id] = self._agents.get(parent, self._component)
        arguments = self._content.resolve(event.get("arguments"))
        began_ns, ended_ns = self._times(event, event.get("working_time"))
        yield builder.open(
            span_id,
            "tool",
            name,
            component="tools",
            parent_id=parent,
            attributes=attributes,
            body=None if arguments is None else encode_json(arguments),
        )
        for inner in as_objects(event.get("events")):  # logs before spans had ids
            yield from self._event(inner, span_id)
        error = as_object(event.get("error"))
        text = content_text(self._content.resolve(event.get("result")))
        facts: Object = {}
        if error:
            message = str(error.get("message") or "the tool failed")
            facts = {"error.type": error.get("type"), "error.message": message}
        yield builder.close(
            span_id,
            "error" if error else "ok",
            attributes={key: value for key, value in facts.items() if value is not None},
            body=text or facts.get("error.message"),
            duration_ns=ended_ns - began_ns,
            time_ns=ended_ns,
        )

    def _claim_span(self, name: str, parent: Any, ours: str) -> None:
        """Let the events of a tool's span belong to our span of the tool."""
        for index, (theirs, waiting, around) in enumerate(self._waiting):
            if waiting == name and (around == parent or not isinstance(parent, str)):
                self._places[theirs].ours = ours
                del self._waiting[index]
                return

    def _times(self, event: Object, seconds: Any) -> tuple[int, int]:
        """Return the begin and end of an event."""
        began_ns = self._builder.time_ns
        ended_ns = parse_time_ns(event.get("completed"))
        if ended_ns is None and isinstance(seconds, (int, float)) and 0 <= seconds < 1e6:
            ended_ns = began_ns + int(seconds * 1e9)
        return began_ns, max(began_ns, ended_ns or began_ns)

    def _log(self, kind: str, event: Object, parent: str) -> KnownRecord:
        level, message = _LOGGED[kind], kind
        if kind == "logger":
            record = as_object(event.get("message"))
            level = _LEVELS.get(str(record.get("level")), "info")
            message = str(record.get("message") or kind)
        elif kind == "error":
            message = str(as_object(event.get("error")).get("message") or kind)
        elif kind in ("approval", "sample_limit", "input", "info"):
            detail = event.get("message") or event.get("input") or event.get("data")
            message = f"{kind}: {detail if isinstance(detail, str) else encode_json(detail)}"
        elif kind == "score":
            message = f"score: {encode_json(as_object(event.get('score')).get('value'))}"
        return self._builder.log(level, message, component=self._component, span_id=parent)


def _answer(event: Object) -> Object:
    choice = next(iter(as_objects(as_object(event.get("output")).get("choices"))), {})
    return as_object(choice.get("message"))
