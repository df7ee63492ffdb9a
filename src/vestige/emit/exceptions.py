"""An exception as attributes, and as the status of the span that it ended.

Chained exceptions and groups keep their whole story in `error.stack`; the deepest
cause and the members of a group also stand as attributes, to be asked for.
"""

from __future__ import annotations

from types import TracebackType

from vestige.errors import AgentDbgGuardrailExceeded
from vestige.limits import STACK_MAX
from vestige.record.coercion import cut, safe_str, secret_across
from vestige.record.types import Attributes, Status

_MESSAGE_MAX = 4_000
_CHAIN_MAX = 50
_MEMBERS_MAX = 20


def error_attributes(error: BaseException, trace: TracebackType | None = None) -> Attributes:
    """`error.type`, `error.message`, `error.stack`, and what lies beneath.

    `trace`: a later part of its traceback, where who called the program says nothing."""
    if not isinstance(error, BaseException):
        return {"error.message": _message(error)}  # a text where an exception was asked for
    attributes: Attributes = {
        "error.type": _type_name(error),
        "error.message": _message(error),
        "error.stack": _stack(error, trace or error.__traceback__),
    }
    if isinstance(error, AgentDbgGuardrailExceeded):
        attributes["error.guardrail"] = error.guardrail
        attributes["error.threshold"] = error.threshold
        attributes["error.actual"] = error.actual
    root = _root_cause(error)
    if root is not error:
        attributes["error.cause.type"] = _type_name(root)
        attributes["error.cause.message"] = _message(root)
        attributes["error.cause.stack"] = _stack(root, root.__traceback__, chain=False)
    if isinstance(error, BaseExceptionGroup):
        members = error.exceptions
        attributes["error.group.count"] = len(members)
        attributes["error.group.types"] = ", ".join(map(_type_name, members[:_MEMBERS_MAX]))
        told = (f"{_type_name(member)}: {_message(member)}" for member in members[:_MEMBERS_MAX])
        attributes["error.group.messages"] = cut("; ".join(told), _MESSAGE_MAX)
    return attributes


def status_of(error: BaseException | None) -> Status:
    """How a span ended that this exception left."""
    if error is None:
        return "ok"
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, (KeyboardInterrupt, GeneratorExit)):
        return "cancelled"
    if isinstance(error, SystemExit):
        return "ok" if error.code in (None, 0) else "error"
    # By name: asyncio, concurrent.futures, trio and anyio each have their own, and
    # importing one of them to ask would cost every program that uses none.
    if any(cls.__name__ in ("CancelledError", "Cancelled") for cls in type(error).__mro__):
        return "cancelled"
    return "error"


def _type_name(error: BaseException) -> str:
    cls = type(error)
    return (
        cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    )


def _message(error: BaseException) -> str:
    return cut(safe_str(error), _MESSAGE_MAX)


def _root_cause(error: BaseException) -> BaseException:
    """The innermost cause. Of a group without a cause it is that of its first member."""
    seen: set[int] = set()
    for _ in range(_CHAIN_MAX):
        seen.add(id(error))
        beneath = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if beneath is None and isinstance(error, BaseExceptionGroup):
            beneath = error.exceptions[0]
        if beneath is None or id(beneath) in seen:
            break
        error = beneath
    return error


def _stack(error: BaseException, trace: TracebackType | None, *, chain: bool = True) -> str:
    import traceback  # costs 5 ms of imports, and most programs never fail

    try:
        text = "".join(traceback.format_exception(type(error), error, trace, chain=chain))
    except Exception:  # noqa: BLE001  # an exception's own code, or a damaged traceback
        return f"<no stack: {type(error).__name__} could not be formatted>"
    if len(text) <= STACK_MAX:
        return text
    half = STACK_MAX // 2
    low, _ = secret_across(text, half)
    _, high = secret_across(text, len(text) - half)
    return f"{text[:low]}\n…[{high - low} characters left out]…\n{text[high:]}"
