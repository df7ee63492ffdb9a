"""Read and store the results of checks."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

import msgspec

from vestige.record.finding import Finding
from vestige.record.run import RunInfo
from vestige.store.protocol import CheckResult

_decode_finding = msgspec.json.Decoder(Finding).decode


def check_results(
    connection: sqlite3.Connection, run_ids: Sequence[str]
) -> Mapping[str, Sequence[CheckResult]]:
    results_of_runs: dict[str, dict[str, CheckResult]] = {}
    rows = connection.execute(
        "SELECT r.run_id, f.check_name, f.check_version, f.finding FROM findings f"
        " JOIN runs r ON r.id = f.run WHERE r.run_id IN (SELECT value FROM json_each(?))"
        " ORDER BY f.rowid",
        (msgspec.json.encode(list(run_ids)).decode(),),
    )
    for run_id, name, version, text in rows:
        results = results_of_runs.setdefault(run_id, {})
        result = results.setdefault(name, CheckResult(name, version, []))
        if text is not None:
            result.findings.append(_decode_finding(text))  # type: ignore[attr-defined]  # a list
    return {run_id: list(results.values()) for run_id, results in results_of_runs.items()}


def store_findings(
    connection: sqlite3.Connection, run: RunInfo, results: Sequence[CheckResult]
) -> None:
    """Replace the stored results of a run, in the caller's transaction."""
    row = connection.execute(
        "SELECT id FROM runs WHERE run_id = ? AND last_ns = ? AND span_count = ? AND log_count = ?"
        " AND error_count = ? AND outcome = ?",
        (run.id, run.last_ns, run.span_count, run.log_count, run.error_count, run.outcome),
    ).fetchone()
    if row is None:
        return  # the run has changed since it was read, or was deleted
    connection.execute("DELETE FROM findings WHERE run = ?", row)
    rows = []
    for result in results:
        findings = [msgspec.json.encode(each).decode() for each in result.findings]
        rows += [(row[0], result.name, result.version, text) for text in findings or (None,)]
    connection.executemany("INSERT INTO findings VALUES (?, ?, ?, ?)", rows)
