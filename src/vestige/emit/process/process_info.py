"""Describe this process for its `process` span: argv, interpreter, platform, git."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from vestige._runtime.syscalls import system
from vestige.record.coercion import clean_text
from vestige.record.json_render import json_text
from vestige.record.types import Attributes

_ARGV_MAX = 8_000


def describe_process(redact_argv: Callable[[Sequence[str]], list[str]]) -> Attributes:
    """Return the attributes of the `process` span. Reads small files and starts no process."""
    attributes: Attributes = {
        "pid": system.getpid(),
        "ppid": system.getppid(),
        "argv": json_text(redact_argv(_argv()), _ARGV_MAX),
        "cwd": _cwd(),
        "python": sys.version.split()[0],
        "platform": sys.platform,
        "executable": sys.executable or "",
    }
    with suppress(Exception):  # The program may have replaced `os.uname`.
        attributes["hostname"] = clean_text(os.uname().nodename)
    supervisor = os.environ.get("VESTIGE_SUPERVISOR")
    if supervisor:
        attributes["supervisor"] = supervisor
    with suppress(Exception):  # A test may have replaced the file system.
        attributes |= _git(Path(str(attributes["cwd"])))
    return attributes


def process_name() -> str:
    """Return the name of the script or module, or of the interpreter."""
    argv = _argv()
    first = argv[0] if argv else ""
    if first in ("", "-c", "-m"):
        return "python"
    path = Path(first)
    return path.parent.name if path.name == "__main__.py" else path.name


def rss_bytes() -> int | None:
    """Return the resident memory: current on Linux, peak on other systems."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        pass
    try:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    except (ImportError, OSError):
        return None


def _argv() -> list[str]:
    # An interpreter that is still starting (`vestige run` gets in that early) has no argv yet.
    return [clean_text(str(word)) for word in getattr(sys, "argv", None) or sys.orig_argv[1:]]


def _cwd() -> str:
    try:
        return clean_text(os.getcwd())
    except Exception:  # noqa: BLE001  # removed, or replaced by a test
        return ""


def _git(folder: Path) -> Attributes:
    """Read the commit and branch from .git: the git command would be a new process."""
    for candidate in (folder, *folder.parents):
        git = candidate / ".git"
        try:
            if git.is_file():  # a worktree or submodule points elsewhere
                target = git.read_text().partition("gitdir:")[2].strip()
                git = (candidate / target).resolve()
            head = (git / "HEAD").read_text().strip()
        except (OSError, UnicodeDecodeError):
            continue
        if not head.startswith("ref: "):
            return {"git.commit": head[:64]}
        ref = head.removeprefix("ref: ")
        found: Attributes = {"git.branch": ref.removeprefix("refs/heads/")[:200]}
        commit = _resolve_ref(git, ref)
        if commit:
            found["git.commit"] = commit
        return found
    return {}


def _resolve_ref(git: Path, ref: str) -> str | None:
    common = git
    try:
        common = (git / (git / "commondir").read_text().strip()).resolve()
    except OSError:
        pass
    try:
        return (common / ref).read_text().strip()[:64]
    except (OSError, UnicodeDecodeError, ValueError):
        pass
    try:
        for line in (common / "packed-refs").read_text().splitlines():
            if line.endswith(f" {ref}"):
                return line.split()[0][:64]
    except (OSError, UnicodeDecodeError):
        pass
    return None
