"""The real package, agentdbg 0.3.0, in an environment of its own under build/.

Its pins are old, so it never shares ours. Made once and kept; a lock lets several test processes
wait for the one that makes it.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

VERSION = "0.3.0"
ROOT = Path(__file__).parent.parent / "build" / f"agentdbg-{VERSION}"


def real_python() -> Path:
    """An interpreter that has the real package."""
    ROOT.parent.mkdir(exist_ok=True)
    python = ROOT / "bin" / "python"
    done = ROOT / "installed"
    with open(ROOT.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            subprocess.run([sys.executable, "-m", "venv", str(ROOT)], check=True)
            subprocess.run(
                [str(python), "-m", "pip", "install", "-q", f"agentdbg=={VERSION}"], check=True
            )
            done.touch()
    return python


def real_environment(data_dir: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for a process of the real package: nothing of ours in it."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("VESTIGE_", "AGENTDBG_", "PYTHON"))
    }
    return {**kept, "AGENTDBG_DATA_DIR": str(data_dir), "PYTHONWARNINGS": "ignore", **(more or {})}


def real_command(data_dir: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`agentdbg ARGUMENTS`, as its user would type it."""
    return subprocess.run(
        [str(real_python().parent / "agentdbg"), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=real_environment(data_dir),
    )
