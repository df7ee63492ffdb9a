"""Convert an exception to attributes, and to the status of the span that it ended.

`error.stack` contains chained exceptions and groups completely. The innermost cause and
the members of a group are attributes too, so that queries can use them.
"""

from __future__ import annotations

import builtins
from types import TracebackType
from typing import Any

from vestige.errors import AgentDbgGuardrailExceeded
from vestige.limits import STACK_MAX
from vestige.record.coercion import find_secret_across, safe_str, truncate
from vestige.record.types import Attributes, Status

_GROUP: Any = getattr(builtins, "BaseExceptionGroup", ())
"""The class of exception groups. Python 3.10 has none."""
_MESSAGE_MAX = 4_000
_CHAIN_MAX = 50
_MEMBERS_MAX = 20


def error_attributes(error: BaseException, trace: TracebackType | None = None) -> Attributes:
    """Return `error.type`, `error.message`, `error.stack`, and those of causes and group members.

    `trace` replaces the traceback, to leave out the frames of the caller.
    """
    if not isinstance(error, BaseException):
        return {
            "error.message": _message(error)
        }  # The caller passed a text instead of an exception.
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
    if isinstance(error, _GROUP):
        members = error.exceptions
        attributes["error.group.count"] = len(members)
        attributes["error.group.types"] = ", ".join(map(_type_name, members[:_MEMBERS_MAX]))
        texts = (f"{_type_name(member)}: {_message(member)}" for member in members[:_MEMBERS_MAX])
        attributes["error.group.messages"] = truncate("; ".join(texts), _MESSAGE_MAX)
    return attributes


def status_of(error: BaseException | None) -> Status:
    """Return the status of a span that ended with this exception."""
    if error is None:
        return "ok"
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, (KeyboardInterrupt, GeneratorExit)):
        return "cancelled"
    if isinstance(error, SystemExit):
        return "ok" if error.code in (None, 0) else "error"
    # Compared by name: asyncio, concurrent.futures, trio and anyio each have a class of their own,
    # and importing them would slow down the programs that do not use them.
    if any(cls.__name__ in ("CancelledError", "Cancelled") for cls in type(error).__mro__):
        return "cancelled"
    return "error"


def _type_name(error: BaseException) -> str:
    cls = type(error)
    return (
        cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    )


def _message(error: BaseException) -> str:
    return truncate(safe_str(error), _MESSAGE_MAX)


def _root_cause(error: BaseException) -> BaseException:
    """Return the innermost cause. A group without a cause continues with its first member."""
    seen: set[int] = set()
    for _ in range(_CHAIN_MAX):
        seen.add(id(error))
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if cause is None and isinstance(error, _GROUP):
            cause = error.exceptions[0]
        if cause is None or id(cause) in seen:
            break
        error = cause
    return error


def _stack(error: BaseException, trace: TracebackType | None, *, chain: bool = True) -> str:
    import traceback  # It costs 5 ms of imports, and most programs never fail.

    try:
        text = "".join(traceback.format_exception(type(error), error, trace, chain=chain))
    except Exception:  # noqa: BLE001  # the exception's code, or a damaged traceback
        return f"<no stack: {type(error).__name__} could not be formatted>"
    if len(text) <= STACK_MAX:
        return text
    half = STACK_MAX // 2
    low, _ = find_secret_across(text, half)
    _, high = find_secret_across(text, len(text) - half)
    return f"{text[:low]}\n…[{high - low} characters left out]…\n{text[high:]}"
