"""No secret in clear in a run directory: the AgentDbg face."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import vestige
from support.run_directories import RunDir, only_rundir
from vestige.agentdbg import record_llm_call, record_state, record_tool_call, traced_run

KEY = "sk-ant-api03-" + "q7Zk2Lm9Xc4Vb8Nn1" * 3
PASSWORD = "correct-horse-battery"


def text_of(run: RunDir) -> str:
    return (run.path / "events.jsonl").read_text() + (run.path / "run.json").read_text()


def journal_text() -> str:
    folder = Path(os.environ["VESTIGE_HOME"]) / "journal"
    return "".join(path.read_text() for path in folder.iterdir())


def test_secrets_by_key_and_by_shape_are_gone_and_usage_is_not(data_dir: Path) -> None:
    """`token` redacts no `prompt_tokens`: the real one lost all usage."""
    usage = {"prompt_tokens": 11, "completion_tokens": 22, "total_tokens": 33}
    with traced_run("secrets"):
        record_llm_call("m", f"use {KEY} please", {"token": PASSWORD}, usage)
        record_tool_call("login", {"password": PASSWORD, "max_tokens": 5}, f"Bearer {KEY}")
        record_state({"nested": {"api_key": PASSWORD, "token_count": 7}}, meta={"secret": PASSWORD})

    run = only_rundir(data_dir)
    model, tool, state = run.events[1:4]
    assert KEY not in text_of(run) and PASSWORD not in text_of(run)
    assert model["payload"]["usage"] == usage
    assert model["payload"]["response"] == {"token": "__REDACTED__"}
    assert tool["payload"]["args"] == {"password": "__REDACTED__", "max_tokens": 5}
    assert state["payload"]["state"] == {"nested": {"api_key": "__REDACTED__", "token_count": 7}}
    assert state["meta"]["secret"] == "__REDACTED__"
    assert "…redacted…" not in text_of(run)
    assert KEY not in journal_text() and PASSWORD not in journal_text()


def test_options_of_the_command_line_are_redacted(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--token value` and `--token=value`; the real one wrote the first in clear."""
    monkeypatch.setattr(
        sys, "argv", ["agent.py", "--token", PASSWORD, f"--api-key={PASSWORD}", "--name", "kept"]
    )
    with traced_run("argv"):
        pass

    run = only_rundir(data_dir)
    assert run.events[0]["payload"]["argv"] == [
        "agent.py",
        "--token",
        "__REDACTED__",
        "--api-key=__REDACTED__",
        "--name",
        "kept",
    ]
    assert PASSWORD not in text_of(run) + journal_text()


def test_an_error_does_not_tell_a_secret(data_dir: Path) -> None:
    with pytest.raises(ValueError, match="refused"), traced_run("error"):
        raise ValueError(f"refused: password={PASSWORD} key={KEY}")

    text = text_of(only_rundir(data_dir))
    assert KEY not in text and PASSWORD not in text


@pytest.mark.slow
def test_more_keys_can_be_named(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the run directory whatever is under them, in the journal too; and known words named
    again do not make counters secret."""
    monkeypatch.setenv("AGENTDBG_REDACT_KEYS", "ssn, iban, token")
    with traced_run("keys"):
        record_state(
            {"ssn": PASSWORD, "iban": {"inner": [PASSWORD]}, "token_count": 3, "ok": "kept"}
        )

    run = only_rundir(data_dir)
    assert run.events[1]["payload"]["state"] == {
        "ssn": "__REDACTED__",
        "iban": "__REDACTED__",
        "token_count": 3,
        "ok": "kept",
    }
    assert f'"ssn\\":\\"{PASSWORD}' not in journal_text()


def test_redaction_off_means_key_rules_in_the_run_directory_only(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys of providers and registered secrets are hidden all the same; the journal keeps its
    rules.
    """
    monkeypatch.setenv("AGENTDBG_REDACT", "0")
    monkeypatch.setattr(sys, "argv", ["agent.py", "--password", PASSWORD])
    with traced_run("off"):
        from vestige.agentdbg import run_lifecycle

        run_lifecycle.recorder().secret("registered-value-of-mine")
        record_state({"password": PASSWORD, "key": KEY, "text": "a registered-value-of-mine b"})

    run = only_rundir(data_dir)
    state = run.events[1]["payload"]["state"]
    assert state["password"] == PASSWORD
    assert run.events[0]["payload"]["argv"] == ["agent.py", "--password", PASSWORD]
    assert KEY not in text_of(run) and "registered-value" not in text_of(run)
    assert PASSWORD not in journal_text()


def test_what_is_cut_was_redacted_before(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut through the middle of a secret would leave half of it unrecognisable, and in clear."""
    monkeypatch.setenv("AGENTDBG_MAX_FIELD_BYTES", "200")
    with traced_run("cut"):
        record_state("x" * 170 + " " + KEY + "y" * 500)

    text = only_rundir(data_dir).events[1]["payload"]["state"]
    assert KEY[:20] not in text


def test_a_mask_of_the_owners_is_shown_as_redacted(data_dir: Path) -> None:
    with traced_run("mask"):
        record_tool_call("login", {"user": "me", "code": vestige.mask(PASSWORD)})

    assert only_rundir(data_dir).events[1]["payload"]["args"] == {
        "user": "me",
        "code": "__REDACTED__",
    }
