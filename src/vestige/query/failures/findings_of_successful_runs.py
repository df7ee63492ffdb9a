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


def lower_common_findings(
    store: Store, run: RunInfo, findings: Sequence[Finding]
) -> Sequence[Finding]:
    """Return the findings; a warning that most successful runs of the same name have is a hint."""
    if not any(finding.severity == "warning" for finding in findings):
        return findings
    others = RunFilter(name_is=run.name, outcome="ok", tenant_of=run.id, limit=RUNS_MAX)
    runs = [other.id for other in store.list_runs(others) if other.id != run.id]
    if len(runs) < RUNS_MIN:
        return findings
    checked = store.check_results(runs)
    counts = Counter(
        kind
        for results in checked.values()
        for kind in {found.kind for result in results for found in result.findings}
    )
    if len(checked) < RUNS_MIN:
        return findings
    return [
        _lower(finding, counts[finding.kind], len(checked))
        if finding.severity == "warning" and counts[finding.kind] > SHARE * len(checked)
        else finding
        for finding in findings
    ]


def _lower(finding: Finding, count: int, runs: int) -> Finding:
    message = f"{finding.message} {count} of {runs} successful runs of this program have this, too."
    return msgspec.structs.replace(finding, severity="hint", message=message)
