"""Record the arguments of SDK calls, next to the HTTP requests that they cause.

    client = vestige.instrument_openai(OpenAI())       # or AsyncOpenAI
    client = vestige.instrument_anthropic(Anthropic())
    vestige.uninstrument(client)

Each call becomes a step whose input body is the JSON of the arguments that the program
passed. The recorded HTTP call is a child of that step, so `vestige diff SPAN --before-after`
shows what the SDK, or a wrapper around its HTTP client, changed.

The SDK does not change: the same client, return values, streams and exceptions. Only bound
methods of this client are wrapped, and those of the copies that it makes of itself
(`with_options`). A failure of Vestige is counted (`recorder.faults`) and never raised.

The step ends when the SDK returns; a returned stream continues in the HTTP call's span.
No SDK is imported here: the methods that a client has are wrapped.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeVar

from vestige.emit import context, requested_tool_calls
from vestige.emit.span import Span
from vestige.integrations.failure_counts import record_fault
from vestige.limits import BODY_NODES_MAX, NESTING_MAX

Client = TypeVar("Client")
OpenStep = Callable[[], "Span | None"]

_METHODS = ("create", "parse", "stream")
_RESOURCES = {
    "openai": ("chat.completions", "responses"),
    "anthropic": ("messages", "beta.messages"),
}
_COPIES = ("copy", "with_options")
_CACHED = ("with_raw_response", "with_streaming_response")
"""Wrappers that a resource caches; they must be rebuilt when its methods change."""

_TRANSPORT = ("extra_headers", "extra_query", "timeout")
"""Arguments that are not part of the request's body: recorded as attributes."""

_SDK_HEADER_PREFIX = "x-stainless"
"""Headers that the SDK's helpers add, not the program."""

_open_steps: set[str] = set()
"""Ids of open steps: a helper that calls another wrapped method is one call."""


def instrument_openai(client: Client) -> Client:
    """Record the calls of this `OpenAI` or `AsyncOpenAI` client. Returns the client."""
    return _instrument(client, "openai")


def instrument_anthropic(client: Client) -> Client:
    """Record the calls of this `Anthropic` or `AsyncAnthropic` client. Returns the client."""
    return _instrument(client, "anthropic")


def uninstrument(client: Client) -> Client:
    """Restore a client. Copies that it made in the meantime stay instrumented."""
    try:
        for path in (path for paths in _RESOURCES.values() for path in paths):
            resource = _find_resource(client, path)
            if resource is not None:
                _unwrap(resource, _METHODS)
        _unwrap(client, _COPIES)
    except Exception as error:  # noqa: BLE001  # a client of any kind
        record_fault("uninstrument", error)
    return client


# --- wrapping -----------------------------------------------------------------------------------


def _instrument(client: Client, provider: str) -> Client:
    try:
        found = False
        for path in _RESOURCES[provider]:
            resource = _find_resource(client, path)
            for name in _METHODS if resource is not None else ():
                original = getattr(resource, name, None)
                if callable(original):
                    found = True
                    _wrap(
                        resource,
                        name,
                        original,
                        _call_wrapper(original, provider, f"{path}.{name}"),
                    )
        if not found:
            raise TypeError(f"{type(client).__name__} has none of {provider}'s methods")
        for name in _COPIES:
            original = getattr(client, name, None)
            if callable(original):
                _wrap(client, name, original, _copy_wrapper(original, provider))
    except Exception as error:  # noqa: BLE001  # a client of any kind
        record_fault(f"instrument_{provider}", error)
    return client


def _find_resource(client: Any, path: str) -> Any:
    found = client
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _wrap(owner: Any, name: str, original: Any, wrapper: Callable[..., Any]) -> None:
    """Replace a method, unless it is wrapped already."""
    if not getattr(original, "_vestige", False):
        functools.update_wrapper(wrapper, original)
        wrapper._vestige = True  # type: ignore[attr-defined]  # marks our wrapper
        setattr(owner, name, wrapper)
        _clear_cached(owner)


def _unwrap(owner: Any, names: tuple[str, ...]) -> None:
    for name in names:
        if getattr(vars(owner).get(name), "_vestige", False):
            delattr(owner, name)
    _clear_cached(owner)


def _clear_cached(owner: Any) -> None:
    for name in _CACHED:
        vars(owner).pop(name, None)


def _copy_wrapper(original: Callable[..., Any], provider: str) -> Callable[..., Any]:
    def copy(*args: Any, **kwargs: Any) -> Any:
        return _instrument(original(*args, **kwargs), provider)

    return copy


def _call_wrapper(original: Callable[..., Any], provider: str, name: str) -> Callable[..., Any]:
    is_stream = name.endswith(".stream")
    is_async = inspect.iscoroutinefunction(inspect.unwrap(original))

    def call(*args: Any, **kwargs: Any) -> Any:
        open_step = functools.partial(_open_step, provider, name, args, kwargs)
        if is_stream:
            return _record_stream(original(*args, **kwargs), open_step)
        if is_async:
            return _record_async(original(*args, **kwargs), open_step)
        return _record_call(functools.partial(original, *args, **kwargs), open_step)

    async def call_async(*args: Any, **kwargs: Any) -> Any:
        return await call(*args, **kwargs)

    # Frameworks test `iscoroutinefunction` before a call: the result must not change.
    return call_async if inspect.iscoroutinefunction(original) else call


def _record_call(request: Callable[[], Any], open_step: OpenStep) -> Any:
    step = open_step()
    if step is None:
        return request()
    try:
        with step:
            result = request()
            _register_tool_calls(step, result)
            return result
    finally:
        _open_steps.discard(step.id)


async def _record_async(request: Awaitable[Any], open_step: OpenStep) -> Any:
    step = open_step()
    if step is None:
        return await request
    try:
        with step:
            result = await request
            _register_tool_calls(step, result)
            return result
    finally:
        _open_steps.discard(step.id)


def _record_stream(manager: Any, open_step: OpenStep) -> Any:
    """Wrap a stream helper, which sends its request when the `with` block is entered."""
    try:
        name = next(name for name in vars(manager) if name.endswith("__api_request"))
        request = vars(manager)[name]
        if inspect.isawaitable(request):
            vars(manager)[name] = _record_async(request, open_step)
        else:
            vars(manager)[name] = functools.partial(_record_call, request, open_step)
    except Exception as error:  # noqa: BLE001  # an unknown helper works, but is not recorded
        record_fault("stream helper", error)
    return manager


# --- the step -----------------------------------------------------------------------------------


def _open_step(provider: str, name: str, args: Any, kwargs: Mapping[str, Any]) -> Span | None:
    """Open the step of a call; None if the call is not to be recorded."""
    try:
        parent = context.current()
        if parent is not None and (parent.muted or parent.id in _open_steps):
            return None
        attributes, body = _split_arguments(args, kwargs)
        attributes["provider"] = provider
        opener = parent if parent is not None else context.default().logger("agent")
        step = opener.span(f"{provider} {name}", "step", attributes, body)
        if step.muted:
            return None
        _open_steps.add(step.id)
        return step
    except Exception as error:  # noqa: BLE001  # reading arguments may run the program's code
        record_fault("before body", error)
        return None


def _split_arguments(args: Any, kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a call's arguments into attributes of the transport and the request's body."""
    attributes: dict[str, Any] = {}
    body: dict[str, Any] = {"args": args} if args else {}
    left = [BODY_NODES_MAX]
    for key, value in kwargs.items():
        if type(value).__name__ in ("NotGiven", "Omit"):
            continue
        if key not in _TRANSPORT:
            body[key] = _plain(value, NESTING_MAX, left)
        elif value is not None:
            if key == "extra_headers" and isinstance(value, Mapping):
                value = {
                    header: text
                    for header, text in value.items()
                    if not str(header).lower().startswith(_SDK_HEADER_PREFIX)
                }
            if value != {}:
                attributes[key] = value
    return attributes, body


def _plain(value: Any, depth: int, left: list[int]) -> Any:
    """Convert SDK objects, such as a message of an earlier answer, to what the SDK sends."""
    left[0] -= 1
    if depth == 0 or left[0] < 0 or isinstance(value, (str, int, float, bytes, type(None))):
        return value
    if isinstance(value, dict):
        return {key: _plain(item, depth - 1, left) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, depth - 1, left) for item in value]
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        exclude = getattr(value, "__api_exclude__", None)
        return dump(exclude_unset=True, mode="json", exclude=exclude)
    return value


def _register_tool_calls(step: Span, result: Any) -> None:
    """Register the tool calls of an answer, unless the HTTP call in the step has done so."""
    try:
        for call_id, name, arguments in _iter_tool_calls(result):
            if not requested_tool_calls.was_requested_within(step, call_id):
                requested_tool_calls.remember(step.run_id, call_id, name, arguments, step)
    except Exception as error:  # noqa: BLE001  # the SDK may return any object
        record_fault("tool calls of an answer", error)


def _iter_tool_calls(result: Any) -> Iterator[tuple[str, str, Any]]:
    for choice in getattr(result, "choices", None) or ():
        message = getattr(choice, "message", None)
        for call in getattr(message, "tool_calls", None) or ():
            if getattr(call, "function", None) is not None:
                yield call.id, call.function.name, call.function.arguments
    for item in getattr(result, "output", None) or ():
        if getattr(item, "type", None) == "function_call":
            yield item.call_id, item.name, item.arguments
    for block in getattr(result, "content", None) or ():
        if getattr(block, "type", None) == "tool_use":
            yield block.id, block.name, block.input
