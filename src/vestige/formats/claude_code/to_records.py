"""Entries of a session as records.

    user, text                a turn; notices of the program are input of the next answer
    user, tool_result         the end of a tool
    assistant                 a model call; one answer has several entries with one message id
    assistant, <synthetic>    an error of the provider, or a log record
    system, compact_boundary  a span `compaction`
    attachment                hooks are spans; listings of agents and skills are left out

Usage is repeated in each entry of an answer, so the last one counts. Entries that a fork copied
are older than the file, or belong to another session: they are shown without tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from vestige.formats.claude_code.constants import (
    AGENT,
    AGENT_TOOLS,
    FILE_TOOLS,
    FORMAT,
    SYNTHETIC,
    Entry,
    SubagentMeta,
)
from vestige.formats.claude_code.result_files import read_result_file
from vestige.formats.provider_bodies import ANTHROPIC, Object, render_json
from vestige.formats.session_builder import SessionBuilder
from vestige.formats.session_files import count_attributes, to_count, to_text
from vestige.formats.times_and_outcomes import parse_time_ns
from vestige.record.types import Attributes

PATCH_MAX: Final = 16 * 1024
"""Characters of the difference of an edited file."""
_INTERRUPTED: Final = "[Request interrupted by user"
_NOTICES: Final = (
    "<local-command-", "<command-name>", "<command-message>", "<bash-", "<system-reminder>",
    "Caveat: ",
)  # fmt: skip
_DENIALS: Final = (
    "The user doesn't want to",
    "The user doesn't want to proceed",
    "Claude requested permissions",
    "This command requires approval",
    "Permission to use",
    "was blocked. For security",
    "was blocked by a hook",
)


class SessionReader:
    """Converts the entries of one file, in order."""

    def __init__(self, path: Path, builder: SessionBuilder | None = None) -> None:
        self._path = path
        self._session_id = path.stem
        self.builder = builder or SessionBuilder(FORMAT, path.stem, ANTHROPIC, AGENT)
        self._is_main = builder is None
        self._first_ns: int | None = None
        self._parents: str | None = None
        self._tools: dict[str, str] = {}
        self.builder.facts["source_session_id"] = path.stem

    def open_subagent(self, path: Path, meta: SubagentMeta) -> SessionReader:
        """Return the reader of a sub-agent's session."""
        call_id = to_text(meta.tool_use_id)
        parent_id = self.builder.span_id("tool", call_id) if call_id else self.builder.top_id
        return self._open_side(path, path.stem, to_text(meta.agent_type), parent_id, meta)

    def _open_side(
        self, path: Path, key: str, agent: str, parent_id: str, meta: SubagentMeta
    ) -> SessionReader:
        builder = SessionBuilder(
            FORMAT,
            self._session_id,
            ANTHROPIC,
            agent or "sub-agent",
            stream=key,
            parent_id=parent_id,
        )
        builder.title = to_text(meta.description) or agent
        builder.facts.update({"agent_name": agent or "sub-agent", "agent_id": key})
        if to_text(meta.tool_use_id):
            builder.facts["tool_call_id"] = to_text(meta.tool_use_id)
        return SessionReader(path, builder)

    def add(self, number: int, size: int, entry: Entry) -> None:
        """Add the entry of a line."""
        self.builder.entry_size = size
        time_ns = parse_time_ns(entry.timestamp)
        if self._first_ns is None and time_ns is not None:
            self._first_ns = time_ns
        self._add_facts(entry)
        match entry.type:
            case "user":
                self._add_user(number, time_ns, entry)
            case "assistant":
                self._add_assistant(number, time_ns, entry)
            case "system":
                self._add_system(number, time_ns, entry)
            case "attachment":
                self._add_attachment(number, time_ns, entry)
            case "custom-title" | "ai-title":
                self.builder.title = to_text(entry.custom_title) or to_text(entry.ai_title)

    def _add_facts(self, entry: Entry) -> None:
        facts = self.builder.facts
        for name, value in (
            ("cwd", entry.cwd),
            ("agent_version", entry.version),
            ("git_branch", entry.git_branch),
        ):
            if name not in facts and isinstance(value, str) and value:
                facts[name] = value[:1_000]

    def _is_copied(self, time_ns: int | None, entry: Entry) -> bool:
        """Return whether a fork or a resumption copied an entry from another session."""
        if not self._is_main:
            return False
        other = isinstance(entry.session_id, str) and entry.session_id != self._session_id
        older = time_ns is not None and self._first_ns is not None and time_ns < self._first_ns
        return other or older

    # --- the user ---------------------------------------------------------------------------------

    def _add_user(self, number: int, time_ns: int | None, entry: Entry) -> None:
        message = entry.message if isinstance(entry.message, dict) else {}
        content = message.get("content")
        results = _blocks(content, "tool_result")
        for block in results:
            self._add_result(time_ns, entry, block)
        if results:
            return
        message = {"role": "user", "content": content}
        text = _text(content)
        key = to_text(entry.uuid) or str(number)
        if entry.is_compact_summary or entry.is_meta or text.lstrip().startswith(_NOTICES):
            self.builder.context(message, time_ns)
        elif text.startswith(_INTERRUPTED):
            self.builder.log("warn", text.strip("[]"), time_ns)
            self.builder.context(message, time_ns)
            self.builder.finish_turn(is_cancelled=True)
        else:
            facts: Attributes = {"message_id": key}
            if self._is_copied(time_ns, entry):
                facts["copied"] = True
            if self._parents is not None and entry.parent_uuid != self._parents:
                facts["parent_uuid"] = to_text(entry.parent_uuid)
            self.builder.prompt(key, time_ns, message, text, facts=facts)

    def _add_result(self, time_ns: int | None, entry: Entry, block: Object) -> None:
        call_id = to_text(block.get("tool_use_id"))
        is_error = bool(block.get("is_error"))
        content = block.get("content")
        text = content if isinstance(content, str) else _result_text(content)
        facts: Attributes = {}
        if is_error and any(phrase in text[:400] for phrase in _DENIALS):
            facts["error.type"] = "PermissionDenied"
        complete = read_result_file(self._path, text)
        if complete is not None:
            facts["result_shortened"] = True  # the model got the preview, the tool's output is here
        name = self._tools.pop(call_id, "")
        if name in FILE_TOOLS or name in AGENT_TOOLS:
            facts.update(_result_facts(entry.tool_use_result))
        if isinstance(content, list):
            media = [each for each in content if isinstance(each, dict) and "source" in each]
        else:
            media = []
        preview = text if complete is not None else None
        shown = {"type": "tool_result", "tool_use_id": call_id, "content": media or preview}
        message = {"role": "user", "content": [shown]}
        text = text if complete is None else complete
        self.builder.result(call_id, time_ns, message, text, is_error=is_error, facts=facts)

    # --- the model --------------------------------------------------------------------------------

    def _add_assistant(self, number: int, time_ns: int | None, entry: Entry) -> None:
        message = entry.message if isinstance(entry.message, dict) else {}
        content = message.get("content")
        blocks = (
            [block for block in content if isinstance(block, dict)]
            if isinstance(content, list)
            else [{"type": "text", "text": to_text(content)}]
        )
        if message.get("model") == SYNTHETIC:
            self._add_synthetic(number, time_ns, entry, _text(blocks))
            return
        key = to_text(message.get("id")) or to_text(entry.uuid) or str(number)
        copied = self._is_copied(time_ns, entry)
        facts: Attributes = {"message_id": key}
        if copied:
            facts["copied"] = True
        if isinstance(entry.request_id, str):
            facts["request_id"] = entry.request_id
        reason = to_text(message.get("stop_reason")) or None
        self.builder.answer(
            key,
            time_ns,
            blocks,
            text=_text(blocks),
            model=to_text(message.get("model")) or None,
            reason=reason,
            facts=facts,
        )
        if not copied:
            self.builder.usage(key, read_usage(message.get("usage")))
        if reason in ("end_turn", "stop_sequence", "max_tokens", "refusal"):
            self.builder.finish_turn()
        for block in blocks:
            if block.get("type") == "tool_use":
                self._add_call(time_ns, block)

    def _add_call(self, time_ns: int | None, block: Object) -> None:
        call_id, name = to_text(block.get("id")), to_text(block.get("name")) or "tool"
        if not call_id or self.builder.is_open(call_id):
            return
        self._tools[call_id] = name
        arguments = block.get("input")
        self.builder.call(call_id, time_ns, name, render_json(arguments))

    def _add_synthetic(self, number: int, time_ns: int | None, entry: Entry, text: str) -> None:
        key = to_text(entry.uuid) or str(number)
        if not entry.is_api_error_message:
            self.builder.log("info", text, time_ns)
            return
        facts: Attributes = {"message_id": key, "error.type": "APIError"}
        status = to_count(entry.api_error_status)
        if status is not None:
            facts["status_code"] = status
        self.builder.answer(key, time_ns, [], text=text, error=text, facts=facts)
        self.builder.finish_turn(text)

    # --- the program ------------------------------------------------------------------------------

    def _add_system(self, number: int, time_ns: int | None, entry: Entry) -> None:
        key = to_text(entry.uuid) or str(number)
        if entry.subtype == "compact_boundary":
            facts = entry.compact_metadata if isinstance(entry.compact_metadata, dict) else {}
            before = to_count(facts.get("preTokens"))
            self.builder.span(
                key,
                "compaction",
                "compaction",
                time_ns,
                duration_ns=(to_count(facts.get("durationMs")) or 0) * 1_000_000,
                facts={
                    "trigger": to_text(facts.get("trigger")),
                    **count_attributes(tokens_before=before, tokens_after=facts.get("postTokens")),
                },
            )
        elif isinstance(entry.content, str) and entry.content:
            level = {"error": "error", "warning": "warn"}.get(to_text(entry.level), "info")
            facts = {"subtype": entry.subtype} if isinstance(entry.subtype, str) else {}
            self.builder.log(level, entry.content, time_ns, facts=facts)

    def _add_attachment(self, number: int, time_ns: int | None, entry: Entry) -> None:
        attachment = entry.attachment if isinstance(entry.attachment, dict) else {}
        kind = to_text(attachment.get("type"))
        if kind.startswith("hook_"):
            key = to_text(entry.uuid) or str(number)
            failed = attachment.get("exitCode") not in (0, None) or "error" in kind
            self.builder.span(
                key,
                "hook",
                to_text(attachment.get("hookName")) or "hook",
                time_ns,
                to_text(attachment.get("command")) or None,
                duration_ns=(to_count(attachment.get("durationMs")) or 0) * 1_000_000,
                status="error" if failed else "ok",
                output=to_text(attachment.get("stdout")) + to_text(attachment.get("stderr")),
                facts=count_attributes(exit_code=attachment.get("exitCode")),
            )
        elif kind == "file":
            name = to_text(attachment.get("filename"))
            self.builder.log("info", f"attached {name}", time_ns)
        elif kind == "queued_command":
            content = attachment.get("prompt")
            self.builder.context({"role": "user", "content": content}, time_ns)


# --- parts of messages ----------------------------------------------------------------------------


def read_usage(usage: Any) -> Attributes:
    """Return the tokens of an answer. Input includes reads and writes of the cache."""
    if not isinstance(usage, dict):
        return {}
    fresh = to_count(usage.get("input_tokens"))
    read = to_count(usage.get("cache_read_input_tokens"))
    written = to_count(usage.get("cache_creation_input_tokens"))
    total = None if fresh is None else fresh + (read or 0) + (written or 0)
    return count_attributes(
        input_tokens=total,
        output_tokens=usage.get("output_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
    )


def _result_facts(raw: msgspec.Raw) -> Attributes:
    """Return what is stored beside the result of a tool that edits files or starts agents."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    if not isinstance(value, dict):
        return {}
    facts: Attributes = {}
    if isinstance(value.get("agentId"), str):
        facts["agent_id"] = value["agentId"]
    patch = render_patch(value.get("structuredPatch"))
    if patch:
        facts["file_diff"] = patch[:PATCH_MAX]
    return facts


def render_patch(hunks: Any) -> str:
    """Return the hunks of an edited file as a unified difference."""
    lines: list[str] = []
    for hunk in hunks if isinstance(hunks, list) else ():
        if not isinstance(hunk, dict):
            continue
        old, new = (
            f"{to_count(hunk.get(f'{side}Start')) or 0},{to_count(hunk.get(f'{side}Lines')) or 0}"
            for side in ("old", "new")
        )
        lines.append(f"@@ -{old} +{new} @@")
        changed = hunk.get("lines")
        lines += (
            [line for line in changed if isinstance(line, str)] if isinstance(changed, list) else []
        )
    return "\n".join(lines)


def _blocks(content: Any, kind: str) -> list[Object]:
    if not isinstance(content, list):
        return []
    return [each for each in content if isinstance(each, dict) and each.get("type") == kind]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(to_text(block.get("text")) for block in _blocks(content, "text"))


def _result_text(content: Any) -> str:
    """Return the text of a result. Media are named; the next model call has them."""
    parts = []
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, dict):
            continue
        if block.get("type") == "text":
            parts.append(to_text(block.get("text")))
        elif block.get("type") in ("image", "document"):
            source = block.get("source")
            media = to_text(source.get("media_type")) if isinstance(source, dict) else ""
            parts.append(f"[{media or block['type']}]")
        else:
            parts.append(render_json(block))
    return "\n".join(parts)
