"""Tool calls that models requested, so that a tool span is linked to the call that requested it.

A model call ends before the tools that it requested begin. So the code that reads a response calls
`remember` for each requested call, and the code that opens a `tool` span calls `find` and links it:

    remember(span.run_id, "call_7", "search", '{"q": "refund"}', span)
    find(run_id, tool_call_id="call_7")                        # by id
    find(run_id, name="search", arguments={"q": "refund"})     # the oldest unanswered match
    take_unrecorded(run_id, "call_7")                          # if no tool span answered it

The requests are stored in this process only, per run and bounded: an evicted one costs a link.
Nothing here raises.

A lock could stay locked after a fork. Instead, a request is claimed with one `dict.pop`, so two
threads never claim the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.limits import REQUESTED_ARGUMENTS_MAX, REQUESTED_CALLS_MAX, REQUESTED_RUNS_MAX
from vestige.record.coercion import clean_name

if TYPE_CHECKING:
    from vestige.emit.span import Span


_SEARCHED_MAX = 32
"""Calls whose ids are searched in a request: those of the last turns."""


class RequestedCall(msgspec.Struct, frozen=True):
    """A tool call that a model requested."""

    run_id: str
    span_id: str
    """The span of the model call."""
    parent_id: str | None
    """The parent of the model call."""
    tool_call_id: str | None
    """None if the provider has no ids."""
    name: str
    digest: int | None
    """Digest of the arguments' JSON value. None if they are not JSON, or too long."""
    arguments: str | None = None
    """The model's JSON text. None if it is too long."""
    ended_ns: int = 0
    """When the model call ended, on the monotonic clock."""


class _Run:
    """The requested calls of one run, oldest first."""

    __slots__ = ("by_id", "tools", "waiting")

    def __init__(self) -> None:
        self.by_id: dict[str, RequestedCall] = {}
        self.tools: dict[str, None] = {}
        """Names of the newest tool spans."""
        self.waiting: dict[int, RequestedCall] = {}
        """Unanswered calls by the `id()` of the entry, which the dictionary keeps alive."""


_runs: dict[str, _Run] = {}


def remember(
    run_id: str,
    tool_call_id: str | None,
    name: str,
    arguments: str | bytes | Mapping[str, Any] | None,
    span: Span,
    ended_ns: int = 0,
) -> None:
    """Remember that the model call `span`, which may have ended, requested this tool call.

    `arguments` is the model's JSON text, or its value. A repeated id means the latest call: some
    providers restart their ids in every turn. `ended_ns` is set if the call may be inferred.
    """
    try:
        call_id = clean_name(tool_call_id) if tool_call_id else None
        text = arguments if ended_ns and isinstance(arguments, str) else None
        if text is not None and len(text) > REQUESTED_ARGUMENTS_MAX:
            text = None
        entry = RequestedCall(
            run_id,
            span.id,
            span.parent_id,
            call_id,
            clean_name(name),
            _digest(arguments),
            text,
            ended_ns,
        )
        run = _touch(run_id)
        run.waiting[id(entry)] = entry
        if call_id is not None:
            run.by_id[call_id] = entry
        _trim(run.by_id, REQUESTED_CALLS_MAX)
        _trim(run.waiting, REQUESTED_CALLS_MAX)
    except Exception:  # noqa: BLE001  # a caller's mapping runs the caller's code
        pass  # The tool span will have no link.


def find(
    run_id: str,
    tool_call_id: str | None = None,
    name: str | None = None,
    arguments: Any = None,
) -> RequestedCall | None:
    """Return the request of this tool call, and mark it as answered.

    With an id, it is the call of that id, also if it was answered before (a tool that runs again).
    Without, it is the oldest unanswered call of that name with equal arguments.
    """
    try:
        run = _runs.get(run_id)
        if run is None:
            return None
        if tool_call_id:
            entry = run.by_id.get(clean_name(tool_call_id))
            if entry is not None:
                run.waiting.pop(id(entry), None)
            return entry
        return None if name is None else _claim_match(run, clean_name(name), arguments)
    except Exception:  # noqa: BLE001  # a caller's arguments run the caller's code
        return None


def note_tool(run_id: str, name: str) -> None:
    """Remember that a run has a tool span of this name, so that none is inferred."""
    tools = _touch(run_id).tools
    tools[name] = None
    _trim(tools, REQUESTED_CALLS_MAX)


def has_unrecorded(run_id: str, body: bytes) -> bool:
    """Return whether a request may contain the result of a call that has no tool span."""
    run = _runs.get(run_id)
    if run is None:
        return False
    waiting = list(run.waiting.values())[-_SEARCHED_MAX:]
    ids = (each.tool_call_id for each in waiting if each.ended_ns and each.name not in run.tools)
    return any(call_id.encode() in body for call_id in ids if call_id)


def take_unrecorded(run_id: str, tool_call_id: str) -> RequestedCall | None:
    """Return the request of a call that has a result, if no tool span answers it."""
    run = _runs.get(run_id)
    entry = None if run is None else run.by_id.get(tool_call_id)
    if run is None or entry is None or not entry.ended_ns or entry.name in run.tools:
        return None
    return run.waiting.pop(id(entry), None)


def was_requested_within(span: Span, tool_call_id: str) -> bool:
    """Return whether a direct child of `span` requested this id.

    An enclosing span sees the same response, and must not claim the request for itself.
    """
    run = _runs.get(span.run_id)
    entry = None if run is None else run.by_id.get(tool_call_id)
    return entry is not None and entry.parent_id == span.id


def forget_all() -> None:
    """Reset the state, for tests."""
    _runs.clear()


def _claim_match(run: _Run, name: str, arguments: Any) -> RequestedCall | None:
    waiting = [item for item in list(run.waiting.items()) if item[1].name == name]
    if not waiting:
        return None
    digest = _digest(arguments)
    for key, entry in waiting:
        if digest is not None and entry.digest == digest and run.waiting.pop(key, None) is not None:
            return entry
    return None


def _touch(run_id: str) -> _Run:
    """Return the run's requests, as the most recently used run."""
    run = _runs.pop(run_id, None) or _Run()
    _runs[run_id] = run
    _trim(_runs, REQUESTED_RUNS_MAX)
    return run


def _trim(entries: dict[Any, Any], count_max: int) -> None:
    while len(entries) > count_max:
        entries.pop(next(iter(list(entries)), None), None)


def _digest(arguments: Any) -> int | None:
    """Hash a JSON value, independent of spacing, key order, and `2` or `2.0`."""
    try:
        if arguments is None or (isinstance(arguments, (str, bytes)) and not arguments):
            arguments = {}  # Providers write any of these for a tool without parameters.
        elif isinstance(arguments, (str, bytes)):
            if len(arguments) > REQUESTED_ARGUMENTS_MAX:
                return None
            arguments = msgspec.json.decode(arguments)
        else:
            # This also bounds endless values, and rejects values that are not JSON.
            encoded = msgspec.json.encode(arguments)
            if len(encoded) > REQUESTED_ARGUMENTS_MAX:
                return None
            arguments = msgspec.json.decode(encoded)
        value = msgspec.json.encode(_floats_to_ints(arguments), order="deterministic")
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return None
    return hash(value)  # only compared within this process


def _floats_to_ints(value: Any) -> Any:
    """Convert `2.0` to `2`: JSON has one number type, and programs convert between the two."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _floats_to_ints(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_floats_to_ints(item) for item in value]
    return value
