"""Before and after: what a program hands to its SDK, recorded beside what left.

    client = vestige.instrument_openai(OpenAI())       # or AsyncOpenAI
    client = vestige.instrument_anthropic(Anthropic())
    vestige.uninstrument(client)

Each call becomes a step whose input body is the JSON of the arguments that the program
passed. The model call that the wire records stands in that step, so that
`vestige diff SPAN --before-after` shows what the SDK, or something around its HTTP client,
changed on the way.

The SDK stays as it is: the same client, the same return values, streams and exceptions. Only
bound methods of this one client are wrapped, and those of the copies that it makes of itself
(`with_options`). A failure of ours is counted (`recorder.faults`) and never raised.

The step is over when the SDK returns; a stream that it returned goes on in the model call.
No SDK is imported here: what a client has decides what is wrapped.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeVar

from vestige.emit import context, tool_attribution
from vestige.emit.span import Span
from vestige.limits import BODY_NODES_MAX, NESTING_MAX

Client = TypeVar("Client")
Opening = Callable[[], "Span | None"]

_METHODS = ("create", "parse", "stream")
_RESOURCES = {
    "openai": ("chat.completions", "responses"),
    "anthropic": ("messages", "beta.messages"),
}
_COPIES = ("copy", "with_options")
_CACHED = ("with_raw_response", "with_streaming_response")
"""What a resource makes once from its methods: made anew when those change."""

_TRANSPORT = ("extra_headers", "extra_query", "timeout")
"""Arguments that never become part of a request's body: kept as attributes."""

_OWN_HEADER = "x-stainless"
"""Headers with which the SDKs' own helpers talk to their methods: not the program's."""

_steps: set[str] = set()
"""Ids of the steps that are open: a helper that calls another method is one call."""


def instrument_openai(client: Client) -> Client:
    """Record what this `OpenAI` or `AsyncOpenAI` client is given. Returns the client."""
    return _instrument(client, "openai")


def instrument_anthropic(client: Client) -> Client:
    """Record what this `Anthropic` or `AsyncAnthropic` client is given. Returns the client."""
    return _instrument(client, "anthropic")


def uninstrument(client: Client) -> Client:
    """Leave a client as it was. Copies that it made meanwhile keep theirs."""
    try:
        for path in (path for paths in _RESOURCES.values() for path in paths):
            resource = _find_resource(client, path)
            if resource is not None:
                _unwrap(resource, _METHODS)
        _unwrap(client, _COPIES)
    except Exception as error:  # noqa: BLE001  # a client of any kind
        _fault("uninstrument", error)
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
                    _wrap(resource, name, original, _wrapper(original, provider, f"{path}.{name}"))
        if not found:
            raise TypeError(f"{type(client).__name__} has none of {provider}'s methods")
        for name in _COPIES:
            original = getattr(client, name, None)
            if callable(original):
                _wrap(client, name, original, _copying(original, provider))
    except Exception as error:  # noqa: BLE001  # a client of any kind
        _fault(f"instrument_{provider}", error)
    return client


def _find_resource(client: Any, path: str) -> Any:
    found = client
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _wrap(owner: Any, name: str, original: Any, wrapper: Callable[..., Any]) -> None:
    """Once: what is ours already stays."""
    if not getattr(original, "_vestige", False):
        functools.update_wrapper(wrapper, original)
        wrapper._vestige = True  # type: ignore[attr-defined]  # how we know it again
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


def _copying(original: Callable[..., Any], provider: str) -> Callable[..., Any]:
    def copy(*args: Any, **kwargs: Any) -> Any:
        return _instrument(original(*args, **kwargs), provider)

    return copy


def _wrapper(original: Callable[..., Any], provider: str, name: str) -> Callable[..., Any]:
    is_stream = name.endswith(".stream")
    is_async = inspect.iscoroutinefunction(inspect.unwrap(original))

    def call(*args: Any, **kwargs: Any) -> Any:
        opening = functools.partial(_open, provider, name, args, kwargs)
        if is_stream:
            return _followed(original(*args, **kwargs), opening)
        if is_async:
            return _awaited(original(*args, **kwargs), opening)
        return _called(functools.partial(original, *args, **kwargs), opening)

    async def call_async(*args: Any, **kwargs: Any) -> Any:
        return await call(*args, **kwargs)

    # Frameworks ask before they call, and get the answer that they got without us.
    return call_async if inspect.iscoroutinefunction(original) else call


def _called(request: Callable[[], Any], opening: Opening) -> Any:
    step = opening()
    if step is None:
        return request()
    try:
        with step:
            result = request()
            _remember(step, result)
            return result
    finally:
        _steps.discard(step.id)


async def _awaited(request: Awaitable[Any], opening: Opening) -> Any:
    step = opening()
    if step is None:
        return await request
    try:
        with step:
            result = await request
            _remember(step, result)
            return result
    finally:
        _steps.discard(step.id)


def _followed(manager: Any, opening: Opening) -> Any:
    """A stream helper: its request is made when the `with` block is entered."""
    try:
        name = next(name for name in vars(manager) if name.endswith("__api_request"))
        request = vars(manager)[name]
        if inspect.isawaitable(request):
            vars(manager)[name] = _awaited(request, opening)
        else:
            vars(manager)[name] = functools.partial(_called, request, opening)
    except Exception as error:  # noqa: BLE001  # a helper of another shape: it works, unrecorded
        _fault("stream helper", error)
    return manager


# --- the step -----------------------------------------------------------------------------------


def _open(provider: str, name: str, args: Any, kwargs: Mapping[str, Any]) -> Span | None:
    """The step of one call, or None where none is to be recorded."""
    try:
        parent = context.SPAN.get()
        if parent is not None and (parent.muted or parent.id in _steps):
            return None
        attributes, body = _before(args, kwargs)
        attributes["provider"] = provider
        opener = parent if parent is not None else context.default().logger("agent")
        step = opener.span(f"{provider} {name}", "step", attributes, body)
        if step.muted:
            return None
        _steps.add(step.id)
        return step
    except Exception as error:  # noqa: BLE001  # arguments run the program's code
        _fault("before body", error)
        return None


def _before(args: Any, kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A call's arguments: what is about the transport, and what is about the request."""
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
                    k: v for k, v in value.items() if not str(k).lower().startswith(_OWN_HEADER)
                }
            if value != {}:
                attributes[key] = value
    return attributes, body


def _plain(value: Any, depth: int, left: list[int]) -> Any:
    """SDK objects among the arguments (an earlier answer's message) as the SDK would send them."""
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


def _remember(step: Span, result: Any) -> None:
    """Tools that this answer asks for, unless the model call in the step has told already."""
    try:
        for call_id, name, arguments in _asked_for(result):
            if not tool_attribution.was_requested_within(step, call_id):
                tool_attribution.remember(step.run_id, call_id, name, arguments, step)
    except Exception as error:  # noqa: BLE001  # whatever the SDK returned
        _fault("tool calls of an answer", error)


def _asked_for(result: Any) -> Iterator[tuple[str, str, Any]]:
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


def _fault(what: str, error: Exception) -> None:
    try:
        emitter = getattr(context.SPAN.get() or context.default(), "_emitter", None)
        if emitter is not None:
            emitter.fault(f"{what}: {type(error).__name__}")
    except Exception:  # noqa: BLE001  # nowhere to count
        pass
