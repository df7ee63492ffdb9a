"""A session of a coding agent as records: turns, model calls, tool calls, sub-agents.

    builder = SessionBuilder("codex", thread_id, OPENAI_RESPONSES, "codex")
    builder.prompt("p1", time_ns, message, "Fix the test.")     # opens a turn
    builder.answer("a1", time_ns, parts, model="gpt-5.5")       # a model call; may come in parts
    builder.usage("a1", {"input_tokens": 1200})                 # the last value counts
    builder.call("call_1", time_ns, "shell", arguments)         # a tool
    builder.result("call_1", time_ns, message, text, is_error=False)
    builder.drain()                                             # the records so far

    run               the session; its input is the first prompt
      step            a turn: what a prompt led to
        llm           its input has the messages since the answer before; texts of tool
                      results are outputs of their tools, so each text is stored once
        tool
          agent       a sub-agent: another builder with `parent`

Ids and numbers of records derive from what was added before, so a log that has grown gives the
same records and more. Ends that only the end of the log implies have writers of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from vestige.formats.protocol import TIME_MAX_NS, derived_run_id, derived_writer, span_hash
from vestige.formats.provider_bodies import Object, WireShape, render_json
from vestige.limits import BODY_INLINE_MAX, BODY_MAX, MIB
from vestige.record.coercion import clean_attributes, clean_name, clean_text, truncate
from vestige.record.types import VERSION, Attributes, KnownRecord, Log, SpanClose, SpanOpen

PENDING_MAX: Final = 8 * MIB
"""Characters of messages that wait for an answer. Older ones become a span without an answer."""
OPEN_TOOLS_MAX: Final = 10_000
RECENT_ANSWERS: Final = 8
"""Answers that may still get parts: tools run while an answer is streamed."""
TITLE_MAX: Final = 100
NO_FACTS: Final[Mapping[str, Any]] = {}
ERROR_MAX: Final = 2_000


@dataclass(slots=True)
class _Answer:
    key: str
    span_id: str
    started_ns: int
    ended_ns: int
    parts: list[Object] = field(default_factory=list)
    attributes: Attributes = field(default_factory=dict)
    model: str | None = None
    reason: str | None = None
    error: str | None = None
    text: str = ""
    is_written: bool = False


@dataclass(slots=True)
class _OpenSpan:
    span_id: str
    started_ns: int
    attributes: Attributes = field(default_factory=dict)


class SessionBuilder:
    """Builds the records of one session, or of a sub-agent in it."""

    def __init__(
        self,
        format: str,
        session_id: str,
        shape: WireShape,
        agent: str,
        *,
        stream: str = "",
        parent_id: str | None = None,
    ) -> None:
        """`stream` names a sub-agent; its spans are below the span `parent_id`."""
        self.run_id = derived_run_id(format, session_id)
        self.hash = span_hash(format, session_id)
        self.writer = derived_writer(format, f"{session_id} {stream}".strip())
        self.top_id = self.hash(f"{stream}/top") if stream else self.hash("run")
        self.facts: Attributes = {}
        """Attributes of the top span, until it opens."""
        self.title = ""
        """Name of the top span; the first prompt if it is empty."""
        self.entry_size = 256
        """Characters of the entry of the log that is being added, at most."""
        self.last_ns = 0
        self.is_turn_done = False
        """True if the last turn has its final answer."""
        self._format, self._id, self._stream = format, f"{session_id} {stream}".strip(), stream
        self._shape, self._agent, self._parent_id = shape, clean_name(agent), parent_id
        self._seq = 0
        self._out: list[KnownRecord] = []
        self._top: _OpenSpan | None = None
        self._turn: _OpenSpan | None = None
        self._turn_error: str | None = None
        self._answer: _Answer | None = None
        self._recent: dict[str, _Answer] = {}
        self._tools: dict[str, _OpenSpan] = {}
        self._pending: list[Object] = []
        self._pending_size = 0
        self._messages = 0
        self._ready_ns = 0
        self._answer_text = ""

    # --- what a log contains ----------------------------------------------------------------------

    def prompt(
        self,
        key: str,
        time_ns: int | None,
        message: Object,
        text: str,
        *,
        facts: Mapping[str, Any] = NO_FACTS,
    ) -> None:
        """Add a prompt of the user, which opens a turn."""
        self._close_turn()
        time_ns = self._advance(time_ns)
        self._open_top(text)
        self._turn = _OpenSpan(self.span_id("turn", key), time_ns)
        self._turn_error = None
        self._answer_text = ""
        attributes = clean_attributes(facts)
        self._open(self._turn.span_id, "step", "turn", self.top_id, time_ns, attributes, text)
        self.context(message, time_ns)
        self.is_turn_done = False

    def context(self, message: Object, time_ns: int | None = None) -> None:
        """Add a message that the next model call gets."""
        self._ready_ns = self._advance(time_ns)
        self._messages += 1
        self._pending.append(message)
        self._pending_size += self.entry_size
        if self._pending_size > PENDING_MAX or len(self._pending) > OPEN_TOOLS_MAX:
            self._flush_pending()

    def answer(
        self,
        key: str,
        time_ns: int | None,
        parts: list[Object],
        *,
        text: str = "",
        model: str | None = None,
        reason: str | None = None,
        error: str | None = None,
        facts: Mapping[str, Any] = NO_FACTS,
    ) -> None:
        """Add an answer of a model, or more parts of it."""
        time_ns = self._advance(time_ns)
        answer = self._recent.get(key)
        if answer is None:
            self._close_answer()
            answer = self._open_answer(key, time_ns, model)
        elif answer is not self._answer:
            self._close_answer()
        self._answer = answer
        answer.is_written = False
        answer.parts += parts
        answer.ended_ns = max(answer.ended_ns, time_ns)
        answer.model = model or answer.model
        answer.reason = reason or answer.reason
        answer.error = error or answer.error
        answer.attributes.update(clean_attributes(facts))
        if text:
            answer.text = self._answer_text = truncate(text, BODY_INLINE_MAX)
        if error:
            self._turn_error = error

    def usage(self, key: str, usage: Attributes) -> None:
        """Set the tokens of an answer; the last value counts."""
        answer = self._recent.get(key)
        if answer is not None and usage:
            answer.attributes.update(usage)
            answer.is_written = False
            if answer is not self._answer:
                self._write_answer(answer)

    def is_prompted(self, key: str) -> bool:
        """Return whether the current turn began with this prompt."""
        return self._turn is not None and self._turn.span_id == self.span_id("turn", key)

    def finish_turn(self, error: str | None = None, *, is_cancelled: bool = False) -> None:
        """Mark the turn as finished, failed or cancelled."""
        self.is_turn_done = True
        self._turn_error = error or self._turn_error
        if is_cancelled and self._turn is not None:
            self._turn.attributes["cancelled"] = True

    def call(
        self,
        call_id: str,
        time_ns: int | None,
        name: str,
        arguments: str | None,
        *,
        facts: Mapping[str, Any] = NO_FACTS,
    ) -> str:
        """Open the span of a tool call. Return its id."""
        time_ns = self._advance(time_ns)
        self._open_top("")
        self.is_turn_done = False
        if len(self._tools) >= OPEN_TOOLS_MAX:
            self._tools.pop(next(iter(self._tools)))
        tool = self._tools[call_id] = _OpenSpan(self.span_id("tool", call_id), time_ns)
        attributes = {"tool_call_id": call_id, **clean_attributes(facts)}
        parent = self._turn.span_id if self._turn else self.top_id
        self._open(tool.span_id, "tool", name, parent, time_ns, attributes, arguments)
        return tool.span_id

    def is_open(self, call_id: str) -> bool:
        return call_id in self._tools

    def tool_facts(self, call_id: str, facts: Attributes) -> None:
        """Add attributes to a tool that is still running."""
        if (tool := self._tools.get(call_id)) is not None:
            tool.attributes.update(facts)

    def result(
        self,
        call_id: str,
        time_ns: int | None,
        message: Object | None,
        text: str,
        *,
        is_error: bool,
        duration_ns: int | None = None,
        facts: Mapping[str, Any] = NO_FACTS,
    ) -> None:
        """Close the span of a tool with its result, which the next model call gets."""
        time_ns = self._advance(time_ns)
        tool = self._tools.pop(call_id, None)
        if message is not None:
            self.context(message, time_ns)
        if tool is None:
            return
        attributes = {**tool.attributes, **clean_attributes(facts)}
        if is_error:
            attributes.setdefault("error.message", _error_line(text))
        took_ns = time_ns - tool.started_ns if duration_ns is None else duration_ns
        status = "error" if is_error else "ok"
        self._close(tool.span_id, status, time_ns, took_ns, attributes, text)

    def span(
        self,
        key: str,
        type: str,
        name: str,
        time_ns: int | None,
        body: str | None = None,
        *,
        duration_ns: int = 0,
        status: str = "ok",
        output: str | None = None,
        facts: Mapping[str, Any] = NO_FACTS,
    ) -> None:
        """Add a span that has ended, such as a compaction or a hook."""
        time_ns = self._advance(time_ns)
        self._open_top("")
        span_id = self.span_id(type, key)
        parent = self._turn.span_id if self._turn else self.top_id
        started_ns = max(0, time_ns - duration_ns)
        self._open(span_id, type, name, parent, started_ns, clean_attributes(facts), body)
        self._close(span_id, status, time_ns, duration_ns, {}, output)

    def log(
        self, level: str, message: str, time_ns: int | None, *, facts: Mapping[str, Any] = NO_FACTS
    ) -> None:
        """Add a log record."""
        time_ns = self._advance(time_ns)
        self._open_top("")
        span_id = self._turn.span_id if self._turn else self.top_id
        self._out.append(
            Log(
                VERSION,
                self.writer,
                self._next_seq(),
                time_ns,
                self.run_id,
                self._agent,
                level,
                truncate(clean_text(message), BODY_INLINE_MAX),
                span_id,
                clean_attributes(facts),
            )
        )

    # --- the end ----------------------------------------------------------------------------------

    def drain(self) -> list[KnownRecord]:
        """Return the records that were added since the last call."""
        records, self._out = self._out, []
        return records

    def end(self, *, is_dead: bool) -> list[KnownRecord]:
        """Return the last records: the ends of what is open, if nothing more will come.

        A session whose last turn is finished has ended, until another prompt is added. Of one
        that goes on, the last answer is shown as far as it is known. After this, nothing can be
        added.
        """
        records = self.drain()
        if self._top is None:
            return records
        self._seq = 0
        self._close_answer()
        if is_dead or self._is_idle():
            self._close_all(self._top, interrupted=not self._is_idle())
        last = self.drain()
        # The writer depends on the content: an end that changes when the log grows replaces it.
        digest = hashlib.sha256(msgspec.json.encode(last)).hexdigest()
        writer = derived_writer(self._format, f"{self._id} end {digest}")
        for record in last:
            record.writer = writer
        return records + last

    def _close_all(self, top: _OpenSpan, *, interrupted: bool) -> None:
        for tool in self._tools.values():
            took_ns = self.last_ns - tool.started_ns
            self._close(tool.span_id, "interrupted", self.last_ns, took_ns, tool.attributes)
        self._close_turn(interrupted=interrupted)
        failed = "error" if self._turn_error else "ok"
        status = "interrupted" if interrupted else failed
        attributes: Attributes = {"message_count": self._messages}
        took_ns = self.last_ns - top.started_ns
        text = self._answer_text or None
        self._close(top.span_id, status, self.last_ns, took_ns, attributes, text)

    def _is_idle(self) -> bool:
        return self.is_turn_done and not self._tools

    def switch_writer(self, name: str) -> None:
        """Number the next records under another writer, for parts of a log that may change."""
        self.writer = derived_writer(self._format, f"{self._id} {name}")
        self._seq = 0

    # --- spans ------------------------------------------------------------------------------------

    def span_id(self, *key: str) -> str:
        """Return the id of a span of this session."""
        return self.hash("/".join((self._stream, *key)))

    def _open_top(self, text: str) -> None:
        if self._top is not None:
            return
        self._top = _OpenSpan(self.top_id, self.last_ns)
        name = self.title or _first_line(text) or self._agent
        type_ = "agent" if self._stream else "run"
        self._open(self.top_id, type_, name, self._parent_id, self.last_ns, self.facts, text)

    def _open_answer(self, key: str, time_ns: int, model: str | None) -> _Answer:
        self._open_top("")
        started_ns = min(self._ready_ns or time_ns, time_ns)
        answer = _Answer(key, self.span_id("answer", key), started_ns, time_ns)
        context, self._pending, self._pending_size = self._pending, [], 0
        attributes: Attributes = {"provider": self._shape.provider}
        if not self._shape.is_exact:
            attributes["message_index"] = self._messages
        if model:
            attributes["model"] = clean_name(model)
        self._messages += 1
        body = render_json(self._shape.render_request(context)) if context else None
        parent = self._turn.span_id if self._turn else self.top_id
        self._open(answer.span_id, "llm", model or "llm", parent, started_ns, attributes, body)
        self._recent[key] = answer
        if len(self._recent) > RECENT_ANSWERS:
            del self._recent[next(iter(self._recent))]
        return answer

    def _close_answer(self) -> None:
        if self._answer is not None and not self._answer.is_written:
            self._write_answer(self._answer)
        self._answer = None

    def _write_answer(self, answer: _Answer) -> None:
        answer.is_written = True
        attributes = dict(answer.attributes)
        if answer.reason:
            attributes["finish_reason"] = answer.reason
        if answer.model:
            attributes["model"] = clean_name(answer.model)
        body = None
        if answer.error is not None:
            attributes["error.message"] = truncate(clean_text(answer.error), ERROR_MAX)
        if answer.parts:
            shown = self._shape.render_response(answer.parts, answer.model, answer.reason)
            body = render_json(shown)
        took_ns = answer.ended_ns - answer.started_ns
        status = "error" if answer.error is not None else "ok"
        self._close(answer.span_id, status, answer.ended_ns, took_ns, attributes, body)

    def _close_turn(self, *, interrupted: bool = False) -> None:
        self._close_answer()
        turn, self._turn = self._turn, None
        if turn is None:
            return
        attributes = dict(turn.attributes)
        status = "error" if self._turn_error else "ok"
        if attributes.pop("cancelled", False):
            status = "cancelled"
        elif interrupted:
            status = "interrupted"
        if self._turn_error:
            attributes["error.message"] = truncate(clean_text(self._turn_error), ERROR_MAX)
        took_ns = self.last_ns - turn.started_ns
        text = self._answer_text or None
        self._close(turn.span_id, status, self.last_ns, took_ns, attributes, text)

    def _flush_pending(self) -> None:
        pending, self._pending, self._pending_size = self._pending, [], 0
        body = render_json(self._shape.render_request(pending))
        self.span(f"rest {self._messages}", "step", "messages without an answer", None, body)

    def _advance(self, time_ns: int | None) -> int:
        """Return the time of an entry. Times never decrease: copies have older ones."""
        if time_ns is not None and self.last_ns < time_ns <= TIME_MAX_NS:
            self.last_ns = time_ns
        return self.last_ns

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def _open(
        self,
        span_id: str,
        type_: str,
        name: str,
        parent_id: str | None,
        time_ns: int,
        attributes: Attributes,
        body: str | None,
    ) -> None:
        self._out.append(
            SpanOpen(
                VERSION,
                self.writer,
                self._next_seq(),
                time_ns,
                self.run_id,
                span_id,
                self._agent,
                type_,
                clean_name(name),
                parent_id,
                None,
                attributes,
                body=truncate(clean_text(body), BODY_MAX) if body else None,
            )
        )

    def _close(
        self,
        span_id: str,
        status: str,
        time_ns: int,
        duration_ns: int,
        attributes: Attributes,
        body: str | None = None,
    ) -> None:
        self._out.append(
            SpanClose(
                VERSION,
                self.writer,
                self._next_seq(),
                time_ns,
                self.run_id,
                span_id,
                status,
                max(0, duration_ns),
                attributes,
                truncate(clean_text(body), BODY_MAX) if body is not None else None,
            )
        )


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text[:4_000].splitlines() if line.strip()), "")
    return line if len(line) <= TITLE_MAX else f"{line[: TITLE_MAX - 1]}…"


def _error_line(text: str) -> str:
    return truncate(clean_text(text.strip()), ERROR_MAX)
