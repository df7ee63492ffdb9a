"""Tool calls: spans of type `tool`, linked to the model call that requested them.

    @vestige.tool
    def search(q: str) -> list[str]: ...          # sync, async, generators

    for call in message.tool_calls:
        with vestige.tool_call(call):             # optional: names the requested call
            TOOLS[call.function.name](**json.loads(call.function.arguments))

A tool span has `tool_name`, `tool_call_id`, the arguments (input) and the result (output), and a
link "asked by" to the model call. The id comes from `tool_call`, else from an argument named
`tool_call_id`, else from the run's requested calls: the oldest unanswered one of that name with
equal arguments. In the last case the span also has `tool_call.matched`.

Elsewhere: requested calls are in emit/requested_tool_calls.py.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from vestige.emit import context, replayed_tools, requested_tool_calls
from vestige.emit.no_op import NULL_SPAN, NullLogger
from vestige.emit.span import OpeningDetails, Span
from vestige.emit.tracing import recorded
from vestige.record.coercion import clean_name
from vestige.record.types import Link

if TYPE_CHECKING:
    from typing import Self

F = TypeVar("F", bound=Callable[..., Any])

REASON = "asked by"
MATCHED = "tool_call.matched"
COMPONENT = "agent"
"""The component of a tool that runs outside any span."""

_ID_FIELDS = ("call_id", "tool_call_id", "id")
"""Fields of a provider's call that may contain its id, in order of preference.

OpenAI's Responses API has `call_id`, and an `id` of the output item.
"""


class ToolCall:
    """The call that the tool inside runs for. It does not apply to tools that this tool calls."""

    __slots__ = ("_tokens", "id", "span")

    def __init__(self, call: Any) -> None:
        self.id = _id_of(call)
        self.span: Span | None = None
        """The tool span that runs for this call."""
        self._tokens: list[Token[ToolCall | None]] = []

    def claim_id(self) -> str | None:
        """Return the id for a tool that begins, or None if a tool already runs for this call."""
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
    """Set the call that the tool inside runs for: an id, or a provider's tool call."""
    return ToolCall(call)


@overload
def tool(function: F, /) -> F: ...


@overload
def tool(
    label: str | None = None, /, *, name: str | None = None, capture: bool = True
) -> Callable[[F], F]: ...


def tool(function: Any = None, /, *, name: str | None = None, capture: bool = True) -> Any:
    """Record every call of a function as a tool call.

    `@tool`, `@tool("name")` or `@tool(name=..., capture=False)`. `name` is the tool's name in the
    model's requests (default: the function's name). With `capture`, arguments and result are kept.
    """
    if callable(function):
        return _tool(function, name, capture)
    return functools.partial(_tool, name=function or name, capture=capture)


def _tool(function: Callable[..., Any], name: str | None, capture: bool) -> Any:
    label = clean_name(name or getattr(function, "__name__", type(function).__name__))
    signature = _signature(function)

    def open_span(args: Any, kwargs: Any) -> Span:
        arguments = _arguments(signature, args, kwargs)
        return open_tool(context.current(), label, arguments, capture=capture)

    def finish(span: Span, result: Any) -> None:
        if not capture:
            span.end()
            return
        is_text = replayed_tools.reads_like_json(result)
        span.end(attributes={replayed_tools.TEXT_RESULT: True} if is_text else None, body=result)

    if replayed_tools.player is not None:
        function = replayed_tools.replayed(function)
    return recorded(function, open_span, finish, last_item=True)


def open_tool(
    parent: Span | None,
    name: str,
    arguments: Any = None,
    tool_call_id: str | None = None,
    *,
    capture: bool = True,
    type: str = "tool",
) -> Span:
    """Open a tool span inside `parent` or the process's run, linked to the model call."""
    if parent is not None and parent.muted:
        return parent.child(name, type)
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
        tool_call_id = (call and call.claim_id()) or _id_argument(arguments)
    attributes, request = _find_request(run_id, name, arguments, tool_call_id)
    links = None if request is None else [Link(request.span_id, None, REASON)]
    body = arguments if capture else None
    span = Span(emitter, run_id, parent_id, component, name, type, attributes, body, links)
    if call is not None and tool_call_id is not None and tool_call_id == call.id:
        call.span = span
    if replayed_tools.player is not None:
        found_id = attributes.get("tool_call_id")
        replayed_tools.note(span, attributes["tool_name"], arguments, found_id)
    return span


def describe_request(
    run_id: str, name: str, arguments: Any, tool_call_id: str | None
) -> OpeningDetails:
    """Return the attributes and the link of a tool span whose arguments were not known before."""
    attributes, request = _find_request(run_id, name, arguments, tool_call_id)
    links = None if request is None else [Link(request.span_id, None, REASON)]
    return OpeningDetails(attributes, links)


def _find_request(
    run_id: str, name: str, arguments: Any, tool_call_id: str | None
) -> tuple[dict[str, Any], requested_tool_calls.RequestedCall | None]:
    """Return the attributes of a tool span, and the request that it answers."""
    name = clean_name(name)
    attributes: dict[str, Any] = {"tool_name": name}
    if tool_call_id is not None:
        attributes["tool_call_id"] = clean_name(tool_call_id)
        return attributes, requested_tool_calls.find(run_id, tool_call_id)
    for candidate in _possible_arguments(arguments):
        request = requested_tool_calls.find(run_id, name=name, arguments=candidate)
        if request is not None:
            attributes[MATCHED] = "name and arguments"
            if request.tool_call_id is not None:
                attributes["tool_call_id"] = request.tool_call_id
            return attributes, request
    return attributes, None


def _possible_arguments(arguments: Any) -> Iterator[Any]:
    """Iterate what the model may have sent: the arguments, or a single one that contains them."""
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
        return None  # Some built-in functions have no signature.


def _arguments(signature: inspect.Signature | None, args: Any, kwargs: Any) -> Any:
    """Return the arguments of a call by name, as a model writes them."""
    if signature is None:
        return {"args": args, "kwargs": kwargs} if args else dict(kwargs)
    try:
        named = signature.bind_partial(*args, **kwargs).arguments
    except TypeError:
        return {"args": args, "kwargs": kwargs}  # The call itself will raise.
    found: dict[str, Any] = {}
    for key, value in named.items():
        if signature.parameters[key].kind is inspect.Parameter.VAR_KEYWORD:
            found.update(value)
        elif key not in ("self", "cls"):
            found[key] = value
    return found


def _id_argument(arguments: Any) -> str | None:
    """Return the value of an argument named `tool_call_id`."""
    if isinstance(arguments, dict):
        found = arguments.get("tool_call_id")
        if isinstance(found, str) and found:
            return found
    return None


def _id_of(call: Any) -> str | None:
    """Return the id of a call: an id itself, or a provider's object or mapping."""
    if call is None or isinstance(call, (str, int)):
        return None if call in (None, "") else str(call)
    try:
        for name in _ID_FIELDS:
            found = call.get(name) if isinstance(call, Mapping) else getattr(call, name, None)
            if isinstance(found, str) and found:
                return found
    except Exception:  # noqa: BLE001  # the caller's object runs the caller's code
        pass  # The id is unknown.
    return None
