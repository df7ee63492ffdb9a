"""A lock shows every process whether its holder is alive."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from vestige._runtime import file_locks


def test_a_lock_is_held_until_its_file_is_closed(tmp_path: Path) -> None:
    """A reader in the same process gets the same answer."""
    path = tmp_path / "file"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)

    assert not file_locks.is_held(path)
    assert file_locks.try_lock(fd)
    assert file_locks.is_held(path)
    os.close(fd)
    assert not file_locks.is_held(path)


def test_only_one_can_hold_it(tmp_path: Path) -> None:
    """The second gets an answer at once, and does not wait."""
    path = tmp_path / "file"
    first = os.open(path, os.O_RDWR | os.O_CREAT)
    second = os.open(path, os.O_RDWR)

    assert file_locks.try_lock(first)
    assert not file_locks.try_lock(second)
    os.close(first)
    assert file_locks.try_lock(second)
    os.close(second)


def test_a_file_that_is_gone_is_held_by_nobody(tmp_path: Path) -> None:
    """Asking creates nothing."""
    assert not file_locks.is_held(tmp_path / "gone")
    assert not (tmp_path / "gone").exists()


def test_a_killed_process_lets_go(tmp_path: Path) -> None:
    """Whatever kills it: the kernel does it."""
    path = tmp_path / "file"
    source = (
        "import os, sys, time; from vestige._runtime import file_locks as locks\n"
        "assert locks.try_lock(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT))\n"
        "print('held', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", source, str(path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()

    assert file_locks.is_held(path)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert not file_locks.is_held(path)
    child.stdout.close()


def test_a_file_that_cannot_be_asked_is_not_taken_for_free(tmp_path: Path) -> None:
    """A process with too many open files must not take a living journal for a finished one."""
    path = tmp_path / "file"
    path.touch()
    program = """
import os, resource, sys
from pathlib import Path
from vestige._runtime import file_locks as locks
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
try:
    while True:
        taken.append(os.dup(0))
except OSError:
    held = locks.is_held(Path(sys.argv[1]))
os.closerange(3, 64)
print(held)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=120
    )

    assert done.stdout == "True\n"
