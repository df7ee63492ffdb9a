"""The bug catalogue: each bug planted by a program that runs for real, through recorder, journal,
collector and store; found with the right kind, the right cause and evidence; and the same
program without the bug gives no such finding. `pytest -s` prints the table.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.bug import Bug, Planted
from support.bugs_of_programs import PROGRAMS
from support.bugs_of_requests import REQUESTS
from support.planted_bugs import all_findings, evidence_of
from vestige.home import Home
from vestige.query.evidence import Evidence
from vestige.record.finding import Finding

CATALOGUE: list[Bug] = [*PROGRAMS, *REQUESTS]


@pytest.mark.slow  # nineteen programs, one after the other
def test_every_bug_is_found_at_the_span_where_it_was_planted(tmp_path: Path) -> None:
    """All of them in one table: the bug, how it was planted, the finding, the two spans."""
    rows = [("bug", "planted", "check", "kind", "span planted", "span found", "")]
    problems: list[str] = []
    for number, bug in enumerate(CATALOGUE):
        folder = tmp_path / str(number)
        folder.mkdir()
        row, wrong = _plant_and_check(Home(folder / "home"), bug)
        rows.append(row)
        problems += [f"{bug.name}: {what}" for what in wrong]
    print("\n" + _table(rows))

    assert problems == []


def _plant_and_check(home: Home, bug: Bug) -> tuple[tuple[str, ...], list[str]]:
    """The table's row, and what is wrong with it."""
    planted = bug.plant(home, True)
    found = all_findings(home, bug.run)
    match = next((each for each in found if each.kind == bug.kind), None)
    with evidence_of(home, bug.run) as evidence:
        where, text = (
            evidence.spans[each].short_id if each in evidence.spans else "none"
            for each in (planted.cause, match.cause if match else None)
        )
        wrong = _wrong(evidence, bug, planted, found)
    verdict = "the same" if where == text and not wrong else "WRONG"
    return (bug.name, bug.how, match.check if match else "", bug.kind, where, text, verdict), wrong


def _wrong(evidence: Evidence, bug: Bug, planted: Planted, found: list[Finding]) -> list[str]:
    matches = [finding for finding in found if finding.kind == bug.kind]
    if [finding.cause for finding in matches] != [planted.cause]:
        return [f"{bug.kind} found at {[finding.cause for finding in matches]}"]
    (match,) = matches
    short_id = evidence.spans[planted.cause].short_id
    rules = {
        "its evidence names them all": {planted.cause, *planted.others} <= {*match.evidence},
        "its evidence is in the run": {*match.evidence} <= {*evidence.spans},
        "there is enough evidence": len(match.evidence) >= bug.evidence_min,
        "it is as severe as it should be": match.severity in bug.severities,
        f"its basis is {bug.basis}": match.basis == bug.basis,
        "its command shows it": short_id in match.command or "diff" in match.command,
        "no other error is reported": {f.kind for f in found if f.severity == "error"}
        <= {bug.kind},
    }
    return [f"not so: {rule}" for rule, holds in rules.items() if not holds]


def _table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


@pytest.mark.slow
@pytest.mark.parametrize("bug", CATALOGUE, ids=lambda bug: bug.name)
def test_the_same_program_without_its_bug_has_no_such_finding(home: Home, bug: Bug) -> None:
    """Nor any other: a check that always speaks says nothing."""
    bug.plant(home, False)

    found = all_findings(home, bug.run)
    assert [finding.message for finding in found if finding.severity != "hint"] == []


@pytest.mark.parametrize(
    "bug", [each for each in REQUESTS if each.name.startswith("cache 0")], ids=lambda bug: bug.name
)
def test_the_six_causes_of_a_miss_are_told_apart(home: Home, bug: Bug) -> None:
    """One miss has one cause."""
    bug.plant(home, True)

    found = all_findings(home, bug.run)
    assert {finding.kind for finding in found if finding.check == "cache-miss"} == {bug.kind}
