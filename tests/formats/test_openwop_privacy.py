"""What may not leave in a bundle, a snapshot or a poll; and a document that stays one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import vestige
from support.openwop_server import source_of, validate_bundle, validate_event
from vestige.collector.loop import catch_up
from vestige.errors import SensitiveDataError
from vestige.formats.openwop.assemble import assemble, poll
from vestige.formats.openwop.from_records import Story
from vestige.formats.openwop.host_redaction import HostDetails
from vestige.formats.openwop.redaction_modes import Privacy
from vestige.formats.openwop.validate import check_path
from vestige.home import Home
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import import_path

NOW = 1_800_000_000_000_000_000
CANARY = "cred_CANARY-openwop-7f3a9c1e5b2d4860"
NAMES = (
    "reset-password",
    "get-secret",
    "github-token",
    "ssh-key",
    "authorization",
    "cookie",
    "secret-scan",
    "x-api-key",
    "refresh-token",
    "failed-secret",
    "set-cookie",
    "password",
    "token",
    "api-key",
    "rotate-credentials",
    "private-key",
    "client-secret",
    "access-token",
    "bearer",
    "x-auth-token",
    "proxy-authorization",
    "passphrase",
    "session-id",
    "csrf-token",
    "aws-secret-access-key",
    "database-url",
    "connection-string",
    "signing-key",
    "jwt",
    "otp",
    "pin",
    "webhook-secret",
    "encryption-key",
    "service-account-key",
    "oauth-token",
    "secret",
    "api_key",
    "no Authorization",
)


def _bundle(home: Home, run_id: str, mode: Any = "mask") -> Any:
    """The bundle, with the snapshot and the poll compared to it."""
    story = Story(source_of(home, run_id), mode, key=b"k" * 32)
    bundle = json.loads(assemble(story, NOW))
    assert json.loads(story.snapshot) == bundle["run"]
    assert [json.loads(event) for event in poll(story).events] == bundle["events"]
    validate_bundle(bundle)
    for event in bundle["events"]:
        validate_event(event)
    return bundle


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["mask", "omit", "hash"])
def test_a_name_that_looks_like_a_header_leaves_the_document_valid(
    home: Home, tmp_path: Path, mode: str
) -> None:
    runs = []
    with vestige.Recorder(home) as recorder:
        for name in NAMES:
            with recorder.run(name) as run, run.span(name, "tool", {"tool_name": name}) as tool:
                run.log.info(name)
                tool.end(ValueError(f"no {name}"))
            runs.append(run.run_id)
    catch_up(home)
    for name, run_id in zip(NAMES, runs, strict=True):
        bundle = _bundle(home, run_id, mode)
        assert list(bundle["run"])[:4] == ["runId", "workflowId", "status", "startedAt"], name
        path = tmp_path / f"{run_id}.json"
        path.write_text(json.dumps(bundle))
        assert list(check_path(path)) == [], name


def test_no_key_of_the_document_is_ever_masked() -> None:
    """Whatever a redaction rule makes of two texts that follow each other."""
    value = {
        "workflowId": "x-api-key",
        "status": "completed",
        "error": {"code": "authorization", "message": "cookie", "details": {"type": "token"}},
    }
    assert json.loads(Privacy("mask", HostDetails()).render(value)) == value


@pytest.mark.parametrize("mode", ["mask", "omit", "hash"])
def test_a_reference_to_a_credential_does_not_leave(home: Home, mode: str) -> None:
    with vestige.Recorder(home) as recorder:
        run = recorder.run(
            f"triage {CANARY}", attributes={"team": CANARY}, body={"q": CANARY, CANARY: [CANARY]}
        )
        with run:
            with run.span(f"look {CANARY}", "tool", {"note": CANARY}, body={"a": CANARY}) as tool:
                tool.log.info(f"with {CANARY}!", place=CANARY)
                tool.end(body=f"found {CANARY}")
            with run.span("memory", "state", body={"ref": CANARY}):
                pass
            run.end(ValueError(f"no {CANARY}"), body={"out": CANARY})
    catch_up(home)

    text = json.dumps(_bundle(home, run.run_id, mode))
    assert "CANARY" not in text and "7f3a9c1e5b2d4860" not in text
    with pytest.raises(SensitiveDataError):
        assemble(Story(source_of(home, run.run_id), "passthrough"), NOW)


@pytest.mark.parametrize(
    "text", ["cred_store_path", "credentials are missing", "incredible_2", "sacred_01HXYZABC"]
)
def test_what_only_looks_a_little_like_a_credential_stays(text: str) -> None:
    assert json.loads(Privacy("mask", HostDetails()).render({"message": text})) == {"message": text}


# --- the machine ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "left"),
    [
        ("prod-db-07.corp.example", "on prod-db-07.corp.example", "on [INTERNAL]"),
        ("prod-db-07.corp.example", "on prod-db-07, again", "on [INTERNAL], again"),
        ("prod-db-07", "on PROD-DB-07.corp.example:80", "on [INTERNAL]:80"),
        ("prod-db-07", "prod-db-07.log", "[INTERNAL].log"),
        ("db1", "db1 refused", "[INTERNAL] refused"),
        (
            "web",
            "the web is large; http://web/x me@web web:8080 host=web",
            "the web is large; http://[INTERNAL]/x me@[INTERNAL] [INTERNAL]:8080 host=[INTERNAL]",
        ),
        ("localhost", "localhost:80", "localhost:80"),
        ("7", "7 of 7", "7 of 7"),
    ],
)
def test_a_machines_name_is_taken_out_in_each_of_its_forms(name: str, text: str, left: str) -> None:
    assert HostDetails({"hostname": name}).text(text) == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("100.64.0.1 and 100.127.255.254", "[INTERNAL] and [INTERNAL]"),
        ("100.63.0.1, 100.128.0.1 and 100.200.3.4", "100.63.0.1, 100.128.0.1 and 100.200.3.4"),
    ],
)
def test_addresses_shared_by_carriers_are_internal(text: str, left: str) -> None:
    assert HostDetails().text(text) == left


def test_a_run_knows_the_name_of_the_machine_that_recorded_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is exported: its process's span has the name."""
    there = os.uname()
    with monkeypatch.context() as patch:
        patch.setattr(
            os,
            "uname",
            lambda: os.uname_result((there.sysname, "prod-db-07.corp.example", *there[2:])),
        )
        with vestige.Recorder(home) as recorder, recorder.run("triage") as run:
            run.log.info("connected to prod-db-07")
            with run.span("ping", "tool", body={"host": "prod-db-07.corp.example"}):
                pass
    catch_up(home)

    assert "prod-db-07" not in json.dumps(_bundle(home, run.run_id))


def test_files_of_a_suite_about_its_machine_stay_there(home: Home) -> None:
    data = Path(__file__).parent.parent / "data" / "artifacts" / "dual_failures"
    environment = (data / "diagnostics" / "env_redacted.txt").read_text()
    home.make()
    with SqliteStore.open(home.store) as store:
        (imported,) = import_path(store, data)
    assert imported.run_id is not None
    bundle = _bundle(home, imported.run_id)
    events = {
        event["payload"]["name"]: event["payload"]
        for event in bundle["events"]
        if event["type"] == "node.started"
    }

    assert environment.strip()
    for path in ("diagnostics/env_redacted.txt", "repro.txt", "repro.env"):
        assert events[path]["inputs"] == "[INTERNAL]", path
    assert events["case_bad/response.json"]["inputs"] != "[INTERNAL]"
