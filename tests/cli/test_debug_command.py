"""`vestige bundle show`, `wink debug`, `prune --bundles`, and every verb on a .wink path."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from support.wink_samples import DATA, make_bundle, members_of, read_lines, write_zip
from vestige.cli.main import cli
from vestige.cli.wink import wink
from vestige.debug import AgentInfo, DebugBundleBuilder, Session
from vestige.home import Home


def run(*arguments: str | Path, command: Any = cli) -> Result:
    result = CliRunner().invoke(command, [str(each) for each in arguments], prog_name="vestige")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_bundle().export(tmp_path / "bundles" / "x.wink")


# --- debug ---------------------------------------------------------------------------------------


def test_the_overview_says_what_happened_and_what_to_ask(bundle: Path) -> None:
    result = run("debug", bundle)

    assert result.exit_code == 0
    assert "code-reviewer: success after 1.0s" in result.stdout
    assert "8 snapshots" in result.stdout
    assert "82 log lines: 79 debug" in result.stdout
    assert "an exception record" in result.stdout
    assert f"vestige show {bundle}" in result.stdout


def test_the_overview_holds_one_state_at_a_time(tmp_path: Path) -> None:
    """A small file may hold thousands of states of megabytes: each tool call repeats all before
    it.
    """
    items = ",".join(f'{{"n":{number}}}' for number in range(5_000))
    state = json.dumps({"version": "1", "created_at": "2026-11-15T18:12:26+00:00", "slices": [0]})
    state = state.replace("[0]", f'[{{"slice_type":"m:Item","items":[{items}]}}]')
    path = make_bundle(_snapshots=[state] * 60).export(tmp_path / "x.wink")

    tracemalloc.start()
    shown = run("debug", path).stdout
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert "60 snapshots" in shown
    assert "Item 5000" in shown
    assert peak < 25_000_000


def test_snapshots_show_what_changed_between_two(bundle: Path) -> None:
    shown = run("debug", bundle, "--view", "snapshots", "--budget", "8000").stdout

    assert "#7" in shown
    assert "+1 PromptRendered" in shown
    assert "~1 AgentPlan" in shown
    assert '~ [0].steps[1]: nothing → "read_file(tests/test_main.py)"' in shown
    assert "no change" in shown.splitlines()[-1]


def test_logs_files_and_metadata_have_their_views(bundle: Path) -> None:
    logs = run("debug", bundle, "--view", "logs", "--budget", "8000").stdout
    files = run("debug", bundle, "--view", "files").stdout
    metadata = run("debug", bundle, "--view", "metadata").stdout

    assert "resource.construct.start" in logs and "ERROR" in logs
    assert "workspace/.env" in files and "256B" in files
    assert "components.logs.entry_count" in metadata and "82" in metadata


def test_a_long_view_names_the_command_for_the_rest(bundle: Path) -> None:
    """Within a budget; the command that it names goes on where this one stopped."""
    first = run("debug", bundle, "--view", "logs", "--budget", "300").stdout
    command = first.splitlines()[-1].partition(": ")[2].split()
    shown = len(first.splitlines()) - 2
    rest = run(*command[1:], "--budget", "300").stdout

    assert command[:2] == ["vestige", "debug"]
    everything = run("debug", bundle, "--view", "logs", "--budget", "8000").stdout.splitlines()[1:]
    assert rest.splitlines()[1] == everything[shown]


@pytest.mark.parametrize("view", ["overview", "snapshots", "logs", "files", "metadata"])
def test_every_view_is_data_for_a_program(bundle: Path, view: str) -> None:
    data = json.loads(run("debug", bundle, "--view", view, "--json").stdout)

    assert (data["version"], data["view"], data["outcome"]) == (1, view, "success")
    if view == "snapshots":
        assert (
            data["snapshots"][3]["changes"][0]["slice_type"].endswith("AgentPlan")
            or data["snapshots"][3]["changes"]
        )
    if view == "logs":
        assert data["logs"] == [json.loads(line) for line in read_lines("logs.jsonl")]


def test_a_folder_means_its_most_recent_bundle(bundle: Path) -> None:
    older = make_bundle(_logs=[]).export(bundle.parent / "old.wink")
    os.utime(older, (1, 1))

    assert "82 log lines" in run("debug", bundle.parent).stdout
    snapshots = bundle.parent / "s.jsonl"
    snapshots.write_bytes((DATA / "snapshots.jsonl").read_bytes())
    assert "2 snapshots" in run("debug", bundle.parent).stdout


def test_wink_debug_is_the_same_command(bundle: Path) -> None:
    assert run("debug", bundle, command=wink).stdout == run("debug", bundle).stdout
    assert run("debug", "/nothing/here.wink", command=wink).exit_code == 2


@pytest.mark.parametrize("name", ["later.zip", "snapshots_timeline.jsonl"])
def test_other_shapes_open_too(name: str) -> None:
    result = run("debug", DATA / name)

    assert result.exit_code == 0
    assert "snapshots" in result.stdout


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda folder: folder / "nothing.wink", 2),
        (lambda folder: folder, 2),
        (lambda folder: _written(folder / "x.wink", b"no zip"), 3),
        (lambda folder: _written(folder / "x.jsonl", b"no json\n"), 3),
        (lambda folder: write_zip(folder / "x.wink", {"manifest.json": b"{"}), 3),
    ],
)
def test_what_cannot_be_opened_is_one_line_and_an_exit_code(
    tmp_path: Path, make: Any, code: int
) -> None:
    result = run("debug", make(tmp_path))

    assert result.exit_code == code
    assert result.stderr.startswith("vestige: ") and len(result.stderr.splitlines()) == 1


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_what_a_bundle_says_cannot_command_the_terminal(tmp_path: Path) -> None:
    """Escapes in names, messages and states are shown, never obeyed."""
    evil = "\x1b]0;owned\x07\x1b[2J"
    log = json.dumps(
        {
            "timestamp": f"2024{evil}",
            "level": evil,
            "logger": evil,
            "event": evil,
            "message": evil,
            "context": {evil: evil},
        }
    )
    snapshot = json.dumps(
        {
            "version": "1",
            "created_at": "2024-01-01T00:00:00",
            "tags": {"session_id": evil},
            "slices": [{"slice_type": evil, "items": [evil]}],
        }
    )
    path = make_bundle(
        _logs=[log], _snapshots=[snapshot, snapshot], tags={evil: evil}, _files={f"a{evil}": b""}
    ).export(tmp_path / "x.wink")

    for view in ("overview", "snapshots", "logs", "files", "metadata"):
        assert "\x1b" not in run("debug", path, "--view", view).stdout, view


@pytest.mark.parametrize(
    "value", [{"started_at": "2026-01-02\x1b03:04:05+00:00"}, {"duration_seconds": 1e300}]
)
def test_times_of_a_bundle_are_foreign_too(bundle: Path, tmp_path: Path, value: Any) -> None:
    """Anything may stand between a day and an hour; and a duration may be as long as a number can
    be.
    """
    members = members_of(bundle)
    name = next(each for each in members if each.endswith("manifest.json"))
    manifest = json.loads(members[name])
    manifest["execution"].update(value)
    members[name] = json.dumps(manifest).encode()
    path = tmp_path / "odd.wink"
    write_zip(path, members)

    for command in (["debug"], ["debug", "--view", "snapshots"], ["show"]):
        result = run(*command, path)
        assert result.exit_code == 0 and "\x1b" not in result.stdout, result.output


# --- at a terminal -------------------------------------------------------------------------------


def _at_a_terminal(*arguments: str, **env: str) -> str:
    """What a person sees: the real command, on a real pseudo-terminal."""
    main, other = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "vestige", *arguments],
        stdout=other,
        stdin=other,
        stderr=subprocess.PIPE,
        env={**os.environ, "PAGER": "cat", "LINES": "24", **env},
    ) as child:
        os.close(other)
        parts = []
        while True:
            try:
                part = os.read(main, 65536)
            except OSError:
                break
            if not part:
                break
            parts.append(part)
        assert child.stderr is not None
        error = child.stderr.read()
        assert child.wait() == 0, error
    os.close(main)
    return b"".join(parts).decode()


def test_a_person_at_a_terminal_gets_all_of_it_in_colour(bundle: Path) -> None:
    shown = _at_a_terminal("debug", str(bundle), "--view", "logs")

    assert shown.count("weakincentives") >= 70
    assert "\x1b[31m" in shown


def test_no_color_is_respected_at_a_terminal(bundle: Path) -> None:
    shown = _at_a_terminal("debug", str(bundle), "--view", "logs", NO_COLOR="1")

    assert "\x1b[" not in shown


# --- taking parts out ----------------------------------------------------------------------------


def test_logs_and_files_are_written_as_they_were(bundle: Path, tmp_path: Path) -> None:
    logs, files = tmp_path / "out" / "logs.jsonl", tmp_path / "files"
    result = run("debug", bundle, "--export-logs", logs, "--export-files", files)

    assert result.exit_code == 0
    assert logs.read_bytes() == (DATA / "logs.jsonl").read_bytes()
    assert (files / "workspace" / ".env").read_bytes() == b"A=1\n"
    assert (files / "artifacts" / "blob.bin").read_bytes() == bytes(range(256))


def test_what_is_there_stays(bundle: Path, tmp_path: Path) -> None:
    """Never over a file of yours, and it says which were not written."""
    logs, files = tmp_path / "logs.jsonl", tmp_path / "files"
    logs.write_text("mine")
    (files / "workspace").mkdir(parents=True)
    (files / "workspace" / ".env").write_text("mine")
    result = run("debug", bundle, "--export-files", files)

    assert result.exit_code == 1
    assert "workspace/.env: already exists; not written" in result.stderr
    assert (files / "workspace" / ".env").read_text() == "mine"
    assert (files / "artifacts" / "empty").read_bytes() == b""
    assert run("debug", bundle, "--export-logs", logs).exit_code == 2
    assert logs.read_text() == "mine"


def test_a_file_where_a_folder_should_be_is_in_the_way(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    files = run("debug", bundle, "--export-files", tmp_path / "taken")
    logs = run("debug", bundle, "--export-logs", tmp_path / "taken" / "logs.jsonl")

    assert (files.exit_code, logs.exit_code) == (2, 2)
    assert "not a folder" in files.stderr
    assert (tmp_path / "taken").read_text() == "mine"


def test_a_link_in_the_folder_does_not_lead_out_of_it(bundle: Path, tmp_path: Path) -> None:
    outside, files = tmp_path / "outside", tmp_path / "files"
    outside.mkdir()
    files.mkdir()
    (files / "workspace").symlink_to(outside)
    result = run("debug", bundle, "--export-files", files)

    assert result.exit_code == 1
    assert "its folder is a symbolic link" in result.stderr
    assert list(outside.iterdir()) == []


def test_a_name_too_long_for_the_disk_costs_only_its_own_file(home: Home, tmp_path: Path) -> None:
    """The others are written, and it says which was not."""
    made = DebugBundleBuilder(session=Session(), agent=AgentInfo("a", "b", "c"))
    made.add_artifact("n" * 400, b"1")
    made.add_artifact("z.txt", b"2")
    path = made.finalize().export(tmp_path / "x.wink")
    result = run("debug", path, "--export-files", tmp_path / "files")

    assert result.exit_code == 1
    assert "File name too long; not written" in result.stderr
    assert (tmp_path / "files" / "artifacts" / "z.txt").read_bytes() == b"2"


def test_half_a_file_is_not_left_behind(home: Home, tmp_path: Path) -> None:
    """On a full disk: existing files are complete, and the next try does not refuse them."""
    made = make_bundle(
        _files={"large": b"x" * 300_000, "small": b"1"},
        _logs=[json.dumps({"timestamp": "", "message": "m" * 300_000})],
    )
    path, files, logs = made.export(tmp_path / "x.wink"), tmp_path / "files", tmp_path / "l.jsonl"
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))"
    command = f"{limited}; from vestige.cli.main import main; main()"

    def attempt(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-c", command, "debug", *map(str, arguments)]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    refused = attempt(path, "--export-files", files)
    failed = attempt(path, "--export-logs", logs)

    assert (refused.returncode, failed.returncode) == (1, 3), refused.stderr + failed.stderr
    assert "large: File too large; not written" in refused.stderr
    assert [each.name for each in files.iterdir()] == ["small"]
    assert not logs.exists()


def test_a_damaged_file_is_not_written_and_the_others_are(bundle: Path, tmp_path: Path) -> None:
    members = members_of(bundle)
    members["files/workspace/.env"] = b"B=2\n"
    path = write_zip(tmp_path / "y.wink", members)
    result = run("debug", path, "--export-files", tmp_path / "files")

    assert result.exit_code == 1
    assert "workspace/.env: damaged" in result.output
    assert not (tmp_path / "files/workspace/.env").exists()
    assert (tmp_path / "files/artifacts/blob.bin").read_bytes() == bytes(range(256))


# --- the debugger's verbs ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "{}"],
        ["overview", "{}"],
        ["check", "{}"],
        ["grep", "divide", "{}"],
        ["span", "{}#3"],
        ["body", "{}#3", "--path", "$.tags.suite"],
        ["diff", "{}#3", "{}#7"],
        ["list", "--home", "{}"],
        ["stats", "--home", "{}"],
        ["why", "{}#3"],
        ["sql", "--on", "{}", "SELECT count(*) FROM logs"],
        ["show", "{}", "--json"],
    ],
)
def test_every_verb_takes_a_bundle(bundle: Path, arguments: list[str]) -> None:
    result = run(*(each.format(bundle) for each in arguments))

    assert result.exit_code in (0, 1), result.stderr
    assert result.stdout


def test_a_diff_of_two_snapshots_says_what_became_of_the_state(bundle: Path) -> None:
    result = run("diff", f"{bundle}#3", f"{bundle}#7")

    assert result.exit_code == 1
    assert "index: 3 → 7" in result.stdout
    assert "read_file(tests/test_main.py)" in result.stdout
    assert run("diff", f"{bundle}#99", f"{bundle}#7").exit_code == 2


@pytest.mark.slow
def test_two_bundles_are_compared_side_by_side(bundle: Path, tmp_path: Path) -> None:
    from uuid import UUID

    other = make_bundle(bundle_id=UUID(int=7, version=4), _logs=[]).export(tmp_path / "other.wink")

    assert run("diff", bundle, other).exit_code in (0, 1)
    assert "index: 3 → 5" in run("diff", f"{bundle}#3", f"{other}#5").stdout
    assert run("compare", bundle, "--", other).exit_code == 0


def test_two_bundles_are_compared_however_their_paths_are_spelled(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bundle.parent / "y.wink").write_bytes(bundle.read_bytes())
    monkeypatch.chdir(bundle.parent)
    result = run("diff", "./x.wink#3", f"{bundle.parent}//y.wink#7")

    assert result.exit_code == 1, result.output
    assert "index: 3 → 7" in result.stdout


def test_a_path_and_an_id_of_the_home_do_not_mix(bundle: Path, home: Home) -> None:
    result = run("diff", f"{bundle}#3", "r1")

    assert result.exit_code == 2
    assert "vestige import" in result.stderr


@pytest.mark.slow
def test_sql_over_snapshots_slices_files_and_logs(bundle: Path) -> None:
    """The tables that a bundle has, over any bundle or home."""
    queries = {
        "SELECT count(*) FROM snapshots": 8,
        "SELECT item_count FROM slices WHERE snapshot = 7 AND slice_type LIKE '%:ToolInvoked'": 4,
        (
            "SELECT json_extract(items, '$[0].steps[0]') FROM slices"
            " WHERE snapshot = 7 AND slice_type LIKE '%:AgentPlan'"
        ): "read_file(app/main.py)",
        "SELECT body_text(body) FROM files WHERE path = 'workspace/.env'": "A=1\n",
        "SELECT count(*) FROM logs WHERE level = 'error'": 1,
        "SELECT count(*) FROM spans WHERE type = 'file'": 4,
    }
    for query, expected in queries.items():
        data = json.loads(run("sql", "--on", bundle, query, "--json").stdout)
        assert data["rows"] == [[expected]], query


def test_the_next_command_of_sql_asks_the_same_bundle(bundle: Path) -> None:
    shown = run("sql", "--on", bundle, "SELECT message FROM logs", "--budget", "200").stdout

    assert shown.splitlines()[-1].endswith(f"--on {bundle}")


def test_sql_on_nothing_is_not_asked_of_the_home(home: Home) -> None:
    result = run("sql", "--on", "/nothing/x.wink", "SELECT 1")

    assert result.exit_code == 2
    assert "not found, or not a supported format" in result.stderr


def test_the_schema_has_the_views() -> None:
    shown = run("schema").stdout

    assert (
        "slices (view): run, snapshot, session_id, slice_type, item_type, item_count, items"
        in shown
    )
    assert "body_json(s.body)" in run("schema", "slices").stdout
    data = json.loads(run("schema", "--json").stdout)
    assert [each["name"] for each in data["views"]] == ["snapshots", "slices", "files"]


def test_a_bundle_comes_in_and_goes_out(bundle: Path, home: Home, tmp_path: Path) -> None:
    imported = run("import", bundle)
    out = tmp_path / "again.wink"
    exported = run("export", "r1", "--format", "wink", "-o", out)

    assert imported.exit_code == 0 and "Imported 1 run from" in imported.stdout
    assert exported.exit_code == 0
    assert members_of(out)["snapshots.jsonl"] == members_of(bundle)["snapshots.jsonl"]
    assert run("diff", "r1#3", "r1#7").exit_code == 1


# --- retention -----------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five bundles of a kilobyte, an hour apart; what a killed export left; a file of mine."""
    folder = tmp_path / "many"
    folder.mkdir()
    now = int(time.time())
    for number in range(5):
        path = folder / f"{number}.wink"
        path.write_bytes(b"x" * 1000)
        os.utime(path, (now - number * 3600, now - number * 3600))
    for name in (".0.wink.abc.part", "notes.txt"):
        (folder / name).write_bytes(b"x")
        os.utime(folder / name, (now - 3 * 86400, now - 3 * 86400))
    return folder


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (["--keep", "2"], ["0", "1"]),
        (["--max-age", "150m"], ["0", "1", "2"]),
        (["--max-bytes", "3500"], ["0", "1", "2"]),
        (["--keep", "4", "--max-age", "2.5h", "--max-bytes", "1KB"], ["0"]),
        (["--keep", "0"], []),
    ],
)
def test_old_bundles_go_by_count_age_and_bytes(
    folder: Path, options: list[str], left: list[str]
) -> None:
    result = run("prune", "--bundles", folder, *options)

    assert result.exit_code == 0
    assert sorted(path.stem for path in folder.glob("*.wink")) == left
    assert (folder / "notes.txt").exists()
    assert not list(folder.glob(".*.part"))


def test_a_dry_run_removes_nothing_and_says_the_same(folder: Path) -> None:
    dry = run("prune", "--bundles", folder, "--keep", "2", "--dry-run").stdout
    before = sorted(folder.iterdir())
    real = run("prune", "--bundles", folder, "--keep", "2").stdout

    assert len(before) == 7
    assert dry.replace("would delete", "deleted") == real


@pytest.mark.parametrize(
    "arguments",
    [
        ["--bundles", "{}"],
        ["--bundles", "{}/nothing", "--keep", "1"],
        ["--keep", "1"],
        ["--bundles", "{}", "--max-body-bytes", "1MB"],
    ],
)
def test_prune_wants_to_know_what_to_keep(folder: Path, arguments: list[str]) -> None:
    assert run("prune", *(each.format(folder) for each in arguments)).exit_code == 2
    assert len(list(folder.glob("*.wink"))) == 5


# --- what the text views tell ---------------------------------------------------------------------


def test_all_of_a_log_lines_context_is_shown(tmp_path: Path) -> None:
    """The ninth key of a transcript's entry is what the model said."""
    path = make_bundle().export(tmp_path / "x.wink")

    shown = run("debug", path, "--view", "logs", "--budget", "8000", "--after", "9")

    assert "I should look at the code first." in shown.output
    many = {f"key{number}": number for number in range(60)}
    line = {"timestamp": "2026-11-15T18:12:26+00:00", "message": "m", "context": many}
    path = make_bundle(_logs=[json.dumps(line)]).export(tmp_path / "y.wink")
    shown = run("debug", path, "--view", "logs")
    assert "key39=39" in shown.output and "20 more (all with --json)" in shown.output


def test_snapshots_tell_their_session_and_why_they_were_taken(tmp_path: Path) -> None:
    def snapshot(second: int, session: str, reason: str) -> str:
        tags = {"session_id": session, "tag": reason}
        created_at = f"2026-11-15T18:12:{second}+00:00"
        return json.dumps({"version": "1", "created_at": created_at, "tags": tags, "slices": []})

    lines = [
        snapshot(second, session, reason)
        for second, reason in ((26, "capture entry"), (27, "ToolInvoked"))
        for session in ("parent-1", "child-2")
    ]
    path = make_bundle(_snapshots=lines, _logs=[]).export(tmp_path / "x.wink")

    debug, show = run("debug", path, "--view", "snapshots"), run("show", path)

    rows = [row for row in debug.output.splitlines() if row.startswith("#")]
    assert all("session parent-1" in row for row in rows[::2])
    assert all("session child-2" in row for row in rows[1::2])
    assert "capture entry" in rows[0] and "ToolInvoked" in rows[2]
    assert "×" not in show.output
    assert show.output.count("snapshot ToolInvoked") == 2


def test_the_page_opens_at_the_view_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vestige.cli.view import ui

    opened: list[object] = []

    def open_viewer(home: Home, source: str, view: str | None = None) -> None:
        opened.append(view)

    monkeypatch.setattr(ui, "open_viewer", open_viewer)
    path = make_bundle().export(tmp_path / "x.wink")

    for view in ("logs", "snapshots", "overview"):
        assert run("debug", path, "--web", "--view", view).exit_code == 0

    assert opened == ["logs", "state", None]


def test_a_run_directory_of_random_bytes_is_not_shown_without_a_word(tmp_path: Path) -> None:
    data = Path(__file__).parent.parent / "data" / "agentdbg" / "runs"
    folder = tmp_path / "3d1957bd-7105-4b04-b132-afe8fc31203e"
    folder.mkdir()
    (folder / "run.json").write_bytes((data / folder.name / "run.json").read_bytes())
    (folder / "events.jsonl").write_bytes(bytes(range(256)) * 20)

    shown = run("show", folder)

    assert "not JSON" in shown.output and "vestige check" in shown.output
