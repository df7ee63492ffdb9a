"""Finish a run on disk whose program died: `running` becomes `error`, with the actual counts.

A truncated last line is completed. An ERROR event `Interrupted` and a RUN_END are added in one
write, then run.json is replaced. If that is interrupted, the next call completes it. Finished runs
and runs that may still be alive (formats/agentdbg/liveness.py) are skipped, also recent copies.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

from vestige.errors import UnreadableError
from vestige.formats.agentdbg.constants import FORMAT
from vestige.formats.agentdbg.detect import is_run, is_v2
from vestige.formats.agentdbg.file_structs import (
    EVENTS_FILE,
    META_KEY,
    RUN_FILE,
    SPEC_VERSION,
    Counts,
    Event,
    RunFile,
    no_counts,
    parse_timestamp,
    render_event,
    render_run,
    timestamp,
)
from vestige.formats.agentdbg.liveness import is_dead
from vestige.formats.agentdbg.parse_event import Line, take_text
from vestige.formats.agentdbg.read import Problems, load_json, read_lines, source_id_of
from vestige.formats.protocol import derived_run_id, derived_uuid


class _Story:
    """The facts about a run that its events contain."""

    def __init__(self) -> None:
        self.counts: Counts = no_counts()
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self.start_id: str | None = None
        self.error_id: str | None = None
        self.name: str | None = None
        self.end_status: str | None = None
        self.ours = False
        self.torn = False


def recover_run(path: Path) -> str | None:
    """Finish one run: "" if it was, or why it is left alone; None if there was nothing to do."""
    if not is_run(path) or is_v2(path):
        return None
    run = load_json(path / RUN_FILE, Problems())
    if run.get("status") in ("ok", "error"):
        return None
    events = path / EVENTS_FILE
    if not is_dead(events, ours=_read(path).ours):
        return "a process may still write to it"
    try:
        fd = os.open(events, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be finished ({error.strerror}).") from None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return "another process recovers it"
        story = _read(path)
        if story.torn:
            os.write(fd, b"\n")
            story = _read(path)  # an event of which only the end of its line was missing is one now
        _finish(path, fd, run, story)
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be finished ({error.strerror}).") from None
    finally:
        os.close(fd)
    return ""


def _read(path: Path) -> _Story:
    story = _Story()
    problems = Problems()
    for event in read_lines(path / EVENTS_FILE, problems):
        story.counts.add(event.event_type)
        at = parse_timestamp(event.ts)
        if at is not None:
            story.first_ns = at if story.first_ns is None else story.first_ns
            story.last_ns = at
        if not isinstance(event, Line):
            continue
        if event.event_type == "RUN_START" and story.start_id is None:
            story.start_id, story.name = event.event_id, event.name
            story.ours = b'"vestige"' in bytes(event.meta)
        elif event.event_type == "ERROR":
            story.error_id = event.event_id
        elif event.event_type == "RUN_END":
            story.end_status = take_text(event.payload.get("status")) or "error"
    story.torn = any(problem.rule == "line-torn" for problem in problems.list)
    return story


def _finish(path: Path, fd: int, run: dict[str, Any], story: _Story) -> None:
    run_id = derived_run_id(FORMAT, source_id_of(path, run, "run_id", Problems()))
    started_ns = parse_timestamp(run.get("started_at"))
    if started_ns is None:
        started_ns = story.first_ns if story.first_ns is not None else os.fstat(fd).st_mtime_ns
    ended_ns = max(started_ns, story.last_ns if story.last_ns is not None else started_ns)
    took_ms = (ended_ns - started_ns) // 1_000_000
    if story.end_status is None:
        begun = story.error_id == _error_id(run_id)  # by a process that was killed while recovering
        story.counts.errors += not begun
        events = _last_events(run_id, story, ended_ns, took_ms)[begun:]
        lines = b"".join(map(render_event, events))
        os.write(fd, lines)
        os.fsync(fd)
    name = run.get("run_name")
    _replace(
        path / RUN_FILE,
        render_run(
            RunFile(
                SPEC_VERSION,
                run_id,
                name if isinstance(name, str) else story.name,
                timestamp(started_ns),
                timestamp(ended_ns),
                took_ms,
                "ok" if story.end_status == "ok" else "error",
                story.counts,
                timestamp(ended_ns),
            )
        ),
    )


def _last_events(run_id: str, story: _Story, at_ns: int, took_ms: int) -> list[Event]:
    """Return the last events that the killed program could not write."""
    counts = story.counts
    attributes = {
        "error_type": "Interrupted",
        "message": "the program ended without finishing this run",
        "stack": None,
        "details": None,
    }
    summary = {
        "llm_calls": counts.llm_calls,
        "tool_calls": counts.tool_calls,
        "errors": counts.errors,
        "duration_ms": took_ms,
    }
    meta = {META_KEY: {"component": "vestige", "recovered": True}}
    ended = {META_KEY: {"status": "interrupted"}}
    at = timestamp(at_ns)
    error_id, end_id = _error_id(run_id), derived_uuid(FORMAT, run_id, "recovered", "END")
    payload = {"status": "error", "summary": summary}
    return [
        Event(
            SPEC_VERSION,
            error_id,
            run_id,
            story.start_id,
            "ERROR",
            at,
            None,
            "Interrupted",
            attributes,
            meta,
        ),
        Event(
            SPEC_VERSION,
            end_id,
            run_id,
            story.start_id,
            "RUN_END",
            at,
            took_ms,
            "run_end",
            payload,
            ended,
        ),
    ]


def _error_id(run_id: str) -> str:
    return derived_uuid(FORMAT, run_id, "recovered", "ERROR")


def _replace(path: Path, data: bytes) -> None:
    """Replace a file atomically."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(beside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
