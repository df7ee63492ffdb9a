"""The debugger's commands, as the shell gives them: every verb, JSON, exit codes, paths for ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.commands import vestige
from vestige.home import Home
from vestige.recorder import Recorder

VERBS: dict[str, list[str]] = {
    "overview": ["overview", "r3"],
    "check": ["check", "r3"],
    "why": ["why", "call_7"],
    "span": ["span", "call_7"],
    "body": ["body", "call_7"],
    "grep": ["grep", "退款"],
    "sql": ["sql", "SELECT name FROM runs"],
    "schema": ["schema"],
    "stats": ["stats"],
    "diff": ["diff", "r2", "r3"],
    "compare": ["compare", "r3", "--", "r2"],
}


def json_of(*arguments: str) -> Any:
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return json.loads(vestige(*arguments[:at], "--json", *arguments[at:]).stdout)


@pytest.fixture
def recorded(home: Home) -> Home:
    """A good run and a failed one."""
    with Recorder(home, crash_hooks=False) as recorder:
        recorder.run("triage").end()
        failed = recorder.run("triage", "c-9")
        tool = failed.span(
            "refund",
            type="tool",
            attributes={"tool_call_id": "call_7"},
            body='{"why": "请退款", "n": [1, 2]}',
        )
        tool.end(error=ValueError("card refused"))
        failed.end(error=ValueError("card refused"))
    return home


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_answers_as_text_and_as_json(recorded: Home, verb: str) -> None:
    """Bad news may be the exit code; JSON has a version."""
    result = vestige(*VERBS[verb])

    assert result.exit_code in (0, 1), result.output
    assert result.stdout.strip()
    assert json_of(*VERBS[verb])["version"] == 1


@pytest.mark.parametrize("verb", ["overview", "check", "why", "span", "body"])
def test_an_unknown_id_is_exit_2_in_one_line(recorded: Home, verb: str) -> None:
    """The same words for the same mistake."""
    result = vestige(verb, "nothing-of-this-name")

    assert result.exit_code == 2
    assert "'nothing-of-this-name' not found" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("verb", [name for name in VERBS if name != "schema"])
def test_no_home_is_exit_2_and_makes_none(home: Home, verb: str) -> None:
    """As for every command that reads."""
    result = vestige(*VERBS[verb])

    assert result.exit_code == 2
    assert not home.root.exists()


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--path", "$.why"], "| 请退款"),
        (["--path", "$.n[-1]"], "| 2"),
        (["--bytes", "0:6"], '| {"why"'),
        (["--lines", "1:1"], '| {"why"'),
        (["--head"], '| {"why"'),
        (["--in"], '| {"why"'),
    ],
)
def test_body_shows_the_part_that_is_asked_for(
    recorded: Home, arguments: list[str], shown: str
) -> None:
    """Behind a bar, from a line that says where it is."""
    head, line = vestige("body", "call_7", *arguments).stdout.splitlines()[:2]

    assert head.startswith("r3.s2 input")
    assert line.startswith(shown)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out"], "It has an input: --in."),
        (["--path", "$.nope"], "an object with why, n"),
        (["--path", "$.n[7]"], "a list of 2"),
        (["--path", "why"], "not a path"),
        (["--lines", "9:1"], "not a range"),
        (["--bytes", "x"], "not a range"),
        (["--head", "--lines", "1:2"], "exclude each other"),
    ],
)
def test_body_teaches_what_there_is(recorded: Home, arguments: list[str], message: str) -> None:
    result = vestige("body", "call_7", *arguments)

    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "hits"),
    [
        (["退款"], 1),
        (["CARD REFUSED", "--in", "attrs", "-i"], 2),
        (["CARD REFUSED"], 0),
        (["card refused", "r2"], 0),
        (["card refused", "r3"], 2),
        (["--regex", "re(fund|x) ", "--in", "attrs"], 1),
        (["call_7"], 1),
    ],
)
def test_grep_finds_in_bodies_attributes_and_lines(
    recorded: Home, arguments: list[str], hits: int
) -> None:
    """Of any script; unchanged unless an option changes it."""
    assert len(json_of("grep", *arguments)["hits"]) == hits


@pytest.mark.parametrize(
    "arguments", [["--regex", "("], ["x", "--in", "nowhere"], ["x", "--after", "y"], [""]]
)
def test_grep_refuses_what_makes_no_sense(recorded: Home, arguments: list[str]) -> None:
    result = vestige("grep", *arguments)

    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_check_exits_1_when_a_run_has_an_error(recorded: Home) -> None:
    """So that CI can use it: exactly when a finding has that severity."""
    for id in ("r2", "r3"):  # noqa: A001
        found = json_of("check", id)["findings"]

        assert vestige("check", id).exit_code == any(each["severity"] == "error" for each in found)


def test_list_narrows_by_what_a_run_says(recorded: Home) -> None:
    """In a name, an attribute, a line."""
    assert [each["short_id"] for each in json_of("list", "--like", "card ref")["runs"]] == ["r3"]
    assert json_of("list", "--like", "100%")["runs"] == []


def test_list_goes_on_after_a_run(recorded: Home) -> None:
    """Older ones follow."""
    assert [each["short_id"] for each in json_of("list", "--after", "r3")["runs"]] == ["r2"]


@pytest.mark.parametrize("kind", ["home", "store", "journal"])
def test_a_path_stands_for_an_id(recorded: Home, tmp_path: Path, kind: str) -> None:
    """A home, a store or a journal, wherever it is; and the next commands lead back to it."""
    ((_, _, journal),) = recorded.journal_files()
    copy = tmp_path / "copy.ndjson"
    copy.write_bytes(journal.read_bytes())
    vestige("list")
    path = {"home": recorded.root, "store": recorded.store, "journal": copy}[kind]

    shown = vestige("show", str(path), "--home", str(tmp_path / "nowhere"))
    spanned = vestige("span", "call_7", "--home", str(path))

    assert "refund" in shown.stdout
    assert spanned.exit_code == 0


def test_a_file_that_holds_no_runs_is_exit_3(recorded: Home, tmp_path: Path) -> None:
    """In one line, with what was expected."""
    for name in ("empty.ndjson", "notes.txt", "bad.db"):
        (tmp_path / name).write_bytes(b"nothing here\n")

        result = vestige("show", "--home", str(tmp_path / name))

        assert result.exit_code == 3, result.output
        assert len(result.stderr.splitlines()) == 1


def test_show_narrows_by_type_time_and_depth(recorded: Home) -> None:
    """Each option leaves out what it says."""
    assert "refund" not in vestige("show", "r3", "--depth", "0").stdout
    assert "run triage" not in vestige("show", "r3", "--type", "tool").stdout
    assert "Types in this run: run, tool" in vestige("show", "r3", "--type", "llm").stdout
    assert "refund" not in vestige("show", "r3", "--from", "9999").stdout
    assert "refund" in vestige("show", "r3", "--from", "r3.s2").stdout
