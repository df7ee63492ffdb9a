"""Read a trace bundle of Codex, which has the exact requests of a session.

    manifest.json        ids; the names of the other files
    trace.jsonl          events, each with a number
    payloads/*.json      requests, responses, tool calls and results

Payloads are named by the events, but only files directly in the folder `payloads` are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from vestige.errors import UnreadableError
from vestige.formats.codex.constants import AGENT, FORMAT, MANIFEST
from vestige.formats.codex.to_records import find_exit_code, read_usage
from vestige.formats.line_reader import JsonLines, Problems, open_file, read_head
from vestige.formats.protocol import Source
from vestige.formats.provider_bodies import OPENAI_RESPONSES, Object, WireShape, render_json
from vestige.formats.session_builder import SessionBuilder
from vestige.formats.session_files import is_silent, to_count, to_text
from vestige.limits import BODY_MAX
from vestige.record.types import KnownRecord

_MANIFEST_MAX: Final = 64 * 1024
_PAYLOAD: Final = re.compile(r"payloads/([A-Za-z0-9_.-]{1,100}\.json)")
_MS: Final = 1_000_000


class Event(msgspec.Struct, gc=False):
    """A line of the trace."""

    wall_time_unix_ms: Any = None
    thread_id: Any = None
    payload: Any = None


LINES = JsonLines(Event)
EXACT: Final = WireShape(
    "openai",
    lambda each: each[-1] if each else {},
    OPENAI_RESPONSES.render_response,
    is_exact=True,
)
"""The request is a payload itself."""


def read_trace(folder: Path) -> Source:
    """Read a trace bundle."""
    try:
        manifest = msgspec.json.decode(read_head(folder / MANIFEST, _MANIFEST_MAX))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        manifest = None
    if not isinstance(manifest, dict) or not to_text(manifest.get("trace_id")):
        raise UnreadableError(f"{folder / MANIFEST}: not the manifest of a Codex trace.")
    reader = TraceReader(folder, to_text(manifest["trace_id"]))
    reader.root_thread = to_text(manifest.get("root_thread_id"))
    reader.main.facts["source_session_id"] = to_text(manifest.get("rollout_id"))
    problems = Problems(str(folder / "trace.jsonl"))
    records = reader.read(problems)
    return Source(reader.main.run_id, reader.main.writer, records, problems.list, mergeable=True)


class TraceReader:
    """Converts the events of one bundle, in order."""

    def __init__(self, folder: Path, trace_id: str) -> None:
        self._folder = folder
        self._id = trace_id
        self.main = SessionBuilder(FORMAT, f"trace {trace_id}", EXACT, AGENT)
        self.root_thread = ""
        self._threads: dict[str, SessionBuilder] = {}
        self._spawn_id: str | None = None
        """Span of the latest tool call that starts a thread."""

    def read(self, problems: Problems) -> Iterator[KnownRecord]:
        """Yield the records of all threads."""
        path = self._folder / "trace.jsonl"
        for number, _, event in LINES.read(path, problems):
            payload = event.payload if isinstance(event.payload, dict) else {}
            time_ms = to_count(event.wall_time_unix_ms)
            thread = to_text(payload.get("thread_id")) or to_text(event.thread_id)
            builder = self._get_builder(thread)
            self._add(builder, number, time_ms * _MS if time_ms else None, payload)
            yield from builder.drain()
        for builder in (self.main, *self._threads.values()):
            yield from builder.end(is_dead=is_silent(path, builder.last_ns))

    def _get_builder(self, thread: str) -> SessionBuilder:
        if thread in ("", self.root_thread):
            return self.main
        builder = self._threads.get(thread)
        if builder is None:
            builder = self._threads[thread] = SessionBuilder(
                FORMAT,
                f"trace {self._id}",
                EXACT,
                "sub-agent",
                stream=thread,
                parent_id=self._spawn_id or self.main.top_id,
            )
            builder.facts.update({"agent_name": "sub-agent", "agent_id": thread})
        return builder

    def _add(
        self, builder: SessionBuilder, number: int, time_ns: int | None, event: Object
    ) -> None:
        match event.get("type"):
            case "inference_started":
                self._add_request(builder, time_ns, event)
            case "inference_completed" | "inference_failed" | "inference_cancelled":
                self._add_response(builder, time_ns, event)
            case "tool_call_started":
                self._add_call(builder, time_ns, event)
            case "tool_call_ended":
                self._add_result(builder, time_ns, event)
            case "codex_turn_ended" | "thread_ended" | "rollout_ended":
                builder.finish_turn()

    def _add_request(self, builder: SessionBuilder, time_ns: int | None, event: Object) -> None:
        request = self._read_payload(event.get("request_payload"))
        prompt, text = _find_prompt(request)
        if prompt and not builder.is_prompted(prompt):
            builder.prompt(prompt, time_ns, request, text)
        else:
            builder.context(request, time_ns)
        key = to_text(event.get("inference_call_id"))
        builder.answer(key, time_ns, [], model=to_text(event.get("model")) or None, facts={})

    def _add_response(self, builder: SessionBuilder, time_ns: int | None, event: Object) -> None:
        key = to_text(event.get("inference_call_id"))
        response = self._read_payload(event.get("response_payload"))
        items = response.get("output_items")
        parts = (
            [each for each in items if isinstance(each, dict)] if isinstance(items, list) else []
        )
        error = to_text(event.get("error")) or None
        if event.get("type") != "inference_completed":
            error = error or to_text(event.get("type")).replace("_", " ")
        builder.answer(key, time_ns, parts, text=_find_text(parts), error=error)
        builder.usage(key, read_usage(response.get("token_usage")))
        if error:
            builder.finish_turn(error)

    def _add_call(self, builder: SessionBuilder, time_ns: int | None, event: Object) -> None:
        call_id = to_text(event.get("tool_call_id"))
        payload = self._read_payload(event.get("invocation_payload"))
        call = payload.get("payload")
        arguments = call.get("arguments", call.get("input")) if isinstance(call, dict) else None
        name = to_text(payload.get("tool_name")) or "tool"
        text = arguments if isinstance(arguments, str) else render_json(arguments)
        span_id = builder.call(call_id, time_ns, name, text)
        if name == "spawn_agent":
            self._spawn_id = span_id

    def _add_result(self, builder: SessionBuilder, time_ns: int | None, event: Object) -> None:
        call_id = to_text(event.get("tool_call_id"))
        payload = self._read_payload(event.get("result_payload"))
        item = payload.get("response_item")
        output = item.get("output") if isinstance(item, dict) else None
        text = output if isinstance(output, str) else render_json(output)
        exit_code = find_exit_code(text)
        failed = to_text(event.get("status")) not in ("completed", "success", "")
        facts = {} if exit_code is None else {"exit_code": exit_code}
        is_error = failed or exit_code not in (None, 0)
        builder.result(call_id, time_ns, None, text, is_error=is_error, facts=facts)

    def _read_payload(self, reference: Any) -> Object:
        """Read a payload that an event refers to."""
        path = to_text(reference.get("path")) if isinstance(reference, dict) else ""
        found = _PAYLOAD.fullmatch(path)
        if found is None or (self._folder / "payloads").is_symlink():
            return {}
        try:
            with open_file(self._folder / "payloads" / found[1]) as file:
                data = file.read(BODY_MAX + 1)
            value = msgspec.json.decode(data) if len(data) <= BODY_MAX else None
        except (UnreadableError, OSError, ValueError, msgspec.DecodeError, RecursionError):
            value = None
        return value if isinstance(value, dict) else {}


def _find_prompt(request: Object) -> tuple[str, str]:
    """Return the id and the text of the last message that the user wrote."""
    items = request.get("input")
    for item in reversed(items) if isinstance(items, list) else ():
        if not isinstance(item, dict) or item.get("role") != "user":
            continue
        text = _find_text([item])
        if text.strip() and not re.match(r"\s*<[a-z_]+[ >]", text):
            return to_text(item.get("id")) or text[:200], text
    return "", ""


def _find_text(items: list[Object]) -> str:
    texts: list[str] = []
    for item in items:
        content = item.get("content") if item.get("type") == "message" else None
        parts = content if isinstance(content, list) else []
        texts += [to_text(part.get("text")) for part in parts if isinstance(part, dict)]
    return "\n".join(filter(None, texts))
