"""The pytest plugin: real sessions, in one process and with workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.programs import load
from support.pytest_suites import (
    assert_valid,
    bytes_of,
    environment_for,
    files_of,
    make_project,
    only_bundle,
    pytest_command,
    read_events,
    read_json,
    run_pytest,
    statuses,
)
from vestige.home import Home

MIXED = """
    import logging
    import pytest
    import vestige

    def test_ok(): pass

    @pytest.mark.parametrize("value", [1, 2, "a b\\n"])
    def test_values(value): assert value != 2

    def test_says():
        print("printed here")
        logging.getLogger().warning("logged here")
        assert {"a": 1} == {"a": 2}

    def test_skips(): pytest.skip("not here")

    @pytest.mark.xfail(reason="known")
    def test_known(): assert 0

    @pytest.fixture
    def broken(): raise RuntimeError("no setup")

    def test_setup(broken): pass

    @pytest.fixture
    def leaves():
        yield
        raise RuntimeError("no teardown")

    def test_teardown(leaves): pass

    def test_parts(subtests):
        for part in range(3):
            with subtests.test("part", number=part):
                assert part != 1

    def test_attaches(vestige_attach, tmp_path):
        (tmp_path / "note.txt").write_text("by path")
        assert vestige_attach(tmp_path / "note.txt")
        assert vestige_attach("by text", "said.txt")

    def test_agent():
        with vestige.Recorder().run("agent") as run:
            run.span("search", type="tool").end()
        assert 0, "the agent was wrong"
"""
EXPECTED = {
    "test_ok": "pass",
    "test_values[1]": "pass",
    "test_values[2]": "fail",
    "test_values[a b\\n]": "pass",
    "test_says": "fail",
    "test_skips": "skip",
    "test_known": "skip",
    "test_setup": "fail",
    "test_teardown": "fail",
    "test_parts": "fail",
    "test_attaches": "pass",
    "test_agent": "fail",
}


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_session_leaves_a_valid_bundle(tmp_path: Path, workers: str) -> None:
    """Every outcome, parameters, subtests, output and logs of failures, attachments; the same with
    xdist.
    """
    project = make_project(tmp_path / "shop", MIXED)
    done = run_pytest(project, "--vestige-bundle", "art", "-n", workers)
    bundle = only_bundle(project / "art")
    events = read_events(bundle)

    assert done.returncode == 1, done.stdout + done.stderr
    assert f"vestige bundle repro {bundle}" in done.stdout
    assert_valid(bundle)
    assert statuses(bundle) == EXPECTED
    assert bundle.parent.name == "shop"
    assert [path.name for path in (bundle / "trace").iterdir()] == ["events.jsonl"]
    assert (events[0]["kind"], events[-1]["kind"]) == ("suite_start", "suite_end")
    assert events[-1]["counters"] == {"total": 12, "pass": 7, "fail": 6, "skip": 2}
    files = files_of(bundle, "test_says")
    assert "printed here" in files["stdout.txt"]
    assert "logged here" in files["captured.log"]
    assert "{'a': 1} == {'a': 2}" in files["failure.txt"]
    assert files_of(bundle, "test_attaches") == {"note.txt": "by path", "said.txt": "by text"}
    assert files_of(bundle, "test_ok") == {}
    fixtures = read_json(bundle / "fixtures.json")["fixture_ids"]
    assert {"broken", "leaves"} <= set(fixtures)
    assert "value" not in fixtures
    _assert_recorded(tmp_path, events)


def _assert_recorded(tmp_path: Path, events: list[dict[str, object]]) -> None:
    runs = load(Home(tmp_path / "home"))
    suite = next(run for run in runs if run.info.id == events[0]["run_id"])
    agent = next(run for run in runs if run.info.name == "agent")
    tests = {span.id: span for span in suite.spans if span.type == "test"}
    started = {event["span_id"]: event["case"] for event in events if event["kind"] == "case_start"}
    outcomes = {
        span.name.rpartition("::")[2]: span.attributes["outcome"] for span in tests.values()
    }
    origin = next(link for link in agent.links if link.reason == "started by")

    assert {key: span.name for key, span in tests.items()} == started
    assert outcomes == EXPECTED
    reasons = {
        span.name.rpartition("::")[2]: span.attributes.get("message") for span in tests.values()
    }
    assert {name: why for name, why in reasons.items() if why} == {
        "test_skips": "not here",
        "test_known": "xfail: known",
    }
    assert tests[origin.target_span].name.endswith("::test_agent")


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
def test_reruns_are_attempts_of_one_case(tmp_path: Path, workers: str) -> None:
    """What failed and was run again counts once, as it ended; the first failure is still there."""
    pytest.importorskip("pytest_rerunfailures")
    source = """
        import pytest
        TRIES = []

        @pytest.mark.flaky(reruns=2)
        def test_flaky():
            TRIES.append(1)
            assert len(TRIES) == 2
    """
    project = make_project(tmp_path / "shop", source)
    done = run_pytest(project, "--vestige-bundle", "art", "-n", workers)
    bundle = only_bundle(project / "art")
    starts = [event for event in read_events(bundle) if event["kind"] == "case_start"]

    assert done.returncode == 0, done.stdout
    assert_valid(bundle)
    assert [event.get("attempt", 1) for event in starts] == [1, 2]
    assert statuses(bundle) == {"test_flaky": "pass"}
    assert read_json(bundle / "summary.json")["total"] == 1
    assert read_json(bundle / "summary.json")["fail"] == 0
    assert "assert 1 == 2" in files_of(bundle, "test_flaky")["failure.txt"]


@pytest.mark.slow
def test_a_worker_that_dies_fails_its_test(tmp_path: Path) -> None:
    """The controller says what the worker could not say any more."""
    source = """
        import os
        def test_dies(): os._exit(7)
        def test_lives(): pass
    """
    project = make_project(tmp_path / "shop", source)
    run_pytest(project, "--vestige-bundle", "art", "-n", "2")
    bundle = only_bundle(project / "art")

    assert_valid(bundle)
    assert statuses(bundle) == {"test_dies": "fail", "test_lives": "pass"}
    assert "crashed while running" in (bundle / "transcript/summary.txt").read_text()


@pytest.mark.slow
def test_the_ini_option_turns_it_on_and_a_broken_file_is_a_failed_case(tmp_path: Path) -> None:
    """What cannot be collected leaves a valid bundle that says so; recording can be left out."""
    ini = """
        vestige_bundle = evidence
        vestige_suite = nightly
        vestige_record = false
    """
    project = make_project(tmp_path / "shop", "def test_ok(): pass", ini)
    (project / "test_broken.py").write_text("import nothing_of_that_name\n")
    done = run_pytest(project)
    bundle = only_bundle(project / "evidence")

    assert done.returncode == 2
    assert_valid(bundle)
    assert bundle.parent.name == "nightly"
    assert statuses(bundle) == {"test_broken.py": "fail"}
    assert not (tmp_path / "home").exists()


@pytest.mark.slow
def test_a_violation_fails_the_session(tmp_path: Path) -> None:
    """All tests pass, and still: a bundle that breaks a rule is a failure."""
    source = """
        from pathlib import Path
        def test_ok(request):
            plugin = request.config.pluginmanager.get_plugin("vestige-bundle")
            (plugin._suite.path / "bad.json").write_text("{")
    """
    project = make_project(tmp_path / "shop", source)
    done = run_pytest(project, "--vestige-bundle", "art")

    assert done.returncode == 1
    assert "the bundle is not valid" in done.stdout
    assert "bad.json" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


LEAKY = """
    import logging, os, pytest, sys, vestige

    KEY = "sk-ant-api03-4Hj8Qp2Wd6YxCANARY7anthropic5Hj8Qp2Wd6Yx"

    @pytest.mark.parametrize("value", [KEY, os.environ["shop_token"]])
    def test_leaks(value, vestige_attach, tmp_path, subtests):
        print("out", value)
        print("err", value, file=sys.stderr)
        logging.getLogger().error("log %s", value)
        (tmp_path / "a.txt").write_text("file " + value)
        vestige_attach(tmp_path / "a.txt")
        vestige_attach(b"bytes " + value.encode(), value + ".bin")
        with subtests.test(value):
            assert value == "", value
        assert value == "", value

    @vestige.trace
    def pay(card, password): return card

    def test_records(subtests):
        pay(KEY, password="hunter2CANARYpw")
        vestige.current_span().child("tool " + KEY, body=os.environ["shop_token"]).end()
        with vestige.traced_run("agent") as run:
            run.child("tool", type="tool", attributes={"note": os.environ["shop_token"]}).end()

    def test_skips(): pytest.skip("because " + KEY)
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
def test_secrets_are_nowhere_in_the_bundle_or_the_home(tmp_path: Path, workers: str) -> None:
    """What a test prints, logs, raises, attaches, is called, and records below its own span."""
    variables = {"shop_token": "s9Gq7LwZ2pXvCANARY", "DB": "postgres://u:dbCANARYpw9@h/x"}
    project = make_project(tmp_path / "shop", LEAKY)
    done = run_pytest(project, "--vestige-bundle", "art", "-n", workers, env=variables)
    bundle = only_bundle(project / "art")
    load(Home(tmp_path / "home"))

    assert done.returncode == 1, done.stdout
    assert_valid(bundle)
    assert b"CANARY" not in bytes_of(bundle)
    assert b"CANARY" not in bytes_of(tmp_path / "home")
    assert b"test_it.py::test_records" in bytes_of(tmp_path / "home")
    assert "test_it.py::test_leaks" in (bundle / "repro.txt").read_text()


@pytest.mark.slow
def test_off_it_loads_nothing_and_the_fixture_does_nothing(tmp_path: Path) -> None:
    """Without the option no module of the package is imported; a list of tests is not a suite."""
    source = """
        import sys
        def test_nothing_is_loaded(vestige_attach):
            packages = {name.split(".")[0] for name in sys.modules}
            assert packages & {"vestige", "msgspec", "hyperscan"} == set()
            assert vestige_attach("anything", "name") is None
    """
    project = make_project(tmp_path / "shop", source)
    done = run_pytest(project)
    listed = run_pytest(project, "--vestige-bundle", "art", "--collect-only")

    assert done.returncode == 0, done.stdout
    assert listed.returncode == 0
    assert not (project / "art").exists()


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    """Before any test runs, with pytest's status for wrong usage."""
    project = make_project(tmp_path / "shop", "def test_ok(): pass")
    (project / "art").write_text("a file")
    done = run_pytest(project, "--vestige-bundle", "art")

    assert done.returncode == 4
    assert "art" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.slow
def test_a_disk_that_takes_no_more_fails_the_session_in_one_line(tmp_path: Path) -> None:
    """The tests run to their end; then it is said where the bundle is, and what to do."""
    source = "import pytest\n@pytest.mark.parametrize('n', range(200))\ndef test_n(n): pass"
    project = make_project(tmp_path / "shop", source, "vestige_record = false\n")
    done = subprocess.run(
        ["sh", "-c", 'ulimit -f 40; exec "$@"', "sh", *pytest_command("--vestige-bundle", "art")],
        cwd=project,
        env=environment_for(project),
        capture_output=True,
        text=True,
        timeout=120,
    )
    bundle = only_bundle(project / "art")

    assert done.returncode == 1, done.stdout
    assert "200 passed" in done.stdout
    assert f"vestige store recover {bundle}" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.slow
def test_an_interrupted_session_still_leaves_a_valid_bundle(tmp_path: Path) -> None:
    """Ctrl-C in the middle of a test: that test is unknown."""
    source = """
        import os, signal
        def test_ok(): pass
        def test_interrupted(): os.kill(os.getpid(), signal.SIGINT)
        def test_never(): pass
    """
    project = make_project(tmp_path / "shop", source)
    done = subprocess.run(
        pytest_command("--vestige-bundle", "art"),
        cwd=project,
        env=environment_for(project),
        capture_output=True,
        text=True,
        timeout=120,
    )
    bundle = only_bundle(project / "art")

    assert done.returncode == 2, sys.version + done.stdout
    assert_valid(bundle)
    assert statuses(bundle) == {"test_ok": "pass", "test_interrupted": "unknown"}


@pytest.mark.parametrize(
    "options", [(), ("--vestige-bundle", "art"), ("--vestige-bundle", "art", "-n1")]
)
def test_in_a_bundle_pytest_looks_for_no_tests(tmp_path: Path, options: tuple[str, ...]) -> None:
    project = make_project(
        tmp_path / "shop",
        """
        def test_attaches(vestige_attach):
            vestige_attach("def test_attached(): assert 0", "test_attached.py")
            vestige_attach("raise SystemExit", "conftest.py")
    """,
    )
    assert run_pytest(project, "--vestige-bundle", "art").returncode == 0
    bundle = only_bundle(project / "art")
    attached = next(bundle.rglob("test_attached.py"))
    folder = project / "20260210_170000"  # named so, but no bundle
    folder.mkdir()
    (folder / "test_own.py").write_text("def test_own(): pass\n", encoding="utf-8")

    done = run_pytest(project, *options)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
    nested_session = run_pytest(project, "--noconftest", str(attached), *options)
    assert "1 failed" in nested_session.stdout, "a file that is named is collected"
