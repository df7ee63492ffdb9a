"""The journal's writer: one write per line, private files, and on its feet again after any loss."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import vestige
from support.programs import SmallDisk
from vestige._runtime import file_locks
from vestige.home import Home
from vestige.journal.backlog import Loss
from vestige.journal.writer import JournalWriter
from vestige.limits import KIB
from vestige.record.codec import parse_lines
from vestige.record.types import Log

LINE = b'{"n":1}\n'
WRITER = "00000000000000aa"


@pytest.fixture
def small_home(small_disk: SmallDisk) -> Home:
    """A home on a disk of 64 KiB."""
    return Home(small_disk("64k") / "home")


def generations(home: Home) -> list[int]:
    return [generation for _, generation, _ in home.journal_files()]


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_line_is_in_the_file_when_write_returns(home: Home) -> None:
    """Nothing is buffered: what `write` returned from survives a kill."""
    journal = JournalWriter(home, WRITER)

    assert journal.write(LINE)
    assert journal.path.read_bytes() == LINE
    assert journal.write(LINE)
    assert journal.path.read_bytes() == LINE * 2
    journal.close()


def test_one_line_is_one_write(home: Home, tmp_path: Path) -> None:
    """So that the lines of threads never mix. Checked with strace, where it is installed."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    log = tmp_path / "strace"
    source = (
        "import vestige; r = vestige.Recorder(); run = r.run('r')\n"
        "for n in range(50): run.log.info('x' * 1000)\n"
    )
    command = ["strace", "-f", "-e", "trace=write,pwrite64", "-s", "9999", "-o", str(log)]
    subprocess.run(
        [*command, sys.executable, "-c", source], env={**os.environ}, capture_output=True
    )

    writes = [line for line in log.read_text().splitlines() if "kind" in line]
    assert len([line for line in writes if "xxxx" in line]) == 50


def test_lines_of_many_threads_stay_whole(home: Home) -> None:
    """O_APPEND and one write each, also across rotations."""
    journal = JournalWriter(home, WRITER, rotate_bytes=20 * KIB)
    lines = [b'{"thread":%d,"x":"%s"}\n' % (n, b"x" * 100 * n) for n in range(8)]

    def write(line: bytes) -> None:
        for _ in range(100):
            journal.write(line)

    threads = [threading.Thread(target=write, args=(line,)) for line in lines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.close()

    data = b"".join(path.read_bytes() for _, _, path in home.journal_files())
    assert sorted(data.splitlines(keepends=True)) == sorted(
        line for line in lines for _ in range(100)
    )
    assert len(generations(home)) > 5


def test_files_and_folders_are_their_owners_alone(home: Home) -> None:
    """0600 and 0700, whatever the umask allows; spilled bodies too."""
    previous = os.umask(0)
    try:
        recorder = vestige.Recorder(home)
        recorder.run("r", body="x" * 300_000)
    finally:
        os.umask(previous)

    folders = [home.root, home.journal, home.bodies, home.faults]
    files = [path for folder in folders for path in folder.iterdir() if path.is_file()]
    assert [mode(folder) for folder in folders] == [0o700] * 4
    assert {path.parent.name for path in files} >= {"journal", "bodies"}
    assert {mode(path) for path in files} == {0o600}


def test_rotation_keeps_the_descriptor_and_lets_the_old_file_go(home: Home) -> None:
    """A thread about to write never holds a stale one; a free lock says: finished."""
    journal = JournalWriter(home, WRITER, rotate_bytes=3 * len(LINE))
    descriptor = journal._file.fd
    for _ in range(4):
        journal.write(LINE)

    first, second = home.journal_file(WRITER, 1), home.journal_file(WRITER, 2)
    assert journal._file.fd == descriptor
    assert not os.get_inheritable(descriptor)
    assert (first.read_bytes(), second.read_bytes()) == (LINE * 3, LINE)
    assert not file_locks.is_held(first)
    assert file_locks.is_held(second)
    journal.close()
    assert not file_locks.is_held(second)


def test_a_file_is_locked_before_it_can_be_seen(home: Home) -> None:
    """A reader never finds one that is unlocked and alive: it would take it for finished."""
    seen_free: list[Path] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            newest = home.journal_files()[-1:]
            seen_free.extend(
                path
                for _, generation, path in newest
                if not file_locks.is_held(path) and generation == home.journal_files()[-1][1]
            )

    journal = JournalWriter(home, WRITER, rotate_bytes=1)
    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(100):
        journal.write(LINE)
    stop.set()
    watcher.join()
    journal.close()

    assert seen_free == []


def test_above_the_total_bound_the_oldest_finished_ones_go_and_it_is_told(home: Home) -> None:
    """No collector for weeks. What another process still writes to is not touched."""
    alive = JournalWriter(home, "00000000000000bb")
    alive.write(b"x" * 500 + b"\n")
    os.utime(alive.path, (1, 1))
    journal = JournalWriter(home, WRITER, rotate_bytes=100, total_max=1_000)
    for _ in range(20):
        journal.write(b"y" * 99 + b"\n")

    losses = journal.take_losses()
    files = [(writer, generation) for writer, generation, _ in home.journal_files()]
    assert ("00000000000000bb", 1) in files
    assert [generation for writer, generation in files if writer == WRITER] == list(range(17, 22))
    assert losses == {Loss("bytes of old journals deleted: over the total bound"): 1600}
    assert journal.take_losses() == {}
    alive.close()
    journal.close()


@pytest.mark.parametrize(("count", "is_bounded"), [(100, False), (8000, True)])
def test_a_full_disk_recovers_and_drops_only_what_exceeds_the_bound(
    small_home: Home, capsys: pytest.CaptureFixture[str], count: int, is_bounded: bool
) -> None:
    """One warning to a person; losses are reported on their run once there is room again."""
    recorder = vestige.Recorder(small_home, crash_hooks=False)
    filler = small_home.root / "filler"
    run = recorder.run("r")
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(b"x" * 4096)
    for number in range(count):
        run.log.info("x" * 100, n=number)
    unwritten = recorder.faults["records dropped"]
    recorder._writer.self_reporter.report()  # The disk is full: the report waits.
    filler.unlink()

    run.log.info("there is room again")
    recorder.close()

    assert unwritten > 50
    assert capsys.readouterr().err.count("vestige:") == 1
    data = b"".join(path.read_bytes() for _, _, path in small_home.journal_files())
    records, malformed = parse_lines(data)
    logs = [record for record in records if isinstance(record, Log)]
    gaps = [log for log in logs if "gap" in log.attributes]
    assert malformed <= 1
    assert "there is room again" in {log.message for log in logs}
    dropped = sum(gap.attributes["count"] for gap in gaps)  # type: ignore[misc]
    assert dropped == count - sum(log.message == "x" * 100 for log in logs)
    assert (dropped > 0) == is_bounded
    assert {gap.attributes["gap"] for gap in gaps} <= {"records dropped: No space left on device"}
    assert {gap.run_id for gap in gaps} <= {run.run_id}


def test_a_disk_that_becomes_writable_gets_what_waited(small_home: Home) -> None:
    """Read-only from the start; `check`, which runs every second, finds it writable later."""
    small_home.root.parent.joinpath("x").touch()
    mount = ["mount", "-o"]
    subprocess.run([*mount, "remount,ro", str(small_home.root.parent)], check=True)
    journal = JournalWriter(small_home, WRITER)

    assert not journal.write(LINE)
    journal.check()
    assert not journal.write(LINE)
    assert journal.take_losses() == {}
    subprocess.run([*mount, "remount,rw", str(small_home.root.parent)], check=True)
    journal.check()
    assert journal.write(LINE)
    assert journal.take_losses() == {}
    assert journal.path.read_bytes() == LINE * 3
    journal.close()


def test_a_file_in_place_of_the_home_is_no_reason_to_raise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The warning says what is wrong, not merely that there is no file."""
    (tmp_path / "home").write_text("in the way")
    journal = JournalWriter(Home(tmp_path / "home"), WRITER)

    assert not journal.write(LINE)
    assert not journal.write(LINE)
    assert journal.dropped == 2
    assert capsys.readouterr().err.count("File exists") == 1
    (tmp_path / "home").unlink()
    journal.check()
    assert journal.write(LINE)
    journal.close()


def test_a_deleted_home_is_made_again(home: Home) -> None:
    """Its file is gone: the next check goes on in a new one."""
    journal = JournalWriter(home, WRITER)
    journal.write(LINE)
    shutil.rmtree(home.root)
    journal.write(LINE)

    journal.check()
    journal.write(LINE)
    journal.close()

    assert generations(home) == [2]
    assert journal.path.read_bytes() == LINE


def test_a_closed_descriptor_is_opened_again(home: Home) -> None:
    """A program that daemonizes closes everything it sees."""
    journal = JournalWriter(home, WRITER)
    os.close(journal._file.fd)

    assert journal.write(LINE)
    assert journal.take_losses() == {}
    journal.close()
    assert [path.read_bytes() for _, _, path in home.journal_files()] == [b"", LINE]


def test_a_descriptor_that_became_another_s_is_left_alone(home: Home, tmp_path: Path) -> None:
    """The number may since belong to a file of the program: ours is neither that nor over it."""
    journal = JournalWriter(home, WRITER, rotate_bytes=len(LINE))
    number = journal._file.fd
    theirs = tmp_path / "theirs"
    with theirs.open("wb") as file:
        os.dup2(file.fileno(), number)  # as closing ours and opening theirs would end
        journal.write(LINE)
        journal.write(LINE)
        journal.close()
        os.write(number, b"still theirs")
        os.close(number)

    assert theirs.read_bytes() == b"still theirs"
    assert [path.read_bytes() for _, _, path in home.journal_files()] == [b"", LINE, LINE, b""]


def test_programs_that_close_and_open_files_do_not_get_our_descriptor(home: Home) -> None:
    """It is out of the reach of what they close in bulk and of the lowest free number."""
    journal = JournalWriter(home, WRITER)

    assert journal._file.fd >= 256
    assert not os.get_inheritable(journal._file.fd)
    journal.close()


def test_a_line_after_the_end_is_dropped_without_a_word(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    """The interpreter drops objects after goodbye: nothing is wrong with the disk then."""
    journal = JournalWriter(home, WRITER)
    journal.close()

    assert not journal.write(b"late\n")
    assert journal.dropped == 1
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("fsync", ["none", "periodic", "record"])
def test_every_fsync_mode_writes(home: Home, fsync: str) -> None:
    """They differ in what a power cut costs, not in what a reader sees."""
    journal = JournalWriter(home, WRITER, fsync=fsync)  # type: ignore[arg-type]

    assert journal.write(LINE)
    journal.check()
    assert journal.path.read_bytes() == LINE
    journal.close()


def test_a_journal_whose_thread_cannot_start_is_closed_all_the_same(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system may allow no more threads: the lines are written, and closing says nothing."""

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    journal = JournalWriter(home, WRITER)
    journal.write(b"{}\n")
    path = journal.path
    journal.close()

    assert path.read_bytes() == b"{}\n"
    assert not file_locks.is_held(path)
