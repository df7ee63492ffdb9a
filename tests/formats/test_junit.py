"""JUnit reports and pytest report logs: in as runs, out as reports, within limits."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.commands import vestige
from vestige.artifacts import SuiteRecorder
from vestige.errors import UnreadableError
from vestige.formats import junit, reportlog
from vestige.formats.junit_xml import JunitCase, Report, XmlError, parse_report, render_report
from vestige.record.types import SpanClose, SpanOpen
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import export_run, import_path

DATA = Path(__file__).parents[1] / "data" / "suites"


def _outcomes(records: list[object]) -> dict[str, object]:
    names = {r.span_id: r.name for r in records if isinstance(r, SpanOpen) and r.type == "test"}
    return {
        names[r.span_id]: r.attributes["outcome"]
        for r in records
        if isinstance(r, SpanClose) and r.span_id in names
    }


def test_a_report_is_a_run_of_tests() -> None:
    records = list(junit.read_run(DATA / "junit.xml").records)

    assert _outcomes(records) == {
        "test_sample.test_ok": "pass",
        "test_sample.test_bad": "fail",
        "test_sample.test_skipped": "skip",
        "test_sample.test_xfail": "skip",
        "test_sample.test_error": "fail",
        "test_sample.test_param[1]": "pass",
        "test_sample.test_param[a\\nb]": "pass",
    }


def test_what_a_suite_says_outside_of_its_cases_comes_in_and_goes_out(tmp_path: Path) -> None:
    """Ant and Gradle write all output there; and a suite that failed in its setup did not go
    well.
    """
    (tmp_path / "in.xml").write_text(
        '<testsuite name="s"><testcase name="a"/><error message="no database"/>'
        "<system-out>one&#13;two</system-out><system-err>three</system-err></testsuite>"
    )
    with SqliteStore.open(tmp_path / "store.db") as store:
        (imported,) = import_path(store, tmp_path / "in.xml")
        run = store.load_run(str(imported.run_id))
        out = export_run(store, str(imported.run_id), "junit", tmp_path / "out.xml")

    report = parse_report(out.read_bytes())
    assert run.info.outcome == "error"
    assert (report.output, report.errors) == ("one\rtwothree", ["no database"])
    assert [case.outcome for case in report.cases] == ["pass"]


def test_a_case_that_was_not_run_did_not_pass() -> None:
    """GoogleTest says so of a disabled test in attributes alone."""
    report = parse_report(
        b'<testsuite name="s"><testcase name="DISABLED_a" status="notrun" result="suppressed"/>'
        b'<testcase name="b" status="run" result="completed"/></testsuite>'
    )

    assert [case.outcome for case in report.cases] == ["skip", "pass"]


def test_attachments_beside_the_report_come_along(tmp_path: Path) -> None:
    """[[ATTACHMENT|path]] in a case's output; paths elsewhere are skipped, and reported."""
    shutil.copy(DATA / "shot.txt", tmp_path / "shot.txt")
    text = (DATA / "junit.xml").read_text()
    outside = text.replace(
        "[[ATTACHMENT|shot.txt]]",
        (
            "[[ATTACHMENT|shot.txt]] [[ATTACHMENT|/etc/passwd]] "
            "[[ATTACHMENT|../x]] [[ATTACHMENT|gone.png]]"
        ),
    )
    (tmp_path / "junit.xml").write_text(outside)

    source = junit.read_run(tmp_path / "junit.xml")
    files = [r for r in source.records if isinstance(r, SpanOpen) and r.type == "file"]

    assert [(file.name, file.body) for file in files] == [("shot.txt", "shot\n")]
    assert [problem.rule for problem in source.problems] == [
        "attachment-outside",
        "attachment-outside",
        "attachment-missing",
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_entities_are_refused_before_they_are_read(encoding: str, tmp_path: Path) -> None:
    """Neither a bomb nor a file of this machine gets in."""
    bomb = (
        f'<?xml version="1.0" encoding="{encoding}"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">'
        '<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY f SYSTEM "file:///etc/passwd">]>'
        '<testsuite name="&b;&f;"></testsuite>'
    )
    report = tmp_path / "junit.xml"
    report.write_bytes(bomb.encode(encoding))

    with pytest.raises(UnreadableError, match="DOCTYPE"):
        junit.read_run(report)


@pytest.mark.parametrize(
    "data", [b"", b"<", b"<a/>", b"<testsuite", b"<testsuite>" * 100, b"\xff\xfe<"]
)
def test_what_is_no_report_is_one_line(data: bytes, tmp_path: Path) -> None:
    report = tmp_path / "junit.xml"
    report.write_bytes(data)

    result = vestige("import", report, "--format", "junit", "--home", tmp_path / "home")

    assert result.exit_code == 1
    assert "Traceback" not in result.output


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=100))
def test_no_bytes_make_another_error(data: bytes) -> None:
    try:
        parse_report(b"<testsuite><testcase>" + data)
    except XmlError:
        pass


@settings(max_examples=100, deadline=None)
@given(text=st.text(), outcome=st.sampled_from(["pass", "fail", "skip"]))
def test_any_text_makes_a_report_that_parses(text: str, outcome: str) -> None:
    """ANSI escapes, NULs, lone surrogates: XML has no way to write them, so they are escaped."""
    case = JunitCase(text, text, 12_000_000, outcome, text, text, text, text)  # type: ignore[arg-type]

    report = parse_report(render_report(Report(text, "2026-02-10T17:00:00Z", [case])))

    assert [(each.outcome, each.duration_ns) for each in report.cases] == [(outcome, 12_000_000)]


def test_a_run_goes_out_as_junit_and_comes_back(tmp_path: Path) -> None:
    target = tmp_path / "out.xml"

    result = vestige("export", DATA / "reportlog.jsonl", "--format", "junit", "-o", target)

    assert result.exit_code == 0, result.output
    suite = ElementTree.parse(target).getroot()[0]
    assert {key: suite.get(key) for key in ("tests", "failures", "skipped")} == {
        "tests": "7",
        "failures": "2",
        "skipped": "2",
    }
    assert sorted(_outcomes(list(junit.read_run(target).records)).values()) == sorted(
        _outcomes(list(reportlog.read_run(DATA / "reportlog.jsonl").records)).values()
    )  # type: ignore[type-var]


def test_attachments_go_out_beside_the_report_and_come_back(tmp_path: Path) -> None:
    """Named by `[[ATTACHMENT|path]]`; a name cannot lead elsewhere, and nothing is overwritten."""
    with SuiteRecorder(tmp_path / "art", "shop", environment={}) as suite:
        for name in ("one", "two"):
            with suite.case(name) as case:
                case.passed()
                case.write("../../it]]\nhere.txt", f"by {name}")
    target = tmp_path / "out" / "report.xml"

    first = vestige("export", suite.path, "--format", "junit", "-o", target)
    again = vestige(
        "export", suite.path, "--format", "junit", "-o", tmp_path / "out" / "report.txt"
    )

    source = junit.read_run(target)
    bodies = [r.body for r in source.records if isinstance(r, SpanOpen) and r.type == "file"]
    assert (first.exit_code, again.exit_code) == (0, 2), first.output + again.output
    assert source.problems == []
    assert bodies == ["by one", "by two"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["art", "out"]
    assert sorted(path.name for path in target.parent.iterdir()) == ["report-files", "report.xml"]


# --- report logs ----------------------------------------------------------------------------------


def test_a_report_log_is_a_run_of_tests() -> None:
    source = reportlog.read_run(DATA / "reportlog.jsonl")
    records = list(source.records)

    assert source.problems == []
    assert _outcomes(records) == {
        "test_sample.py::test_ok": "pass",
        "test_sample.py::test_bad": "fail",
        "test_sample.py::test_skipped": "skip",
        "test_sample.py::test_xfail": "skip",
        "test_sample.py::test_error": "fail",
        "test_sample.py::test_param[1]": "pass",
        "test_sample.py::test_param[a\\nb]": "pass",
    }
    bad = next(
        r
        for r in records
        if isinstance(r, SpanClose) and "sum <is> wrong" in str(r.attributes.get("error.message"))
    )
    assert "assert 1 + 1 == 3" in str(bad.attributes["error.stack"])
    assert bad.body is not None and bad.body.count("Captured stdout call") == 1


def test_a_log_that_breaks_off_is_interrupted(tmp_path: Path) -> None:
    lines = (DATA / "reportlog.jsonl").read_bytes().splitlines(keepends=True)
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"".join(lines[:7]) + b'{"torn')

    source = reportlog.read_run(log)
    outcomes = _outcomes(list(source.records))

    assert list(outcomes.values())[-1] == "unknown"
    assert [problem.place for problem in source.problems] == ["line 8"]


def test_a_suite_of_a_report_exports_to_a_valid_bundle(tmp_path: Path) -> None:
    for name in ("junit.xml", "reportlog.jsonl"):
        target = tmp_path / name

        assert vestige("export", DATA / name, "--format", "artifacts", "-o", target).exit_code == 0
        for profile in ("latest", "strict"):
            result = vestige("validate", target, "--profile", profile, "--format", "json")
            assert json.loads(result.stdout)["valid"], result.stdout
