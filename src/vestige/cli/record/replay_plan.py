"""The script of a replay or a fork: the recorded calls of a run, and what is to be changed.

plan = make_plan(debugger, "r7", until="s41", sets=["model=gpt-5"], ignore=[])
write_script(path, read_lines(debugger, plan), plan.settings)
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from vestige.emit.replayed_tools import STATE_RESULT, TEXT_RESULT
from vestige.errors import NotFoundError, UsageError
from vestige.providers.parsing import parse_request
from vestige.query.ids.lineage import RUN, SET, SPAN
from vestige.wire.replaying.matching_rules import parse_rules
from vestige.wire.replaying.request_edits import CHANGES_MAX_BYTES, Change, parse_change
from vestige.wire.replaying.response_player import Answer, Line, Settings, match_key
from vestige.wire.replaying.tool_player import ToolLine, match_arguments

if TYPE_CHECKING:
    from vestige.query.debugger import Debugger
    from vestige.record.run import BodyRef, Run, RunInfo, SpanInfo

LEVEL = "replay.level"
"""Attribute of a call: the number of forks whose changes apply to it."""

_REQUESTS_MAX = 4
"""Requests after a tool call that are searched for its result."""

_SPAN = re.compile(r"s\d+")
"""A span of the run that is replayed."""

Changes = tuple[tuple[Change, ...], ...]


@dataclass
class Plan:
    """A replay of a run."""

    run: RunInfo
    calls: list[SpanInfo]
    fork: SpanInfo | None
    settings: Settings
    tools: list[SpanInfo]
    """The tool calls that began before the fork and have a hook that can answer them."""
    inferred_tools: list[str]
    """Names of the others, which are known from requests only."""

    @property
    def before_count(self) -> int:
        """Number of calls that are answered from the recording."""
        return len(self.calls) if self.fork is None else self.calls.index(self.fork)

    def attributes(self) -> dict[str, str]:
        """Return the attributes of the new run."""
        found = {RUN: self.run.id}
        changes = self.settings.inherited
        if self.fork is not None:
            found[SPAN] = self.fork.id
            changes = (*changes, self.settings.changes)
        if changes:
            text = msgspec.json.encode(changes).decode()
            if len(text.encode()) > CHANGES_MAX_BYTES:
                raise UsageError(
                    f"--set: the changes have {len(text.encode())} bytes"
                    f" (at most {CHANGES_MAX_BYTES}). Change the program instead."
                )
            found[SET] = text
        return found


def make_plan(
    debugger: Debugger, id: str, until: str | None, sets: Sequence[str], ignore: Sequence[str]
) -> Plan:
    """Find the calls of a run, and the one at which it is forked."""
    run = debugger.resolve(id, "run").run
    runs = _load_runs(debugger, run.id)
    calls = sorted(_calls(runs), key=lambda span: span.started_ns)
    if not calls:
        raise NotFoundError(f"{id}: no model calls recorded. Nothing to replay.")
    inherited = _read_changes(runs[0])
    if until is None:
        settings, fork = Settings(tuple(ignore), inherited), None
    else:
        fork = _find_fork(debugger, until, runs, calls)
        level = fork.attributes.get(LEVEL)
        recorded = read_body(debugger, fork.input)
        settings = Settings(
            tuple(ignore),
            inherited[: level if isinstance(level, int) else 0],
            fork.id,
            tuple(_find_parallel(fork, calls)),
            tuple(parse_change(text, recorded) for text in sets),
        )
    tools = sorted(_tools(runs), key=lambda span: span.started_ns)
    before = [span for span in tools if fork is None or span.started_ns < fork.started_ns]
    hooked = [span for span in before if not _is_inferred(span)]
    inferred = [span.name for span in before if _is_inferred(span)]
    return Plan(run, calls, fork, settings, hooked, inferred)


def _load_runs(debugger: Debugger, run_id: str) -> list[Run]:
    """Return a run and the runs that it started."""
    store = debugger.store
    run = store.load_run(run_id)
    runs = {run_id: run}
    for span in run.spans:
        if span.type in ("run", "process", "test"):
            for place, _ in store.links_to(run_id, span.id):
                if place.run_id not in runs:
                    runs[place.run_id] = store.load_run(place.run_id)
    return list(runs.values())


def _calls(runs: Sequence[Run]) -> Iterator[SpanInfo]:
    for run in runs:
        for span in run.spans:
            if {"method", "url", "attempt"} <= span.attributes.keys():
                yield span


def _tools(runs: Sequence[Run]) -> Iterator[SpanInfo]:
    for run in runs:
        for span in run.spans:
            if span.type == "tool" and span.status is not None:
                yield span


def _is_inferred(span: SpanInfo) -> bool:
    """Return whether a tool call was seen on the wire only."""
    return "url" in span.attributes or span.attributes.get("inferred") is True


def _read_changes(run: Run) -> Changes:
    """Return the changes of the forks that a run descends from."""
    roots = (span for span in run.spans if span.parent_id is None)
    text = next((span.attributes[SET] for span in roots if SET in span.attributes), "[]")
    try:
        return msgspec.json.decode(str(text), type=Changes)
    except (msgspec.DecodeError, ValueError):
        return ()


def _find_fork(
    debugger: Debugger, until: str, runs: Sequence[Run], calls: Sequence[SpanInfo]
) -> SpanInfo:
    """Return the call of a span, or the first that began after the span did."""
    name = runs[0].info.short_id
    target = debugger.resolve(f"{name}.{until}" if _SPAN.fullmatch(until) else until, "span")
    if target.run.id not in {run.info.id for run in runs} or target.span_id is None:
        raise NotFoundError(f"--until {until}: not a span of {name}. See `vestige show {name}`.")
    spans = {span.id: span for run in runs for span in run.spans}
    span = spans[target.span_id]
    for call in calls:
        if call.id == span.id or (span not in calls and call.started_ns >= span.started_ns):
            return call
    raise NotFoundError(f"--until {until}: no model call follows it in {name}.")


def _find_parallel(fork: SpanInfo, calls: Sequence[SpanInfo]) -> Iterator[str]:
    """Return the calls that began while the fork's call was in flight."""
    ended_ns = fork.started_ns + (fork.duration_ns or 0)
    for call in calls:
        if call is not fork and fork.started_ns <= call.started_ns < ended_ns:
            yield call.id


def read_lines(debugger: Debugger, plan: Plan) -> Iterator[Line]:
    """Return the calls of a plan in order, with their answers."""
    from vestige.wire.aws_event_stream import CODING, encode_frames

    rules = parse_rules(plan.settings.ignore)
    for span in plan.calls:
        attributes = span.attributes
        status = attributes.get("status_code")
        error = attributes.get("error.type") if attributes.get("error.stack") else None
        method, url = str(attributes["method"]), str(attributes["url"])
        body = read_body(debugger, span.output)
        if CODING in str(attributes.get("response.encoding")):
            body = b"".join(encode_frames(body))
        yield Line(
            span.id,
            *match_key(method, url, read_body(debugger, span.input), rules),
            Answer(
                status if isinstance(status, int) else None,
                _read_headers(attributes.get("response.headers")),
                body,
                None if error is None else str(error).rpartition(".")[2],
            ),
        )


def read_tools(debugger: Debugger, plan: Plan) -> Iterator[ToolLine]:
    """Return the tool calls of a plan in order, with their results."""
    rules = parse_rules(plan.settings.ignore)
    texts = _ResultTexts(debugger, plan.calls)
    for span in plan.tools:
        attributes = span.attributes
        error = attributes.get("error.type")
        ended_ns = span.started_ns + (span.duration_ns or 0)
        output = read_body(debugger, span.output).decode(errors="replace")
        call_id = attributes.get("tool_call_id")
        key = "" if span.input is None else match_arguments(read_body(debugger, span.input), rules)
        runs = plan.fork is not None and ended_ns > plan.fork.started_ns
        yield ToolLine(
            span.id,
            str(attributes.get("tool_name") or span.name),
            key,
            None if span.output is None else output,
            True if attributes.get(TEXT_RESULT) is True else None,
            None if error is None else str(error),
            str(attributes.get("error.message") or ""),
            runs or span.input is None or attributes.get(STATE_RESULT) is True,
            None if call_id is None else str(call_id),
            None if call_id is None else texts.find(str(call_id), ended_ns),
        )


class _ResultTexts:
    """The results of tools as the model was given them, from the requests of a run."""

    def __init__(self, debugger: Debugger, calls: Sequence[SpanInfo]) -> None:
        self._debugger = debugger
        self._calls = calls
        self._texts: dict[str, dict[str, str]] = {}
        """Keyed by the ids of model calls, then by those of tool calls."""

    def find(self, call_id: str, ended_ns: int) -> str | None:
        """Return the text in the first request after the tool has ended that contains it."""
        at = bisect_left(self._calls, ended_ns, key=lambda call: call.started_ns)
        for call in self._calls[at : at + _REQUESTS_MAX]:
            text = self._read(call).get(call_id)
            if text is not None:
                return text
        return None

    def _read(self, call: SpanInfo) -> dict[str, str]:
        if call.id not in self._texts:
            request = parse_request(read_body(self._debugger, call.input))
            messages = request.messages if request is not None else ()
            self._texts[call.id] = {
                result.call_id: result.text
                for message in messages
                for result in message.results
                if result.call_id and not result.parts
            }
        return self._texts[call.id]


def _read_headers(recorded: object) -> dict[str, str]:
    """Parse the recorded headers; of a truncated JSON object, the complete entries."""
    text = recorded if isinstance(recorded, str) else ""
    before = _COMPLETE_ENTRIES.match(text)
    for each in (text, before[0].rstrip(",") + "}" if before else "{}"):
        try:
            return msgspec.json.decode(each, type=dict[str, str])
        except (msgspec.DecodeError, ValueError, RecursionError):
            continue
    return {}


_TEXT = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_COMPLETE_ENTRIES = re.compile(rf"\{{(?:{_TEXT}:{_TEXT},?)*+")


def read_body(debugger: Debugger, ref: BodyRef | None) -> bytes:
    """Return a stored body. Empty: there is none."""
    if ref is None or ref.id is None:
        return b""
    return debugger.store.read_body(ref.id, 0, ref.size_bytes)
