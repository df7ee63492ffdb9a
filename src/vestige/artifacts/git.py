"""Which code was tested: commit, branch, and whether something differs from it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from vestige.formats.artifacts.file_structs import Git
from vestige.formats.artifacts.write import NO_GIT

_TIMEOUT_S = 5.0
"""A huge work tree may take longer; then the suite does not wait."""


def read_git(folder: Path, without: Path | None = None) -> Git:
    """Read git facts of a folder's work tree. `without`: the folder of bundles, which are no
    change."""
    top = _top(folder)
    if top is None and "GIT_DIR" not in os.environ:
        return NO_GIT
    command = ["git", "-C", str(folder), "status", "--porcelain=v2", "--branch"]
    if without is not None:
        inside = os.path.relpath(without.resolve(), top) if top else str(without.resolve())
        command += ["--", ":/", f":(exclude,top){inside}"]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=_TIMEOUT_S,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return NO_GIT
    if done.returncode:
        return NO_GIT if without is None else read_git(folder)
    return _parse(done.stdout.decode(errors="replace"))


def _parse(text: str) -> Git:
    facts = {"oid": "unknown", "head": "unknown"}
    dirty = False
    for line in text.splitlines():
        if line.startswith("# branch."):
            name, _, value = line[9:].partition(" ")
            facts[name] = value
        elif not line.startswith("#"):
            dirty = True
    return Git(facts["oid"], facts["head"], dirty)


def _top(folder: Path) -> Path | None:
    """Return the root of the work tree that contains a folder."""
    folder = folder.resolve()
    return next((top for top in (folder, *folder.parents) if (top / ".git").exists()), None)


def differences(then: Git, now: Git) -> list[str]:
    """Return the differences that a replay should mention. Unknown facts are not compared."""
    if NO_GIT.commit in (then.commit, now.commit):
        return []
    found = []
    if then.commit != now.commit:
        found.append(f"the suite ran at commit {then.commit[:12]}, here is {now.commit[:12]}")
    if then.dirty:
        found.append("the suite ran with uncommitted changes, which are not in the bundle")
    if now.dirty:
        found.append("there are uncommitted changes here")
    return found if then != now or then.dirty else []
