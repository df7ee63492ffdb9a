"""The report of `vestige explain` without a model, and where reports are found later."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.commands import vestige, vestige_json
from support.provider_server import Server
from support.refund_desk import record_desk
from support.scripted_investigator import ScriptedInvestigator, claim, report
from vestige.home import Home


@pytest.fixture
def desk(home: Home) -> Home:
    record_desk(home)
    return home


def test_without_a_model_the_report_has_the_findings_and_the_chain(desk: Home) -> None:
    result = vestige("explain", "r3", "--home", desk.root)

    assert result.exit_code == 0
    assert "[warning] tool/failed at r3.s12: refund failed" in result.stdout
    assert "^ requested by r3.s10 llm messages.create" in result.stdout
    assert "next: vestige transcript r3 | vestige groups --like r3" in result.stdout


def test_an_equal_report_is_stored_once(desk: Home) -> None:
    first, second = (vestige_json("explain", "r3", "--home", desk.root) for _ in range(2))
    vestige("explain", "r2", "--no-note", "--home", desk.root)

    assert first == second and first["note_id"]
    (note,) = vestige_json("notes", "r3", "--home", desk.root)["notes"]
    assert note["author"] == "vestige explain" and "tool/failed" in note["text"]
    assert str(desk.root) not in note["text"]
    assert vestige_json("notes", "r2", "--home", desk.root)["notes"] == []


def test_a_good_run_has_no_findings(desk: Home) -> None:
    result = vestige("explain", "r2", "--home", desk.root)

    assert result.exit_code == 0 and "Findings of the checks: none." in result.stdout


def test_a_report_is_exported_and_a_file_is_explained_without_a_note(
    desk: Home, tmp_path: Path
) -> None:
    model = ScriptedInvestigator(
        "openai", [report(claim("r3.s10", '"order": "0"', "Order 0 was refunded, not A-18."))]
    )
    with Server(model) as server:
        done = vestige("explain", "r3", "--home", desk.root, "--model", f"{server.url}/v1/scripted")
    assert "Cause: Order 0 was refunded, not A-18." in done.stdout

    bundle = tmp_path / "r3.wink"
    exported = vestige("export", "r3", "--format", "wink", "-o", bundle, "--home", desk.root)
    assert exported.exit_code == 0
    (note,) = vestige_json("notes", bundle)["notes"]
    assert note["text"].startswith("Cause: Order 0 was refunded, not A-18.")
    assert 'note: "Cause: Order 0' in vestige("overview", "r3", "--home", desk.root).stdout
    explained = vestige_json("explain", bundle)
    assert explained["note_id"] is None and len(explained["findings"]) == 2


def test_wrong_usage_has_its_status(desk: Home) -> None:
    for arguments, message in (
        (["r99"], "r99"),
        (["r3", "--model", "gpt-5"], "is not a model"),
        (["r3", "--model", "http://10.0.0.7/v1/m"], "plain HTTP"),
        (["r3", "--max-tokens", "5"], "8000"),
        (["r3", "--max-cost", "0"], "max-cost"),
    ):
        result = vestige("explain", *arguments, "--home", desk.root)
        assert result.exit_code == 2 and message in result.stderr, result.output


def test_the_data_has_what_a_program_needs(desk: Home) -> None:
    data = vestige_json("explain", "r3", "--home", desk.root)

    assert set(data) == {
        "version",
        "run_id",
        "run",
        "task",
        "findings",
        "chain",
        "investigation",
        "fork_at",
        "note_id",
    }
    assert [step["short_id"] for step in data["chain"]][:2] == ["r3.s12", "r3.s10"]
    assert json.dumps(data["findings"][1]["cause_short"]) == '"r3.s12"'
