"""The exit status of a program that failed without an error that was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from vestige.query import formatting
from vestige.query.checks import check, make_finding
from vestige.query.evidence import Evidence
from vestige.record.finding import Finding

_CONTAINERS: Final = frozenset(["run", "process"])


@check(
    "exit-status",
    title="Program exited with an error status",
    looks_at="the exit status of the command, if no error was recorded inside",
    severity="hint",
    confidence=0.9,
    false_positives="a program whose exit status is an answer, such as grep",
)
def exit_status(evidence: Evidence) -> Iterator[Finding]:
    root = evidence.root
    status = None if root is None else root.attributes.get("exit_code")
    if root is None or not isinstance(status, int) or not status or root.status != "error":
        return
    spans = (span for span in evidence.run.spans if span.type not in _CONTAINERS)
    failed = any(span.status not in ("ok", None) for span in spans)
    if failed or any(log.level == "error" for log in evidence.run.logs):
        return  # Other checks report these.
    printed = [log.message for log in evidence.run.logs if log.component == "stderr"]
    last = f" It printed: {formatting.single_line(printed[-1], 160)}" if printed else ""
    yield make_finding(
        evidence,
        "exit-status",
        kind="exit/status",
        basis="measured",
        cause=root.id,
        evidence=[root.id],
        message=f"the program exited with status {status}.{last}",
    )
