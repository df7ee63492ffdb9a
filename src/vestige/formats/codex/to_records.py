"""Entries of a rollout as records.

    session_meta, turn_context        facts of the session; the model
    response_item, message            a prompt, an answer, or a notice of the program
    response_item, *_call             a tool call, part of an answer
    response_item, *_call_output      the result of a tool
    token_usage_record                tokens of an answer; it ends the answer
    event_msg, token_count            the same in older versions, also repeated
    event_msg, item_completed         exit codes, durations and differences of files
    compacted                         a span `compaction`

Results and texts occur twice, as event and as item: the items are read, and events add facts.
A fork of an older version begins with a copy of its parent's entries, after a second
`session_meta`. They are shown as copied, without tokens. Newer versions only name the parent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from vestige.formats.codex.constants import AGENT, FORMAT, Entry
from vestige.formats.provider_bodies import OPENAI_RESPONSES, Object, render_json
from vestige.formats.session_builder import SessionBuilder
from vestige.formats.session_files import count_attributes, to_count, to_text
from vestige.formats.times_and_outcomes import parse_time_ns
from vestige.record.types import Attributes

PATCH_MAX: Final = 16 * 1024
_NOTICE: Final = re.compile(r"\s*(?:<[a-z_]+[ >]|# AGENTS\.md|# Context from )")
_EXIT: Final = re.compile(r"(?:Process exited with code|Exit code:) (-?\d+)")
_AGENT_ID: Final = re.compile(r'"agent_id"\s*:\s*"([0-9a-f-]{36})"')
_UUID7: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_COPY_NS: Final = 2_000_000_000
"""Nanoseconds that writing the copy of a fork takes at most."""
_CALLS: Final = frozenset(
    ["function_call", "custom_tool_call", "local_shell_call", "web_search_call", "mcp_tool_call",
     "tool_search_call", "image_generation_call"]
)  # fmt: skip
_NOISE: Final = frozenset(["internal_chat_message_metadata_passthrough", "encrypted_content"])


@dataclass(frozen=True, slots=True)
class SubAgent:
    """A sub-agent that a tool call started."""

    thread: str
    parent_id: str
    """Span of the tool call."""
    name: str


class RolloutReader:
    """Converts the entries of one rollout, in order."""

    def __init__(self, thread: str, builder: SessionBuilder | None = None) -> None:
        self.thread = thread
        self.builder = builder or SessionBuilder(FORMAT, thread, OPENAI_RESPONSES, AGENT)
        self.builder.facts["source_session_id"] = thread
        self.agents: list[SubAgent] = []
        self._model: str | None = None
        self._answers = 0
        self._answer: str | None = None
        """Key of the answer that gets parts."""
        self._last_answer: str | None = None
        """Key of the latest answer, until its tokens are known."""
        self._total: Any = None
        self._own_id: str | None = None
        self._copied_ns: int | None = None
        """Time of the entry that begins a copy of the parent's entries, while it lasts."""
        self._names: dict[str, str] = {}

    def open_subagent(self, agent: SubAgent) -> RolloutReader:
        """Return the reader of a sub-agent's rollout."""
        builder = SessionBuilder(
            FORMAT,
            self.thread,
            OPENAI_RESPONSES,
            agent.name,
            stream=agent.thread,
            parent_id=agent.parent_id,
        )
        builder.facts.update({"agent_name": agent.name, "agent_id": agent.thread})
        reader = RolloutReader(self.thread, builder)
        reader.builder.facts["source_session_id"] = agent.thread
        return reader

    def add(self, number: int, size: int, entry: Entry) -> None:
        """Add the entry of a line."""
        self.builder.entry_size = size
        payload = entry.payload if isinstance(entry.payload, dict) else {}
        time_ns = parse_time_ns(entry.timestamp)
        self._end_copy(time_ns, payload)
        match entry.type:
            case "session_meta":
                self._add_meta(payload)
                self._begin_copy(time_ns, payload)
            case "turn_context":
                self._model = to_text(payload.get("model")) or self._model
            case "response_item":
                self._add_item(number, time_ns, payload)
            case "event_msg":
                self._add_event(number, time_ns, payload)
            case "token_usage_record":
                self._add_usage(read_usage(payload.get("usage")))
            case "compacted":
                self._add_compaction(number, time_ns, payload)

    def _add_meta(self, payload: Object) -> None:
        facts = self.builder.facts
        git = payload.get("git")
        branch = git.get("branch") if isinstance(git, dict) else None
        for name, value in (
            ("cwd", payload.get("cwd")),
            ("agent_version", payload.get("cli_version")),
            ("git_branch", branch),
            ("forked_from", payload.get("forked_from_id")),
        ):
            if name not in facts and isinstance(value, str) and value:
                facts[name] = value[:1_000]

    def _begin_copy(self, time_ns: int | None, payload: Object) -> None:
        """Mark what follows as copied, if the entry describes another thread."""
        thread = to_text(payload.get("id"))
        if self._own_id is None:
            self._own_id = thread
        elif thread and thread != self._own_id and "forked_from" in self.builder.facts:
            self._copied_ns = time_ns

    def _end_copy(self, time_ns: int | None, payload: Object) -> None:
        """End a copy at the first turn that is younger than the thread.

        Ids are UUIDv7, which begin with a time. A copy is written at once, so what comes later is
        not a part of it; versions without ids of turns are read by that.
        """
        if self._copied_ns is None:
            return
        turn, own = to_text(payload.get("turn_id")), self._own_id or ""
        is_younger = _UUID7.fullmatch(turn) and _UUID7.fullmatch(own) and turn > own
        if is_younger or (time_ns or 0) > self._copied_ns + _COPY_NS:
            self._copied_ns = None

    # --- items of the history ---------------------------------------------------------------------

    def _add_item(self, number: int, time_ns: int | None, item: Object) -> None:
        kind = to_text(item.get("type"))
        item = {key: value for key, value in item.items() if key not in _NOISE}
        if kind == "message" and item.get("role") != "assistant":
            self._add_message(number, time_ns, item)
        elif kind.endswith("_output"):
            self._add_output(time_ns, item)
        elif kind in ("message", "reasoning") or kind in _CALLS:
            self._add_part(time_ns, item)
            if kind in _CALLS:
                self._add_call(time_ns, item)

    def _add_message(self, number: int, time_ns: int | None, item: Object) -> None:
        self._answer = None
        text = _content_text(item.get("content"))
        if item.get("role") == "user" and text.strip() and not _NOTICE.match(text):
            key = to_text(item.get("id")) or str(number)
            self.builder.prompt(key, time_ns, item, text, facts=self._copy_facts())
        else:
            self.builder.context(item, time_ns)

    def _add_part(self, time_ns: int | None, item: Object) -> None:
        if self._answer is None:
            self._answers += 1
            self._answer = self._last_answer = str(self._answers)
        self.builder.answer(
            self._answer,
            time_ns,
            [item],
            text=_content_text(item.get("content")) if item.get("type") == "message" else "",
            model=self._model,
            facts=self._copy_facts(),
        )

    def _copy_facts(self) -> Attributes:
        return {} if self._copied_ns is None else {"copied": True}

    def _add_call(self, time_ns: int | None, item: Object) -> None:
        call_id = to_text(item.get("call_id")) or to_text(item.get("id"))
        if not call_id or self.builder.is_open(call_id):
            return
        name = to_text(item.get("name")) or to_text(item.get("type")).removesuffix("_call")
        arguments = item.get("arguments", item.get("input", item.get("action")))
        text = arguments if isinstance(arguments, str) else render_json(arguments)
        self._names[call_id] = name
        facts = {"tool_namespace": item["namespace"]} if "namespace" in item else {}
        self.builder.call(call_id, time_ns, name, text, facts=facts)

    def _add_output(self, time_ns: int | None, item: Object) -> None:
        self._answer = None
        call_id = to_text(item.get("call_id"))
        output = item.get("output")
        text = output if isinstance(output, str) else _content_text(output)
        if isinstance(output, dict):
            text = to_text(output.get("content")) or render_json(output)
        name = self._names.pop(call_id, "")
        exit_code = find_exit_code(text)
        is_error = exit_code not in (None, 0) or text.startswith(("unsupported ", "err: "))
        is_error = is_error or (isinstance(output, dict) and output.get("success") is False)
        facts: Attributes = {} if exit_code is None else {"exit_code": exit_code}
        if name == "spawn_agent" and (agent := _AGENT_ID.search(text)) is not None:
            nickname = re.search(r'"nickname"\s*:\s*"([^"]{1,100})"', text)
            agent_name = nickname[1] if nickname else "sub-agent"
            self.agents.append(
                SubAgent(agent[1], self.builder.span_id("tool", call_id), agent_name)
            )
        media = [each for each in output if _is_media(each)] if isinstance(output, list) else []
        shown = {"type": item["type"], "call_id": call_id, "output": media or ""}
        self.builder.result(call_id, time_ns, shown, text, is_error=is_error, facts=facts)

    # --- events -----------------------------------------------------------------------------------

    def _add_event(self, number: int, time_ns: int | None, payload: Object) -> None:
        match payload.get("type"):
            case "item_completed" if isinstance(payload.get("item"), dict):
                self._add_completed(payload["item"])
            case "patch_apply_end" | "exec_command_end":
                self._add_completed({**payload, "id": payload.get("call_id")})
            case "token_count" if isinstance(info := payload.get("info"), dict):
                # Repeated without a new call, so that only a change of the total counts.
                if info.get("total_token_usage") != self._total:
                    self._total = info.get("total_token_usage")
                    self._add_usage(read_usage(info.get("last_token_usage")))
            case "task_complete":
                error = payload.get("error")
                message = to_text(error.get("message")) if isinstance(error, dict) else ""
                if message:
                    self._add_error(number, time_ns, message)
                self.builder.finish_turn(message or None)
            case "turn_aborted":
                self.builder.log("warn", "turn aborted", time_ns)
                self.builder.finish_turn(is_cancelled=True)
            case "error" | "stream_error" | "warning" as kind:
                level = "error" if kind == "error" else "warn"
                self.builder.log(level, to_text(payload.get("message")) or kind, time_ns)

    def _add_completed(self, item: Object) -> None:
        call_id = to_text(item.get("id"))
        facts = count_attributes(exit_code=item.get("exit_code"))
        changes = item.get("changes")
        if isinstance(changes, dict):
            facts["file_diff"] = render_changes(changes)[:PATCH_MAX]
        if facts:
            self.builder.tool_facts(call_id, facts)

    def _add_error(self, number: int, time_ns: int | None, message: str) -> None:
        """Add the model call that failed, of which a rollout has nothing else."""
        self._answer = None
        facts = {"error.type": "APIError"}
        self.builder.answer(
            f"error {number}", time_ns, [], model=self._model, error=message, facts=facts
        )

    def _add_usage(self, usage: Attributes) -> None:
        if self._last_answer is not None and self._copied_ns is None:
            self.builder.usage(self._last_answer, usage)
        self._last_answer = self._answer = None

    def _add_compaction(self, number: int, time_ns: int | None, payload: Object) -> None:
        summary = to_text(payload.get("message"))
        self.builder.span(str(number), "compaction", "compaction", time_ns, output=summary or None)
        self.builder.context({"type": "message", "role": "user", "content": summary}, time_ns)


def read_usage(usage: Any) -> Attributes:
    """Return the tokens of an answer. Input includes what was read from the cache."""
    if not isinstance(usage, dict):
        return {}
    return count_attributes(
        input_tokens=usage.get("input_tokens"),
        output_tokens=usage.get("output_tokens"),
        cache_read_tokens=usage.get("cached_input_tokens"),
        cache_write_tokens=to_count(usage.get("cache_write_input_tokens")) or None,
        reasoning_tokens=usage.get("reasoning_output_tokens"),
    )


def find_exit_code(text: str) -> int | None:
    """Return the exit code that is written before the output of a command."""
    found = _EXIT.search(text[:400])
    return int(found[1][:9]) if found else None


def render_changes(changes: Object) -> str:
    """Return changed files as one difference."""
    parts = []
    for path, change in changes.items():
        if not isinstance(change, dict):
            continue
        kind = to_text(change.get("type"))
        old, new = path, to_text(change.get("move_path")) or path
        text = to_text(change.get("unified_diff"))
        if not text:
            lines = to_text(change.get("content")).splitlines()
            sign = "-" if kind == "delete" else "+"
            count = f"-1,{len(lines)} +0,0" if kind == "delete" else f"-0,0 +1,{len(lines)}"
            text = "\n".join([f"@@ {count} @@", *(f"{sign}{line}" for line in lines)])
        header = [
            "--- " + ("/dev/null" if kind == "add" else old),
            "+++ " + ("/dev/null" if kind == "delete" else new),
        ]
        parts.append("\n".join([*header, text.rstrip("\n")]))
    return "\n".join(parts)


def _is_media(part: Any) -> bool:
    return isinstance(part, dict) and "image" in to_text(part.get("type"))


def _content_text(content: Any) -> str:
    """Return the text of a message or a result. Media are named; the next model call has them."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [
        to_text(each.get("text")) or ("[image]" if _is_media(each) else "")
        for each in parts
        if isinstance(each, dict)
    ]
    return "\n".join(text for text in texts if text)
