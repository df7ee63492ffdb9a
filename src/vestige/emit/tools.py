"""Tool calls: spans of type `tool` that know which model call asked for them.

    @vestige.tool
    def search(q: str) -> list[str]: ...          # sync, async, generators

    for call in message.tool_calls:
        with vestige.tool_call(call):             # optional: says for which call it runs
            TOOLS[call.function.name](**json.loads(call.function.arguments))

A tool span carries `tool_name`, `tool_call_id`, the arguments (input) and the result (output),
and a link "asked by" to the model call. The id comes, first of these, from `tool_call`, from an
argument named `tool_call_id`, or from what the run's models asked for: the oldest unanswered
call of that name with equal arguments. Then `tool_call.matched` says that it was found so.

Elsewhere: what models asked for in emit/tool_attribution.py.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextvars import Token
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from vestige.emit import context, tool_attribution
from vestige.emit.no_op import NULL_SPAN, NullLogger
from vestige.emit.span import Span
from vestige.emit.tracing import recorded
from vestige.record.coercion import clean_name
from vestige.record.types import Link

F = TypeVar("F", bound=Callable[..., Any])

REASON = "asked by"
MATCHED = "tool_call.matched"
COMPONENT = "agent"
"""Of a tool that runs outside any span."""

_ID_FIELDS = ("call_id", "tool_call_id", "id")
"""Where a provider's call holds its id. OpenAI's responses have `call_id`, and an `id` of the item."""


class ToolCall:
    """Says for which call the tool in it runs. Tools that this tool calls are not meant."""

    __slots__ = ("_tokens", "id", "span")

    def __init__(self, call: Any) -> None:
        self.id = _id_of(call)
        self.span: Span | None = None
        """The tool that runs for it."""
        self._tokens: list[Token[ToolCall | None]] = []

    def take(self) -> str | None:
        """The id, for a tool that begins; None while another runs for it, which called this one."""
        return None if self.span is not None and not self.span.ended else self.id

    def __enter__(self) -> Self:
        self._tokens.append(context.CALL.set(self))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        context.leave_last(self._tokens)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)


def tool_call(call: Any) -> ToolCall:
    """For which call the tool inside runs: an id, or a provider's tool call (object or mapping)."""
    return ToolCall(call)


@overload
def tool(function: F, /) -> F: ...


@overload
def tool(
    label: str | None = None, /, *, name: str | None = None, capture: bool = True
) -> Callable[[F], F]: ...


def tool(function: Any = None, /, *, name: str | None = None, capture: bool = True) -> Any:
    """Record every call of a function as a tool call.

    `@tool`, `@tool("name")` or `@tool(name=..., capture=False)`. The name is the one that the
    model knows; by default the function's. With `capture`, arguments and result are kept.
    """
    if callable(function):
        return _tool(function, name, capture)
    return functools.partial(_tool, name=function or name, capture=capture)


def _tool(function: Callable[..., Any], name: str | None, capture: bool) -> Any:
    label = clean_name(name or getattr(function, "__name__", type(function).__name__))
    signature = _signature(function)

    def opened(args: Any, kwargs: Any) -> Span:
        arguments = _arguments(signature, args, kwargs)
        return open_tool(context.SPAN.get(), label, arguments, capture=capture)

    def finished(span: Span, result: Any) -> None:
        span.end(body=result if capture else None)

    return recorded(function, opened, finished, last_item=True)


def open_tool(
    parent: Span | None,
    name: str,
    arguments: Any = None,
    tool_call_id: str | None = None,
    *,
    capture: bool = True,
) -> Span:
    """A tool's span inside `parent`, or in the process's run, linked to who asked for it."""
    if parent is not None and parent.muted:
        return parent.child(name, "tool")
    if parent is None:
        logger = context.default().logger(COMPONENT)
        if isinstance(logger, NullLogger):
            return NULL_SPAN
        emitter, component = logger._emitter, COMPONENT
        run_id, parent_id = emitter.process_run_id, emitter.process_span_id
    else:
        emitter, component = parent._emitter, parent.component
        run_id, parent_id = parent.run_id, parent.id
        if parent.ended:
            emitter.fault("child of an ended span")
    call = context.CALL.get()
    if tool_call_id is None:
        tool_call_id = (call and call.take()) or _own_id(arguments)
    attributes, asker = _told(run_id, name, arguments, tool_call_id)
    links = None if asker is None else [Link(asker.span_id, None, REASON)]
    body = arguments if capture else None
    span = Span(emitter, run_id, parent_id, component, name, "tool", attributes, body, links)
    if call is not None and tool_call_id is not None and tool_call_id == call.id:
        call.span = span
    return span


def _told(
    run_id: str, name: str, arguments: Any, tool_call_id: str | None
) -> tuple[dict[str, Any], tool_attribution.RequestedCall | None]:
    """What the span says of its call, and who asked for it."""
    name = clean_name(name)
    attributes: dict[str, Any] = {"tool_name": name}
    if tool_call_id is not None:
        attributes["tool_call_id"] = clean_name(tool_call_id)
        return attributes, tool_attribution.find(run_id, tool_call_id)
    for said in _readings(arguments):
        asker = tool_attribution.find(run_id, name=name, arguments=said)
        if asker is not None:
            attributes[MATCHED] = "name and arguments"
            if asker.tool_call_id is not None:
                attributes["tool_call_id"] = asker.tool_call_id
            return attributes, asker
    return attributes, None


def _readings(arguments: Any) -> Iterator[Any]:
    """What the model may have written: the arguments; or the one that holds them all."""
    yield arguments
    if isinstance(arguments, dict) and len(arguments) == 1:
        (only,) = arguments.values()
        if isinstance(only, (Mapping, str)):
            yield only


# --- reading calls ------------------------------------------------------------------------------


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None  # some built-in functions have none


def _arguments(signature: inspect.Signature | None, args: Any, kwargs: Any) -> Any:
    """A call's arguments by name, as a model would have given them."""
    if signature is None:
        return {"args": args, "kwargs": kwargs} if args else dict(kwargs)
    try:
        named = signature.bind_partial(*args, **kwargs).arguments
    except TypeError:
        return {"args": args, "kwargs": kwargs}  # the call itself will say what is wrong
    found: dict[str, Any] = {}
    for key, value in named.items():
        if signature.parameters[key].kind is inspect.Parameter.VAR_KEYWORD:
            found.update(value)
        elif key not in ("self", "cls"):
            found[key] = value
    return found


def _own_id(arguments: Any) -> str | None:
    """The id of a tool that takes it as an argument."""
    if isinstance(arguments, dict):
        found = arguments.get("tool_call_id")
        if isinstance(found, str) and found:
            return found
    return None


def _id_of(call: Any) -> str | None:
    """A call's id, from whatever stands for the call."""
    if call is None or isinstance(call, (str, int)):
        return None if call in (None, "") else str(call)
    try:
        for name in _ID_FIELDS:
            found = call.get(name) if isinstance(call, Mapping) else getattr(call, name, None)
            if isinstance(found, str) and found:
                return found
    except Exception:  # noqa: BLE001  # the caller's object runs the caller's code
        pass  # then it runs for no call that we know of
    return None
