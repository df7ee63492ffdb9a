"""Any stored run is served, whatever it came from; and a bundle is a run like any other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import vestige
from support.http_server import Site, served
from support.openwop_server import record_everything, validate, validate_bundle, validate_event
from support.programs import run_in
from support.provider_answers import chat
from support.provider_server import Server as Provider
from vestige.errors import VestigeError
from vestige.home import Home
from vestige.query.command_tools import TOOLS, ask, check_arguments
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import import_path

DATA = Path(__file__).parent.parent / "data"
BUNDLES = {
    "agentdbg": DATA / "agentdbg" / "runs",
    "agentdbg v2": DATA / "agentdbg" / "v2",
    "wink": DATA / "wink" / "later.zip",
    "artifacts that failed": DATA / "artifacts" / "seed_failures",
    "artifacts with logs": DATA / "artifacts" / "seed_logs_screens",
}


@pytest.fixture
def site(home: Home, request: pytest.FixtureRequest) -> Iterator[tuple[Site, list[str]]]:
    """A server, and the runs that were imported."""
    home.make()
    with SqliteStore.open(home.store) as store:
        found = [one.run_id for one in import_path(store, BUNDLES[request.param])]
    assert found
    with served(home) as running:
        yield running, found


@pytest.mark.slow
@pytest.mark.parametrize("site", BUNDLES, indirect=True)
def test_runs_of_other_tools_are_served(site: tuple[Site, list[str]]) -> None:
    """agentdbg, wink, artifacts: bundle, poll and snapshot validate, and are deep-equal."""
    running, runs = site
    listed = running.data("/v1/runs")["runs"]

    assert {each["runId"] for each in listed} >= set(runs)
    for run in runs:
        _check(running, run)


def _check(site: Site, run: str) -> Any:
    bundle = site.data(f"/v1/runs/{run}/debug-bundle")
    snapshot = site.data(f"/v1/runs/{run}")
    poll = site.data(f"/v1/runs/{run}/events/poll")
    validate_bundle(bundle)
    validate("run-snapshot", snapshot)
    for event in poll["events"]:
        validate_event(event)
    assert bundle["run"] == snapshot
    assert bundle["events"] == poll["events"]
    assert poll["isComplete"]
    return bundle


@pytest.mark.slow
def test_a_call_that_the_wire_captured_is_served(home: Home) -> None:
    """Its tokens are the run's usage and cost; its key is nowhere."""
    secret = "sk-proj-wirewirewirewire0001"
    body = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": "hi"}]}
    with (
        Provider([chat()]) as provider,
        vestige.capture_http(),
        vestige.Recorder(home) as recorder,
        recorder.run("agent") as run,
    ):
        url = f"{provider.url}/v1/chat/completions"
        httpx.post(url, json=body, headers={"Authorization": f"Bearer {secret}"})
    vestige.open(home.root).close()
    with served(home) as site:
        found = [each["runId"] for each in site.data("/v1/runs")["runs"]]
        bundles = [_check(site, each) for each in found]
        text = json.dumps(bundles)

    assert run.run_id in found
    assert "provider.usage" in text
    assert secret not in text
    assert "127.0.0.1" not in text


@pytest.mark.slow
def test_every_verb_answers_about_a_bundle_file(home: Home, tmp_path: Path) -> None:
    """`vestige VERB F`: an answer, or an error of one line that says what is not in it."""
    run = record_everything(home, fails=True)
    with served(home) as site:
        for name, query in (("whole", ""), ("part", "?maxEvents=4")):
            data = site.ask(f"/v1/runs/{run}/debug-bundle{query}").body
            (tmp_path / f"{name}.json").write_bytes(data)
    answered = set()
    for name in ("whole", "part"):
        with vestige.open(tmp_path / f"{name}.json") as debugger:
            values = {"pattern": "refund", "component": "agent", "query": "select * from spans"}
            spans = debugger.show().data()["spans"]
            for tool in TOOLS:
                needs_span = tool.name in ("why", "span", "body", "segments")
                about = spans[-1]["id"] if needs_span else run
                arguments: dict[str, Any] = {
                    one.name: values.get(one.name, [run] if one.kind == "array" else about)
                    for one in tool.parameters
                    if one.required or one.name in ("id", "b")
                }
                try:
                    answer = ask(debugger, tool, check_arguments(tool, arguments))
                    json.dumps(answer.data(), default=str)
                    assert answer.text(None)
                    answered.add(tool.name)
                except VestigeError as error:
                    assert "\n" not in str(error), tool.name

    # What a bundle has not: hints of components, prompts' segments, bodies of every span; a second
    # run.
    missing = {tool.name for tool in TOOLS} - answered
    assert missing <= {"help", "segments", "body", "compare", "doctor"}


def test_a_note_of_the_command_line_is_a_flag_there(home: Home) -> None:
    """`vestige note`: signal `flag` with the text as `note`, and a span is `target.nodeId`."""
    run = record_everything(home)
    with vestige.open(home.root) as debugger:
        span = next(each for each in debugger.show(run).data()["spans"] if each["type"] == "tool")
    program = f"""
import subprocess, sys
for id, text in (({run!r}, "all of it"), ({span["short_id"]!r}, "this call")):
    command = [sys.executable, "-m", "vestige", "note", id, text, "--home", {str(home.root)!r}]
    subprocess.run(command, check=True)
"""
    assert run_in(home, program).returncode == 0
    with served(home) as site:
        notes = site.data(f"/v1/runs/{run}/annotations")["annotations"]
        bundle = site.data(f"/v1/runs/{run}/debug-bundle")

    assert bundle["annotations"] == notes
    for note in notes:
        validate("annotation", note)
    by_text = {note["note"]: note for note in notes}
    assert {note["signal"]["kind"] for note in notes} == {"flag"}
    assert "nodeId" not in by_text["all of it"]["target"]
    assert by_text["this call"]["target"]["nodeId"] == span["id"]
