"""AutoGen: teams, agents and tools. Its own spans have no inputs and outputs.

Agents are spans of its own, which opentelemetry.py records; their tasks and results are added.
"""

from __future__ import annotations

import functools
import inspect
from types import ModuleType
from typing import Any

from vestige.emit import context
from vestige.emit.generator_spans import Opened, recorded_async_generator
from vestige.emit.replayed_tools import restore_text
from vestige.integrations.failure_counts import guarded
from vestige.integrations.frameworks import opentelemetry
from vestige.integrations.frameworks.convert_values import to_plain
from vestige.integrations.frameworks.span_tracker import SpanTracker
from vestige.integrations.frameworks.wrapping import Call, Outcome, record_calls

_tracker = SpanTracker("autogen")


def install(module: ModuleType) -> None:
    """Wrap the tools. `module` is autogen_core.tools._base."""
    record_calls(_tracker, module.BaseTool, "run_json", _describe_tool, restore=restore_text)
    streaming = getattr(module, "BaseStreamTool", None)  # Agents and teams as tools.
    if streaming is not None:
        record_calls(_tracker, streaming, "run_json_stream", _describe_tool, _read_team)


def install_teams(module: ModuleType) -> None:
    """Wrap the teams. `module` is autogen_agentchat.teams._group_chat._base_group_chat."""
    record_calls(_tracker, module.BaseGroupChat, "run_stream", _describe_team, _read_team)


def install_agents(module: ModuleType) -> None:
    """Read what agents get and answer. `module` is autogen_agentchat.agents._base_chat_agent.

    Classes of agents override these methods, those of programs too.
    """
    base = module.BaseChatAgent
    inherited = vars(base).get("__init_subclass__")

    def initialize(cls: Any, /, **kwargs: Any) -> None:
        if inherited is None:
            super(base, cls).__init_subclass__(**kwargs)
        else:
            inherited.__get__(None, cls)(**kwargs)
        guarded(_wrap_agent)(cls)

    base.__init_subclass__ = classmethod(initialize)
    _wrap_agent(base)


def _wrap_agent(cls: Any) -> None:
    stream = vars(cls).get("on_messages_stream")
    if inspect.isasyncgenfunction(stream):
        cls.on_messages_stream = _wrap_stream(stream)
    answer = vars(cls).get("on_messages")
    if inspect.iscoroutinefunction(answer):
        cls.on_messages = _wrap_answer(answer)


def _wrap_stream(original: Any) -> Any:
    def open_generator(args: Any, kwargs: Any) -> Opened:
        key = opentelemetry.find_current_key()
        span = context.current() or opentelemetry.spans.get(key)
        assert span is not None
        finish = functools.partial(guarded(_add_response), key)
        return Opened(span, lambda error=None, *, status=None: None, finish, keep_last=True)

    recorded = recorded_async_generator(original, open_generator)

    @functools.wraps(original)
    def on_messages_stream(self: Any, *args: Any, **kwargs: Any) -> Any:
        is_agent = guarded(_add_task)(args, kwargs) is not None
        return (recorded if is_agent else original)(self, *args, **kwargs)

    return on_messages_stream


def _wrap_answer(original: Any) -> Any:
    @functools.wraps(original)
    async def on_messages(self: Any, *args: Any, **kwargs: Any) -> Any:
        key = guarded(_add_task)(args, kwargs)
        response = await original(self, *args, **kwargs)
        if key is not None:
            guarded(_add_response)(key, response)
        return response

    return on_messages


def _add_task(args: Any, kwargs: Any) -> Any:
    messages = kwargs.get("messages", args[0] if args else None) or ()
    texts = [(message.source, to_plain(message.content)) for message in messages]
    if len(texts) == 1:
        return opentelemetry.add_agent_task(texts[0][1])
    task = [{"source": source, "content": content} for source, content in texts]
    return opentelemetry.add_agent_task(task or None)


def _add_response(key: Any, response: Any) -> None:
    message = getattr(response, "chat_message", None)
    opentelemetry.add_agent_result(key, to_plain(getattr(message, "content", None)))


def _describe_tool(tool: Any, args: Any, kwargs: Any) -> Call:
    arguments = kwargs.get("args", args[0] if args else None)
    call_id = kwargs.get("call_id", args[2] if len(args) > 2 else None)
    return Call(str(tool.name), "tool", to_plain(dict(arguments or {})), call_id)


def _describe_team(team: Any, args: Any, kwargs: Any) -> Call:
    task = kwargs.get("task")
    return Call(str(getattr(team, "name", None) or type(team).__name__), "step", to_plain(task))


def _read_team(last: Any) -> Outcome:
    messages = getattr(last, "messages", None)
    return Outcome(to_plain(getattr(messages[-1], "content", None)) if messages else None)
