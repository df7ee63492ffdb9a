"""Put failed runs with the same cause into groups.

    grouped = group_failures(store, runs, examine)

A run belongs to the group of its signature (failure_signature.py). Groups whose error texts differ
in a few words only are merged. A run counts as failed if it did not end well, or if its leading
finding is an error or a warning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from vestige._runtime import clock
from vestige.errors import VestigeError
from vestige.query.diff.compare_groups import Separation, find_separations, read_run_facts
from vestige.query.failures.check import find_chains, find_main
from vestige.query.failures.findings_of_successful_runs import CommonFindings
from vestige.query.failures.top_findings import Examine
from vestige.query.groups.failure_signature import Signature, find_signature
from vestige.query.ids.lineage import is_replay
from vestige.query.search.run_titles_and_results import read_run_texts
from vestige.query.trajectory.task import is_same_task
from vestige.record.finding import Finding
from vestige.record.run import Run, RunInfo
from vestige.store.protocol import RunFilter, Store

FAILED: Final = frozenset(("error", "timeout", "interrupted"))
SPANS_MAX: Final = 20_000
"""Larger runs are not examined for a group."""
TREND_BUCKETS: Final = 8
COMPARED_MAX: Final = 100
"""Runs of a group, and successful runs, that are compared."""
GOOD_MIN: Final = 2
"""Successful runs that are needed for a comparison."""
SEPARATION_MIN: Final = 0.6
CACHED_MAX: Final = 5_000
"""Runs whose failures are kept in memory, so that a server examines each run once."""
_cache: dict[tuple[str, RunInfo], ExaminedRun] = {}


@dataclass(slots=True)
class Failure:
    """A failed run with its cause."""

    run: RunInfo
    signature: Signature
    finding: Finding | None
    cause: str | None
    """The short id of the span that caused it."""
    version: str | None
    """The commit of the program."""


@dataclass(frozen=True, slots=True)
class ExaminedRun:
    """A run that was examined for a group, and its failure, if it failed."""

    failure: Failure | None = None
    is_replay: bool = False


@dataclass(slots=True)
class FailureGroup:
    """Failed runs with the same cause, newest first."""

    failures: list[Failure] = field(default_factory=list)

    @property
    def signature(self) -> Signature:
        """Return the signature of the newest run."""
        return self.failures[0].signature

    @property
    def id(self) -> str:
        """Return an id that equal failures always have."""
        signature = min(failure.signature for failure in self.failures)
        fields = (signature.kind, signature.subject, signature.error, signature.place)
        return "g" + sha256("\0".join((*fields, signature.text)).encode()).hexdigest()[:6]

    @property
    def first_ns(self) -> int:
        return min(failure.run.started_ns for failure in self.failures)

    @property
    def last_ns(self) -> int:
        return max(failure.run.started_ns for failure in self.failures)

    @property
    def versions(self) -> list[str]:
        """Return the commits of the runs, newest first, each once."""
        return list(dict.fromkeys(each.version for each in self.failures if each.version))

    def trend(self, start_ns: int, end_ns: int) -> list[int]:
        """Count its runs in equal intervals of a period."""
        counts = [0] * TREND_BUCKETS
        length = max(1, end_ns - start_ns)
        for failure in self.failures:
            bucket = (failure.run.started_ns - start_ns) * TREND_BUCKETS // length
            counts[max(0, min(bucket, TREND_BUCKETS - 1))] += 1
        return counts


@dataclass(frozen=True, slots=True)
class GroupedFailures:
    """The groups of some runs, the largest first."""

    groups: list[FailureGroup]
    examined: int
    """Number of runs that were examined."""
    unexamined: int
    """Number of runs for which no time was left."""


def group_failures(
    store: Store, runs: Sequence[RunInfo], examine: Examine, seconds: float = math.inf
) -> GroupedFailures:
    """Group the failed ones among these runs.

    Replays and forks are left out: they repeat a failure on purpose, and would make it look
    frequent. After `seconds`, only runs that were examined earlier in this process are grouped;
    each call examines at least one more.
    """
    failures: list[Failure] = []
    examined = unexamined = 0
    replays: dict[str, bool] = {}
    common = CommonFindings(store)
    deadline = clock.monotonic() + seconds
    has_progress = False
    for info in runs:
        if info.outcome == "running" or info.span_count > SPANS_MAX:
            continue
        is_known = _is_examined(store, info, common)
        if not is_known and has_progress and clock.monotonic() >= deadline:
            unexamined += 1
            continue
        try:
            examined_run = _examine_run(store, info, examine, replays)
        except VestigeError:
            continue  # The run was pruned meanwhile, or it is damaged, which `check` reports.
        has_progress = has_progress or not is_known
        if examined_run.is_replay:
            continue
        examined += 1
        if examined_run.failure is not None:
            failures.append(examined_run.failure)
    return GroupedFailures(_group(failures), examined, unexamined)


def _is_examined(store: Store, info: RunInfo, common: CommonFindings) -> bool:
    """Return whether a run's failure is known, and forget one that explains nothing any more."""
    key = (str(store.path), info)
    known = _cache.get(key)
    if known is None:
        return False
    finding = known.failure.finding if known.failure is not None else None
    if finding is not None and common.lower(info, [finding])[0].severity == "hint":
        del _cache[key]
        return False
    return True


def _examine_run(
    store: Store, info: RunInfo, examine: Examine, replays: dict[str, bool]
) -> ExaminedRun:
    """Return the failure of a run. A run that has changed has another `info`."""
    key = (str(store.path), info)
    if key not in _cache:
        run = store.load_run(info.id)
        if len(_cache) >= CACHED_MAX:
            _cache.clear()
        if _is_replay(store, run, replays):
            _cache[key] = ExaminedRun(is_replay=True)
        else:
            _cache[key] = ExaminedRun(failure=find_failure(run, examine))
    return _cache[key]


def _is_replay(store: Store, run: Run, known: dict[str, bool]) -> bool:
    """Return whether a run, or the program that opened it, was started by `vestige replay`."""
    process = run.info.process_run
    if process is not None and process != run.info.id and process not in known:
        known[process] = is_replay(store.load_run(process, with_logs=False))
    return is_replay(run) or known.get(process or "", False)


def find_failure(run: Run, examine: Examine) -> Failure | None:
    """Return the failure of a run; None if it succeeded."""
    chains = find_chains(run, examine(run).findings)
    lead = find_main(chains[0]) if chains else None
    if lead is not None and lead.severity == "hint" and not lead.kind.startswith("exit/"):
        lead = None
    if lead is None and run.info.outcome not in FAILED:
        return None
    short_ids = {span.id: span.short_id for span in run.spans}
    cause = short_ids.get(lead.cause or "") if lead is not None else None
    return Failure(run.info, find_signature(run, lead), lead, cause, _find_version(run))


def _find_version(run: Run) -> str | None:
    for span in run.spans:
        commit = span.attributes.get("git.commit") or span.attributes.get("service.version")
        if isinstance(commit, str) and commit:
            return commit[:12]
    return None


def _group(failures: Sequence[Failure]) -> list[FailureGroup]:
    by_signature: dict[Signature, FailureGroup] = {}
    for failure in failures:
        by_signature.setdefault(failure.signature, FailureGroup()).failures.append(failure)
    groups: list[FailureGroup] = []
    # In the order of signatures, so that the result does not depend on the order of runs.
    for signature in sorted(by_signature):
        found = by_signature[signature]
        same = next((group for group in groups if group.signature.is_similar(signature)), None)
        if same is None:
            groups.append(found)
        else:
            same.failures.extend(found.failures)
    for group in groups:
        group.failures.sort(key=lambda failure: (-failure.run.started_ns, failure.run.id))
    return sorted(groups, key=lambda group: (-len(group.failures), -group.last_ns, group.id))


def find_differences(
    store: Store, group: FailureGroup, failed_ids: Set[str]
) -> tuple[list[Separation], int]:
    """Return what sets a group apart from good runs of the same task, and their number.

    `failed_ids`: runs that are in a group, which are not good whatever their outcome is.
    """
    failed = [failure.run for failure in group.failures[:COMPARED_MAX]]
    good = [run for run in _find_good_runs(store, failed) if run.id not in failed_ids]
    if len(good) < GOOD_MIN:
        return [], len(good)
    found = find_separations(read_run_facts(store, failed), read_run_facts(store, good))
    name = group.signature.subject.partition(" ")[2]
    return [each for each in found if _is_informative(each, name)], len(good)


def _is_informative(separation: Separation, failed_name: str) -> bool:
    """Return False for weak differences, and for those that follow from the failure itself."""
    if separation.score < SEPARATION_MIN or separation.kind in ("error", "run", "number"):
        return False
    return not failed_name or failed_name not in separation.what


def _find_good_runs(store: Store, failed: Sequence[RunInfo]) -> list[RunInfo]:
    """Return successful runs of the same tasks, or of the same programs if there are none."""
    same_name = [
        run
        for name in dict.fromkeys(run.name for run in failed)
        for run in store.list_runs(
            RunFilter(name_is=name, outcome="ok", tenant_of=failed[0].id, limit=COMPARED_MAX)
        )
    ][:COMPARED_MAX]
    texts = read_run_texts(store, [*failed, *same_name])
    tasks = {task for run in failed if (task := texts[run.id].task)}
    same_task = [
        run
        for run in same_name
        if (task := texts[run.id].task) and any(is_same_task(task, each) for each in tasks)
    ]
    return same_task if len(same_task) >= GOOD_MIN else same_name
