"""Merge the bundles of a suite's shards into one: every case, every file, counters that add up.

    merge_bundles([Path("shard-1"), Path("shard-2")], Path("merged"))

Cases follow each other shard by shard, in the order in which the shards began. A file that two
shards have under one name keeps it where the bytes are the same; else it goes under its shard.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import UNSET

from vestige.errors import UnreadableError, UsageError
from vestige.formats.artifacts import constants, file_structs
from vestige.formats.artifacts.file_structs import Bundle, Repro, TraceEvent
from vestige.formats.artifacts.from_records import new_folder
from vestige.formats.artifacts.json_files.parsing import parse_quoted, parse_variables
from vestige.formats.artifacts.read import DirectoryTree
from vestige.formats.artifacts.trace_events import Step, iter_steps, parse_event
from vestige.formats.artifacts.validate import check_bundle
from vestige.formats.artifacts.write import SuiteFacts, TraceFile, finish_bundle
from vestige.formats.times_and_outcomes import parse_time_ns


@dataclass(frozen=True, slots=True)
class _Shard:
    path: Path
    bundle: Bundle
    repro: Repro
    fixture_ids: list[str]
    owned: dict[str, list[str]]
    """Files by the name of their case, as a manifest of later eras has them."""


def merge_bundles(shards: Sequence[Path], target: Path, suite: str | None = None) -> Path:
    """Merge several valid bundles into one valid bundle."""
    opened = sorted((_open(path) for path in shards), key=lambda shard: shard.bundle.started_at)
    opened = list({_identity(shard.bundle): shard for shard in opened}.values())
    names = list(dict.fromkeys(shard.bundle.suite for shard in opened))
    if len(names) > 1 and suite is None:
        raise UsageError(
            f"merge: the bundles are of {len(names)} suites ({', '.join(names[:5])}). Name the "
            f"merged one with --suite."
        )
    name, first = suite or names[0], opened[0].bundle
    with new_folder(target) as folder:
        trace = TraceFile(folder, name, first.timestamp)
        try:
            trace.write("suite_start", ts=first.started_at, tool="vestige")
            hashes: dict[str, str] = {}
            for number, shard in enumerate(opened, 1):
                moved = _copy_files(shard, folder, number, hashes)
                _copy_events(shard, trace, moved)
            trace.write("suite_end", ts=max(shard.bundle.ended_at for shard in opened))
        finally:
            trace.close()
        finish_bundle(folder, _facts(opened, name))
        _, problems = check_bundle(DirectoryTree(folder, str(target)))
        errors = [problem for problem in problems if problem.severity == "error"]
        if errors:
            raise UnreadableError(f"{errors[0]}")
        folder.rename(target)
    return target


def _open(path: Path) -> _Shard:
    _, problems = check_bundle(DirectoryTree(path))
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        raise UnreadableError(f"{errors[0]} See `vestige bundle validate {path}`.")
    # Valid, so these decode.
    bundle = msgspec.json.decode((path / constants.BUNDLE).read_bytes(), type=file_structs.Bundle)
    repro = msgspec.json.decode((path / "repro.json").read_bytes(), type=file_structs.Repro)
    fixtures = msgspec.json.decode(
        (path / "fixtures.json").read_bytes(), type=file_structs.Fixtures
    )
    return _Shard(path, bundle, repro, fixtures.fixture_ids, _owned(path))


def _identity(bundle: Bundle) -> tuple[object, ...]:
    """Return an identity that copies of one shard share, so that it is merged once."""
    files = sorted((entry.path, entry.sha256) for entry in bundle.files)
    return bundle.suite, bundle.timestamp, bundle.started_at, bundle.ended_at, tuple(files)


def _owned(path: Path) -> dict[str, list[str]]:
    try:
        data = (path / "manifest.json").read_bytes()
        manifest = msgspec.json.decode(data, type=file_structs.Manifest)
    except (OSError, msgspec.DecodeError):
        return {}
    return {case.name: case.artifacts for case in manifest.cases}


def _copy_files(shard: _Shard, folder: Path, number: int, hashes: dict[str, str]) -> dict[str, str]:
    """Copy the files. Return the new names of those that had to be renamed."""
    moved: dict[str, str] = {}
    for entry in shard.bundle.files:
        path = target = constants.plain(entry.path)
        if path in constants.PART_OF and entry.schema == constants.PART_OF[path].schema:
            continue  # finish_bundle writes it
        # A bundle that was merged itself has such folders already.
        while not _is_free(folder, target, entry.sha256, hashes):
            target = moved[path] = _beside(folder, number, target)
        hashes[target] = entry.sha256
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(shard.path / path, folder / target)
    return moved


def _is_free(folder: Path, target: str, sha256: str, hashes: dict[str, str]) -> bool:
    """Return whether a name is free: not a file, not a folder, and not below a file."""
    if target in hashes or target in constants.PART_OF:
        return hashes.get(target) == sha256
    place = folder / target
    return not place.is_dir() and not any(above.is_file() for above in place.parents)


def _beside(folder: Path, number: int, target: str) -> str:
    shard = f"shard-{number}"
    while (folder / shard).is_file():
        shard += "_"
    return f"{shard}/{target}"


def _copy_events(shard: _Shard, trace: TraceFile, moved: dict[str, str]) -> None:
    data = (shard.path / constants.TRACE).read_bytes()
    parsed = (parse_event(line) for line in data.split(b"\n") if line.strip())
    events = [event for event in parsed if isinstance(event, TraceEvent)]
    explicit = b'"case_end"' in data
    for step in iter_steps(events, explicit):
        if step.action in ("open", "event"):
            _copy(step.event, trace, moved)
        elif step.action == "close" and step.case is not None:
            for path in shard.owned.get(step.case.name, ()):
                if path not in step.case.attachments:
                    target = moved.get(path, path)
                    trace.write("attachment", ts=step.event.ts, case=step.case.name, path=target)
            _close(step, trace)


def _copy(event: TraceEvent, trace: TraceFile, moved: dict[str, str]) -> None:
    more = {
        name: getattr(event, name)
        for name in ("elapsed_ms", "assertion_id", "span_id", "attempt", "path")
        if getattr(event, name) is not UNSET
    }
    if "path" in more:
        more["path"] = moved.get(more["path"], more["path"])
    trace.write(event.kind, ts=event.ts, case=event.case, message=event.message, **more)


def _close(step: Step, trace: TraceFile) -> None:
    """Write the `case_end` of a case, also if its trace left the end to the next case."""
    case = step.case
    assert case is not None
    elapsed = case.end.elapsed_ms if case.end is not None else UNSET
    message = case.end.message if case.end is not None else ""
    trace.write(
        "case_end",
        ts=step.event.ts,
        case=case.name,
        message=message,
        status=case.outcome,
        elapsed_ms=elapsed,
    )


def _facts(shards: list[_Shard], suite: str) -> SuiteFacts:
    first = shards[0]
    started_ns = parse_time_ns(first.bundle.started_at) or 0
    ended_ns = max(parse_time_ns(shard.bundle.ended_at) or 0 for shard in shards)
    commands = list(dict.fromkeys(shard.repro.command for shard in shards))
    fixtures = [fixture for shard in shards for fixture in shard.fixture_ids]
    notes = [f"merged from {len(shards)} bundles"]
    commits = {shard.bundle.git.commit for shard in shards}
    if len(commits) > 1:
        notes.append(f"the bundles are of {len(commits)} commits: {', '.join(sorted(commits))}")
    return SuiteFacts(
        suite=suite,
        timestamp=first.bundle.timestamp,
        started_ns=started_ns,
        ended_ns=ended_ns,
        generated_ns=ended_ns,
        command=_one_after_another(commands),
        git=first.bundle.git,
        environment=parse_variables((first.path / constants.ENVIRONMENT).read_bytes()),
        replay_environment=parse_quoted((first.path / constants.REPLAY_ENVIRONMENT).read_bytes()),
        seed=first.repro.seed,
        clock_mode=first.repro.clock_mode,
        fixture_ids=fixtures,
        notes=notes,
    )


def _one_after_another(commands: Sequence[str]) -> str:
    """All of them, also after one that fails: it is there because something failed. Fails if one
    does."""
    if len(commands) == 1:
        return commands[0]
    return " ".join(("s=0;", *(f"({command}) || s=$?;" for command in commands), "(exit $s)"))
