"""A body too long for a line goes to a file, complete or truncated with a marker."""

from __future__ import annotations

import hashlib
import tracemalloc
from pathlib import Path

import pytest

import vestige
from support.programs import RunProgram
from vestige.home import Home
from vestige.journal.spill import write_spill
from vestige.limits import BODY_INLINE_MAX, BODY_MAX, MIB
from vestige.record.codec import parse_lines
from vestige.record.types import BodyInfo, SpanOpen


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_body_within_the_bound_is_kept_exactly(tmp_path: Path) -> None:
    """Its size and hash are those of the file."""
    info = write_spill(tmp_path / "b", [b"one ", b"", b"two"], body_max=7)

    assert (tmp_path / "b").read_bytes() == b"one two"
    assert info == BodyInfo(spilled_bytes=7, sha256=sha256(b"one two"))


def test_a_body_beyond_it_is_cut_with_a_marker(tmp_path: Path) -> None:
    """The marker and the record tell the original's size and hash."""
    info = write_spill(tmp_path / "b", [b"0123", b"4567", b"89"], body_max=6)

    data = (tmp_path / "b").read_bytes()
    original = sha256(b"0123456789")
    assert data == f"012345\n…[cut by vestige: 10 bytes, sha256 {original}]".encode()
    assert (info.spilled_bytes, info.sha256) == (len(data), sha256(data))
    assert (info.original_bytes, info.original_sha256) == (10, original)


@pytest.mark.parametrize("body_max", range(1, 9))
def test_a_cut_never_falls_inside_a_character(tmp_path: Path, body_max: int) -> None:
    """Nor does what follows fill the room that a whole character could not."""
    text = "aé🦊z"

    write_spill(tmp_path / "b", [text.encode()], body_max=body_max)

    beginning = (tmp_path / "b").read_bytes().decode().partition("\n…[cut")[0]
    assert text.startswith(beginning)
    assert len(beginning.encode()) <= body_max


def test_a_file_appears_only_when_it_is_whole(tmp_path: Path) -> None:
    """A failure on the way leaves nothing behind."""

    def steps() -> object:
        yield b"first"
        assert not (tmp_path / "b").exists()
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        write_spill(tmp_path / "b", steps())  # type: ignore[arg-type]

    assert list(tmp_path.iterdir()) == []


def opened(home: Home) -> SpanOpen:
    data = b"".join(path.read_bytes() for _, _, path in home.journal_files())
    (found,) = [
        record
        for record in parse_lines(data)[0]
        if isinstance(record, SpanOpen) and record.component != "vestige"
    ]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        "é" * (BODY_INLINE_MAX + 1),
        bytes(range(256)) * (BODY_INLINE_MAX // 256 + 1),
        "\ud800" + "x" * BODY_INLINE_MAX,
        ["item"] * BODY_INLINE_MAX,
    ],
    ids=["text", "bytes", "surrogate", "json"],
)
def test_a_recorder_spills_what_is_too_long_for_a_line(home: Home, body: object) -> None:
    """The line refers to it by the record's own identity; the bytes are the caller's."""
    recorder = vestige.Recorder(home)

    recorder.run("r", body=body)

    record = opened(home)
    data = home.spilled_body(record.writer, record.seq).read_bytes()
    assert record.body is None
    assert record.body_info == BodyInfo(spilled_bytes=len(data), sha256=sha256(data))
    if isinstance(body, bytes):
        assert data == body
    elif isinstance(body, str):
        assert data.decode() == body.replace("\ud800", "\\ud800")
    else:
        assert data.startswith(b'["item","item",')


def test_a_body_is_inline_up_to_the_bound(home: Home) -> None:
    """One line then says it all."""
    recorder = vestige.Recorder(home)

    recorder.run("r", body="x" * BODY_INLINE_MAX)

    record = opened(home)
    assert record.body == "x" * BODY_INLINE_MAX
    assert list(home.bodies.iterdir()) == []


def test_a_body_that_cannot_be_spilled_is_told_as_lost(tmp_path: Path) -> None:
    """The record itself still arrives."""
    home = Home(tmp_path / "home")
    recorder = vestige.Recorder(home)
    home.bodies.rmdir()

    recorder.run("r", body="x" * 300_000)

    assert opened(home).body == "<body lost: FileNotFoundError>"
    assert recorder.faults == {"body lost: FileNotFoundError": 1}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["text", "bytes"])
def test_memory_stays_bounded_beyond_the_payload(home: Home, kind: str) -> None:
    """A body of twice the bound costs less than 1.3 times the bound on top of itself."""
    text = "lorem ipsum dolor " * (2 * BODY_MAX // 18)
    body: str | bytes = text if kind == "text" else text.encode()
    recorder = vestige.Recorder(home)
    recorder.run("warm", body="x" * 300_000)

    tracemalloc.start()
    try:
        recorder.run("r", body=body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 1.3 * BODY_MAX
    assert peak < 8 * MIB, "in fact it stays near one step"
    assert max(path.stat().st_size for path in home.bodies.iterdir()) > BODY_MAX


def test_a_body_that_the_disk_does_not_hold_is_said_to_be_lost(run_program: RunProgram) -> None:
    """A write may take a part of what it was given, and say so only by a number."""
    done = run_program(
        """
        import os, resource, signal, vestige
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        recorder = vestige.Recorder()
        resource.setrlimit(resource.RLIMIT_FSIZE, (299_990, resource.RLIM_INFINITY))
        recorder.run("r", body="b" * 300_000).end()
        print(recorder.faults, os.listdir(recorder.home.bodies))
        """
    )

    assert done.stdout == "{'body lost: OSError': 1} []\n"
