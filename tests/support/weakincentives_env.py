"""The real `weakincentives`, in an environment of its own: it needs a younger Python than we do.

python = find_python()          # None: there is no Python 3.12 or later on this machine
"""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".venv-weakincentives"
PACKAGES = (
    "weakincentives[wink]==0.27.0",
    "msgspec>=0.19",
    "click>=8.1",
    "hyperscan>=0.8",
    "backports.zstd>=1.0",
)
"""And what vestige itself needs to capture."""


def find_python() -> str | None:
    """The Python of that environment, made when first asked for."""
    python = ENVIRONMENT / "bin" / "python"
    with open(ROOT / "pyproject.toml") as lock:
        # Two test processes may ask at once.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _works(str(python), "import weakincentives.cli.wink, msgspec, hyperscan, click"):
            return str(python)
        base = next(_candidates(), None)
        if base is None:
            return None
        make = [base, "-m", "venv", "--clear", str(ENVIRONMENT)]
        install = [str(python), "-m", "pip", "install", "--quiet", *PACKAGES]
        for command in (make, install):
            subprocess.run(command, check=True, capture_output=True, timeout=300)
    return str(python)


def _candidates() -> Iterator[str]:
    names = ("python3.14", "python3.13", "python3.12")
    found = [path for name in names if (path := shutil.which(name)) is not None]
    for name in names:  # a pyenv's shim works only for the version that is chosen
        found += sorted(glob.glob(os.path.expanduser(f"~/.pyenv/versions/*/bin/{name}")))
    if uv := shutil.which("uv"):
        command = [uv, "python", "find", ">=3.12"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found += done.stdout.split()
    for path in found:
        if _works(path, "import sys, venv; assert sys.version_info >= (3, 12)"):
            yield path


def _works(python: str, code: str) -> bool:
    try:
        return (
            subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0
        )
    except OSError:
        return False
