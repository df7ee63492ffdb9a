"""LangChain and LangGraph: agents, graph nodes, tools and retrievers.

A configure hook adds one callback handler to every run of LangChain. Model calls are not spans of
their own: the wire records them inside the node that makes them.
"""

from __future__ import annotations

import contextvars
import functools
from importlib import import_module
from types import ModuleType
from typing import Any

from vestige._runtime.import_hooks import when_imported
from vestige.emit.replayed_tools import STATE_RESULT, ReplayedResult, restore_text
from vestige.integrations.failure_counts import guarded
from vestige.integrations.frameworks.convert_values import find_text, to_plain
from vestige.integrations.frameworks.span_tracker import SpanTracker
from vestige.integrations.frameworks.tool_replay import is_replaying, replay_method

_PLUMBING = ("Runnable", "ChannelWrite", "ChannelRead", "ChatPromptTemplate", "PromptTemplate")
"""Names of the runs that only connect others."""
_HIDDEN = "langsmith:hidden"


def install(module: ModuleType) -> None:
    """Register the handler. `module` is langchain_core.tracers.context."""
    base = import_module("langchain_core.callbacks.base").BaseCallbackHandler
    handler = type("VestigeHandler", (_Events, base), {})()
    variable = contextvars.ContextVar("vestige_langchain", default=handler)
    module.register_configure_hook(variable, True)
    if is_replaying():
        when_imported("langchain_core.tools.base", _replay_tools)


def _replay_tools(module: ModuleType) -> None:
    """Wrap the functions of tools, which each class of tools defines, before their first call."""
    for name in ("run", "arun"):
        _wrap_methods_first(module.BaseTool, name)


def _wrap_methods_first(owner: type, name: str) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        for method in ("_run", "_arun"):
            replay_method(type(self), method, _restore)
        return original(self, *args, **kwargs)

    setattr(owner, name, run)


def _restore(found: ReplayedResult, args: Any, kwargs: Any) -> Any:
    """Return the content, and for tools that return an artifact as well, None for it."""
    content = restore_text(found)
    has_artifact = getattr(args[0], "response_format", "") == "content_and_artifact"
    return (content, None) if has_artifact else content


class _Events:
    """Callbacks of LangChain, which passes an id and the parent's id to each."""

    run_inline = True
    """Callbacks of async runs are called in the run's own context, not in another thread."""
    raise_error = False

    def __init__(self) -> None:
        self._spans = SpanTracker("langchain")

    # --- chains, graphs and nodes -----------------------------------------------------------------

    @guarded
    def on_chain_start(
        self,
        serialized: Any,
        inputs: Any,
        *,
        run_id: Any,
        parent_run_id: Any = None,
        tags: Any = None,
        metadata: Any = None,
        name: str | None = None,
        **_: Any,
    ) -> None:
        facts = metadata or {}
        name = name or (serialized or {}).get("name") or (serialized or {}).get("id", [""])[-1]
        is_node = any(tag.startswith("graph:step:") for tag in tags or ())
        is_agent = not is_node and (
            name == "AgentExecutor" or name == facts.get("lc_agent_name", 0)
        )
        is_plumbing = not name or name.startswith(_PLUMBING) or _HIDDEN in (tags or ())
        if not is_node and not is_agent and (parent_run_id is not None or is_plumbing):
            is_graph = "langgraph_node" in facts and facts.get("langgraph_node") != name
            if is_plumbing or is_graph or name == facts.get("langgraph_node"):
                self._spans.skip(run_id, parent_run_id)
                return
        if is_agent:
            attributes = {"agent_name": name, "conversation_id": facts.get("thread_id")}
            self._spans.start(
                run_id,
                name,
                "agent",
                parent=parent_run_id,
                body=find_text(inputs),
                attributes={key: value for key, value in attributes.items() if value is not None},
            )
            return
        body = find_text(inputs) if parent_run_id is None else None
        self._spans.start(run_id, str(name), parent=parent_run_id, body=body)

    @guarded
    def on_chain_end(self, outputs: Any, *, run_id: Any, **_: Any) -> None:
        span = self._spans.get(run_id)
        if span is not None:
            is_node = span.type == "step"
            self._spans.end(run_id, body=to_plain(outputs) if is_node else find_text(outputs))
        else:
            self._spans.end(run_id)

    @guarded
    def on_chain_error(self, error: BaseException, *, run_id: Any, **_: Any) -> None:
        if type(error).__name__ in ("GraphInterrupt", "ParentCommand", "NodeInterrupt"):
            self._spans.end(run_id, attributes={"interrupted_by": type(error).__name__})
            return  # A pause for a person, or a jump to another graph.
        self._spans.end(run_id, error=error)

    # --- tools and retrievers ---------------------------------------------------------------------

    @guarded
    def on_tool_start(
        self,
        serialized: Any,
        input_str: str,
        *,
        run_id: Any,
        parent_run_id: Any = None,
        inputs: Any = None,
        name: str | None = None,
        tool_call_id: str | None = None,
        **_: Any,
    ) -> None:
        self._spans.start(
            run_id,
            name or (serialized or {}).get("name") or "tool",
            "tool",
            parent=parent_run_id,
            body=to_plain(inputs) if inputs is not None else input_str,
            call_id=tool_call_id,
        )

    @guarded
    def on_tool_end(self, output: Any, *, run_id: Any, **_: Any) -> None:
        content = getattr(output, "content", output)
        failed = getattr(output, "status", None) == "error"
        is_state = hasattr(output, "goto") and hasattr(output, "update")  # a Command of LangGraph
        self._spans.end(
            run_id,
            body=to_plain(content),
            error=str(content) if failed else None,
            attributes={STATE_RESULT: True} if is_state else None,
        )

    @guarded
    def on_tool_error(self, error: BaseException, *, run_id: Any, **_: Any) -> None:
        self.on_chain_error(error, run_id=run_id)

    @guarded
    def on_retriever_start(
        self, serialized: Any, query: str, *, run_id: Any, parent_run_id: Any = None, **more: Any
    ) -> None:
        name = more.get("name") or (serialized or {}).get("name") or "retriever"
        self._spans.start(run_id, name, "retriever", parent=parent_run_id, body=query)

    @guarded
    def on_retriever_end(self, documents: Any, *, run_id: Any, **_: Any) -> None:
        self._spans.end(run_id, body=to_plain(documents))

    on_retriever_error = on_chain_error

    # --- models -----------------------------------------------------------------------------------

    @guarded
    def on_chat_model_start(
        self, serialized: Any, messages: Any, *, run_id: Any, parent_run_id: Any = None, **_: Any
    ) -> None:
        request = lambda: {"messages": to_plain(messages[0] if messages else [])}  # noqa: E731
        self._spans.start_model(run_id, parent_run_id, request)

    @guarded
    def on_llm_start(
        self, serialized: Any, prompts: Any, *, run_id: Any, parent_run_id: Any = None, **_: Any
    ) -> None:
        self._spans.start_model(run_id, parent_run_id, lambda: {"prompt": prompts})

    @guarded
    def on_llm_end(self, response: Any, *, run_id: Any, **_: Any) -> None:
        generations = getattr(response, "generations", None) or [[]]
        message = getattr(generations[0][0], "message", None) if generations[0] else None
        usage = getattr(message, "usage_metadata", None) or {}
        facts = getattr(message, "response_metadata", None) or {}
        self._spans.end_model(
            run_id,
            facts.get("model_name") or "chat",
            response=to_plain(message if message is not None else generations),
            attributes={
                "model": facts.get("model_name"),
                "input_tokens": usage.get("input_tokens"),
                "output_tokens": usage.get("output_tokens"),
            },
        )

    @guarded
    def on_llm_error(self, error: BaseException, *, run_id: Any, **_: Any) -> None:
        self._spans.end_model(run_id, "chat", error=error)
