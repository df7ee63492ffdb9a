"""Write a bundle: the trace event by event, and the typed files once it has ended.

    trace = TraceFile(root, "checkout", "20260210_170000")
    trace.write("suite_start", ts=...)
    trace.write("case_start", case="test_pay", ts=...)      # counters count along
    ...
    finish_bundle(root, facts)                              # all typed files, bundle.json last

`finish_bundle` uses the files in the folder (logs, screenshots, attachments), so it also finishes
the bundle of a killed suite. Every era of the schema accepts the result.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET

from vestige.formats.artifacts import constants, file_structs
from vestige.formats.artifacts.file_structs import Counts, Git, TraceEvent
from vestige.formats.artifacts.passed_case_groups import PassedGroup, group_passes
from vestige.formats.artifacts.read import DirectoryTree, UnreadablePartError
from vestige.formats.times_and_outcomes import render_time
from vestige.limits import ARTIFACT_CASES_LISTED_MAX, MIB
from vestige.record.coercion import clean_text
from vestige.record.line_template import GAP, NUMBER, line_template

if TYPE_CHECKING:
    from vestige.formats.artifacts.trace_events import Case, CaseResult

_quick = msgspec.json.Encoder().encode
_BLOCK: Final = MIB
_PARTS: Final = 128
"""Lines that are written together."""
_FOLDERS: Final = ("diagnostics", "transcript", "logs", "screenshots", "scenarios")
_COUNTED: Final = {"case_start": 0, "assert_pass": 1, "assert_fail": 2, "assert_skip": 3}

_NO_SERVER: Final = {"port": None, "auth": "none", "storage_root": ""}
"""The server under test, in later eras; a suite of ours has none."""

NO_GIT: Final = Git("unknown", "unknown", False)


class SuiteFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of the typed files that are not in the trace. Texts are redacted already."""

    suite: str
    timestamp: str
    started_ns: int
    ended_ns: int
    generated_ns: int
    command: str
    """Re-runs the suite, or what failed in it."""
    git: Git = NO_GIT
    seed: int = 0
    clock_mode: str = "wall"
    runner: Mapping[str, Any] = msgspec.field(default_factory=dict)
    paths: Mapping[str, Any] = msgspec.field(default_factory=dict)
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    """For diagnostics/env_redacted.txt."""
    replay_environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    """For repro.env."""
    fixture_ids: Sequence[str] = ()
    notes: Sequence[str] = ()
    """Lines for the transcript: why a case is unknown, ..."""
    case_command: Callable[[str], str] | None = None
    """Re-runs one case by its name; None: `command` is all there is."""
    replay_keys: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Members of repro.json beyond the contract."""


def _environment_of(runner: Mapping[str, Any]) -> dict[str, Any]:
    """Return the machine facts that later eras require, with an empty Rust version."""
    own = {"os": "", "arch": "", **runner}
    return {**own, "rust_version": "", "binary_version": str(runner.get("python", ""))}


class TraceFile:
    """`trace/events.jsonl`, flushed event by event: a killed suite shows what was running."""

    def __init__(self, root: Path, suite: str, timestamp: str) -> None:
        self.suite = suite
        self.timestamp = timestamp
        self.counters = [0, 0, 0, 0]
        path = root / constants.TRACE
        path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered: an event is one write, and survives the process.
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115  # closed in `close`

    def write(
        self, kind: str, *, ts: str, case: str = "", message: str = "", **more: Any
    ) -> TraceEvent:
        """`more`: the optional fields of a TraceEvent."""
        again = more.get("attempt", UNSET) is not UNSET and more["attempt"] > 1
        if kind in _COUNTED and not (kind == "case_start" and again):
            self.counters[_COUNTED[kind]] += 1
        event = TraceEvent(
            1, self.suite, self.timestamp, ts, kind, case, message, Counts(*self.counters), **more
        )
        self._file.write(_encode(event) + b"\n")
        return event

    def close(self) -> None:
        self._file.close()


def finish_bundle(
    root: Path,
    facts: SuiteFacts,
    known: Mapping[str, tuple[int, str]] | None = None,
    cases_read: tuple[Sequence[CaseResult], Counts] | None = None,
    files: dict[str, tuple[int, str]] | None = None,
) -> Path:
    """Write every typed file, then `bundle.json`. `known`: (size, sha256) of files that were
    hashed while they were written, by path; the others are hashed now. `cases_read` and `files`:
    the results of
    `read_cases` and `hash_files`, if known."""
    cases, counts = cases_read or read_cases(root)
    if files is None and is_large(cases):
        _fold_trace(root)
    files = hash_files(root, known or {}) if files is None else files
    writer = _Finisher(root, facts, cases, counts, files)
    return writer.finish()


def is_large(cases: Sequence[CaseResult]) -> bool:
    """Check whether a suite has more cases than its bundle lists one by one."""
    return len(cases) > ARTIFACT_CASES_LISTED_MAX


def _fold_trace(root: Path) -> None:
    from vestige.formats.artifacts.compact_trace import write_folded

    half = root / f"{constants.TRACE}.part"
    with open(half, "wb") as out:
        write_folded(root / constants.TRACE, out)
    os.replace(half, root / constants.TRACE)


def read_cases(
    root: Path, seen: Callable[[TraceEvent], None] = lambda event: None
) -> tuple[list[Case], Counts]:
    """Return the cases of a trace and its last counters. A torn line is skipped.
    `seen`: gets every event, so that a trace need not be read twice."""
    from vestige.formats.artifacts.trace_events import (
        iter_steps,  # the writer of a trace needs no reader
    )

    path = root / constants.TRACE
    counts = Counts(0, 0, 0, 0)

    def events() -> Iterator[TraceEvent]:
        nonlocal counts
        for event in _read_events(path):
            counts = event.counters
            seen(event)
            yield event

    steps = iter_steps(events(), _has_ends(path))
    cases = [step.case for step in steps if step.action == "open" and step.case is not None]
    return cases, counts


def _read_events(path: Path) -> Iterator[TraceEvent]:
    from vestige.formats.artifacts.trace_events import parse_events

    with open(path, "rb") as file:
        while lines := file.readlines(_BLOCK):
            yield from parse_events(lines)


def _has_ends(path: Path) -> bool:
    with open(path, "rb") as file:
        return any(b'"case_end"' in line for line in file)


def hash_files(root: Path, known: Mapping[str, tuple[int, str]]) -> dict[str, tuple[int, str]]:
    """Return size and sha256 of every file that `finish_bundle` does not write."""
    found: dict[str, tuple[int, str]] = {}
    for item in DirectoryTree(root).items():
        if item.path in known:
            found[item.path] = known[item.path]
            continue
        written_anew = item.path in constants.PART_OF and item.path != constants.TRACE
        if item.path in constants.UNLISTED or item.read is None or written_anew:
            continue
        hasher, size = hashlib.sha256(), 0
        try:
            for chunk in item.chunks():
                hasher.update(chunk)
                size += len(chunk)
        except UnreadablePartError:
            continue
        found[item.path] = (size, hasher.hexdigest())
    return found


class _Finisher:
    """The typed files of one bundle."""

    def __init__(
        self,
        root: Path,
        facts: SuiteFacts,
        cases: Sequence[CaseResult],
        counts: Counts,
        files: dict[str, tuple[int, str]],
    ) -> None:
        self.root, self.facts, self.counts, self.files = root, facts, counts, files
        self.last = list(_last_attempts(cases).values())
        self.listed = group_passes(self.last) if is_large(cases) else self.last
        """The cases of manifest.json and scenarios.jsonl."""
        self.started = render_time(facts.started_ns)
        self.ended = render_time(facts.ended_ns)
        self.name = (1, facts.suite, facts.timestamp)

    def finish(self) -> Path:
        for folder in _FOLDERS:
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        self._write_facts()
        self._write_replay()
        self._write_later()
        self._text("transcript/summary.txt", self._transcript())
        for path, belongs in (
            (constants.LOGS_INDEX, constants.is_log),
            (constants.SCREENSHOTS_INDEX, constants.is_screenshot),
        ):
            entries = [
                file_structs.IndexEntry(name, *self.files[name])
                for name in sorted(self.files)
                if belongs(name)
            ]
            self._json(path, file_structs.FileIndex(*self.name, entries))
        lines = [f"{path} ({size}b)" for path, (size, _) in sorted(self.files.items())]
        self._text("diagnostics/tree.txt", lines)
        return self._write_bundle()

    def _write_facts(self) -> None:
        facts, counts = self.facts, self.counts
        seconds = (facts.started_ns // 10**9, facts.ended_ns // 10**9)
        timing = file_structs.Timing(*seconds, max(0, seconds[1] - seconds[0]))
        determinism = {
            "clock_mode": facts.clock_mode,
            "seed": facts.seed,
            "run_start_epoch_s": seconds[0],
        }
        self._json(
            "summary.json",
            file_structs.Summary(
                *self.name,
                self.started,
                self.ended,
                counts.total,
                counts.passed,
                counts.fail,
                counts.skip,
            ),
        )
        self._json(
            "meta.json",
            file_structs.MetaFile(
                *self.name,
                self.started,
                self.ended,
                facts.git,
                dict(facts.runner),
                dict(facts.paths),
                determinism,
            ),
        )
        self._json("metrics.json", file_structs.Metrics(*self.name, timing, counts))
        self._json(
            "fixtures.json", file_structs.Fixtures(*self.name, sorted(set(facts.fixture_ids)))
        )
        environment = [
            f"  {_one_line(key)}={_one_line(value)}"
            for key, value in sorted(facts.environment.items())
        ]
        self._text("diagnostics/env_redacted.txt", ["Environment (redacted):", *environment])

    def _write_replay(self) -> None:
        facts = self.facts
        self._text("repro.txt", [facts.command])
        lines = [f"{key}={shlex.quote(value)}" for key, value in facts.replay_environment.items()]
        self._text("repro.env", lines)
        seconds = facts.started_ns // 10**9
        repro = file_structs.Repro(
            *self.name, facts.clock_mode, facts.seed, self.started, seconds, facts.command
        )
        self._json("repro.json", {**msgspec.to_builtins(repro), **facts.replay_keys})

    def _write_later(self) -> None:
        """Write the files that later eras require: the same facts, case by case."""
        facts = self.facts
        cases = [
            file_structs.ManifestCase(
                case.name, case.outcome, case.assertions, case.duration_ms, self._artifacts(case)
            )
            for case in self.listed
        ]
        # Not indented: of a suite of many cases it would be larger than validators read.
        self._bytes(
            "manifest.json",
            _encode(
                file_structs.Manifest(
                    1,
                    facts.suite,
                    self.started,
                    self.ended,
                    facts.command,
                    cases,
                    _environment_of(facts.runner),
                    dict(_NO_SERVER),
                )
            )
            + b"\n",
        )
        replay = {"command": facts.command, "environment": "repro.env", "metadata": "repro.json"}
        diagnostics = {"env_redacted": "diagnostics/env_redacted.txt"}
        self._blocks("scenarios/scenarios.jsonl", self._scenarios(cases, replay, diagnostics))
        statuses: dict[str, int] = {}
        for entry in cases:
            statuses[entry.status] = statuses.get(entry.status, 0) + 1
        index = file_structs.ScenariosIndex(
            *self.name,
            len(cases),
            statuses,
            "scenarios/scenarios.jsonl",
            replay,
            diagnostics,
            {"manifest": "manifest.json", "trace": constants.TRACE},
        )
        self._json("scenarios/index.json", index)

    def _scenarios(
        self,
        cases: Sequence[file_structs.ManifestCase],
        replay: Mapping[str, str],
        diagnostics: Mapping[str, str],
    ) -> Iterator[bytes]:
        """A line for each case. What is the same in all of them is encoded once: a suite has
        thousands."""
        facts = self.facts
        folder = str(facts.paths.get("artifact_dir", ""))
        again: Any = replay
        if facts.case_command is not None:
            again = {**replay, "command": GAP}
        scenario = file_structs.Scenario(
            *self.name,
            GAP,
            GAP,
            NUMBER,
            NUMBER,
            GAP,
            GAP,
            folder,
            dict(diagnostics),
            again,
            {"events": constants.TRACE},
        )
        line = line_template(_encode(scenario))
        command = facts.case_command
        for case, entry in zip(self.listed, cases, strict=True):
            artifacts, failures = entry.artifacts, case.failures
            values: tuple[bytes | int, ...] = (
                _encode(entry.name),
                _encode(entry.status),
                entry.assertion_count,
                entry.duration_ms,
                _encode([{"path": path} for path in artifacts]) if artifacts else b"[]",
                _encode([{"message": text, "artifact": None} for text in failures])
                if failures
                else b"[]",
            )
            if command is not None:
                again = facts.command if isinstance(case, PassedGroup) else command(entry.name)
                values = (*values, _encode(again))
            yield line % values

    def _artifacts(self, case: CaseResult) -> list[str]:
        if not case.attachments:
            return []
        return [path for path in dict.fromkeys(case.attachments) if path in self.files]

    def _transcript(self) -> list[str]:
        facts, counts = self.facts, self.counts
        lines = [
            f"suite: {facts.suite}",
            f"timestamp: {facts.timestamp}",
            f"started_at: {self.started}",
            f"ended_at: {self.ended}",
            f"counts: total={counts.total} pass={counts.passed} fail={counts.fail} "
            f"skip={counts.skip}",
            f"git: commit={facts.git.commit} branch={facts.git.branch} "
            f"dirty={str(facts.git.dirty).lower()}",
            f"repro_command: {facts.command}",
        ]
        lines += [f"note: {note}" for note in facts.notes]
        for case in self.last:
            if case.outcome in ("fail", "unknown"):
                message = f": {case.failures[0]}" if case.failures else ""
                lines.append(f"{case.outcome}: {case.name}{message}")
        return [_one_line(line) for line in lines]

    def _write_bundle(self) -> Path:
        facts = self.facts
        entries = [
            file_structs.FileEntry(
                path, sha256, size, constants.kind_of(path), constants.schema_of(path)
            )
            for path, (size, sha256) in sorted(self.files.items())
        ]
        bundle = file_structs.Bundle(
            file_structs.SchemaId(file_structs.SCHEMA_NAME, file_structs.SCHEMA_MAJOR, 0),
            facts.suite,
            facts.timestamp,
            render_time(facts.generated_ns),
            self.started,
            self.ended,
            self.counts,
            facts.git,
            constants.refs(later=True),
            entries,
        )
        path = self.root / constants.BUNDLE
        # In place at once: a bundle.json that is there is whole.
        half = path.with_name(f"{constants.BUNDLE}.part")
        half.write_bytes(msgspec.json.format(_encode(bundle), indent=2) + b"\n")
        os.replace(half, path)
        return self.root

    def _json(self, path: str, value: Any) -> None:
        self._bytes(path, msgspec.json.format(_encode(value), indent=2) + b"\n")

    def _text(self, path: str, lines: Sequence[str]) -> None:
        text = "".join(f"{line}\n" for line in lines)
        self._bytes(path, text.encode(errors="backslashreplace"))

    def _bytes(self, path: str, data: bytes) -> None:
        self._blocks(path, (data,))

    def _blocks(self, path: str, parts: Iterable[bytes]) -> None:
        """Short parts, many of them at once: all together they would take as much memory as the
        file."""
        hasher, size, rest = hashlib.sha256(), 0, iter(parts)
        with open(self.root / path, "wb") as file:
            while block := b"".join(islice(rest, _PARTS)):
                size += file.write(block)
                hasher.update(block)
        self.files[path] = (size, hasher.hexdigest())


def _last_attempts(cases: Sequence[CaseResult]) -> dict[str, CaseResult]:
    """Return the last case of each name, with the attachments of earlier attempts."""
    found: dict[str, CaseResult] = {}
    for case in cases:
        earlier = found.get(case.name)
        if earlier is not None and earlier is not case and earlier.attachments:
            case.attachments = [*dict.fromkeys((*earlier.attachments, *case.attachments))]
        found[case.name] = case
    return found


def _encode(value: Any) -> bytes:
    """Encode as JSON. Lone surrogates, which UTF-8 cannot represent, become escapes."""
    try:
        return _quick(value)
    except UnicodeEncodeError:
        # Parts that are encoded already are the values again that they were made of.
        return _quick(_cleaned(msgspec.to_builtins(value, enc_hook=msgspec.json.decode)))


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(inner) for key, inner in value.items()}
    return [_cleaned(inner) for inner in value] if isinstance(value, list) else value


def _one_line(text: str) -> str:
    """Escape control characters, so that a value cannot look like two or move a cursor."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )


__all__ = [
    "NO_GIT",
    "SuiteFacts",
    "TraceFile",
    "finish_bundle",
    "hash_files",
    "is_large",
    "read_cases",
]
