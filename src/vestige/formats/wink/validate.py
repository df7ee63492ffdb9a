"""Validate a bundle, and report every problem without raising."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from vestige.errors import VestigeError
from vestige.formats.protocol import Problem
from vestige.formats.wink.embedded_records import find_run_id, has_records, read_records
from vestige.formats.wink.jsonl_entries import parse_log, parse_snapshot
from vestige.formats.wink.log_records import to_ns
from vestige.formats.wink.manifest import OUTCOMES, UNKNOWN, Manifest, parse_time
from vestige.formats.wink.read import ZipContent
from vestige.formats.wink.to_records import ReadContent, open_content
from vestige.limits import BUNDLE_PROBLEMS_MAX


def check_path(path: Path) -> Sequence[Problem]:
    """Compare all that can be compared: structure, sizes, hashes, every entry."""
    try:
        content = open_content(path)
    except VestigeError as error:
        return [Problem(str(path), "", _rule(error), str(error).removeprefix(f"{path}: "))]
    return check_content(content)


def check_content(content: ReadContent) -> list[Problem]:
    """Check open content like `check_path`. Problems found by reading come first."""
    found: list[Problem] = []
    for problem in _all(content.path, content):
        found.append(problem)
        if len(found) >= BUNDLE_PROBLEMS_MAX:
            break
    return [*content.problems, *found]


def _all(path: Path, content: ReadContent) -> Iterator[Problem]:
    content.verify()
    yield from _manifest(path, content.manifest)
    try:
        yield from _snapshots(path, content)
        yield from _logs(path, content)
        if isinstance(content, ZipContent) and has_records(content):
            run_id = find_run_id(content)
            for _ in read_records(content, run_id or "", content.problems):
                pass
    except VestigeError as error:
        yield Problem(str(path), "", _rule(error), str(error).removeprefix(f"{path}: "))


def _rule(error: VestigeError) -> str:
    return {
        "BundleVersionError": "bundle-version",
        "BundleComponentMissingError": "component-missing",
        "BundleCorruptedError": "bundle-corrupted",
    }.get(type(error).__name__, "unreadable")


def _manifest(path: Path, manifest: Manifest) -> Iterator[Problem]:
    execution = manifest.execution
    if execution.outcome not in (*OUTCOMES, UNKNOWN):
        yield Problem(
            str(path),
            "/execution/outcome",
            "outcome-unknown",
            f"outcome is {execution.outcome[:40]!r} (expected one of {', '.join(OUTCOMES)}).",
            severity="warning",
        )
    start, end = parse_time(execution.started_at), parse_time(execution.ended_at or "")
    if start and end and end < start:
        yield Problem(
            str(path),
            "/execution/ended_at",
            "time-order",
            "the run ends before it starts.",
            severity="warning",
        )
    if execution.outcome == "success" and execution.error:
        yield Problem(
            str(path),
            "/execution/error",
            "error-of-success",
            "a success has an error.",
            severity="warning",
        )


def _snapshots(path: Path, content: ReadContent) -> Iterator[Problem]:
    last = 0
    for index, (member, number, line) in enumerate(content.numbered("snapshots")):
        snapshot = parse_snapshot(line, index)
        where = f"{path}: {member}"
        for error in snapshot.errors:
            yield Problem(where, f"line {number}", "snapshot-invalid", f"{error}.")
        last, disorder = _next_time(last, snapshot.created_at, where, number)
        yield from disorder


def _logs(path: Path, content: ReadContent) -> Iterator[Problem]:
    last = 0
    for member, number, line in content.numbered("logs"):
        entry = parse_log(line)
        where, place = f"{path}: {member}", f"line {number}"
        if entry is None:
            yield Problem(where, place, "log-malformed", "not a log entry.")
            continue
        if parse_time(entry.timestamp) is None:
            yield Problem(
                where,
                place,
                "log-time",
                f"timestamp is {entry.timestamp[:40]!r} (expected an ISO 8601 time).",
            )
        last, disorder = _next_time(last, entry.timestamp, where, number)
        yield from disorder


def _next_time(last: int, text: str, where: str, number: int) -> tuple[int, list[Problem]]:
    """Return the time to compare the next line with, and a problem if this one comes too late."""
    time_ns = to_ns(text)
    if time_ns is None or time_ns >= last:
        return time_ns or last, []
    message = "earlier than a line before it (expected chronological lines)."
    problem = Problem(where, f"line {number}", "time-order", message, severity="warning")
    return last, [problem]
