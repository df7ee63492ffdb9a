"""A process killed during an export leaves nothing, or what the next export removes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vestige.formats.atomic_file import create_file, replace_file

WRITER = """
import os, sys
from pathlib import Path
if sys.argv[2] == "named":
    del os.O_TMPFILE          # as on systems that cannot open files without a name
from vestige.formats.atomic_file import create_file, replace_file
with {"create": create_file, "replace": replace_file}[sys.argv[3]](Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    print("written", flush=True)
    sys.stdin.read()
"""
WRITE = {"create": create_file, "replace": replace_file}


def start_writer(path: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


@pytest.mark.skipif(sys.platform != "linux", reason="files without a name")
@pytest.mark.parametrize("function", WRITE)
def test_a_killed_writer_leaves_nothing(tmp_path: Path, function: str) -> None:
    kill(start_writer(tmp_path / "r7.html", "unnamed", function))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("function", WRITE)
def test_the_next_writer_removes_what_a_killed_one_left_and_nothing_else(
    tmp_path: Path, function: str
) -> None:
    """The files of a writer that is still alive, and of other targets, stay."""
    path = tmp_path / "r7.html"
    other = tmp_path / ".r7.html.notes.part"
    other.write_text("of the user")
    killed, alive = (start_writer(path, "named", function) for _ in range(2))
    kill(killed)
    before = set(tmp_path.iterdir())
    with WRITE[function](path) as file:
        file.write(b"whole")
    after = set(tmp_path.iterdir())
    kill(alive)

    assert path.read_bytes() == b"whole"
    assert len(before) == 3 and other in after
    assert len(after - {path, other}) == 1
    assert {each.stat().st_mode & 0o777 for each in after - {other}} == {0o600}
