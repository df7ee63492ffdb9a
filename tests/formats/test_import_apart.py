"""A long source is read by a process of its own, and nobody can tell: real forks, real kills.

All of it happens in programs that are started here: the workers that run tests have threads, and
where there are threads nothing is forked.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.agentdbg_runs import RUN, call, make_run
from support.programs import WAIT_S
from vestige.formats.protocol import Source
from vestige.home import Home
from vestige.limits import BATCH_BYTES, MIB
from vestige.record.codec import decode_known
from vestige.record.redaction.bulk_redaction import masked, masked_lines
from vestige.record.redaction.redactor import Redactor
from vestige.record.types import VERSION, BodyInfo, KnownRecord, Link, SpanClose, SpanOpen
from vestige.store.sqlite.sqlite_store import SqliteStore

pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="one CPU: nothing is read apart"
)

SECRET = "sk-ant-api03-" + "q9Zr7Lk2" * 8
CALLS = 2_500

_BEGINNING = """
import atexit, json, os, signal, sys, threading
from pathlib import Path

forks = []
os.register_at_fork(after_in_parent=lambda: forks.append(1))

def children():
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()

from vestige.errors import BrokenOffError, NotFoundError, UnreadableError
from vestige.formats.protocol import Problem, Source
from vestige.record.note import Note
from vestige.record.redaction.redactor import Redactor
from vestige.record.types import VERSION, Log, SpanOpen
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import import_path
from vestige.transfer.import_runs import import_source

home, path = Path(sys.argv[1]), Path(sys.argv[2])
home.mkdir(exist_ok=True)

def logs(count, text="line"):
    yield SpanOpen(VERSION, "a" * 16, 1, 1, "r", "s", "c", "run", "long")
    for seq in range(2, count + 2):
        yield Log(VERSION, "a" * 16, seq, seq, "r", "c", "info", text, "s")

def tell(found, **more):
    print(json.dumps({"forks": len(forks), "children": children(), "found": found, **more}))
"""
_IMPORT = """
with SqliteStore.open(home / "store.db") as store:
    told = []
    found = [
        [one.run_id, one.records, one.known, [str(problem) for problem in one.problems]]
        for one in import_path(store, path, on_progress=told.append)
    ]
tell(found, told=told)
"""


def program(source: str, home: Path, path: Path, **more: Any) -> dict[str, Any]:
    """What a program tells."""
    done = subprocess.run(
        [sys.executable, "-c", _BEGINNING + source, str(home), str(path)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        **more,
    )
    assert not done.returncode, done.stderr
    (said,) = (line for line in done.stdout.splitlines() if line.startswith('{"forks"'))
    answer: dict[str, Any] = json.loads(said)
    return answer | {"stdout": done.stdout}


def one_cpu() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def dump(home: Path) -> list[str]:
    """All that is in a store, but when it was imported; bodies by their texts, wherever those stand."""
    with SqliteStore.open(home / "store.db") as store:
        connection = store._connection
        connection.execute("UPDATE runs SET imported_ns = 0")
        for table, column in (("spans", "input_body"), ("spans", "output_body"), ("logs", "body")):
            query = f"SELECT id, {column} FROM {table} WHERE {column} IS NOT NULL"
            for row, body in connection.execute(query).fetchall():
                text = store.read_body(body)
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE id = ?", (text, row))
        connection.execute("DELETE FROM sheets")
        connection.execute("DELETE FROM bodies")
        return list(connection.iterdump())


def large_run(folder: Path) -> Path:
    """More than the reader may be ahead: while anything is stored for the first time, it is not done."""
    return make_run(folder, [call(payload={"result": f"{n} " * 1024}) for n in range(12_000)])


# --- the same as without -------------------------------------------------------------------------


def test_it_is_the_same_store_whether_the_reading_is_done_apart_or_here(tmp_path: Path) -> None:
    """Records, problems, counts and what is told: with secrets, torn lines and all."""
    calls: list[dict[str, Any]] = [call(name=f"call {n}", duration_ms=n) for n in range(CALLS)]
    calls[700]["payload"]["args"] = {"key": SECRET}
    calls[800]["name"] = f"call {SECRET}"
    calls[900]["payload"]["result"] = f"{SECRET} " + "and more " * 100
    calls[1_000]["payload"] = {"tool_name": SECRET, "status": "error", "error": {"message": SECRET}}
    calls[1_900]["name"] = "half \ud800 of a character"
    calls[2_000] = calls[1_999]
    calls += [call("ERROR", payload={"message": SECRET}), call("NEWER", payload={"a": [1, 2]})]
    run = make_run(tmp_path, calls, end=False, status="running")
    with open(run / "events.jsonl", "a") as file:
        file.write('no event\n{"event_type": 5}\n[1]\n{"torn')

    apart = program(_IMPORT, tmp_path / "apart", run)
    again = program(_IMPORT, tmp_path / "apart", run)
    here = program(_IMPORT, tmp_path / "here", run, preexec_fn=one_cpu)

    assert (apart["forks"], here["forks"]) == (1, 0)
    assert apart["found"] == here["found"]
    assert len(apart["found"][0][3]) == 6
    assert sum(apart["told"]) == apart["found"][0][1]
    assert again["found"] == [[RUN, 0, True, apart["found"][0][3]]]
    assert dump(tmp_path / "apart") == dump(tmp_path / "here")
    assert SECRET.encode() not in (tmp_path / "apart" / "store.db").read_bytes()


def test_tiny_bodies_come_on_sheets_and_only_with_records_that_are_new(tmp_path: Path) -> None:
    """Of a run that is here some are known, and nobody would refer to what came along for them."""
    run = make_run(tmp_path, [call(payload={"args": {"n": n}}) for n in range(CALLS)])
    program(_IMPORT, tmp_path / "home", run)
    with SqliteStore.open(tmp_path / "home" / "store.db") as store:
        spans = [span for span in store.load_run(RUN).spans if span.type == "tool"]
        bodies = [span.input.id for span in spans if span.input is not None and span.input.id]
        texts = [json.loads(store.read_body(body))["n"] for body in bodies]
        before = store._connection.execute("SELECT count(*), sum(texts) FROM sheets").fetchone()
    again = program(_IMPORT, tmp_path / "home", run)
    with SqliteStore.open(tmp_path / "home" / "store.db") as store:
        after = store._connection.execute("SELECT count(*), sum(texts) FROM sheets").fetchone()

    assert texts == list(range(CALLS)) and len(set(bodies)) == CALLS
    assert again["forks"] == 1 and before == after and before[1] >= CALLS > 50 * before[0]


def test_of_a_file_that_has_grown_the_rest_is_added(tmp_path: Path) -> None:
    run = make_run(tmp_path, [call() for _ in range(CALLS)], end=False, status="running")
    first = program(_IMPORT, tmp_path / "home", run)
    with open(run / "events.jsonl", "a") as file:
        file.writelines(json.dumps(call()) + "\n" for _ in range(10))

    second = program(_IMPORT, tmp_path / "home", run)

    assert first["found"][0][1] == 2 * CALLS + 4
    assert second["found"][0][1:3] == [20, True]


@pytest.mark.parametrize(
    ("calls", "before"),
    [
        pytest.param(900, "", id="a short run"),
        pytest.param(
            CALLS, "threading.Thread(target=signal.pause, daemon=True).start()", id="a thread"
        ),
        pytest.param(
            CALLS, "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})", id="one CPU"
        ),
        pytest.param(CALLS, "signal.signal(signal.SIGCHLD, signal.SIG_IGN)", id="unheard ends"),
    ],
)
def test_it_is_read_here_where_a_process_would_not_help_or_cannot_be(
    tmp_path: Path, calls: int, before: str
) -> None:
    run = make_run(tmp_path, [call() for _ in range(calls)])

    found = program(f"{before}\n{_IMPORT}", tmp_path / "home", run)

    assert (found["forks"], found["found"][0][1]) == (0, 2 * calls + 3)


def test_it_is_read_here_where_there_is_no_room_for_a_process() -> None:
    """A limit that is reached makes an import slower, and nothing else."""
    limit = """
import resource
Redactor().suspicious(b"x")  # modules are loaded while we may read them
if not os.getuid():  # whom no limit holds
    os.setgid(65534), os.setuid(65534)
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
try:
    os.fork()
    raise SystemExit("no limit")
except BlockingIOError:
    pass
"""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = make_run(folder, [call() for _ in range(CALLS)])
        (folder / "home").mkdir()
        for path in (folder, folder / "home", run):
            path.chmod(0o777)
        found = program(limit + _IMPORT, folder / "home", run)

    assert (found["children"], found["found"][0][1]) == ([], 2 * CALLS + 3)


def test_what_the_reader_finds_out_on_its_way_is_there_when_the_records_are(
    tmp_path: Path,
) -> None:
    """Problems and notes are lists that grow while records are read; a path may be no text."""
    source = """
source = Source("r", "a" * 16, iter(()), forkable=True)
def records():
    yield from logs(5_000)
    source.problems.append(Problem("caf\\udce9", "line 3", "odd", "it is"))
    source.notes.append(Note(id="n", run_id="r", text="well", created_ns=1))
source.records = records()
with SqliteStore.open(home / "store.db") as store:
    taken = import_source(store, source, Redactor())
    notes = [note.text for note in store.notes("r")]
tell(taken, problems=[ascii(str(one)) for one in source.problems], notes=notes)
"""
    found = program(source, tmp_path / "home", tmp_path)

    assert (found["forks"], found["children"], found["found"]) == (1, [], 5_001)
    assert found["problems"] == [r"'caf\udce9: line 3: it is'"]
    assert found["notes"] == ["well"]


@pytest.mark.parametrize(
    "error",
    [
        'UnreadableError("x: damaged.")',
        'NotFoundError("x: gone.")',
        'PermissionError(13, "Permission denied", "x")',
        'UnicodeDecodeError("utf-8", b"a", 0, 1, "odd")',
        'KeyError("ours")',
    ],
)
def test_an_error_of_the_reader_is_raised_where_its_records_are_wanted(
    tmp_path: Path, error: str
) -> None:
    """What was stored before it stays, as do the problems that it had found."""
    source = f"""
source = Source("r", "a" * 16, iter(()), forkable=True)
def records():
    yield from logs(25_000)
    source.problems.append(Problem("x", "", "odd", "before"))
    raise {error}
source.records = records()
with SqliteStore.open(home / "store.db") as store:
    try:
        import_source(store, source, Redactor())
    except Exception as raised:
        same = raised
    kept = len(store.load_run("r").logs)
wanted = {error}
tell(kept, same=[type(same) is type(wanted), str(same) == str(wanted), same.args == wanted.args],
     problems=[str(one) for one in source.problems])
"""
    found = program(source, tmp_path / "home", tmp_path)

    assert (found["forks"], found["children"]) == (1, [])
    assert (found["found"], found["same"]) == (
        17_499,
        [True] * 3,
    )  # batches before it, but the root
    assert found["problems"] == ["x: before"]


def test_nothing_of_the_program_is_done_twice(tmp_path: Path) -> None:
    """What waits in its buffers is written once, its last words are said once, by itself."""
    run = make_run(tmp_path, [call() for _ in range(CALLS)])
    source = """
print("waits in the buffer")
atexit.register(print, "last words")
signal.signal(signal.SIGTERM, lambda *_: print("told to end"))
"""
    found = program(source + _IMPORT, tmp_path / "home", run)

    assert found["forks"] == 1
    assert found["stdout"].count("waits in the buffer") == 1
    assert found["stdout"].count("last words") == 1


# --- kills -----------------------------------------------------------------------------------------


def test_a_reader_that_is_killed_costs_nothing_that_was_stored(tmp_path: Path) -> None:
    run = large_run(tmp_path)
    killing = """
def kill(_):
    for one in children():
        os.kill(int(one), signal.SIGKILL)
with SqliteStore.open(home / "store.db") as store:
    try:
        list(import_path(store, path, on_progress=kill))
    except BrokenOffError as error:
        said = str(error)
    (kept,) = store.find_runs("")
tell(kept.span_count, said=said)
"""
    killed = program(killing, tmp_path / "home", run)
    again = program(_IMPORT, tmp_path / "home", run)

    assert killed["said"] == (
        f"run {RUN}: the process that read it ended too soon (signal 9)."
        " Repeat the import: it continues after the stored records."
    )
    assert (killed["forks"], killed["children"]) == (1, [])
    assert 1 < killed["found"] < 12_001
    assert 0 < again["found"][0][1] < 24_003 and again["found"][0][2:] == [True, []]


def started(home: Home, run: Path) -> tuple[subprocess.Popen[str], int]:
    """`vestige import`, and the process that reads for it; something is stored."""
    home.make()
    command = [sys.executable, "-m", "vestige", "import", str(run), "--home", str(home.root)]
    importing = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    children = Path(f"/proc/{importing.pid}/task/{importing.pid}/children")
    until(lambda: children.read_text().split() and stored(home))
    return importing, int(children.read_text().split()[0])


def until(comes: Callable[[], object]) -> None:
    give_up = time.monotonic() + WAIT_S
    while not comes():
        assert time.monotonic() < give_up, "it did not come"
        time.sleep(0.002)


def stored(home: Home) -> int:
    try:
        with sqlite3.connect(f"file:{home.store}?mode=ro", uri=True) as connection:
            count: int = connection.execute("SELECT count(*) FROM spans").fetchone()[0]
            return count
    except sqlite3.Error:  # not made yet
        return 0


def is_over(pid: int) -> bool:
    """Gone, or waiting for whoever adopted it to look."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def test_the_command_says_in_one_line_that_its_reader_was_killed(
    tmp_path: Path, home: Home
) -> None:
    run = large_run(tmp_path)
    importing, reader = started(home, run)
    os.kill(reader, signal.SIGKILL)
    out, err = importing.communicate(timeout=WAIT_S)

    assert (importing.returncode, out) == (3, "")
    assert err.startswith(f"vestige: run {RUN}: ") and err.count("\n") == 1
    assert program(_IMPORT, home.root, run)["found"][0][2:] == [True, []]
    assert stored(home) == 12_001


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_both(tmp_path: Path, home: Home, number: int) -> None:
    importing, reader = started(home, large_run(tmp_path))
    os.killpg(importing.pid, number)
    _, err = importing.communicate(timeout=WAIT_S)

    until(lambda: is_over(reader))
    assert importing.returncode
    assert "Traceback" not in err and "ended too soon" not in err


def test_a_reader_whose_program_is_gone_ends_and_leaves_nothing(tmp_path: Path, home: Home) -> None:
    run = large_run(tmp_path)
    importing, reader = started(home, run)
    importing.kill()
    importing.communicate(timeout=WAIT_S)

    until(lambda: is_over(reader))
    assert program(_IMPORT, home.root, run)["found"][0][2:] == [True, []]
    assert stored(home) == 12_001
    assert not list(home.root.rglob("*.tmp*"))


def test_the_reader_is_a_little_ahead_and_no_further(tmp_path: Path) -> None:
    """It waits for whoever stores: its memory does not grow with the file."""
    source = """
import mmap, time
from vestige.transfer.import_worker import read_in_worker
count = mmap.mmap(-1, 8)  # shared with the fork
def pieces():
    for n in range(1_000):
        count[:] = n.to_bytes(8, "little")
        yield [Log(VERSION, "a" * 16, n + 1, n, "r", "c", "info", "x", None, {}, "y" * 100_000)], 100_000
batches = read_in_worker(Source("r", "a" * 16, iter(())), pieces(), Redactor(), iter([1_000]))
first = next(batches)
(reader,) = children()
def waits():
    before = count[:]
    time.sleep(0.05)
    state = Path(f"/proc/{reader}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "S" and before == count[:]
while not waits():
    pass
ahead = int.from_bytes(count[:], "little")
stored = sum(map(len, first))
batches.close()
tell([stored, ahead])
"""
    found = program(source, tmp_path / "home", tmp_path)
    first, ahead = found["found"]

    assert found["children"] == []
    assert first == BATCH_BYTES // 100_000 + 1
    assert first < ahead < (4 * BATCH_BYTES + MIB) // 100_000


# --- as lines --------------------------------------------------------------------------------------

_text = st.text(max_size=20) | st.just(f"x {SECRET}") | st.just("half \ud800")
_scalar = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | _text
)
_attributes = st.dictionaries(_text, _scalar, max_size=4)
_extra = st.none() | st.just({"newer": [1, {"a": None}]})
_id = st.text("0123456789abcdef", min_size=1, max_size=16)
_count = st.integers(0, 2**62)
_records: st.SearchStrategy[KnownRecord] = st.one_of(
    st.builds(
        SpanOpen,
        st.integers(1, 3),
        st.just("w"),
        _count,
        _count,
        _id,
        _id,
        _text,
        _text,
        _text,
        st.none() | _id,
        attributes=_attributes,
        extra=_extra,
        body=st.none() | _text,
        links=st.none() | st.lists(st.builds(Link, st.just("s"), st.none() | st.just("r"))),
    ),
    st.builds(
        SpanClose,
        st.just(VERSION),
        st.just("w"),
        _count,
        _count,
        _id,
        _id,
        _id,
        _count,
        attributes=_attributes,
        extra=_extra,
        redacted=st.none() | st.just({"rule": 2}),
        body_info=st.none() | st.builds(BodyInfo, original_bytes=st.none() | _count),
    ),
)


@given(st.lists(_records, max_size=40))
def test_records_come_through_the_pipe_as_they_are(records: list[KnownRecord]) -> None:
    """Also what a newer version wrote, and whatever had to be masked."""
    redactor = _redactor()

    lines = b"".join(masked_lines(records, redactor))

    assert decode_known(lines) == masked(records, redactor)


_made: list[Redactor] = []


def _redactor() -> Redactor:
    if not _made:
        _made.append(Redactor())
    return _made[0]


def test_a_source_says_itself_that_it_may_be_read_apart() -> None:
    """A reader that does more than read (and every one that nobody looked at) stays where it is."""
    assert not Source("r", "w", iter(())).forkable
