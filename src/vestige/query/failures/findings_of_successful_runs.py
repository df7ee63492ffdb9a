"""Findings that most successful runs of a program have, which do not explain a failure.

A warning that a program causes in every run, such as a prompt cache that is never read, is a
property of the program. It becomes a hint that says so. Errors stay errors: a program that fails
every time has its cause in every run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from vestige.record.finding import Finding
from vestige.record.run import RunInfo
from vestige.store.protocol import RunFilter, Store

RUNS_MIN: Final = 3
"""Other successful, checked runs that are needed to call a finding common."""
RUNS_MAX: Final = 20
SHARE: Final = 0.5


class CommonFindings:
    """The findings of the successful runs of each program, read once for many runs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kinds: dict[str, frozenset[str] | None] = {}
        """The kinds of findings by run id; None for a run that was not checked."""

    def lower(self, run: RunInfo, findings: Sequence[Finding]) -> Sequence[Finding]:
        """Return the findings; a warning that most successful runs of this name have is a hint."""
        if not any(finding.severity == "warning" for finding in findings):
            return findings
        others = RunFilter(name_is=run.name, outcome="ok", tenant_of=run.id, limit=RUNS_MAX)
        ids = [other.id for other in self._store.list_runs(others) if other.id != run.id]
        checked = self._read_kinds(ids) if len(ids) >= RUNS_MIN else []
        if len(checked) < RUNS_MIN:
            return findings
        counts = Counter(kind for kinds in checked for kind in kinds)
        return [
            _lower(finding, counts[finding.kind], len(checked))
            if finding.severity == "warning" and counts[finding.kind] > SHARE * len(checked)
            else finding
            for finding in findings
        ]

    def _read_kinds(self, ids: Sequence[str]) -> list[frozenset[str]]:
        unread = [run_id for run_id in ids if run_id not in self._kinds]
        results = self._store.check_results(unread) if unread else {}
        for run_id in unread:
            found = results.get(run_id)
            self._kinds[run_id] = (
                None
                if found is None
                else frozenset(finding.kind for result in found for finding in result.findings)
            )
        return [kinds for run_id in ids if (kinds := self._kinds[run_id]) is not None]


def _lower(finding: Finding, count: int, runs: int) -> Finding:
    message = f"{finding.message} {count} of {runs} successful runs of this program have this, too."
    return msgspec.structs.replace(finding, severity="hint", message=message)
