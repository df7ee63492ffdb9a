"""LlamaIndex: agents, workflow steps, tools and retrievers, by a span handler of its dispatcher."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from vestige.integrations.failure_counts import guarded
from vestige.integrations.frameworks.convert_values import to_plain
from vestige.integrations.frameworks.span_tracker import SpanTracker

_TOOL_METHODS = ("call", "acall")
_RETRIEVER_METHODS = ("retrieve", "aretrieve")
_MODEL_METHODS = frozenset(
    f"{prefix}{name}"
    for name in ("chat", "complete", "predict", "chat_with_tools", "predict_and_call")
    for prefix in ("", "a")
)
"""Methods that return when the model has answered."""
_STEP_METHODS = ("query", "aquery", "synthesize", "asynthesize", "postprocess_nodes", "run")
_PLUMBING = ("init_run", "setup_agent", "aggregate_tool_results", "parse_agent_output")
"""Steps of the built-in agents that only pass events on."""
_HANDOFF = "handoff"
"""The tool by which agents of an AgentWorkflow pass the conversation on."""


def install(module: ModuleType) -> None:
    """Add the handler to the root. `module` is llama_index_instrumentation."""
    span_class = import_module("llama_index_instrumentation.span.simple").SimpleSpan
    base = import_module("llama_index_instrumentation.span_handlers").BaseSpanHandler[span_class]
    events = _Events()

    class Handler(base):  # type: ignore[misc, valid-type]  # known at run time only
        @classmethod
        def class_name(cls) -> str:
            return "VestigeSpanHandler"

        def span_enter(self, id_: str, *args: Any, **kwargs: Any) -> None:
            events.enter(id_, *args, **kwargs)

        def span_exit(self, id_: str, *args: Any, **kwargs: Any) -> None:
            events.exit(id_, kwargs.get("result"))

        def span_drop(self, id_: str, *args: Any, **kwargs: Any) -> None:
            events.exit(id_, None, kwargs.get("err"))

        def new_span(self, *args: Any, **kwargs: Any) -> None:
            """Do nothing: the spans are ours."""

        prepare_to_exit_span = prepare_to_drop_span = new_span

    module.get_dispatcher().add_span_handler(Handler())


class _Events:
    def __init__(self) -> None:
        self._spans = SpanTracker("llama-index")
        self._kinds: dict[str, str] = {}
        """The kind of each running workflow, by the key of its `run`."""
        self._current_agents: dict[str, str] = {}
        """The agent that works in each AgentWorkflow."""
        self._call_ids: dict[str, str] = {}
        """The id of the call that a step executes, by the key of the step."""
        self._turn_of: dict[str, tuple[str, str]] = {}
        """The key of the agent's span, by the key of a step inside."""

    @guarded
    def enter(
        self,
        key: str,
        bound_args: Any = None,
        instance: Any = None,
        parent_id: str | None = None,
        **_: Any,
    ) -> None:
        owner, _dot, method = key[: key.rfind("-", 0, -28)].rpartition(".")
        arguments = dict(getattr(bound_args, "arguments", None) or {})
        base = _base_of(instance)
        if base == "llm" or method in _MODEL_METHODS:
            if method in _MODEL_METHODS:
                self._spans.start_model(key, parent_id)
            self._spans.skip(key, parent_id)
        elif base == "tool" and method in _TOOL_METHODS:
            self._start_tool(key, str(instance.metadata.name), arguments, parent_id)
        elif base and method == "run":
            name = str(getattr(instance, "name", None) or owner)
            self._start_run(key, base, name, arguments, parent_id)
        elif base == "retriever" and method in _RETRIEVER_METHODS:
            query = arguments.get("str_or_query_bundle")
            body = getattr(query, "query_str", query)
            self._spans.start(key, owner, "retriever", parent=parent_id, body=body)
        elif parent_id in self._kinds:
            self._enter_step(key, method, arguments.get("ev"), parent_id)
        elif method in _STEP_METHODS:
            self._spans.start(key, f"{owner}.{method}", parent=parent_id)
        else:
            self._spans.skip(key, parent_id)

    def _start_run(
        self, key: str, base: str, name: str, arguments: dict[str, Any], parent_id: str | None
    ) -> None:
        """Open the span of an agent, of a team or of the program's own workflow."""
        # The work runs in tasks that have copied the context of this call.
        event = arguments.get("start_event")
        body = to_plain(arguments.get("user_msg") or getattr(event, "user_msg", None))
        facts = {"agent_name": name} if base == "agent" else None
        type_ = "agent" if base == "agent" else "step"
        span = self._spans.start(key, name, type_, parent=parent_id, body=body, attributes=facts)
        if span is not None:
            self._kinds[key] = base

    def _enter_step(self, key: str, method: str, event: Any, run: str) -> None:
        """Open a step of the program's own workflow. Steps of agents are not shown."""
        kind = self._kinds[run]
        if kind == "workflow":
            self._spans.start(key, method, parent=run)
            return
        call_id = getattr(event, "tool_id", None)
        if call_id:
            self._call_ids[key] = str(call_id)
        agent = getattr(event, "current_agent_name", None)
        if kind == "team" and agent and self._current_agents.get(run) != agent:
            self._start_turn(run, str(agent))
        turn = (run, "turn")
        if turn in self._spans:
            self._spans.skip(key, turn)
            self._spans.enter(turn)
            self._turn_of[key] = turn
        else:
            self._spans.skip(key, run)

    def _start_turn(self, run: str, agent: str) -> None:
        """Let the next steps of an AgentWorkflow belong to an agent."""
        turn = (run, "turn")
        self._spans.end(turn)
        facts = {"agent_name": agent}
        self._spans.start(turn, agent, "agent", parent=run, attributes=facts, ambient=False)
        self._current_agents[run] = agent

    def _start_tool(
        self, key: str, name: str, arguments: dict[str, Any], parent_id: str | None
    ) -> None:
        values = {**(arguments.pop("kwargs", None) or {}), **arguments}
        values.pop("args", None)
        values.pop("ctx", None)
        call_id = self._call_ids.get(parent_id or "")
        type_ = "tool"
        if name == _HANDOFF and "to_agent" in values:
            name, type_ = str(values["to_agent"]), "handoff"
        body = to_plain(values)
        self._spans.start(key, name, type_, parent=parent_id, body=body, call_id=call_id)

    @guarded
    def exit(self, key: str, result: Any, error: Any = None) -> None:
        self._call_ids.pop(key, None)
        if key in self._turn_of:
            self._spans.leave(self._turn_of.pop(key))
        if self._kinds.pop(key, None) == "team":
            self._current_agents.pop(key, None)
            self._spans.end((key, "turn"), error=error)
        span = self._spans.get(key)
        if span is None:
            if not hasattr(result, "__aiter__") and not hasattr(result, "__next__"):
                # A stream sends its request later.
                self._spans.end_model(key, "llm", response=to_plain(result), error=error)
            self._spans.end(key)
        elif span.type in ("tool", "handoff"):
            failed = getattr(result, "is_error", False) is True
            raised = getattr(result, "exception", None)
            text = getattr(result, "content", None)
            failure = error or raised or (text if failed else None)
            self._spans.end(key, body=text if text is not None else to_plain(result), error=failure)
        elif span.type == "agent":
            self._spans.end(key, body=None if result is None else str(result), error=error)
        else:
            self._spans.end(key, error=error)


def _base_of(instance: Any) -> str:
    """Return the kind of an object by the names of its base classes."""
    names = {base.__name__ for base in type(instance).__mro__}
    for kind, name in (
        ("agent", "BaseWorkflowAgent"),
        ("team", "AgentWorkflow"),
        ("workflow", "Workflow"),
        ("llm", "BaseLLM"),
        ("tool", "BaseTool"),
        ("tool", "AsyncBaseTool"),
        ("retriever", "BaseRetriever"),
    ):
        if name in names:
            return kind
    return ""
