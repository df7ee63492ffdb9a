"""A run as a trajectory: answers are steps of the agent, other messages those of user or system.

Sub-agents become embedded trajectories, which the result of their tool refers to. A history that
a run began with is marked as copied context.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from vestige._version import __version__
from vestige.formats.atif.constants import EXTRA, WRITTEN_VERSION
from vestige.formats.protocol import RunToWrite
from vestige.formats.run_to_threads import MessageThread, Turn, read_threads, to_openai_tool
from vestige.providers.chat_types import ToolCall, ToolResult, Usage
from vestige.providers.prices import price
from vestige.record.run import SpanInfo

Object = dict[str, Any]

_SOURCES: Final = {"system": "system", "assistant": "agent"}


def run_to_trajectory(source: RunToWrite) -> Object:
    """Return the run as the JSON value of a trajectory."""
    return _TrajectoryWriter(source).trajectory()


class _TrajectoryWriter:
    def __init__(self, source: RunToWrite) -> None:
        self._source = source
        self._spans = {span.id: span for span in source.run.spans}
        self._threads: list[MessageThread] = []
        self._by_scope: dict[str, list[MessageThread]] = {}
        """Threads of sub-agents, by the id of their span."""
        for thread in read_threads(source):
            if thread.scope is None:
                self._threads.append(thread)
            else:
                self._by_scope.setdefault(thread.scope.id, []).append(thread)
        self._agents: dict[str, Object] = {}
        """Embedded trajectories, by the id of their span."""
        self._tokens: dict[str, int] = {}
        self._dollars: float | None = None

    def trajectory(self) -> Object:
        info = self._source.run.info
        root = next((span for span in self._source.run.spans if span.parent_id is None), None)
        for scope_id in self._by_scope:
            self._add_agent(scope_id)
        document = self._document(self._threads, info.name, info.id)
        document["session_id"] = info.conversation_id or info.id
        document["steps"] = self._complete(document["steps"], root)
        notes = "\n\n".join(note.text for note in self._source.notes)
        if notes:
            document["notes"] = notes
        document["final_metrics"] = self._final_metrics(len(document["steps"]))
        facts: Object = {"run_id": info.id, "name": info.name, "outcome": info.outcome}
        document["extra"] = {EXTRA: facts}
        if self._agents:
            document["subagent_trajectories"] = list(self._agents.values())
        return document

    def _document(self, threads: list[MessageThread], name: str, id: str) -> Object:
        agent: Object = {"name": (threads[0].agent if threads else name) or name}
        agent["version"] = _agent_version(self._source) or f"vestige {__version__}"
        model = next((thread.model for thread in threads if thread.model), None)
        if model:
            agent["model_name"] = model
        tools = [found for thread in threads[:1] for found in map(to_openai_tool, thread.tools)]
        if any(tools):
            agent["tool_definitions"] = [tool for tool in tools if tool is not None]
        return {
            "schema_version": WRITTEN_VERSION,
            "trajectory_id": id,
            "agent": agent,
            "steps": self._steps(threads),
        }

    def _complete(self, steps: list[Object], root: SpanInfo | None) -> list[Object]:
        """Return the steps, with the task and tools of a run without model calls."""
        task = self._text(root.input.id) if root is not None and root.input is not None else ""
        if not any(step["source"] == "user" for step in steps) and (task or not steps):
            started = self._source.run.info.started_ns
            steps = [_step("user", task or self._source.run.info.name, started), *steps]
        if not any(step["source"] == "agent" for step in steps):
            tools = [span for span in self._source.run.spans if span.type == "tool"]
            steps += [self._tool_step(span) for span in tools]
        for number, step in enumerate(steps, 1):
            step["step_id"] = number
        return steps

    def _tool_step(self, span: SpanInfo) -> Object:
        """Return a tool that no model call requested."""
        call_id = span.attributes.get("tool_call_id")
        call = ToolCall(
            id=call_id if isinstance(call_id, str) else span.id,
            name=str(span.attributes.get("tool_name") or span.name),
            arguments=self._text(span.input.id) if span.input is not None else "",
        )
        step = _step("agent", "", span.started_ns)
        step["llm_call_count"] = 0
        step["tool_calls"] = [_call(call)]
        if span.output is not None:
            result = ToolResult(
                call_id=call.id, text=self._text(span.output.id), is_error=span.status != "ok"
            )
            step["observation"] = {"results": [_result(result, call.id)]}
        return step

    def _text(self, body_id: int | None) -> str:
        if body_id is None:
            return ""
        return self._source.read_body(body_id).decode(errors="replace")

    # --- steps ----------------------------------------------------------------------------------

    def _steps(self, threads: list[MessageThread]) -> list[Object]:
        steps: list[Object] = []
        earlier: set[tuple[str, str]] = set()
        for thread in threads:
            for turn in thread.turns:
                # Other threads of an agent repeat the system prompt, the task and answers.
                if turn.span is None and (turn.role, turn.text) in earlier:
                    continue
                if turn.role == "assistant":
                    steps.append(self._agent_step(turn))
                    continue
                if turn.results:
                    _add_results(steps, turn)
                if turn.text or turn.media or not turn.results:
                    source = _SOURCES.get(turn.role, "user")
                    steps.append(_step(source, _message(turn), turn.time_ns))
            earlier |= {(turn.role, turn.text) for turn in thread.turns if turn.text}
        for number, step in enumerate(steps, 1):
            step["step_id"] = number
        return steps

    def _agent_step(self, turn: Turn) -> Object:
        step = _step("agent", _message(turn), turn.time_ns)
        if turn.span is None:
            step["is_copied_context"] = True
        if turn.thinking:
            step["reasoning_content"] = turn.thinking
        if turn.calls:
            step["tool_calls"] = [_call(call) for call in turn.calls]
        if turn.span is not None:
            model = turn.span.attributes.get("model")
            if isinstance(model, str):
                step["model_name"] = model
            metrics = self._metrics(turn.span)
            if metrics:
                step["metrics"] = metrics
        references = {
            call_id: self._reference(span)
            for call_id, span in turn.tool_spans.items()
            if self._find_agent(span) is not None
        }
        if references:
            step["observation"] = {
                "results": [
                    {"source_call_id": call_id, "subagent_trajectory_ref": [reference]}
                    for call_id, reference in references.items()
                ]
            }
        return step

    def _metrics(self, span: SpanInfo) -> Object:
        names = {
            "prompt_tokens": "input_tokens",
            "completion_tokens": "output_tokens",
            "cached_tokens": "cache_read_tokens",
        }
        found: Object = {}
        for theirs, ours in names.items():
            count = span.attributes.get(ours)
            if type(count) is int:
                found[theirs] = count
                self._tokens[theirs] = self._tokens.get(theirs, 0) + count
        cost = self._cost(span)
        if cost is not None:
            found["cost_usd"] = cost
            self._dollars = (self._dollars or 0.0) + cost
        return found

    def _cost(self, span: SpanInfo) -> float | None:
        """Return the recorded cost, or the price of the tokens."""
        facts = span.attributes
        recorded, model = facts.get("cost_usd"), facts.get("model")
        if isinstance(recorded, (int, float)) and not isinstance(recorded, bool):
            return float(recorded)
        counts = [facts.get(key) for key in ("input_tokens", "output_tokens")]
        if not isinstance(model, str) or not all(type(count) is int for count in counts):
            return None
        read, written = (facts.get(f"cache_{kind}_tokens") for kind in ("read", "write"))
        usage = Usage(
            input_tokens=counts[0],  # type: ignore[arg-type]  # checked by its exact type
            output_tokens=counts[1],  # type: ignore[arg-type]
            cache_read_tokens=read if type(read) is int else None,
            cache_write_tokens=written if type(written) is int else None,
        )
        provider = facts.get("provider")
        own = self._source.prices
        return price(model, provider if isinstance(provider, str) else None, usage, own=own)

    def _final_metrics(self, count: int) -> Object:
        totals: Object = {f"total_{name}": value for name, value in self._tokens.items()}
        if self._dollars is not None:
            totals["total_cost_usd"] = round(self._dollars, 10)
        return totals | {"total_steps": count}

    # --- sub-agents -----------------------------------------------------------------------------

    def _add_agent(self, scope_id: str) -> None:
        threads = self._by_scope[scope_id]
        scope = self._spans[scope_id]
        document = self._document(threads, scope.name, f"{self._source.run.info.id}/{scope_id}")
        if document["steps"]:
            self._agents[scope_id] = document

    def _find_agent(self, span: SpanInfo) -> str | None:
        """Return the span id of the sub-agent that a tool ran: its own, or that of a child."""
        if span.id in self._by_scope:
            return span.id
        for scope_id in self._by_scope:
            if self._spans[scope_id].parent_id == span.id:
                return scope_id
        return None

    def _reference(self, span: SpanInfo) -> Object:
        return {"trajectory_id": f"{self._source.run.info.id}/{self._find_agent(span)}"}


def _step(source: str, message: str, time_ns: int) -> Object:
    moment = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).replace(
        microsecond=time_ns // 1_000 % 1_000_000
    )
    timestamp = moment.isoformat().replace("+00:00", "Z")
    return {"step_id": 0, "timestamp": timestamp, "source": source, "message": message}


def _message(turn: Turn) -> str:
    return "\n".join([*filter(None, [turn.text]), *(f"[{media}]" for media in turn.media)])


def _call(call: ToolCall) -> Object:
    arguments: Any = None
    try:
        arguments = msgspec.json.decode(call.arguments or "{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        arguments = call.arguments
    if not isinstance(arguments, dict):
        arguments = {"input": arguments}
    return {
        "tool_call_id": call.id or call.name,
        "function_name": call.name,
        "arguments": arguments,
    }


def _add_results(steps: list[Object], turn: Turn) -> None:
    """Add the results to the observation of the step whose calls they answer."""
    owner = next((step for step in reversed(steps) if step["source"] == "agent"), None)
    if owner is None:
        text = "\n".join(result.text for result in turn.results)
        steps.append(_step("user", text, turn.time_ns))
        return
    call_ids = {call["tool_call_id"] for call in owner.get("tool_calls", ())}
    results = owner.setdefault("observation", {"results": []})["results"]
    for result in turn.results:
        call_id = result.call_id if result.call_id in call_ids else None
        written = _result(result, call_id)
        known = next(
            (each for each in results if call_id and each.get("source_call_id") == call_id), None
        )
        if known is not None:
            known.update(written | known)
        else:
            results.append(written)


def _result(result: ToolResult, call_id: str | None) -> Object:
    written: Object = {"content": result.text}
    if call_id is not None:
        written["source_call_id"] = call_id
    if result.is_error:
        written["extra"] = {"is_error": True}
    return written


def _agent_version(source: RunToWrite) -> str:
    """Return the version of the agent, if the run was imported with one."""
    root = next((span for span in source.run.spans if span.parent_id is None), None)
    version = root.attributes.get("agent.version") if root is not None else None
    return version if isinstance(version, str) else ""
