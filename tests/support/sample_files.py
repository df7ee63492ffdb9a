"""Samples of coding agents' sessions for tests/data, without the texts of their vendors.

    python tests/support/coding_agents.py NODE_MODULES OUT
    python tests/support/sample_files.py OUT tests/data

Prompts and listings of the programs are replaced by `[removed]`; paths of the machine by
/home/dev. Everything else is as the program wrote it.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

REMOVED = "[removed]"
_VENDOR_KEYS = frozenset(
    [
        *("base_instructions", "dynamic_tools", "instructions", "tools", "addedLines", "names"),
        *("systemPrompt", "system_prompt", "dynamic_context", "agent_settings", "extensions"),
    ]
)
_VENDOR_TEXTS = (
    "<skills_instructions>",
    "<permissions instructions>",
    "<collaboration_mode>",
    "<multi_agent",
    "<environment_context>",
    "<local-command-caveat>",
    "This session is being continued",
    "<session_context>",
    "- deep-research",
    "<apps_instructions>",
    "<personality",
    "You are ",
    "agentId: ",
    "## Skills",
)


def scrub(value: Any, replace: Callable[[str], str]) -> Any:
    """Return a JSON value without vendors' texts and paths of this machine."""
    if isinstance(value, str):
        found = next((each for each in _VENDOR_TEXTS if value.lstrip().startswith(each)), None)
        return replace(value) if found is None else found + REMOVED
    if isinstance(value, list):
        return [scrub(each, replace) for each in value]
    if isinstance(value, dict):
        return {
            replace(key): REMOVED if _is_vendor(key, each) else scrub(each, replace)
            for key, each in value.items()
        }
    return value


def _is_vendor(key: str, value: Any) -> bool:
    """Return whether a member has a text of the vendor. Short texts are of our scripts."""
    return key in _VENDOR_KEYS and not (isinstance(value, str) and len(value) < 100)


def copy_lines(source: Path, target: Path, replace: Callable[[str], str]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    text = source.read_text()
    if source.suffix == ".json":
        target.write_text(json.dumps(scrub(json.loads(text), replace)) + "\n")
        return
    lines = [json.dumps(scrub(json.loads(line), replace)) for line in text.splitlines()]
    target.write_text("".join(f"{line}\n" for line in lines))


def copy_database(source: Path, target: Path, replace: Callable[[str], str]) -> None:
    """Copy a database with the rows of its sessions only."""
    tables = ("project", "session", "message", "part", "sessions", "messages")
    target.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(source) as old, sqlite3.connect(target) as new:
        marks = ", ".join("?" * len(tables))
        found = old.execute(
            f"SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name IN ({marks})",
            tables,
        ).fetchall()
        for table, statement in found:
            new.execute(statement)
            rows = old.execute(f"SELECT * FROM {table}")
            marks = ", ".join("?" * len(rows.description))
            new.executemany(
                f"INSERT INTO {table} VALUES ({marks})",
                [[_scrub_cell(cell, replace) for cell in row] for row in rows],
            )
    new.close()


def _scrub_cell(cell: Any, replace: Callable[[str], str]) -> Any:
    if isinstance(cell, str) and cell.startswith(("{", "[")):
        return json.dumps(scrub(json.loads(cell), replace))
    return replace(cell) if isinstance(cell, str) else cell


def find_files(agent: str, home: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the session files of an agent, and their paths in the sample."""
    roots = {
        "claude": [(home / ".claude" / "projects", "projects")],
        "codex": [(home / ".codex" / "sessions", "sessions"), (home / "traces", "traces")],
        "gemini": [(home / ".gemini" / "tmp", "tmp")],
        "opencode": [(home / ".local" / "share" / "opencode", "")],
        "goose": [(home / ".local" / "share" / "goose" / "sessions", "")],
        "cline": [(home / ".cline" / "data" / "sessions", "sessions")],
        "openhands": [(home / ".openhands" / "conversations", "conversations")],
    }
    for root, name in roots[agent]:
        for path in sorted(root.rglob("*")):
            if path.is_file() and path.suffix in (".jsonl", ".json", ".db"):
                yield path, Path(name) / path.relative_to(root)


def copy_sample(agent: str, made: Path, target: Path) -> None:
    """Copy the sessions of one agent."""
    folder = target / {"claude": "claude_code", "gemini": "gemini_cli"}.get(agent, agent)
    for name in (
        "projects",
        "sessions",
        "traces",
        "tmp",
        "conversations",
        "opencode.db",
        "sessions.db",
    ):
        old = folder / name
        shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)
    work, home = str(made / "work"), str(made / "home")
    dashed = work.replace("/", "-")

    def replace(text: str) -> str:
        text = text.replace(work, "/home/dev/calc").replace(home, "/home/dev")
        return text.replace(dashed, "-home-dev-calc")

    for source, relative in find_files(agent, made / "home"):
        to = folder / replace(str(relative))
        (copy_database if source.suffix == ".db" else copy_lines)(source, to, replace)
    for trace in (folder / "traces").glob("trace-*"):
        _drop_payloads(trace)
    shutil.copy(made / "truth.json", folder / "truth.json")


def _drop_payloads(trace: Path) -> None:
    """Delete the payloads of protocol events, which repeat those of calls and tools."""
    used = set()
    for line in (trace / "trace.jsonl").read_text().splitlines():
        payload = json.loads(line)["payload"]
        if payload["type"].startswith(("inference_", "tool_call_started", "tool_call_ended")):
            used |= {
                trace / value["path"]
                for value in payload.values()
                if isinstance(value, dict) and "path" in value
            }
    for path in set((trace / "payloads").glob("*.json")) - used:
        path.unlink()


if __name__ == "__main__":
    for each in sorted(Path(sys.argv[1]).iterdir()):
        copy_sample(each.name, each.resolve(), Path(sys.argv[2]))
