"""A trajectory as a run: steps of the agent are model calls and tools.

    system and user steps        input of the next answer
    a step of the agent          a span `llm`, and a span `tool` for each tool call
    an observation               output of its tool, and input of the next answer
    a sub-agent's trajectory     a span `agent` inside the tool that started it

Each span has the attribute `message_index`, the place of its step. Steps that were copied from
an earlier trajectory are context: they are not counted again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from vestige.formats.atif.content import content_text, flatten_extra, to_openai_content
from vestige.formats.lenient_json import Object, Raw, decode_object
from vestige.formats.openai_bodies import Call, render_request, render_response, to_tool_calls
from vestige.formats.protocol import Problem
from vestige.formats.record_builder import RecordBuilder, encode_json
from vestige.formats.times_and_outcomes import parse_time_ns
from vestige.limits import BODY_INLINE_MAX, PROBLEMS_MAX
from vestige.record.coercion import clean_name, truncate
from vestige.record.types import KnownRecord

_METRICS: Final = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "cached_tokens": "cache_read_tokens",
}
_TOTALS: Final = (
    "total_prompt_tokens",
    "total_completion_tokens",
    "total_cached_tokens",
    "total_cost_usd",
    "total_steps",
)
_OPENING_MAX: Final = 50
"""Steps that are searched for the first time."""
_ROLES: Final = {"system": "system", "user": "user", "agent": "assistant"}


class Document(msgspec.Struct):
    """A trajectory with undecoded steps."""

    members: Object
    steps: list[Raw]
    agents: dict[str, Document]
    """Sub-agents, by their trajectory id or the path in the reference."""

    @property
    def id(self) -> str:
        return self.text("trajectory_id")

    @property
    def agent(self) -> Object:
        return _as_object(self.members.get("agent"))

    @property
    def name(self) -> str:
        name = self.agent.get("name")
        return clean_name(name) if isinstance(name, str) and name else "agent"

    def text(self, key: str) -> str:
        value = self.members.get(key)
        return value if isinstance(value, str) else ""


class _Result(msgspec.Struct):
    """A result of an observation."""

    content: Any = None
    references: list[Object] = []
    extra: Any = None


class TrajectoryRecords:
    """Converts one trajectory, in order."""

    def __init__(
        self, document: Document, builder: RecordBuilder, problems: list[Problem], path: str
    ) -> None:
        self._document, self._builder = document, builder
        self._problems, self._path = problems, path
        self._used: set[int] = set()
        """Sub-agents that a reference has led to."""

    def records(self) -> Iterator[KnownRecord]:
        document, builder = self._document, self._builder
        builder.advance(self._find_begin())
        yield builder.open(
            builder.root_id,
            "run",
            document.name,
            component=document.name,
            attributes=self._run_attributes(),
            body=self._find_task() or None,
            conversation_id=document.text("session_id") or None,
        )
        last_text = yield from self._agent_records(document, builder.root_id, ())
        for number, inner in enumerate(document.agents.values()):
            if id(inner) not in self._used:
                yield from self._sub_agent(inner, builder.root_id, ("agent", str(number)))
        totals = _as_object(document.members.get("final_metrics"))
        attributes: Object = {
            f"final_metrics.{key}": totals[key]
            for key in _TOTALS
            if isinstance(totals.get(key), (int, float))
        }
        attributes |= flatten_extra("final_metrics.extra", totals.get("extra"))
        attributes["message_count"] = len(document.steps)
        yield builder.end_run(
            "ok", len(document.steps), attributes=attributes, body=last_text or None
        )

    def _run_attributes(self) -> Object:
        document = self._document
        agent = document.agent
        facts: Object = {
            "atif.version": document.text("schema_version"),
            "agent.version": agent.get("version"),
            "model": agent.get("model_name"),
            "trajectory_id": document.id,
            "notes": document.text("notes"),
            "continued_in": document.text("continued_trajectory_ref"),
        }
        facts |= flatten_extra("agent.extra", agent.get("extra"))
        facts |= flatten_extra("extra", document.members.get("extra"))
        return {key: value for key, value in facts.items() if value not in (None, "")}

    def _find_begin(self) -> int | None:
        """Return the first time of a step, also for the steps before it."""
        steps = islice(self._iter_steps(self._document), _OPENING_MAX)
        times = (parse_time_ns(step.get("timestamp")) for _, step in steps)
        return next((time for time in times if time is not None), None)

    def _find_task(self) -> str:
        for _, step in self._iter_steps(self._document):
            if step.get("source") == "user":
                return content_text(step.get("message"))
            if step.get("source") == "agent":
                break
        return ""

    def _iter_steps(self, document: Document) -> Iterator[tuple[int, Object]]:
        for index, raw in enumerate(document.steps):
            step = decode_object(raw)
            source = step.get("source")
            if isinstance(source, str) and source in _ROLES:
                yield index, step

    # --- one agent ------------------------------------------------------------------------------

    def _agent_records(
        self, document: Document, parent_id: str, place: tuple[str, ...]
    ) -> Generator[KnownRecord, None, str]:
        """Yield the records of an agent's steps; return its last text."""
        pending: list[Object] = []
        unanswered = False
        last_text = ""
        read = 0
        for index, step in self._iter_steps(document):
            read += 1
            self._builder.advance(parse_time_ns(step.get("timestamp")))
            source = step["source"]
            if source != "agent" or step.get("is_copied_context") is True:
                pending += _context_messages(step)
                unanswered = unanswered or source == "user"
                continue
            results = _results_by_call(step)
            calls = _calls(step)
            if step.get("llm_call_count") != 0:
                yield from self._model_call(document, parent_id, place, index, step, pending)
                pending, unanswered = [], False
                last_text = content_text(step.get("message")) or last_text
            for number, call in enumerate(calls):
                result = results.pop(call.id or "", None)
                if result is None and len(calls) == 1:
                    result = results.pop("", None)
                yield from self._tool(
                    document, parent_id, (*place, str(index), str(number)), index, call, result
                )
                pending.append(
                    {
                        "role": "tool",
                        "tool_call_id": call.id,
                        "content": to_openai_content(result.content if result else ""),
                    }
                )
            for result in results.values():
                yield from self._references(document, result, parent_id, (*place, str(index)))
                if result.content:
                    pending.append({"role": "user", "content": to_openai_content(result.content)})
                    unanswered = True
        if len(document.steps) != read:
            self._add_problem(document, len(document.steps) - read)
        if unanswered:
            yield from self._rest(parent_id, place, len(document.steps), pending)
        return truncate(last_text, BODY_INLINE_MAX)

    def _rest(
        self, parent_id: str, place: tuple[str, ...], count: int, pending: list[Object]
    ) -> Iterator[KnownRecord]:
        """Yield the messages after the last answer, as a step of the run's end."""
        builder = self._builder
        span_id = builder.span_id(*place, "rest", str(count))
        opened = builder.open(
            span_id,
            "step",
            "messages without an answer",
            component="user",
            parent_id=parent_id,
            attributes={"message_index": count - 1},
            body=encode_json({"messages": pending}),
        )
        closed = builder.close(span_id)
        if place:
            yield opened
            yield closed
        else:
            yield builder.move_to_end(opened, 3 * count)
            yield builder.move_to_end(closed, 3 * count + 1)

    def _model_call(
        self,
        document: Document,
        parent_id: str,
        place: tuple[str, ...],
        index: int,
        step: Object,
        pending: list[Object],
    ) -> Iterator[KnownRecord]:
        model = step.get("model_name") or document.agent.get("model_name")
        model = clean_name(model) if isinstance(model, str) and model else None
        attributes: Object = {"message_index": index}
        if model:
            attributes["model"] = model
        if isinstance(step.get("reasoning_effort"), (str, int, float)):
            attributes["reasoning_effort"] = step["reasoning_effort"]
        if isinstance(step.get("llm_call_count"), int):
            attributes["llm_call_count"] = step["llm_call_count"]
        attributes |= _metrics(step) | flatten_extra("extra", step.get("extra"))
        span_id = self._builder.span_id(*place, str(index), "answer")
        yield self._builder.open(
            span_id,
            "llm",
            document.name,
            component=document.name,
            parent_id=parent_id,
            attributes=attributes,
            body=render_request(pending, model),
        )
        thinking = step.get("reasoning_content")
        yield self._builder.close(
            span_id,
            body=render_response(
                to_openai_content(step.get("message")),
                _calls(step),
                thinking=thinking if isinstance(thinking, str) else "",
                model=model,
            ),
        )

    def _tool(
        self,
        document: Document,
        parent_id: str,
        place: tuple[str, ...],
        index: int,
        call: Call,
        result: _Result | None,
    ) -> Iterator[KnownRecord]:
        span_id = self._builder.span_id(*place, "tool")
        attributes: Object = {"message_index": index, "tool_name": call.name}
        if call.id:
            attributes["tool_call_id"] = call.id
        if result is not None:
            attributes |= flatten_extra("extra", result.extra)
        is_failed = attributes.pop("extra.is_error", None) is True
        yield self._builder.open(
            span_id,
            "tool",
            call.name,
            component="tools",
            parent_id=parent_id,
            attributes=attributes,
            body=call.arguments or None,
        )
        if result is not None:
            yield from self._references(document, result, span_id, place)
        text = None if result is None else content_text(result.content)
        yield self._builder.close(span_id, "error" if is_failed else "ok", body=text)

    # --- sub-agents -----------------------------------------------------------------------------

    def _references(
        self, document: Document, result: _Result, parent_id: str, place: tuple[str, ...]
    ) -> Iterator[KnownRecord]:
        for number, reference in enumerate(result.references):
            for key in ("trajectory_id", "trajectory_path", "session_id"):
                inner = document.agents.get(str(reference.get(key)))
                if inner is not None:
                    if id(inner) not in self._used:
                        inner_place = (*place, "agent", str(number))
                        yield from self._sub_agent(inner, parent_id, inner_place)
                    break

    def _sub_agent(
        self, inner: Document, parent_id: str, place: tuple[str, ...]
    ) -> Iterator[KnownRecord]:
        self._used.add(id(inner))
        span_id = self._builder.span_id(*place, "span")
        task = next(
            (
                content_text(step.get("message"))
                for _, step in self._iter_steps(inner)
                if step.get("source") == "user"
            ),
            None,
        )
        yield self._builder.open(
            span_id,
            "agent",
            inner.name,
            component=inner.name,
            parent_id=parent_id,
            attributes={"agent.name": inner.name, "trajectory_id": inner.id},
            body=task,
        )
        began_ns = self._builder.time_ns
        last_text = yield from self._agent_records(inner, span_id, place)
        for number, nested in enumerate(inner.agents.values()):
            if id(nested) not in self._used:
                yield from self._sub_agent(nested, span_id, (*place, "nested", str(number)))
        yield self._builder.close(
            span_id, body=last_text or None, duration_ns=self._builder.time_ns - began_ns
        )

    def _add_problem(self, document: Document, count: int) -> None:
        if len(self._problems) < PROBLEMS_MAX:
            message = f"{count} steps of {document.name} could not be read; skipped."
            self._problems.append(Problem(self._path, "steps", "step-unreadable", message))


def _context_messages(step: Object) -> list[Object]:
    """Return a step as messages of a request."""
    role = _ROLES[step["source"]]
    message: Object = {"role": role, "content": to_openai_content(step.get("message"))}
    if isinstance(step.get("reasoning_content"), str):
        message["reasoning_content"] = step["reasoning_content"]
    calls = _calls(step)
    if calls:
        message["tool_calls"] = to_tool_calls(calls)
    messages = [message]
    for call_id, result in _results_by_call(step).items():
        content = to_openai_content(result.content)
        if call_id and any(call.id == call_id for call in calls):
            messages.append({"role": "tool", "tool_call_id": call_id, "content": content})
        elif content:
            messages.append({"role": "user", "content": content})
    return messages


def _results_by_call(step: Object) -> dict[str, _Result]:
    """Return the results of a step by the id of their call. Those without an id have numbers."""
    found: dict[str, _Result] = {}
    for result in _as_objects(_as_object(step.get("observation")).get("results")):
        call_id = result.get("source_call_id")
        key = call_id if isinstance(call_id, str) and call_id else ""
        while key in found:
            key += "\0"
        found[key] = _Result(
            result.get("content"),
            _as_objects(result.get("subagent_trajectory_ref")),
            result.get("extra"),
        )
    return found


def _calls(step: Object) -> list[Call]:
    found = []
    for call in _as_objects(step.get("tool_calls")):
        name, call_id = call.get("function_name"), call.get("tool_call_id")
        arguments = call.get("arguments")
        found.append(
            Call(
                clean_name(call_id) if isinstance(call_id, str) and call_id else None,
                clean_name(name) if isinstance(name, str) and name else "tool",
                arguments if isinstance(arguments, str) else encode_json(arguments or {}),
            )
        )
    return found


def _metrics(step: Object) -> Object:
    metrics = _as_object(step.get("metrics"))
    found: Object = {}
    for theirs, ours in _METRICS.items():
        count = metrics.get(theirs)
        if type(count) is int and count >= 0:
            found[ours] = count
    cost = metrics.get("cost_usd")
    if isinstance(cost, (int, float)) and not isinstance(cost, bool) and cost >= 0:
        found["cost_usd"] = cost
    return found | flatten_extra("metrics.extra", metrics.get("extra"))


def _as_object(value: Any) -> Object:
    return value if isinstance(value, dict) else {}


def _as_objects(value: Any) -> list[Object]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
