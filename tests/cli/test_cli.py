"""The commands, as a person and as a program meet them: output, JSON keys, exit codes, help."""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.commands import vestige, vestige_process
from support.programs import RunProgram
from support.terminal import run_in_terminal
from vestige.cli.main import ALIASES, LISTED, cli
from vestige.cli.manage.command_groups import BUNDLE, SERVER, STORE
from vestige.home import Home
from vestige.recorder import Recorder
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore

RUN_KEYS = {
    "id",
    "short_id",
    "name",
    "outcome",
    "started_at",
    "ended_at",
    "duration_ms",
    "span_count",
    "conversation_id",
    "tokens",
}
COMMANDS = list(cli.commands)
NAMES_IN_GROUPS = {
    path: f"{group} {name}"
    for group, paths in (("store", STORE), ("server", SERVER), ("bundle", BUNDLE))
    for name, path in paths.items()
}


def json_of(*arguments: str) -> Any:
    result = vestige(*arguments, "--json")
    return json.loads(result.stdout)


@pytest.fixture
def recorded(home: Home) -> Home:
    """A home with two runs: one that worked and one that failed."""
    with Recorder(home) as recorder:
        with recorder.run("triage", conversation_id="c-9") as run:
            with run.span("chat", type="llm", attributes={"model": "m-1"}, body="ask") as span:
                span.end(attributes={"input_tokens": 120, "output_tokens": 30}, body="answer")
            run.log.info("sent", to="customer")
        failed = recorder.run("billing")
        failed.span("charge", type="tool").end(error=ValueError("card refused"))
        failed.end(error=ValueError("card refused"))
    return home


@pytest.fixture
def dead(home: Home) -> Home:
    """A home in which a program was killed, and nobody has looked yet."""
    program = (
        "import os, vestige\n"
        "run = vestige.Recorder().run('doomed')\n"
        "run.child('search', type='tool')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == -signal.SIGKILL
    return home


# --- list ---------------------------------------------------------------------------------------


def test_list_shows_the_newest_first_with_outcome_and_tokens(recorded: Home) -> None:
    """One line a run; a process without a run is not listed."""
    head, first, second = vestige("list").stdout.splitlines()

    assert head.split() == [
        "ID",
        "NAME",
        "OUTCOME",
        "STARTED",
        "DURATION",
        "SPANS",
        "ERRORS",
        "TOKENS",
        "FINDING",
    ]
    assert first.split()[1:3] == ["billing", "error"]
    assert second.split()[1:3] == ["triage", "ok"]
    assert second.split()[-1] == "150"


def test_list_as_json_has_the_documented_keys(recorded: Home) -> None:
    """`{version, runs}`, and each run with every key that the reference names."""
    data = json_of("list")
    billing, triage = data["runs"]

    assert set(data) == {"version", "runs", "next", "more", "looked_at"}
    assert data["version"] == 1
    assert set(triage) >= RUN_KEYS
    assert (triage["name"], triage["outcome"], triage["conversation_id"]) == ("triage", "ok", "c-9")
    assert (triage["tokens"], triage["span_count"]) == (150, 2)
    assert triage["started_at"].endswith("Z")
    assert triage["started_at"] <= triage["ended_at"]
    assert triage["duration_ms"] >= 0
    assert (billing["outcome"], billing["conversation_id"], billing["tokens"]) == ("error", None, 0)


def test_compare_takes_filters_for_its_groups(recorded: Home) -> None:
    """An empty group is said by its filter, and is exit code 2."""
    compared = vestige("compare", "is:failed", "--", "is:ok")
    empty = vestige("compare", "is:running", "--", "is:ok")

    assert compared.exit_code == 0
    assert "A 1 run (1 error)" in compared.stdout and "B 1 run (1 ok)" in compared.stdout
    assert empty.exit_code == 2
    assert "compare: no run matches 'is:running'" in empty.output


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ([], ["billing", "triage"]),
        (["--failed"], ["billing"]),
        (["--name", "tri"], ["triage"]),
        (["--conversation", "c-9"], ["triage"]),
        (["--since", "1h"], ["billing", "triage"]),
        (["--since", "0s"], []),
        (["--limit", "1"], ["billing"]),
    ],
)
def test_list_filters(recorded: Home, options: list[str], names: list[str]) -> None:
    """Each option narrows the list, and they are the same for text and JSON."""
    assert [run["name"] for run in json_of("list", *options)["runs"]] == names


def test_list_of_everything_has_the_runs_of_mere_processes_too(recorded: Home) -> None:
    """They hold what was said outside any run."""
    assert len(json_of("list", "--all")["runs"]) == 3


def test_list_says_how_to_see_more(recorded: Home) -> None:
    """A cut list is never silent about it."""
    assert (
        vestige("list", "--limit", "1").stdout.splitlines()[-1]
        == "… more: vestige list --limit 1 --after r3"
    )


def test_a_program_that_said_nothing_was_recorded_all_the_same(
    home: Home, run_program: RunProgram
) -> None:
    """A user who has just typed `vestige run` gets no advice to type it."""
    run_program("x = 1", command=(sys.executable, "-m", "vestige", "run", "--", sys.executable))

    listed = vestige("list").stdout

    assert listed == "No model calls, tools or logs recorded. List empty runs: vestige list --all\n"
    assert "program.py" in vestige("list", "--all").stdout


def test_an_empty_home_lists_nothing_and_says_how_to_begin(home: Home) -> None:
    """An empty result is not an error."""
    home.make()

    result = vestige("list")

    assert (result.exit_code, result.stdout) == (
        0,
        "No runs yet. Record your first one: vestige run -- python your_agent.py\n",
    )
    assert json_of("list") == {
        "version": 1,
        "runs": [],
        "next": None,
        "more": False,
        "looked_at": None,
    }


# --- show ---------------------------------------------------------------------------------------


def test_show_without_an_argument_shows_the_latest_run(recorded: Home) -> None:
    """Header, then one line per span or log line, nested, with what went wrong."""
    lines = vestige("show").stdout.splitlines()

    assert "billing: error" in lines[0]
    assert any(
        line.endswith("error ValueError: card refused") and "  tool charge" in line
        for line in lines
    )


def test_show_tells_durations_sizes_tokens_and_lines(recorded: Home) -> None:
    """The easy view has what one would ask next."""
    text = vestige("show", json_of("list")["runs"][1]["short_id"]).stdout

    assert "120 → 30 tokens" in text
    assert "[m-1]" in text
    assert "info sent to=customer" in text
    assert "conversation c-9" in text


def test_show_as_json_has_the_documented_keys(recorded: Home) -> None:
    """`{version, run, spans, logs}`, attributes included; bodies by size, not by content."""
    data = json_of("show", json_of("list")["runs"][1]["id"])
    root, chat = data["spans"]
    (log,) = data["logs"]

    assert set(data) == {"version", "run", "spans", "logs"}
    assert set(data["run"]) >= RUN_KEYS
    assert (root["type"], root["parent_id"], root["status"]) == ("run", None, "ok")
    assert chat["parent_id"] == root["id"]
    assert chat["attributes"] == {"model": "m-1", "input_tokens": 120, "output_tokens": 30}
    assert (chat["input"]["size_bytes"], chat["output"]["size_bytes"]) == (3, 6)
    assert (log["message"], log["attributes"], log["span_id"]) == (
        "sent",
        {"to": "customer"},
        root["id"],
    )


def test_a_run_is_found_by_id_by_prefix_and_by_short_id(recorded: Home) -> None:
    """Whatever a person has at hand."""
    run = json_of("list")["runs"][0]
    texts = [run["id"], run["id"][:12], run["id"].upper(), run["short_id"], run["short_id"].upper()]

    found = [json_of("show", text)["run"]["id"] for text in texts]

    assert found == [run["id"]] * len(texts)


def test_an_ambiguous_prefix_lists_the_candidates_and_guesses_nothing(home: Home) -> None:
    """Exit 2, with each id that fits."""
    with Recorder(home) as recorder:
        ids = [recorder.run(f"run {number}").run_id for number in range(40)]
    shared = next(
        first for first in "0123456789abcdef" if sum(run.startswith(first) for run in ids) > 1
    )
    fitting = [run for run in ids if run.startswith(shared)]

    result = vestige("show", shared)

    assert result.exit_code == 2
    assert "runs match" in result.stderr
    assert all(run in result.stderr for run in fitting)
    assert result.stdout == ""


def test_an_unknown_run_is_exit_2_with_the_nearest(recorded: Home) -> None:
    """A slip of one character is answered with what was meant."""
    run = json_of("list")["runs"][0]["id"]
    slip = run[:7] + ("0" if run[7] != "0" else "1")

    result = vestige("show", slip)

    assert result.exit_code == 2
    assert "not found. Nearest: " in result.stderr
    assert run[:8] in result.stderr


@pytest.mark.parametrize("text", ["zzzz", "r999", "r0", "../../no-such-folder", "%", "\x1b[31m"])
def test_nonsense_for_a_run_is_exit_2_in_one_line(recorded: Home, text: str) -> None:
    """And control characters do not reach the terminal."""
    result = vestige("show", text)

    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert "\x1b" not in result.stderr


def test_show_errors_keeps_what_failed_and_what_it_stood_in(home: Home) -> None:
    """Everything that went well is left out."""
    with Recorder(home) as recorder, recorder.run("agent") as run:
        run.child("fine", type="tool").end()
        with run.child("outer") as outer:
            outer.child("inner", type="tool").end(error=OSError("no route"))

    text = vestige("show", "--errors").stdout

    assert "outer" in text
    assert "inner" in text
    assert "fine" not in text


def test_repeats_fold_and_unfold(home: Home) -> None:
    """A loop reads as one line with a count."""
    with Recorder(home) as recorder, recorder.run("agent") as run:
        for _ in range(6):
            run.child("search", type="tool", body="same").end()

    folded, unfolded = vestige("show").stdout, vestige("show", "--no-fold").stdout

    assert (folded.count("tool search"), unfolded.count("tool search")) == (1, 6)
    assert "×6" in folded


def test_a_long_run_is_cut_in_the_middle_and_says_so(home: Home) -> None:
    """The end of a run is what one came for."""
    with Recorder(home) as recorder, recorder.run("agent") as run:
        for number in range(100):
            run.log.info(f"line {number}")

    text = vestige("show", "--limit", "20").stdout

    assert "line 0" in text
    assert "line 99" in text
    assert "line 50" not in text
    assert "81 lines hidden; show all: vestige show r2 --limit 101" in text


def test_a_dead_run_is_stamped_by_whoever_reads_first(dead: Home) -> None:
    """No daemon, no preparation: the first question finds the crash and says it in plain words."""
    text = vestige("show").stdout

    assert "doomed: interrupted" in text
    assert "!! process exited unexpectedly after tool search" in text


# --- doctor, collect, recover ---------------------------------------------------------------


def test_doctor_says_where_everything_is(recorded: Home) -> None:
    """Nobody should have to search for the evidence."""
    result = vestige("doctor")

    assert result.exit_code == 0
    assert str(recorded.root) in result.stdout
    assert "OK, nothing missing" in result.stdout


def test_doctor_as_json_counts_what_there_is(recorded: Home) -> None:
    """The numbers are those of the store and of the journals."""
    data = json_of("doctor")

    assert data["version"] == 1
    assert (data["home"], data["runs"], data["spans"], data["logs"]) == (
        str(recorded.root),
        3,
        6,
        1,
    )
    assert (data["lag_bytes"], data["malformed"], data["dropped"], data["missing"]) == (0, 0, 0, 0)
    assert data["problems"] == []


def test_doctor_reports_damage_with_exit_1(recorded: Home) -> None:
    """Malformed lines and holes in the numbers are bad news."""
    recorded.journal_file("f" * 16, 1).write_bytes(b"garbage\n")

    result = vestige("doctor")

    assert result.exit_code == 1
    assert "1 journal lines could not be read" in result.stdout


def test_collect_once_takes_in_and_says_how_much(recorded: Home) -> None:
    """Six spans, each opened and closed, and one line: the process's own two spans included."""
    first, second = vestige("collect", "--once"), vestige("collect", "--once")

    assert first.stdout == "imported 13 records, 0 malformed lines\n"
    assert second.stdout == "imported 0 records, 0 malformed lines\n"
    assert recorded.journal_files() == []


def test_recover_finishes_what_a_dead_process_left(dead: Home) -> None:
    """It names the run and how to look at it; again there is nothing to do."""
    first, second = vestige("recover"), vestige("recover")

    assert first.exit_code == second.exit_code == 0
    assert "Finalized 1 crashed run" in first.stdout
    assert "doomed" in first.stdout
    assert "Finalized 0 crashed runs" in second.stdout


def test_recover_takes_a_home_elsewhere(dead: Home, tmp_path: Path) -> None:
    """A path that is a home is recovered where it is; anything else is refused by kind."""
    (tmp_path / "empty").mkdir()

    assert "doomed" in vestige("recover", str(dead.root), "--home", str(tmp_path / "x")).stdout
    assert vestige("recover", str(tmp_path / "nowhere")).exit_code == 2
    assert vestige("recover", str(tmp_path / "empty")).exit_code == 3


# --- prune, pin -----------------------------------------------------------------------------


def test_prune_dry_run_predicts_and_leaves_everything(recorded: Home) -> None:
    """The same numbers, `would delete` first, `deleted` after."""
    vestige("list")
    dry = vestige("prune", "--max-age", "0s", "--dry-run").stdout
    count = len(json_of("list", "--all")["runs"])
    real = vestige("prune", "--max-age", "0s").stdout

    assert dry.startswith("would delete 3 runs (6 spans)")
    assert real.splitlines()[0] == dry.strip().replace("would delete", "deleted")
    assert count == 3
    assert json_of("list", "--all")["runs"] == []


def test_a_pinned_run_outlives_pruning_until_it_is_unpinned(recorded: Home) -> None:
    """By short id, and shown with a star."""
    run = json_of("list")["runs"][1]
    pinned = vestige("pin", run["short_id"])
    vestige("prune", "--max-age", "0s")
    remaining = json_of("list")["runs"]
    starred = vestige("list").stdout
    unpinned = vestige("unpin", run["id"])
    vestige("prune", "--max-age", "0s")

    assert pinned.stdout == f"{run['short_id']} triage: pinned\n"
    assert [left["name"] for left in remaining] == ["triage"]
    assert "triage *" in starred
    assert unpinned.stdout == f"{run['short_id']} triage: no longer pinned\n"
    assert json_of("list", "--all")["runs"] == []


@pytest.mark.parametrize("value", ["soon", "-3d", "7y", ""])
def test_a_bad_age_is_a_usage_error(recorded: Home, value: str) -> None:
    """Exit 2, with what would be right; nothing is removed."""
    result = vestige("prune", "--max-age", value)

    assert result.exit_code == 2
    assert "7d" in result.stderr
    assert len(json_of("list", "--all")["runs"]) == 3


@pytest.mark.parametrize("command", ["pin", "unpin", "show"])
def test_a_run_that_does_not_exist_is_exit_2_everywhere(recorded: Home, command: str) -> None:
    """The same words for the same mistake."""
    result = vestige(command, "ffffffff-nope")

    assert result.exit_code == 2
    assert "not found" in result.stderr


# --- all of them ----------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_examples_and_exit_statuses(command: str) -> None:
    """Help is read by people who are stuck: it ends with something to type."""
    result = vestige(command, "--help")

    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: vestige {command}")
    name = NAMES_IN_GROUPS.get(ALIASES.get(command, ""), command)
    assert f"\nExamples:\n  vestige {name}" in result.stdout
    assert "\nExit status: " in result.stdout


def test_the_help_of_the_whole_lists_commands_in_the_order_of_a_first_session() -> None:
    """`run`, `list`, `show`: not the alphabet."""
    text = vestige("--help").stdout

    places = [text.index(f"\n  {name} ") for name in LISTED]
    assert places == sorted(places)
    assert COMMANDS[:4] == ["run", "replay", "list", "show"]
    assert len(LISTED) <= 30
    assert not [name for name in ALIASES if f"\n  {name} " in text]
    assert "..." not in text.partition("Record:")[2]  # no help is cut in a sentence


@pytest.mark.parametrize(
    "arguments", [["list"], ["show"], ["doctor"], ["prune"], ["pin", "r1"], ["recover"]]
)
def test_no_home_is_exit_2_and_makes_none(home: Home, arguments: list[str]) -> None:
    """A typo in --home must not leave a folder behind."""
    result = vestige(*arguments)

    assert result.exit_code == 2
    assert f"{home.root}: no data directory" in result.stderr
    assert not home.root.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [["list"], ["show"], ["doctor"], ["prune"], ["pin", "r1"], ["recover"], ["collect", "--once"]],
)
@pytest.mark.parametrize("damage", ["garbage", "newer", "pages"])
def test_an_unreadable_store_is_exit_3_in_one_line(
    recorded: Home, arguments: list[str], damage: str
) -> None:
    """Damaged or newer: one line with the path, never a traceback."""
    vestige("list")
    with SqliteStore.open(recorded.store) as store:
        if damage == "newer":
            store._connection.execute("PRAGMA user_version = 99")
        store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    data = recorded.store.read_bytes()
    if damage == "garbage":
        recorded.store.write_bytes(b"no database " * 1000)
    elif damage == "pages":
        recorded.store.write_bytes(data[:4096] + random.Random(7).randbytes(len(data) - 4096))

    result = vestige(*arguments)

    assert result.exit_code == 3
    assert str(recorded.store) in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["show", "check", "span", "body", "diff"])
def test_a_path_that_cannot_be_opened_is_said_to_be_one(
    command: str, recorded: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not an unknown run, and not a missing home: who gave a file wants to know of the file."""
    monkeypatch.chdir(tmp_path)
    Path("agent.py").write_text("print()")
    Path("c-9").mkdir()
    missing = vestige(command, "runs/crash.wink")
    foreign = vestige(command, "agent.py")
    monkeypatch.setenv("VESTIGE_HOME", str(tmp_path / "none"))
    homeless = vestige(command, "crash.wink")

    message = "runs/crash.wink: no such file or directory, and no such run."
    assert (missing.exit_code, missing.stderr) == (2, f"vestige: {message}\n")
    assert foreign.exit_code == 3
    assert foreign.stderr.startswith("vestige: agent.py: not a run id, and cannot be opened")
    assert "crash.wink: no such file or directory" in homeless.stderr


def test_a_folder_with_the_name_of_an_id_does_not_hide_what_is_missing(
    recorded: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c-9").mkdir()
    result = vestige("body", "c-9", "--path", "$.nowhere")

    assert result.exit_code == 2 and "cannot be opened" not in result.stderr


def test_a_span_that_a_run_has_not_leads_to_those_that_it_has(recorded: Home) -> None:
    run = json_of("list")["runs"][0]["short_id"]

    message = f"Span '{run}.s99' not found. {run} has 2 spans: `vestige show {run}`."
    assert message in vestige("span", f"{run}.s99").stderr


@pytest.mark.slow
def test_another_home_is_asked_for_by_option(recorded: Home, tmp_path: Path) -> None:
    """--home wins over the environment."""
    other = tmp_path / "other"
    with Recorder(other) as recorder:
        recorder.run("elsewhere").end()

    assert [run["name"] for run in json_of("list", "--home", str(other))["runs"]] == ["elsewhere"]


def test_a_pipe_that_closes_early_is_no_error(home: Home) -> None:
    """`vestige show | head` must not end in a traceback."""
    with Recorder(home) as recorder, recorder.run("agent") as run:
        for number in range(3000):
            run.log.info(f"a line that is long enough to fill a pipe soon {number}")
    command = f"{sys.executable} -m vestige show --limit 9999 | head -n 2"

    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)

    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 2


@pytest.mark.parametrize("arguments", [["list"], ["show"], ["doctor"]])
def test_no_color_without_a_terminal_or_when_asked(recorded: Home, arguments: list[str]) -> None:
    """Escapes are for terminals; NO_COLOR is obeyed even there."""
    piped = vestige_process(*arguments)
    plain = run_in_terminal(arguments, {"NO_COLOR": "1"})
    usual = run_in_terminal(arguments, {})

    assert "\x1b" not in piped.stdout
    assert "\x1b" not in plain
    assert "\x1b[" in usual


def test_json_is_whole_and_plain_for_any_text(home: Home) -> None:
    """What a trace holds is untrusted; as JSON it comes back exactly, as text it is defused."""
    name = 'evil \x1b[31m"\n\u202e name'
    with Recorder(home) as recorder, recorder.run("agent") as run:
        run.child(name, type="tool").end()

    shown = vestige("show").stdout

    assert json_of("show")["spans"][1]["name"] == name
    assert "\x1b" not in shown
    assert "\u202e" not in shown


# --- a home that may only be read ---------------------------------------------------------------


@pytest.fixture
def read_only(recorded: Home) -> Iterator[Home]:
    """A home that belongs to another user: an archive, a colleague's, a mounted snapshot."""
    vestige("collect", "--once")
    folders = [recorded.root, *(path for path in recorded.root.iterdir() if path.is_dir())]
    for folder in folders:
        folder.chmod(0o500)
    for path in recorded.root.iterdir():
        if path.is_file():
            path.chmod(0o400)
    yield recorded
    for folder in folders:
        folder.chmod(0o700)


def _obey_modes() -> None:
    """Even as root: give up the capabilities that pass over file modes."""
    if os.geteuid() == 0:
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


@pytest.mark.skipif(sys.platform != "linux", reason="drops capabilities")
def test_a_home_that_may_only_be_read_is_read(read_only: Home) -> None:
    """Questions are answered from what is stored; what would write says why it cannot."""
    listed = vestige_process("list", "--json", preexec_fn=_obey_modes)
    shown = vestige_process("show", preexec_fn=_obey_modes)
    pinned = vestige_process("pin", "r2", preexec_fn=_obey_modes)

    assert [run["name"] for run in json.loads(listed.stdout)["runs"]] == ["billing", "triage"]
    assert shown.returncode == 0
    assert pinned.returncode == 3
    assert len(pinned.stderr.splitlines()) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="drops capabilities")
def test_a_command_runs_though_nothing_can_be_recorded(read_only: Home) -> None:
    """The program's result is the same; that nothing is recorded is said, with the reason."""
    done = vestige_process(
        "run",
        "--",
        sys.executable,
        "-c",
        "print('done'); raise SystemExit(4)",
        preexec_fn=_obey_modes,
    )

    assert (done.returncode, done.stdout) == (4, "done\n")
    assert "Permission denied" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_the_commands_store_is_what_they_show(recorded: Home) -> None:
    """The JSON of `list` and the store agree, run by run."""
    data = {run["id"]: run for run in json_of("list", "--all")["runs"]}
    with SqliteStore.open(recorded.store, readonly=True) as store:
        runs = store.list_runs(RunFilter(with_implicit=True))

    assert {run.id for run in runs} == set(data)
    assert all(data[run.id]["span_count"] == run.span_count for run in runs)
