"""Reports and logs of test runs that anybody may have made: read in bounded time and memory, and no
case is lost.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vestige import limits
from vestige.artifacts import SuiteRecorder
from vestige.formats import artifacts, junit, reportlog
from vestige.formats.junit_xml import parse_report
from vestige.record.types import SpanClose, SpanOpen


def write_log(path: Path, *reports: dict[str, Any]) -> Path:
    lines = [{"$report_type": "SessionStart"}, *reports]
    path.write_text("".join(json.dumps(report) + "\n" for report in lines))
    return path


@pytest.mark.slow
def test_long_output_of_many_parts_is_read_in_a_time_that_grows_with_it(tmp_path: Path) -> None:
    """Each takes minutes if every part is read again for each of the others."""
    parts = "<system-out>abcdefghijklmnopqrstuvwxyz</system-out>" * 500_000
    (tmp_path / "parts.xml").write_text(
        f"<testsuite><testcase name='a'>{parts}</testcase></testsuite>"
    )
    begun = "[[ATTACHMENT|" * 300_000
    (tmp_path / "begun.xml").write_text(
        f"<testsuite><testcase name='a'><system-out>{begun}</system-out></testcase></testsuite>"
    )
    program = (
        "import sys, pathlib; from vestige.formats import junit; print(sum(1 for _ "
        "in junit.read_run(pathlib.Path(sys.argv[1])).records))"
    )

    for name in ("parts.xml", "begun.xml"):
        command = [sys.executable, "-c", program, str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)

        assert done.stdout == "4\n"


def test_a_rerun_that_holds_its_own_output_is_told() -> None:
    """As Maven's Surefire writes it."""
    text = b"""<testsuite><testcase name="a">
        <flakyFailure message="slow">
        <stackTrace>at a</stackTrace><system-out>said</system-out></flakyFailure>
        </testcase></testsuite>"""

    (case,) = parse_report(text).cases

    assert case.messages == [("warn", "slow")]
    assert (case.outcome, case.output) == ("pass", "said")


def test_an_attachment_is_read_once_however_often_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "shot.txt").write_text("shot")
    named = "[[ATTACHMENT|shot.txt]] [[ATTACHMENT|./shot.txt]] [[ATTACHMENT|.//shot.txt]]"
    case = f'<testcase name="a"><system-out>{named}</system-out></testcase>'
    (tmp_path / "junit.xml").write_text(f"<testsuite>{case * 3}</testsuite>")

    records = junit.read_run(tmp_path / "junit.xml").records

    files = [one.name for one in records if isinstance(one, SpanOpen) and one.type == "file"]
    assert files == ["shot.txt"]


def test_problems_of_one_file_are_bounded(tmp_path: Path) -> None:
    """A damaged file has one on each line, and there may be millions of them."""
    count = 2 * limits.PROBLEMS_MAX
    log = write_log(tmp_path / "log.jsonl")
    log.write_text(log.read_text() + "x\n" * count)
    with SuiteRecorder(tmp_path / "art", "shop") as suite:
        pass
    with open(suite.path / "trace/events.jsonl", "a") as trace:
        trace.write("x\n" * count)
    missing = "".join(f"[[ATTACHMENT|{number}]]" for number in range(count))
    report = tmp_path / "junit.xml"
    report.write_text(
        f"<testsuite><testcase name='a'><system-out>{missing}</system-out></testcase></testsuite>"
    )

    for source in (reportlog.read_run(log), artifacts.read_run(suite.path), junit.read_run(report)):
        for _ in source.records:
            pass

        assert len(source.problems) == limits.PROBLEMS_MAX


def test_sections_that_are_none_are_passed_over(tmp_path: Path) -> None:
    report = {
        "$report_type": "TestReport",
        "nodeid": "a",
        "when": "teardown",
        "outcome": "passed",
        "sections": 5,
    }

    assert reportlog.validate_run(write_log(tmp_path / "log.jsonl", report)) == []


def test_a_test_that_never_came_to_its_teardown_ends_with_its_session(tmp_path: Path) -> None:
    """Its worker died (xdist says so with a report of its own), or pytest was stopped."""
    log = write_log(
        tmp_path / "log.jsonl",
        {
            "$report_type": "TestReport",
            "nodeid": "dies",
            "when": "???",
            "outcome": "failed",
            "longrepr": "worker crashed",
        },
        {"$report_type": "TestReport", "nodeid": "exits", "when": "setup", "outcome": "passed"},
        {"$report_type": "SessionFinish", "exitstatus": 1},
    )

    records = list(reportlog.read_run(log).records)

    names = {one.span_id: one.name for one in records if isinstance(one, SpanOpen)}
    ends = {names[one.span_id]: one.attributes for one in records if isinstance(one, SpanClose)}
    assert (ends["dies"]["outcome"], ends["exits"]["outcome"]) == ("fail", "unknown")
    assert (ends["pytest"]["total"], ends["pytest"]["fail"], ends["pytest"]["unknown"]) == (2, 1, 1)


def test_fixtures_that_are_nested_too_deeply_are_told(tmp_path: Path) -> None:
    with SuiteRecorder(tmp_path, "shop") as suite:
        pass

    for depth in range(850, 1000):  # the bound is somewhere here, and depends on who calls
        nested = "[" * depth + "]" * depth
        (suite.path / "fixtures.json").write_text(f'{{"fixture_ids": [{nested}]}}')

        assert any(
            problem.file.endswith("fixtures.json") for problem in artifacts.validate_run(suite.path)
        )
