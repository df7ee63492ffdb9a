"""Which model call asked for which tool call: remembered from its answer until the tool runs.

A model call is over before the tools that it asked for begin. So whoever reads an answer
remembers what was asked for, and whoever opens a `tool` span finds the asker and links to it:

    remember(span.run_id, "call_7", "search", '{"q": "refund"}', span)
    find(run_id, tool_call_id="call_7")                              # the id says so
    find(run_id, name="search", arguments={"q": "refund"})           # the oldest that none answered

Kept in this process only, per run and bounded: what has been forgotten costs a link, never
the program. Of the arguments only a digest is kept. Nothing here raises.

Without a lock, which a fork could leave locked: what two threads must not both take is taken
with one `dict.pop`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from vestige.limits import ASKED_ARGUMENTS_MAX, ASKED_CALLS_MAX, ASKED_RUNS_MAX
from vestige.record.coercion import clean_name

if TYPE_CHECKING:
    from vestige.emit.span import Span


class RequestedCall(msgspec.Struct, frozen=True):
    """One tool call that a model asked for."""

    run_id: str
    span_id: str
    """Of the model call."""
    parent_id: str | None
    """Of the span that the model call stands in."""
    tool_call_id: str | None
    """None: the provider gives none."""
    name: str
    digest: int | None
    """Of the arguments' JSON value; None where they are none, or too long to be compared."""


class _Run:
    """What one run asked for, the oldest first."""

    __slots__ = ("by_id", "waiting")

    def __init__(self) -> None:
        self.by_id: dict[str, RequestedCall] = {}
        self.waiting: dict[int, RequestedCall] = {}
        """Not answered yet; by the identity of the entry, which it keeps alive."""


_runs: dict[str, _Run] = {}


def remember(
    run_id: str,
    tool_call_id: str | None,
    name: str,
    arguments: str | bytes | Mapping[str, Any] | None,
    span: Span,
) -> None:
    """`span` (a model call, perhaps ended) asked for this tool call.

    `arguments` is the JSON text that the model wrote, or the value of it. An id that comes
    again means the latest call: some providers count anew in every turn.
    """
    try:
        call_id = clean_name(tool_call_id) if tool_call_id else None
        entry = RequestedCall(
            run_id, span.id, span.parent_id, call_id, clean_name(name), _digest(arguments)
        )
        run = _touch(run_id)
        run.waiting[id(entry)] = entry
        if call_id is not None:
            run.by_id[call_id] = entry
        _trim(run.by_id, ASKED_CALLS_MAX)
        _trim(run.waiting, ASKED_CALLS_MAX)
    except Exception:  # noqa: BLE001  # a caller's mapping runs the caller's code
        pass  # one link fewer


def find(
    run_id: str,
    tool_call_id: str | None = None,
    name: str | None = None,
    arguments: Any = None,
) -> RequestedCall | None:
    """Who asked for this tool call, and from now on it is answered.

    With an id: the call of that id, also if it was answered before (a tool that is run again).
    Without: the oldest unanswered call of that name whose arguments are the same JSON value.
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
        return None if name is None else _take_alike(run, clean_name(name), arguments)
    except Exception:  # noqa: BLE001  # as in remember
        return None


def was_asked_within(span: Span, tool_call_id: str) -> bool:
    """Did a model call right inside `span` ask for this id? (So that what stands around the call
    and saw the same answer does not claim it.)"""
    run = _runs.get(span.run_id)
    entry = None if run is None else run.by_id.get(tool_call_id)
    return entry is not None and entry.parent_id == span.id


def forget_all() -> None:
    """For tests: as in a new process."""
    _runs.clear()


def _take_alike(run: _Run, name: str, arguments: Any) -> RequestedCall | None:
    waiting = [item for item in list(run.waiting.items()) if item[1].name == name]
    if not waiting:
        return None
    digest = _digest(arguments)
    for key, entry in waiting:
        if digest is not None and entry.digest == digest and run.waiting.pop(key, None) is not None:
            return entry
    return None


def _touch(run_id: str) -> _Run:
    """The run's own, as the one used last."""
    run = _runs.pop(run_id, None) or _Run()
    _runs[run_id] = run
    _trim(_runs, ASKED_RUNS_MAX)
    return run


def _trim(kept: dict[Any, Any], count_max: int) -> None:
    while len(kept) > count_max:
        kept.pop(next(iter(list(kept)), None), None)


def _digest(arguments: Any) -> int | None:
    """The same for the same JSON value, whatever its spacing, its order of keys, `2` or `2.0`."""
    try:
        if arguments is None or (isinstance(arguments, (str, bytes)) and not arguments):
            arguments = {}  # a tool without parameters: providers write any of these
        elif isinstance(arguments, (str, bytes)):
            if len(arguments) > ASKED_ARGUMENTS_MAX:
                return None
            arguments = msgspec.json.decode(arguments)
        else:
            # Also bounds what may be endless, and refuses what no JSON text could have held.
            encoded = msgspec.json.encode(arguments)
            if len(encoded) > ASKED_ARGUMENTS_MAX:
                return None
            arguments = msgspec.json.decode(encoded)
        value = msgspec.json.encode(_whole_numbers(arguments), order="deterministic")
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return None
    return hash(value)  # 64 bits that no other process has to understand


def _whole_numbers(value: Any) -> Any:
    """`2.0` as `2`: JSON has one kind of number, and a program may turn one into the other."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(item) for item in value]
    return value
