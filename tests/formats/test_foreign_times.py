"""Times that a file may claim, and no store can hold: the file is read all the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.commands import vestige
from support.wink_samples import seed_members, write_zip
from vestige.artifacts import SuiteRecorder
from vestige.home import Home

LATE = "9999-12-31T23:59:59.000Z"
RUN_ID = "3d1957bd-7105-4b04-b132-afe8fc31203e"


def make_junit(folder: Path) -> Path:
    path = folder / "report.xml"
    cases = '<testcase name="a" time="999999999"/>' * 20
    path.write_text(f'<testsuite name="shop" timestamp="{LATE}">{cases}</testsuite>')
    return path


def make_report_log(folder: Path) -> Path:
    path = folder / "log.jsonl"
    report = {
        "$report_type": "TestReport",
        "nodeid": "a",
        "when": "teardown",
        "outcome": "passed",
        "start": 9e10,
        "stop": 9e10,
    }
    path.write_text('{"$report_type": "SessionStart"}\n' + json.dumps(report) + "\n")
    return path


def make_bundle(folder: Path) -> Path:
    with SuiteRecorder(folder / "art", "shop") as suite, suite.case("pays"):
        pass
    trace = suite.path / "trace/events.jsonl"
    events = [{**json.loads(line), "ts": LATE} for line in trace.read_text().splitlines()]
    trace.write_text("".join(json.dumps(event) + "\n" for event in events))
    return suite.path


def make_agentdbg(folder: Path) -> Path:
    path = folder / RUN_ID
    path.mkdir()
    run = {
        "spec_version": "0.1",
        "run_id": RUN_ID,
        "started_at": LATE,
        "ended_at": LATE,
        "status": "ok",
    }
    event = {"spec_version": "0.1", "event_type": "TOOL_CALL", "ts": LATE, "name": "search"}
    (path / "run.json").write_text(json.dumps(run))
    (path / "events.jsonl").write_text(json.dumps(event) + "\n" + json.dumps(event) + "\n")
    return path


def make_wink(folder: Path) -> Path:
    members = seed_members()
    manifest = json.loads(members["manifest.json"])
    manifest["execution"] |= {"started_at": LATE, "ended_at": LATE}
    for component in manifest["components"].values():
        component.pop("sha256", None)
        component.pop("size_bytes", None)
    entry = {"timestamp": LATE, "level": "INFO", "logger": "l", "event": "e", "message": "m"}
    manifest["components"]["logs"]["entry_count"] = 1
    members |= {
        "logs.jsonl": json.dumps(entry).encode(),
        "manifest.json": json.dumps(manifest).encode(),
    }
    return write_zip(folder / "late.wink", members)


@pytest.mark.parametrize(
    "make", [make_junit, make_report_log, make_bundle, make_agentdbg, make_wink]
)
def test_a_time_beyond_the_last_one_is_read(make: object, home: Home, tmp_path: Path) -> None:
    assert callable(make)
    home.make()
    path = make(tmp_path)

    shown = vestige("show", path)
    taken = vestige("import", path)

    assert (shown.exit_code, shown.exception) == (0, None), shown.output
    assert (taken.exit_code, taken.exception) == (0, None), taken.output
