"""`vestige note`, `notes` and `keys`: as a person and as a program meet them."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

import vestige as api
from support.commands import vestige
from vestige._runtime.clock import SYSTEM
from vestige.fleet.api_keys import Keys
from vestige.formats.wink.notes import NOTES
from vestige.home import Home, get_home
from vestige.recorder import Recorder
from vestige.transfer import add_note, open_path

SECRET = "sk-" + "ant-api03-" + "a1B2c3D4e5F6g7H8i9J0"


def data_of(*arguments: str) -> Any:
    result = vestige(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def recorded(home: Home) -> Home:
    with Recorder(home, crash_hooks=False) as recorder, recorder.run("triage") as run:
        run.span("search", type="tool").end()
    return home


# --- notes ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_note_is_written_and_read_by_every_door(recorded: Home) -> None:
    """About the run or a span; shown small by `overview` and `span`; the same as data."""
    run = data_of("list")["runs"][0]["short_id"]
    span = f"{run}.s2"
    written = vestige("note", run, "the index was down", "--author", "eva")
    about = data_of("note", span, f"key {SECRET}")
    listed = vestige("notes", run).stdout

    assert written.stdout == f"Note added to {run}\n"
    assert about["span"] == span and SECRET[12:] not in json.dumps(about)
    assert (
        "2 notes" in listed and 'eva: "the index was down"' in listed and f"about {span}" in listed
    )
    assert vestige("note", run).stdout == listed
    assert 'note: "the index was down" (eva)' in vestige("overview", run).stdout
    assert "the index was down" not in vestige("span", span).stdout
    assert 'note: "key sk-' in vestige("span", span).stdout
    assert len(data_of("overview", run)["notes"]) == 2
    assert [each["span"] for each in data_of("notes", span)["notes"]] == [span]
    assert len(data_of("span", span)["notes"]) == 1
    with api.open(recorded.root) as debugger:
        assert len(debugger.notes(run).data()["notes"]) == 2


@pytest.mark.slow
def test_a_note_is_edited_and_deleted_by_its_number(recorded: Home) -> None:
    run = data_of("list")["runs"][0]["short_id"]
    for text in ("the index was down", "unrelated"):
        vestige("note", run, text)

    edited = vestige("note", run, "--edit", "1", f"the index was slow, key {SECRET}")
    deleted = vestige("note", run, "--delete", "2")
    missing = vestige("note", run, "--delete", "2")
    both = vestige("note", run, "text", "--delete", "1")

    assert edited.stdout == f"Note edited on {run}\n"
    assert deleted.stdout == f"Note deleted from {run}\n"
    assert (missing.exit_code, both.exit_code) == (2, 2)
    assert f"{run}: no note '2' (it has 1)" in missing.stderr
    (left,) = data_of("notes", run)["notes"]
    assert left["text"].startswith("the index was slow, key sk-")
    assert SECRET[12:] not in left["text"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("note", "r999", "x"), "Run or span 'r999' not found"),
        (("note", "r1", "  "), "text is empty"),
        (("note", "r1", "x" * 20_000), "20000 characters"),
        (("notes", "r999"), "'r999' not found"),
    ],
)
def test_a_note_that_cannot_be_kept_says_why(
    recorded: Home, arguments: tuple[str, ...], message: str
) -> None:
    result = vestige(*arguments)

    assert (result.exit_code, message in result.stderr) == (2, True)
    assert result.stderr.count("\n") <= 1


@pytest.mark.slow
def test_notes_travel_in_a_bundle_both_ways(recorded: Home, tmp_path: Path) -> None:
    """Out, into another home, on with a note from there, and back: each note once."""
    run = data_of("list")["runs"][0]["id"]
    vestige("note", run, "mine", "--author", "eva")
    vestige("export", run, "--format", "wink", "-o", str(tmp_path / "out.wink"))
    there = get_home(tmp_path / "there")
    there.make()
    elsewhere = ("--home", str(there.root))

    assert vestige("validate", str(tmp_path / "out.wink")).exit_code == 0
    assert [each["text"] for each in data_of("notes", str(tmp_path / "out.wink"))["notes"]] == [
        "mine"
    ]
    for _ in range(2):
        assert vestige("import", str(tmp_path / "out.wink"), *elsewhere).exit_code == 0
    vestige("note", run, "theirs", *elsewhere)
    vestige("export", run, "--format", "wink", "-o", str(tmp_path / "back.wink"), *elsewhere)
    vestige("import", str(tmp_path / "back.wink"))
    assert [each["text"] for each in data_of("notes", run)["notes"]] == ["mine", "theirs"]
    assert data_of("notes", run)["notes"][0]["author"] == "eva"


def test_damaged_notes_of_a_bundle_do_not_cost_the_run(recorded: Home, tmp_path: Path) -> None:
    """What holds no note is passed over, and said; secrets in it are masked on the way in."""
    run = data_of("list")["runs"][0]["id"]
    vestige("note", run, "mine")
    vestige("export", run, "--format", "wink", "-o", str(tmp_path / "good.wink"))
    bad = tmp_path / "bad.wink"
    text = json.dumps({"id": "n", "run_id": "of another", "text": SECRET, "created_ns": 1})
    lines = f'{{"id": 3}}\nnonsense\n{text}\n'.encode()
    with zipfile.ZipFile(tmp_path / "good.wink") as good, zipfile.ZipFile(bad, "w") as copy:
        members = {name: good.read(name) for name in good.namelist()}
        manifest = json.loads(members["manifest.json"])
        manifest["components"]["notes"] |= {
            "sha256": hashlib.sha256(lines).hexdigest(),
            "size_bytes": len(lines),
            "entry_count": 3,
        }
        members |= {NOTES: lines, "manifest.json": json.dumps(manifest).encode()}
        for name, data in members.items():
            copy.writestr(name, data)
    there = tmp_path / "there"
    get_home(there).make()
    result = vestige("import", str(bad), "--home", str(there))
    notes = data_of("notes", run, "--home", str(there))["notes"]

    assert result.exit_code == 0
    assert "2 lines that hold no note" in result.stderr
    assert [each["id"] for each in notes] == ["n"]
    assert SECRET[12:] not in json.dumps(notes)


def test_a_note_waits_for_a_collector_that_is_writing(recorded: Home) -> None:
    """The store is held for moments, and the note is kept then; nobody's work is lost."""
    run = data_of("list")["runs"][0]["id"]
    with open_path(recorded) as debugger:
        collector = sqlite3.connect(recorded.store, isolation_level=None, check_same_thread=False)
        collector.execute("BEGIN IMMEDIATE")
        collector.execute("INSERT OR REPLACE INTO facts VALUES ('x', 'y')")
        # Long enough that the note has to wait, far shorter than it is ready to.
        timer = threading.Timer(0.3, lambda: collector.execute("COMMIT"))
        timer.start()
        saved = add_note(recorded, debugger, run, "meanwhile")
        timer.join()
        collector.close()

    assert saved.text == "meanwhile"
    assert [each["text"] for each in data_of("notes", run)["notes"]] == ["meanwhile"]


# --- keys -------------------------------------------------------------------------------------


def test_a_key_is_printed_once_and_alone(home: Home) -> None:
    """So that a script can take it; text for a person goes to the other stream."""
    result = vestige("keys", "add", "ci", "--scope", "runs:read,runs:write", "--expires", "30d")
    key = result.stdout.strip()
    listed = vestige("keys", "list").output + vestige("keys", "list", "--json").output
    (stored,) = Keys(home).list()

    assert Keys(home).find(key, SYSTEM.now_ns()) is not None
    assert key not in result.stderr and key[14:] not in listed
    assert "active" in listed and stored.sha256 not in listed
    assert stored.expires_ns is not None
    assert abs(stored.expires_ns - stored.created_ns - 30 * 86_400 * 10**9) < 60 * 10**9


def test_a_program_makes_and_revokes_keys(home: Home) -> None:
    """JSON with exactly these keys."""
    made = data_of("keys", "add", "acme", "--scope", "debug-bundle:read", "--tenant", "acme")
    (listed,) = data_of("keys", "list")["keys"]
    revoked = data_of("keys", "revoke", made["id"])

    assert made.keys() == {"id", "key", "tenant", "scopes"}
    assert (made["tenant"], made["scopes"]) == ("acme", ["debug-bundle:read"])
    assert listed.keys() == {
        "id",
        "name",
        "tenant",
        "scopes",
        "created_at",
        "expires_at",
        "revoked_at",
    }
    assert revoked["revoked_at"] is not None
    assert Keys(home).find(made["key"], SYSTEM.now_ns()) is None


@pytest.mark.parametrize(
    "arguments",
    [
        ("add",),
        ("add", "x"),
        ("add", "x", "--scope", "everything"),
        ("add", "x", "--scope", "runs:read", "--tenant", "A B"),
        ("add", "x", "--scope", "runs:read", "--expires", "soon"),
        ("add", "x", "--scope", "runs:read", "--expires", "99999999w"),
        ("list", "x"),
        ("list", "--tenant", "x"),
        ("revoke",),
        ("revoke", "nobody"),
        ("change", "x"),
    ],
)
def test_a_mistake_is_told_and_makes_no_key(home: Home, arguments: tuple[str, ...]) -> None:
    result = vestige("keys", *arguments)

    assert result.exit_code == 2
    assert list(Keys(home).list()) == []


def test_a_file_of_keys_that_others_can_read_stops_the_command(home: Home) -> None:
    """With one line, and no traceback."""
    Keys(home).add("ci", ["runs:read"])
    home.keys.chmod(0o644)
    done = subprocess.run(
        [sys.executable, "-m", "vestige", "keys", "list", "--home", str(home.root)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 3
    assert done.stderr.startswith("vestige: ") and done.stderr.count("\n") == 1
    assert "chmod 600" in done.stderr
