"""AgentDbg's settings and its config.yaml."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from support.run_directories import only_rundir, read_rundirs
from vestige.agentdbg import record_state, record_tool_call, run_lifecycle, trace, traced_run
from vestige.agentdbg import settings as settings_module
from vestige.agentdbg.config_file import parse_config
from vestige.agentdbg.settings import read_settings


@pytest.fixture(autouse=True)
def _nothing_warned_yet() -> None:
    settings_module._warned.clear()


def test_the_environment_wins_over_the_project_and_that_over_the_user(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = data_dir.parent / "user" / ".agentdbg"
    project = data_dir.parent / ".agentdbg"
    for folder in (user, project):
        folder.mkdir(parents=True)
    (user / "config.yaml").write_text("loop_window: 5\nloop_repetitions: 5\nmax_field_bytes: 500\n")
    (project / "config.yaml").write_text("loop_repetitions: 6\nmax_field_bytes: 600\n")
    monkeypatch.setenv("AGENTDBG_MAX_FIELD_BYTES", "700")

    found = read_settings()

    assert (found.loop_window, found.loop_repetitions, found.max_field_bytes) == (5, 6, 700)


def test_defaults_are_those_of_the_real_package(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AGENTDBG_DATA_DIR")

    found = read_settings()

    assert found.data_dir == str(data_dir.parent / "user" / ".agentdbg")
    assert (found.max_field_bytes, found.loop_window, found.loop_repetitions) == (20_000, 12, 3)
    assert found.redact and not found.guardrails.any


def test_the_shapes_of_yaml_that_such_a_file_has() -> None:
    text = """\
# a comment
---
redact: true   # another
redact_keys:
  - ssn
  - "iban"
data_dir: '/tmp/with # inside'
guardrails:
  stop_on_loop: yes
  max_llm_calls: 50
other: [a, "b"]
nothing: null
"""

    found, complaints = parse_config(text)

    assert complaints == []
    assert found == {
        "redact": "true",
        "redact_keys": ["ssn", "iban"],
        "data_dir": "/tmp/with # inside",
        "guardrails": {"stop_on_loop": "yes", "max_llm_calls": "50"},
        "other": ["a", "b"],
        "nothing": "",
    }


def test_guardrails_and_lists_come_from_the_file(data_dir: Path) -> None:
    (data_dir.parent / ".agentdbg").mkdir()
    (data_dir.parent / ".agentdbg" / "config.yaml").write_text(
        "redact_keys:\n  - ssn\nguardrails:\n  max_events: 7\n  max_duration_s: 1.5\n"
    )

    found = read_settings()

    assert found.redact_keys == ("ssn",)
    assert (found.guardrails.max_events, found.guardrails.max_duration_s) == (7, 1.5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAX_FIELD_BYTES", "lots"),
        ("MAX_FIELD_BYTES", "5"),
        ("LOOP_WINDOW", "0"),
        ("LOOP_REPETITIONS", "1"),
        ("REDACT", "banana"),
        ("MAX_EVENTS", "-1"),
        ("MAX_DURATION_S", "nan"),
        ("STOP_ON_LOOP", "maybe"),
    ],
)
def test_a_value_that_makes_no_sense_is_said_once_and_ignored(
    data_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    name: str,
    value: str,
) -> None:
    """The secret-keeping default of AGENTDBG_REDACT holds too: the real one takes `banana` for
    off.
    """
    monkeypatch.setenv(f"AGENTDBG_{name}", value)

    found, again = read_settings(), read_settings()

    warning = capfd.readouterr().err
    monkeypatch.delenv(f"AGENTDBG_{name}")
    assert found == again == read_settings()
    assert (
        warning.count("\n") == 1 and f"AGENTDBG_{name}: '{value}' is not a valid value" in warning
    )


def test_a_file_that_is_no_config_is_said_and_ignored(
    data_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (data_dir.parent / ".agentdbg").mkdir()
    config = data_dir.parent / ".agentdbg" / "config.yaml"
    config.write_bytes(b"loop_window: 5\n\xff\xfe what\nhttp://x\n- stray\n")

    found = read_settings()

    assert found.loop_window == 5
    assert capfd.readouterr().err.count("is not understood") == 3


# --- names ----------------------------------------------------------------------------------------


def test_a_run_is_named_by_the_environment_then_the_code_then_where_and_when(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @trace
    def plain() -> None: ...

    @trace("explicit")
    def explicit() -> None: ...

    plain()
    explicit()
    with traced_run():
        pass
    monkeypatch.setenv("AGENTDBG_RUN_NAME", "of the environment")
    explicit()

    plain_name, *others = [run.run["run_name"] for run in read_rundirs(data_dir)]
    here = os.path.relpath(__file__, data_dir.parent)
    where, _, when = plain_name.rpartition(" - ")
    assert where == f"{here}:plain"
    assert len(when) == len("2026-02-15 20:31")
    assert others[:2] == ["explicit", "of the environment"]
    assert others[2].startswith("run - ")


# --- what is on disk ------------------------------------------------------------------------------


def test_field_bytes_bound_every_string_in_utf8(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTDBG_MAX_FIELD_BYTES", "100")
    with traced_run("cut"):
        record_state({"text": "é" * 500, "list": ["x" * 500], "short": "kept"})

    state = only_rundir(data_dir).events[1]["payload"]["state"]
    for text in (state["text"], state["list"][0]):
        assert text.endswith("__TRUNCATED__") and len(text.encode()) <= 100
    assert state["short"] == "kept"


def test_directories_are_the_owners_alone(data_dir: Path) -> None:
    """What an agent says is nobody else's business; and no file is left half written."""
    with traced_run("private"):
        record_tool_call("t")

    run = only_rundir(data_dir)
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in run.path.iterdir()} == {
        "run.json": 0o600,
        "events.jsonl": 0o600,
    }


def test_an_unwritable_directory_is_said_once_and_vestige_still_records(
    data_dir: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real one raises into the agent."""
    data_dir.write_text("a file where a directory should be")
    home = Path(os.environ["VESTIGE_HOME"])
    for _ in range(3):
        with traced_run("nowhere"):
            record_state(1)

    journal = b"".join(path.read_bytes() for path in (home / "journal").iterdir())
    assert capfd.readouterr().err.count("cannot write") == 1
    assert journal.count(b'"nowhere"') == 3


def test_an_unwritable_home_costs_the_run_directory_nothing(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VESTIGE_HOME", os.devnull + "/no")
    with traced_run("here"):
        record_tool_call("t", {"a": 1})

    assert only_rundir(data_dir).types == ["RUN_START", "TOOL_CALL", "RUN_END"]
    assert "cannot write" in capfd.readouterr().err


def test_where_recording_is_off_the_program_runs_all_the_same(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """VESTIGE_DISABLED is the user's word for everything of ours."""
    monkeypatch.setenv("VESTIGE_DISABLED", "1")
    monkeypatch.setattr(run_lifecycle, "_recorder", None)

    @trace(max_tool_calls=0)
    def agent() -> int:
        record_tool_call("t")
        record_state(1)
        return 5

    assert agent() == 5
    assert not data_dir.exists()
