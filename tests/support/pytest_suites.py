"""Small pytest projects that run in their own processes, and the bundles they leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vestige.formats.artifacts.read import DirectoryTree
from vestige.formats.artifacts.validate import check_bundle
from vestige.formats.artifacts.validation_rules import PROFILES, Profile


def make_project(folder: Path, source: str, ini: str = "") -> Path:
    """A folder with one file of tests."""
    folder.mkdir(exist_ok=True)
    (folder / "test_it.py").write_text(textwrap.dedent(source), encoding="utf-8")
    (folder / "pytest.ini").write_text(f"[pytest]\n{textwrap.dedent(ini)}", encoding="utf-8")
    return folder


def environment_for(folder: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("VESTIGE_", "PYTEST_", "GITHUB_"))
    }
    # Loading every installed plugin takes a second, so only those that a test needs are loaded.
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return {**variables, **alone, "VESTIGE_HOME": str(folder.parent / "home"), **(more or {})}


def pytest_command(*arguments: str) -> list[str]:
    # By name: the entry point is only there where vestige is installed as a package.
    plugins = [
        f"-p{name}" for name in ("vestige_pytest", "xdist", "rerunfailures", "no:cacheprovider")
    ]
    return [sys.executable, "-m", "pytest", *plugins, *arguments]


def run_pytest(
    folder: Path, *arguments: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        pytest_command(*arguments),
        cwd=folder,
        env=environment_for(folder, env),
        capture_output=True,
        text=True,
        timeout=120,
    )


def vestige(
    folder: Path, *arguments: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vestige", *arguments],
        cwd=folder,
        env=environment_for(folder, env),
        capture_output=True,
        text=True,
        timeout=120,
    )


def only_bundle(root: Path) -> Path:
    """The one bundle of a tree."""
    found = [path.parent for path in root.glob("*/*/trace")]

    assert len(found) == 1, found
    return found[0]


def problems(bundle: Path, profile: Profile) -> list[str]:
    return [str(problem) for problem in check_bundle(DirectoryTree(bundle), profile)[1]]


def assert_valid(bundle: Path) -> None:
    """By the rules of every era, and by the strict ones."""
    for profile in PROFILES:
        assert problems(bundle, profile) == [], profile


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def read_events(bundle: Path) -> list[dict[str, Any]]:
    text = (bundle / "trace/events.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def statuses(bundle: Path) -> dict[str, str]:
    """Short name of a case to its status."""
    cases = read_json(bundle / "manifest.json")["cases"]
    return {case["name"].rpartition("::")[2]: case["status"] for case in cases}


def files_of(bundle: Path, case: str) -> dict[str, str]:
    """Name to text of what a case has attached."""
    for entry in read_json(bundle / "manifest.json")["cases"]:
        if entry["name"].rpartition("::")[2] == case:
            return {
                path.rpartition("/")[2]: (bundle / path).read_text(errors="replace")
                for path in entry["artifacts"]
            }
    raise AssertionError(f"no case {case}")


def bytes_of(folder: Path) -> bytes:
    """All that is in a folder, names included."""
    parts = []
    for path in sorted(folder.rglob("*")):
        parts.append(str(path).encode(errors="surrogateescape"))
        if path.is_file():
            parts.append(path.read_bytes())
    return b"\n".join(parts)
