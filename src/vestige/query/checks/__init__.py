"""Checks: each a small pure function over a run's evidence, with a name and its known errors.

    @check(
        "loop",
        title="The same calls again and again",
        looks_at="tool and llm spans in order, arguments included",
        severity="warning",
        confidence=0.9,
        false_positives="polling that is meant",
    )
    def loop(evidence: Evidence) -> Iterator[Finding]: ...

A family of checks is one file here. Another package adds its own through the entry point
group `vestige.checks`: each entry names a module, or a function made with `@check`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from vestige.query.evidence import Evidence
from vestige.query.failures.suite_cases import split_by_case
from vestige.record.finding import Finding, Severity

FAMILIES = (
    "vestige.query.checks.process.test_suite",
    "vestige.query.checks.process.crash",
    "vestige.query.checks.model.failed_calls",
    "vestige.query.checks.process.reported_errors",
    "vestige.query.checks.progress.loops",
    "vestige.query.checks.tools.tool_calls",
    "vestige.query.checks.process.infrastructure",
    "vestige.query.checks.model.history",
    "vestige.query.checks.model.output",
    "vestige.query.checks.tools.soft_errors",
    "vestige.query.checks.model.prompt_cache",
    "vestige.query.checks.progress.pace",
    "vestige.query.checks.progress.delivery",
    "vestige.query.checks.process.recording_health",
)
"""Modules that register checks, in the order in which findings of equal rank are listed."""

Function = Callable[[Evidence], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class Check:
    """One check, and what one should know about it."""

    name: str
    title: str
    looks_at: str
    severity: Severity
    """The highest that it gives."""
    confidence: float
    false_positives: str
    version: int
    function: Function


_registered: dict[str, Check] = {}


def check(
    name: str,
    *,
    title: str,
    looks_at: str,
    severity: Severity,
    confidence: float,
    false_positives: str,
    version: int = 1,
) -> Callable[[Function], Function]:
    """Register a check. `version` goes up whenever it would find something else."""

    def register(function: Function) -> Function:
        _registered[name] = Check(
            name, title, looks_at, severity, confidence, false_positives, version, function
        )
        return function

    return register


@cache
def all_checks() -> tuple[Check, ...]:
    """Ours, then those of other packages, in a fixed order."""
    for family in FAMILIES:
        import_module(family)
    _load_foreign()
    return tuple(_registered.values())


def _load_foreign() -> None:
    from importlib.metadata import entry_points

    for entry in sorted(entry_points(group="vestige.checks"), key=lambda entry: entry.name):
        try:
            entry.load()  # registers itself by being imported
        except Exception as error:  # noqa: BLE001  # somebody else's package must not break `check`
            _broken[entry.name] = f"{type(error).__name__}: {error}"


_broken: dict[str, str] = {}


def broken_checks() -> dict[str, str]:
    """Foreign checks that could not be loaded, and why."""
    all_checks()
    return dict(_broken)


def run_checks(evidence: Evidence) -> tuple[list[Finding], list[str], dict[str, str]]:
    """Findings, the names of the checks that passed, and of those that failed themselves."""
    # Parsing requests makes objects by the hundred thousand and no cycles: looking for some
    # would cost a quarter of the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _run_checks(evidence)
    finally:
        if collecting:
            gc.enable()


def _run_checks(evidence: Evidence) -> tuple[list[Finding], list[str], dict[str, str]]:
    findings: list[Finding] = []
    passed: list[str] = []
    failed = broken_checks()
    parts = split_by_case(evidence)
    for each in all_checks():
        try:
            found = [finding for part in parts for finding in each.function(part)]
        except Exception as error:  # noqa: BLE001  # one check's fault must not hide the others' findings
            failed[each.name] = f"{type(error).__name__}: {error}"
            continue
        findings.extend(found)
        if not found:
            passed.append(each.name)
    return findings, passed, failed


def make_finding(evidence: Evidence, check_name: str, /, **fields: Any) -> Finding:
    """A finding with the severity and confidence of its check, unless told otherwise."""
    known = _registered[check_name]
    fields.setdefault("severity", known.severity)
    fields.setdefault("confidence", known.confidence)
    fields.setdefault("basis", "measured")
    fields.setdefault("kind", check_name)
    cause = fields.get("cause")
    if "command" not in fields and cause in evidence.spans:
        fields["command"] = f"vestige span {evidence.spans[cause].short_id}"
    return Finding(check=check_name, **fields)
