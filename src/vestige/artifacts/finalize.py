"""Finish a bundle: one trace, every typed file, `bundle.json` last, then validate it.

The steps are the same for a suite that ended and for a killed one. They need only the folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.artifacts.merge_traces import Merged, drop_leftovers, fold_trace
from vestige.artifacts.replay_command import command_of_case, render_command
from vestige.artifacts.suite_start_facts import read_start, replay_keys
from vestige.artifacts.text_sanitizer import single_line
from vestige.errors import InvalidSuiteError
from vestige.formats.artifacts.file_structs import Counts
from vestige.formats.artifacts.read import DirectoryTree
from vestige.formats.artifacts.validate import check_bundle
from vestige.formats.artifacts.write import finish_bundle, hash_files, is_large, read_cases
from vestige.formats.times_and_outcomes import parse_time_ns

if TYPE_CHECKING:
    from vestige.formats.artifacts.trace_events import CaseResult

Known = Mapping[str, tuple[int, str]]
_SHOWN = 20


def finish(
    folder: Path,
    merged: Merged,
    notes: Sequence[str] = (),
    known: Known | None = None,
    cases_read: tuple[Sequence[CaseResult], Counts] | None = None,
) -> Sequence[CaseResult]:
    """Write the files of a bundle from the contents of its folder.

    Raises InvalidSuiteError if the result is not valid. `cases_read`: the result of `read_cases`,
    if it is known."""
    drop_leftovers(folder)
    started_ns = parse_time_ns(merged.first_ts) or 0
    ended_ns = max(started_ns, parse_time_ns(merged.last_ts) or 0)
    start = read_start(folder, merged.suite, merged.timestamp, started_ns)
    cases_read = cases_read or read_cases(folder)
    cases = cases_read[0]
    failed = failed_cases(cases)
    case_command: Callable[[str], str] | None = None
    command = start.command or "true  # how this suite was started is not known"
    if start.replay is not None:
        command = render_command(start.replay, start.replay_environment, failed)
        case_command = command_of_case(start.replay, start.replay_environment)
    facts = start.to_facts(
        command,
        ended_ns,
        notes=[*merged.notes, *notes],
        fixture_ids=merged.fixture_ids,
        case_command=case_command,
        replay_keys=replay_keys(start.replay) if start.replay else {},
    )
    if is_large(cases):
        fold_trace(folder, merged)
    files = hash_files(folder, known or {})
    as_they_are = dict(files)  # on disk; files that are added below are hashed in memory
    finish_bundle(folder, facts, cases_read=cases_read, files=files)
    validate(folder, as_they_are)
    return cases


def failed_cases(cases: Sequence[CaseResult]) -> list[str]:
    """Return the names of the cases whose last attempt failed or never ended, in the order of their
    start."""
    last = {case.name: case.outcome for case in cases}
    return [name for name, outcome in last.items() if outcome in ("fail", "unknown")]


def validate(folder: Path, hashed: Known | None = None) -> None:
    """Raise InvalidSuiteError with all problems. `hashed`: files whose hashes are known."""
    _, problems = check_bundle(DirectoryTree(folder), hashed=hashed)
    errors = [single_line(str(problem)) for problem in problems if problem.severity == "error"]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise InvalidSuiteError(
            f"{folder}: the bundle is not valid: {errors[0]}{more} See `vestige bundle validate "
            f"{folder}`.",
            errors[:_SHOWN],
        )


__all__ = ["failed_cases", "finish", "validate"]
