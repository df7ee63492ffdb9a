"""Where benchmarks run: folders on a real disk, children of this Python, facts of the machine."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Not /tmp, which is memory on many machines.
DISK = "/var/tmp" if os.access("/var/tmp", os.W_OK) else None


@contextmanager
def folder() -> Iterator[Path]:
    """An empty folder on disk, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="vestige-bench-", dir=DISK) as path:
        yield Path(path)


def environment() -> dict[str, str]:
    """For a child: our sources and these modules; nothing of a recording that we may be in."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("VESTIGE_")}
    # An installed package has its bytecode; a checkout may not, and compiling is not importing.
    inherited.pop("PYTHONDONTWRITEBYTECODE", None)
    return inherited | {
        "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
        "PYTHONPYCACHEPREFIX": str(Path(DISK or tempfile.gettempdir()) / "vestige-bench-bytecode"),
    }


def run(arguments: Sequence[str], python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    """A child Python to its end, whatever that is."""
    return subprocess.run(
        [python, *arguments],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def output(arguments: Sequence[str], python: str = sys.executable) -> str:
    """What a child printed; an error if it failed."""
    done = run(arguments, python)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: exit status {done.returncode}\n{done.stderr}")
    return done.stdout


def memory_mb(what: str, pid: int | str = "self") -> float | None:
    """`VmRSS` (now) or `VmHWM` (the peak) of a process; None where there is no /proc, or it is
    gone.

    Not ru_maxrss: that one remembers the parent from before the exec.
    """
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(what):
                return int(line.split()[1]) * 1024 / 1e6
    except OSError:
        pass
    return None


def machine() -> str:
    date = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), {platform.system()}, "
        f"{platform.python_implementation()} {platform.python_version()}, {date} UTC"
    )
