"""Import a generated home of coding agents: `python -m bench.agent_logs [MB] [SESSIONS]`.

Two thirds of the sessions have the entries of Claude Code, one third those of Codex. What tools
read and write are files of Python's standard library. Prints the bytes per CPU second, the peak
memory, the CPU time and the time of `list`.

    python -m bench.agent_logs --make FOLDER [MB] [SESSIONS]      only make the home
"""

from __future__ import annotations

import base64
import difflib
import json
import random
import resource
import subprocess
import sys
import sysconfig
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Line = dict[str, Any]

_FILE_MAX = 60_000
_READ_LINES = 200
_FILES = 300


class Writer:
    """Writes sessions of agents that work on the files of the standard library."""

    def __init__(self) -> None:
        folder = Path(sysconfig.get_path("stdlib"))
        paths = sorted(folder.glob("*.py")) + sorted(folder.glob("*/*.py"))
        texts = [path.read_text(errors="replace") for path in paths[: 2 * _FILES]]
        self.files = [text for text in texts if 1_000 < len(text) < _FILE_MAX][:_FILES]

    def write(self, path: Path, size: int, seed: int) -> None:
        """Write one session of about `size` bytes."""
        pick = random.Random(seed)
        entries = _claude_entries if seed % 3 else _codex_entries
        written = 0
        with open(path, "w") as file:
            for entry in entries(path.stem, self, pick):
                written += file.write(json.dumps(entry, ensure_ascii=False) + "\n")
                if written >= size:
                    return

    def read_file(self, pick: random.Random) -> str:
        """Return a part of a file, as a tool that reads files does."""
        lines = pick.choice(self.files).splitlines()
        begin = pick.randrange(max(1, len(lines) - _READ_LINES))
        return "\n".join(lines[begin : begin + _READ_LINES])

    def print_lines(self, pick: random.Random) -> str:
        """Return output of a command: matching lines of several files."""
        found = []
        for number in range(pick.randrange(1, 60)):
            line = pick.choice(pick.choice(self.files).splitlines()[:400])
            found.append(f"src/pkg/module_{number % 7}.py:{pick.randrange(900)}:{line}")
        return "\n".join(found)

    def edit(self, pick: random.Random) -> tuple[str, str, str]:
        """Return a file, a part of it, and the text that replaces the part."""
        content = pick.choice(self.files)
        lines = content.splitlines(keepends=True)
        begin = pick.randrange(max(1, len(lines) - 12))
        old = "".join(lines[begin : begin + 8])
        return content, old, old + "    # checked\n" + "".join(lines[:3])


def _stamp(number: int) -> str:
    minute, second = divmod(number, 60)
    hour, minute = divmod(minute, 60)
    return f"2026-11-{1 + hour // 24 % 28:02}T{hour % 24:02}:{minute:02}:{second:02}.512Z"


def _opaque(pick: random.Random, size: int) -> str:
    return base64.b64encode(pick.randbytes(size)).decode()


def _prose(pick: random.Random) -> str:
    words = "The test fails because this module keeps the old value when a path is relative. I"
    return " ".join(pick.choices(words.split(), k=pick.randrange(10, 120)))


# --- Claude Code ----------------------------------------------------------------------------------


def _claude_entries(session: str, writer: Writer, pick: random.Random) -> Iterator[Line]:
    parent: str | None = None
    number = 0
    while True:
        for type_, fields in _claude_turn(number, writer, pick):
            number += 1
            own = str(uuid.UUID(int=pick.getrandbits(128), version=4))
            yield {
                "parentUuid": parent,
                "isSidechain": False,
                "type": type_,
                **fields,
                "uuid": own,
                "timestamp": _stamp(number),
                "userType": "external",
                "entrypoint": "cli",
                "cwd": "/home/dev/project",
                "sessionId": session,
                "version": "2.1.197",
                "gitBranch": "main",
            }
            parent = own


def _claude_turn(number: int, writer: Writer, pick: random.Random) -> Iterator[tuple[str, Line]]:
    yield "user", {"message": {"role": "user", "content": f"Task {number}: {_prose(pick)}"}}
    for step in range(30):
        key = f"msg_{number}_{step}"
        thought = {
            "type": "thinking",
            "thinking": _prose(pick),
            "signature": _opaque(pick, pick.randrange(200, 900)),
        }
        yield _claude_answer(key, thought)
        yield _claude_answer(key, {"type": "text", "text": _prose(pick)})
        name, arguments, text, beside = _claude_tool(writer, pick)
        call_id = f"toolu_{number}_{step}"
        block = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
        yield _claude_answer(key, block)
        result = {"tool_use_id": call_id, "type": "tool_result", "content": text}
        message = {"role": "user", "content": [result]}
        yield "user", {"message": message, "toolUseResult": beside}
    done = {"type": "text", "text": _prose(pick)}
    yield _claude_answer(f"msg_{number}_end", done, "end_turn")


def _claude_answer(key: str, block: Line, reason: str = "tool_use") -> tuple[str, Line]:
    usage = {
        "input_tokens": 11,
        "cache_creation_input_tokens": 301,
        "cache_read_input_tokens": 40_001,
        "output_tokens": 138,
        "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
        "service_tier": "standard",
        "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 301},
    }
    message = {
        "id": key,
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [block],
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": usage,
    }
    return "assistant", {"message": message, "requestId": f"req_{key}"}


def _claude_tool(writer: Writer, pick: random.Random) -> tuple[str, Line, str, Line]:
    """Return the name, the arguments, the result and the record beside it of a tool call."""
    path = f"/home/dev/project/src/pkg/module_{pick.randrange(90)}.py"
    kind = pick.random()
    if kind < 0.4:
        text = writer.read_file(pick)
        numbered = "\n".join(f"{at}\t{line}" for at, line in enumerate(text.split("\n"), 1))
        file = {"filePath": path, "content": text, "numLines": 200, "startLine": 1}
        return "Read", {"file_path": path}, numbered, {"type": "text", "file": file}
    if kind < 0.8:
        text = writer.print_lines(pick)
        arguments = {"command": "grep -rn checked src | head -60", "description": "Search"}
        beside = {"stdout": text, "stderr": "", "interrupted": False, "isImage": False}
        return "Bash", arguments, text, beside
    if kind < 0.95:
        content, old, new = writer.edit(pick)
        arguments = {"file_path": path, "old_string": old, "new_string": new}
        hunk = {"oldStart": 1, "oldLines": 8, "newStart": 1, "newLines": 12}
        lines = list(difflib.ndiff(old.splitlines(), new.splitlines()))
        beside = {
            "filePath": path,
            "oldString": old,
            "newString": new,
            "originalFile": content,
            "structuredPatch": [{**hunk, "lines": lines}],
        }
        return "Edit", arguments, f"The file {path} has been updated successfully.", beside
    content = pick.choice(writer.files)
    beside = {"type": "create", "filePath": path, "content": content, "structuredPatch": []}
    arguments = {"file_path": path, "content": content}
    return "Write", arguments, f"File created successfully at: {path}", beside


# --- Codex ----------------------------------------------------------------------------------------


def _codex_entries(session: str, writer: Writer, pick: random.Random) -> Iterator[Line]:
    thread = session[-36:]
    meta = {"id": thread, "cwd": "/home/dev/project", "cli_version": "0.169.0", "git": {}}
    number = 0
    yield _codex_entry(number, "session_meta", {**meta, "base_instructions": _prose(pick) * 20})
    while True:
        turn = str(uuid.UUID(int=pick.getrandbits(128), version=4))
        for type_, payload in _codex_turn(turn, number, writer, pick):
            number += 1
            yield _codex_entry(number, type_, payload)


def _codex_entry(number: int, type_: str, payload: Line) -> Line:
    return {"timestamp": _stamp(number), "ordinal": number, "type": type_, "payload": payload}


def _codex_turn(
    turn: str, number: int, writer: Writer, pick: random.Random
) -> Iterator[tuple[str, Line]]:
    context = {"turn_id": turn, "cwd": "/home/dev/project", "model": "gpt-5.5"}
    yield "event_msg", {"type": "task_started", "turn_id": turn}
    yield "turn_context", context
    content = [{"type": "input_text", "text": f"Task {number}: {_prose(pick)}"}]
    yield "response_item", {"type": "message", "role": "user", "content": content}
    for step in range(30):
        secret = _opaque(pick, pick.randrange(600, 2_000))
        yield "response_item", {"type": "reasoning", "summary": [], "encrypted_content": secret}
        yield from _codex_tool(f"call_{number}_{step}", turn, writer, pick)
        usage = {"input_tokens": 41_026, "cached_input_tokens": 40_008, "output_tokens": 318}
        yield "token_usage_record", {"turn_id": turn, "usage": usage, "thread_token_usage": usage}
        info = {"total_token_usage": usage, "last_token_usage": usage}
        yield "event_msg", {"type": "token_count", "info": info, "rate_limits": {"primary": None}}
    answer = [{"type": "output_text", "text": _prose(pick), "annotations": []}]
    yield "response_item", {"type": "message", "role": "assistant", "content": answer}
    yield "event_msg", {"type": "task_complete", "turn_id": turn}


def _codex_tool(
    call_id: str, turn: str, writer: Writer, pick: random.Random
) -> Iterator[tuple[str, Line]]:
    base = {"call_id": call_id, "internal_chat_message_metadata_passthrough": {"turn_id": turn}}
    if pick.random() < 0.2:
        _, old, new = writer.edit(pick)
        difference = "".join(f"-{line}\n" for line in old.split("\n"))
        difference += "".join(f"+{line}\n" for line in new.split("\n"))
        patch = f"*** Begin Patch\n*** Update File: a.py\n@@\n{difference}*** End Patch"
        call = {"type": "custom_tool_call", "name": "apply_patch", "input": patch, **base}
        text, result = "Exit code: 0\nOutput:\nSuccess.", "custom_tool_call_output"
        change = {"type": "update", "unified_diff": difference, "move_path": None}
        item = {"type": "FileChange", "id": call_id, "changes": {"/home/dev/project/a.py": change}}
    else:
        output = writer.read_file(pick) if pick.random() < 0.5 else writer.print_lines(pick)
        arguments = json.dumps({"cmd": "sed -n 1,200p src/pkg/module.py"})
        call = {"type": "function_call", "name": "exec_command", "arguments": arguments, **base}
        text = f"Chunk ID: 97824d\nProcess exited with code 0\nOutput:\n{output}"
        result = "function_call_output"
        item = {
            "type": "CommandExecution",
            "id": call_id,
            "command": ["/bin/bash", "-lc", "sed -n 1,200p src/pkg/module.py"],
            "aggregated_output": output,
            "exit_code": 0,
            "duration": {"secs": 0, "nanos": 10_830},
        }
    yield "response_item", call
    yield "event_msg", {"type": "item_completed", "turn_id": turn, "item": item}
    yield "response_item", {"type": result, "output": text, **base}


# --- measuring ------------------------------------------------------------------------------------


def make_home(folder: Path, megabytes: int, count: int) -> None:
    """Write sessions where the agents keep them."""
    project = folder / ".claude" / "projects" / "-home-dev-project"
    day = folder / ".codex" / "sessions" / "2026" / "11" / "18"
    project.mkdir(parents=True)
    day.mkdir(parents=True)
    writer = Writer()
    for number in range(count):
        own = f"00000000-0000-4000-8000-{number:012}"
        name = project / f"{own}.jsonl" if number % 3 else day / f"rollout-2026-11-18-{own}.jsonl"
        writer.write(name, megabytes * 1_000_000 // count, number)


def _cpu_s(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    words = sys.argv[1:]
    folder = words[words.index("--make") + 1] if "--make" in words else None
    numbers = [int(word) for word in words if word.isdigit()]
    megabytes, count = (*numbers, *(200, 100)[len(numbers) :])
    if folder is not None:
        make_home(Path(folder), megabytes, count)
        return
    with tempfile.TemporaryDirectory() as temporary:
        make_home(Path(temporary), megabytes, count)
        home = str(Path(temporary) / "home")
        base = [sys.executable, "-m", "vestige"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        for name in (".claude", ".codex"):
            command = [*base, "import", str(Path(temporary) / name), "--home", home]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        import_s = _cpu_s(after) - _cpu_s(before)
        started = time.perf_counter()
        subprocess.run([*base, "list", "--home", home], check=True, stdout=subprocess.DEVNULL)
        took_s = time.perf_counter() - started
        list_s = _cpu_s(resource.getrusage(resource.RUSAGE_CHILDREN)) - _cpu_s(after)
        print(
            f"{megabytes} MB in {count} sessions: {megabytes / import_s:.1f} MB per CPU second,"
            f" peak {after.ru_maxrss / 1000:.0f} MB, list {list_s:.2f} CPU s, {took_s:.2f} s"
        )


if __name__ == "__main__":
    main()
