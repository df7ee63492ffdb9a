"""Registry of checks: small pure functions that find problems in the evidence of a run.

    @check(
        "loop",
        title="Repeated calls",
        looks_at="tool and llm spans in order, arguments included",
        severity="warning",
        confidence=0.9,
        false_positives="intentional polling",
    )
    def loop(evidence: Evidence) -> Iterator[Finding]: ...

Each file here is a family of checks. Other packages add checks through the entry point group
`vestige.checks`: an entry names a module, or a function decorated with `@check`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from vestige.query.evidence import Evidence
from vestige.query.failures.split_by_test_case import split_by_case
from vestige.record.finding import Finding, Severity

FAMILIES = (
    "vestige.query.checks.process.failed_recorded_tests",
    "vestige.query.checks.process.crash",
    "vestige.query.checks.model.failed_calls",
    "vestige.query.checks.process.reported_errors",
    "vestige.query.checks.progress.loops",
    "vestige.query.checks.tools.failed_tools",
    "vestige.query.checks.answers.missing_task",
    "vestige.query.checks.answers.unsupported_answers",
    "vestige.query.checks.answers.announced_calls",
    "vestige.query.checks.answers.answer_origin",
    "vestige.query.checks.tools.orphan_calls",
    "vestige.query.checks.tools.tool_calls",
    "vestige.query.checks.tools.relayed_calls",
    "vestige.query.checks.answers.instructions",
    "vestige.query.checks.tools.ignored_errors",
    "vestige.query.checks.process.failed_starts",
    "vestige.query.checks.model.history",
    "vestige.query.checks.model.history_continuity",
    "vestige.query.checks.model.foreign_conversation",
    "vestige.query.checks.model.output",
    "vestige.query.checks.tools.soft_errors",
    "vestige.query.checks.model.prompt_cache",
    "vestige.query.checks.progress.detours",
    "vestige.query.checks.progress.time_and_usage",
    "vestige.query.checks.progress.delivery",
    "vestige.query.checks.process.exit_status",
    "vestige.query.checks.process.recording_health",
)
"""Modules that register checks, in the order in which findings of equal rank are listed."""

Function = Callable[[Evidence], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class Check:
    """A check and its documentation."""

    name: str
    title: str
    looks_at: str
    severity: Severity
    """Highest severity of its findings."""
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
    """Register a check. Increase `version` whenever its findings change."""

    def register(function: Function) -> Function:
        _registered[name] = Check(
            name, title, looks_at, severity, confidence, false_positives, version, function
        )
        return function

    return register


@cache
def all_checks() -> tuple[Check, ...]:
    """Return the built-in checks, then those of other packages, in a fixed order."""
    for family in FAMILIES:
        import_module(family)
    _load_entry_points()
    # A family that another one imports, or a test, is registered earlier than it is listed.
    return tuple(sorted(_registered.values(), key=_get_family))


def _get_family(check: Check) -> int:
    module = check.function.__module__
    return FAMILIES.index(module) if module in FAMILIES else len(FAMILIES)


def _load_entry_points() -> None:
    from importlib.metadata import entry_points

    for entry in sorted(entry_points(group="vestige.checks"), key=lambda entry: entry.name):
        try:
            entry.load()  # the import registers its checks
        except Exception as error:  # noqa: BLE001  # a third-party package must not break `check`
            _broken[entry.name] = f"{type(error).__name__}: {error}"


_broken: dict[str, str] = {}


def broken_checks() -> dict[str, str]:
    """Return the third-party checks that could not be loaded, with the error."""
    all_checks()
    return dict(_broken)


def run_checks(evidence: Evidence) -> tuple[list[Finding], list[str], dict[str, str]]:
    """Return findings, names of checks that passed, and errors of checks that failed to run."""
    # Parsing requests allocates 100,000s of objects without cycles: GC takes 25 % of the time.
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
    for check in all_checks():
        try:
            found = [finding for part in parts for finding in check.function(part)]
        except Exception as error:  # noqa: BLE001  # a broken check must not hide other findings
            failed[check.name] = f"{type(error).__name__}: {error}"
            continue
        findings.extend(found)
        if not found:
            passed.append(check.name)
    return findings, passed, failed


def make_finding(evidence: Evidence, check_name: str, /, **fields: Any) -> Finding:
    """Return a finding; severity and confidence default to those of its check."""
    check = _registered[check_name]
    fields.setdefault("severity", check.severity)
    fields.setdefault("confidence", check.confidence)
    fields.setdefault("basis", "measured")
    fields.setdefault("kind", check_name)
    cause = fields.get("cause")
    if "command" not in fields and cause in evidence.spans:
        fields["command"] = f"vestige span {evidence.spans[cause].short_id}"
    return Finding(check=check_name, **fields)
