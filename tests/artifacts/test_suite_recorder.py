"""SuiteRecorder: what a suite leaves, whatever its names and files are."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.pytest_suites import assert_valid, bytes_of, problems, read_events, read_json
from vestige._runtime.clock import FakeClock
from vestige.artifacts import InvalidSuiteError, Replay, SuiteRecorder
from vestige.artifacts.suite_recorder import Case
from vestige.artifacts.suite_trace_writer import json_of
from vestige.errors import NotFoundError, UsageError
from vestige.formats.artifacts.file_structs import TraceEvent

ANYTHING = st.text(
    st.one_of(st.characters(), st.sampled_from("\x1b[31m\n\r\0/\\.:\ud800\udcff…")), max_size=60
)


def test_a_suite_leaves_a_bundle_that_every_era_accepts(tmp_path: Path) -> None:
    """All required files, later eras' files too, counts, and nothing that is not listed."""
    (tmp_path / "picture.PNG").write_bytes(b"\x89PNG\0\1\2")
    with SuiteRecorder(tmp_path / "art", "shop", seed=7) as suite:
        suite.fixture("db")
        suite.fixture("db")
        with suite.case("pays") as case:
            assert case.check(True, "one")
            assert not case.check(False, "two")
            case.screenshot(tmp_path / "picture.PNG")
        with suite.case("later") as case:
            case.skipped("not here")
        suite.log("server", "started")

    assert_valid(suite.path)
    assert suite.path.parent == (tmp_path / "art/shop").resolve()
    assert suite.failed == ["pays"]
    bundle = read_json(suite.path / "bundle.json")
    assert bundle["counts"] == {"total": 2, "pass": 1, "fail": 1, "skip": 1}
    assert {file["path"]: file["kind"] for file in bundle["files"]}["logs/server.log"] == "log"
    assert read_json(suite.path / "fixtures.json")["fixture_ids"] == ["db"]
    assert read_json(suite.path / "repro.json")["seed"] == 7
    assert len(read_json(suite.path / "screenshots/index.json")["files"]) == 1


def test_events_are_on_disk_before_the_suite_goes_on(tmp_path: Path) -> None:
    """`case_start` can be read by others while the case runs; `bundle.json` comes last."""
    with SuiteRecorder(tmp_path, "shop") as suite, suite.case("pays"):
        during = read_events(suite.path)
        finished = (suite.path / "bundle.json").exists()

    assert [event["kind"] for event in during] == ["suite_start", "case_start"]
    assert not finished
    assert [event["kind"] for event in read_events(suite.path)][-1] == "suite_end"
    assert (suite.path / "bundle.json").exists()


def test_an_exception_fails_its_case_and_the_bundle_is_written(tmp_path: Path) -> None:
    """What ends a suite early is in its transcript, and goes on its way."""
    suite = SuiteRecorder(tmp_path, "shop")
    with pytest.raises(ZeroDivisionError), suite, suite.case("divides"):
        1 / 0  # noqa: B018

    assert_valid(suite.path)
    assert suite.failed == ["divides"]
    assert "ZeroDivisionError" in (suite.path / "transcript/summary.txt").read_text()


def test_a_violation_fails_the_suite(tmp_path: Path) -> None:
    """A file that the suite itself put there and that breaks a rule is reported, and is a
    failure.
    """
    suite = SuiteRecorder(tmp_path, "shop")
    with (
        pytest.raises(InvalidSuiteError, match=r"bad\.json.*vestige bundle validate") as caught,
        suite,
    ):
        (suite.path / "bad.json").write_text("{")

    assert caught.value.exit_code == 1
    assert len(caught.value.problems) == 1


def test_attached_json_that_is_no_json_stays_as_text(tmp_path: Path) -> None:
    """A broken response is evidence; under a name that promises JSON it would make the bundle
    invalid.
    """
    (tmp_path / "response.json").write_text('{"cut": ')
    with SuiteRecorder(tmp_path / "art", "shop") as suite, suite.case("asks") as case:
        first = case.attach(tmp_path / "response.json")
        second = case.write("response.json", "{}")
        third = case.write("response.json", "")

    assert_valid(suite.path)
    assert first.endswith("response.json.txt")
    assert second.endswith("response.json")
    assert third.endswith("response-2.json")


def test_what_is_no_file_cannot_be_attached(tmp_path: Path) -> None:
    """One line that names the path."""
    with SuiteRecorder(tmp_path, "shop") as suite, suite.case("asks") as case:
        with pytest.raises(NotFoundError, match="nowhere"):
            case.attach(tmp_path / "nowhere")
        with pytest.raises(UsageError, match="screenshot"):
            case.screenshot(tmp_path / "x.txt")

    assert_valid(suite.path)


def test_a_large_attachment_is_masked_across_its_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than one read, with a secret in the middle of a boundary; bytes that are no UTF-8
    survive.
    """
    secret = "zaq1XSW2cde3VFR4"
    monkeypatch.setenv("SHOP_TOKEN", secret)
    start = b"x" * (1024 * 1024 - 8) + b"\n"
    (tmp_path / "server.log").write_bytes(start + secret.encode() + b" \xff\xfe end\n")
    (tmp_path / "raw.bin").write_bytes(b"\0" + b"data")
    with SuiteRecorder(tmp_path / "art", "shop") as suite, suite.case("logs") as case:
        log = case.attach(tmp_path / "server.log")
        raw = case.attach(tmp_path / "raw.bin")

    data = (suite.path / log).read_bytes()
    assert_valid(suite.path)
    assert secret.encode() not in data
    assert data.startswith(start[:-8])
    assert data.endswith(b" \xff\xfe end\n")
    assert (suite.path / raw).read_bytes() == b"\0data"


def test_two_suites_in_one_second_have_two_folders(tmp_path: Path) -> None:
    """The name of a folder is a time; the next free one is taken."""
    clocks = FakeClock(), FakeClock()
    folders = [SuiteRecorder(tmp_path, "shop", clock=clock).finish() for clock in clocks]

    assert len({folder.name for folder in folders}) == 2
    for folder in folders:
        assert_valid(folder)


def test_a_child_that_a_case_forks_does_not_speak_for_the_suite(tmp_path: Path) -> None:
    """Both come out of the `with`; only the parent writes."""
    with SuiteRecorder(tmp_path, "shop") as suite, suite.case("forks") as case:
        child = os.fork()
        if child == 0:
            case.failed("in the child")
            os._exit(0)
        os.waitpid(child, 0)
        case.passed()

    assert_valid(suite.path)
    assert suite.failed == []


def test_secrets_of_the_environment_are_nowhere_in_the_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name, in lower case too; by value: a URL's password, a key of several lines."""
    key = (
        "-----BEGIN RSA PRIVATE KEY-----\n"
        "MIIBOgIBAAJBAKj34GkxFhD90vcNLYLInFEX\n-----END RSA PRIVATE KEY-----"
    )
    planted = {
        "SHOP_API_KEY": "b7Hq0ZxV93kLmN21",
        "db_password": "correct-horse-battery",
        "DATABASE_URL": "postgres://bob:Tr0ub4dor-and-3@db.example/shop",
        "DEPLOY_THING": key,
        "SIGNING_SECRET": "line-one-of-secret\nline-two-of-secret",
    }
    for name, value in planted.items():
        monkeypatch.setenv(name, value)
    needles = [
        "b7Hq0ZxV93kLmN21",
        "correct-horse-battery",
        "Tr0ub4dor-and-3",
        "MIIBOgIBAAJBAKj34GkxFhD90vcNLYLInFEX",
        "line-two-of-secret",
    ]
    with SuiteRecorder(
        tmp_path,
        f"shop {needles[0]}",
        replay=Replay(argv=["run", "--token", needles[1]], cwd=needles[0]),
    ) as suite:
        for needle in needles:
            with suite.case(f"case {needle}") as case:
                case.failed(f"said {needle}")
                case.write(f"{needle}.txt", needle)
        suite.fixture(needles[0])
        suite.note(needles[1])

    stored = bytes_of(tmp_path)
    assert_valid(suite.path)
    assert [needle for needle in needles if needle.encode() in stored] == []
    environment = (suite.path / "diagnostics/env_redacted.txt").read_text()
    assert "  db_password=<redacted>\n" in environment
    assert "  DATABASE_URL=postgres://bob:" in environment


def test_a_short_secret_does_not_mask_every_name(tmp_path: Path) -> None:
    """`SECRET=test` is withheld beside its name, and `test_pays` stays readable."""
    environment = {"SECRET": "test", "PWD": "/work"}
    with SuiteRecorder(tmp_path, "shop", environment=environment) as suite:
        suite.case("test_pays").end()

    assert [case.name for case in suite.cases] == ["test_pays"]
    variables = (suite.path / "diagnostics/env_redacted.txt").read_text()
    assert variables == "Environment (redacted):\n  PWD=/work\n  SECRET=<redacted>\n"


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(suite_name=ANYTHING, names=st.lists(ANYTHING, max_size=3), message=ANYTHING)
def test_names_and_messages_may_hold_anything(
    suite_name: str, names: list[str], message: str
) -> None:
    """ANSI, newlines, NUL, lone surrogates, paths: the bundle is valid, and the trace has a line an
    event.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = {"ANY": message.replace("\0", "")}
        with SuiteRecorder(folder, suite_name or "x", environment=environment) as suite:
            for name in names:
                with suite.case(name) as case:
                    case.failed(message)
                    case.write(name, message)
            suite.note(message)
            suite.fixture(message)

        assert problems(suite.path, "seed") == []
        assert problems(suite.path, "latest") == []
        for line in (suite.path / "trace/events.jsonl").read_bytes().split(b"\n")[:-1]:
            json.loads(line)
        for text in ("transcript/summary.txt", "diagnostics/tree.txt"):
            assert "\x1b" not in (suite.path / text).read_text(encoding="utf-8")


def test_events_put_together_by_hand_are_the_events_of_the_format(tmp_path: Path) -> None:
    """What its struct would say, key for key: names with quotes, control characters and emoji
    included.
    """
    with SuiteRecorder(tmp_path, 'sh"op\\ é', environment={}) as suite:
        name = 'a "b" \\ \x1b[1m\n\u2028 é 😀'
        case = Case(suite, name, json_of(name), 2, "5f\"2'")
        case.passed()
        case.failed('why "not"\n\t\x00')
        case.skipped()
        case.end("unknown", "é\x7f")
        now_ns = suite.trace.watch.now_ns()
        quiet = Case(suite, name, json_of(name))
        suite.trace.write(quiet.lines_of_end(now_ns, passed_ns=now_ns))
    lines = (suite.path / "trace/events.jsonl").read_bytes().splitlines()
    decoded = [msgspec.json.decode(line, type=TraceEvent) for line in lines]
    ordered = [json.loads(line, object_pairs_hook=list) for line in lines]
    meant = [msgspec.json.encode(event) for event in decoded]

    assert ordered == [json.loads(line, object_pairs_hook=list) for line in meant]
    assert [event.kind for event in decoded] == [
        "suite_start",
        "case_start",
        "assert_pass",
        "assert_fail",
        "assert_skip",
        "case_end",
        "case_start",
        "assert_pass",
        "case_end",
        "suite_end",
    ]
    assert (decoded[7].assertion_id, decoded[8].status, decoded[8].case) == ("a1", "pass", name)
    assert (decoded[1].attempt, decoded[1].span_id) == (2, "5f\"2'")
    assert decoded[5].status == "unknown"
