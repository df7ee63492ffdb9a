"""A command that reads a file into a folder of its own, killed: the folder goes with a later
one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from vestige.home import Home
from vestige.transfer.open_any_path import open_path

SNAPSHOTS = Path(__file__).parent.parent / "data" / "wink" / "snapshots.jsonl"
OPENED = f"""
import sys
from vestige.transfer.open_any_path import open_path
with open_path({str(SNAPSHOTS)!r}):
    print("opened", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def open_elsewhere(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], subprocess.Popen[str]]:
    """Another process that has the file open, in a folder for temporary ones that nobody else
    uses.
    """
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)

    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", OPENED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "opened\n"
        return process

    return start


def test_what_a_killed_process_left_is_removed_and_what_another_uses_is_not(
    open_elsewhere: Callable[[], subprocess.Popen[str]], tmp_path: Path
) -> None:
    """A killed process cannot tidy up; a lock shows which one is alive, however old it is."""
    temporary = tmp_path / "temporary"
    killed, alive = open_elsewhere(), open_elsewhere()
    killed.kill()
    killed.communicate()
    (temporary / "vestige-of-another").mkdir()
    before = len(list(temporary.iterdir()))
    with open_path(SNAPSHOTS):
        fresh = len(list(temporary.iterdir()))
    for lock in temporary.glob("vestige-*/in-use"):
        os.utime(lock, (1, 1))
    with open_path(SNAPSHOTS):
        pass
    left = len(list(temporary.iterdir()))
    alive.communicate("")

    assert (before, fresh, left) == (3, 4, 2)
    assert alive.returncode == 0
    assert [path.name for path in temporary.iterdir()] == ["vestige-of-another"]
