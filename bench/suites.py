"""Test suites: writing a bundle beside walk + sha256, and what the pytest plugin costs beside its
peers.

    python -m bench suites

Files are of 4 KB, in folders of a hundred. The least work for what a suite has left in its
folder is to walk it and hash it; for what is attached by path, to copy it as well. Both of ours
include the validation at the end. Pytest is timed as CPU of whole processes, in turns: the mean
of the quicker half, for what else runs on the machine only adds, and the quickest one of few is
as good as a throw of dice.
"""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import place
from bench.figures import Figure, at_most_floor, less_than_peer

FILES = 10_000
ATTACHED = 2_000
"""Of them: each is copied twice in a round, which is slow on many machines."""
FILE_BYTES = 4096
TESTS = 2_000
ROUNDS = 3
SESSIONS = 20
"""Of those with a target: what is compared is less than how much one session differs from the next.
"""

_FILE = "test_many.py"
"""Named to pytest: else it walks through what the sessions before have left, and those without us
longer.
"""
_TESTS = f"""
import pytest

@pytest.mark.parametrize("number", range({TESTS}))
def test_number(number):
    assert number >= 0
"""


def measure() -> Sequence[Figure]:
    # First: for a minute after tens of thousands of files are gone, ext4 looks so long for a place
    # for a new one that the few files of a bundle cost as much as the tests.
    overhead = _overhead()
    return [*_writing(), *overhead]


# --- writing -----------------------------------------------------------------------------------


def _writing() -> list[Figure]:
    from vestige.artifacts import SuiteRecorder

    left: list[tuple[float, float]] = []
    attached: list[tuple[float, float]] = []
    with place.folder() as folder:
        source = folder / "source"
        _make_files(source)
        paths = sorted(path for path in source.rglob("*") if path.is_file())[:ATTACHED]
        for turn in range(ROUNDS):
            floor = _timed(lambda: _walk_and_hash(source))
            suite = SuiteRecorder(folder / f"left-{turn}", "bench", environment={})
            shutil.copytree(source, suite.path / "files")
            left.append((_timed(suite.finish), floor))

            copy = folder / f"copy-{turn}"
            floor = _timed(lambda copy=copy: _copy_and_hash(paths, source, copy))  # type: ignore[misc]
            ours = _timed(lambda turn=turn: _attach(paths, folder / f"attached-{turn}"))  # type: ignore[misc]
            attached.append((ours, floor))
            # Nothing is removed before the end: for a minute ext4 does not use again what a deleted
            # file had, and looks for other places so long that a new file takes six times the CPU.
    return [
        _beside(f"bundle of {FILES:,} files that a suite left, validated", left),
        _beside(f"bundle of {ATTACHED:,} files attached by path, masked, validated", attached),
    ]


def _beside(name: str, pairs: list[tuple[float, float]]) -> Figure:
    ours = min(pair[0] for pair in pairs)
    floor = min(pair[1] for pair in pairs)
    return Figure(name, "s", ours, floor, goal=at_most_floor(2))


def _attach(paths: Sequence[Path], root: Path) -> None:
    from vestige.artifacts import SuiteRecorder

    with SuiteRecorder(root, "bench", environment={}) as suite, suite.case("all") as case:
        for path in paths:
            case.attach(path)
        case.passed()


def _make_files(folder: Path) -> None:
    text = ("a line of a log that says what happened to order 17 at the till\n" * 64).encode()
    for number in range(FILES):
        path = folder / f"{number // 100:03}" / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"%08d " % number + text[: FILE_BYTES - 9])


def _walk_and_hash(folder: Path) -> list[tuple[str, str]]:
    found = []
    for root, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(root, name)
            with open(path, "rb") as file:
                found.append((path, hashlib.sha256(file.read()).hexdigest()))
    return found


def _copy_and_hash(paths: Sequence[Path], source: Path, target: Path) -> None:
    for path in paths:
        place_there = target / path.relative_to(source)
        os.makedirs(place_there.parent, exist_ok=True)
        shutil.copyfile(path, place_there)
    _walk_and_hash(target)


def _timed(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


# --- pytest ------------------------------------------------------------------------------------


def _overhead() -> list[Figure]:
    with place.folder() as folder:
        (folder / _FILE).write_text(_TESTS)
        (folder / "pytest.ini").write_text("[pytest]\n")
        arguments = {
            "bare": [],
            "ours": ["--vestige-bundle", "art"],
            "ours, no run": ["--vestige-bundle", "art", "-o", "vestige_record=false"],
            "junitxml": ["--junitxml", "junit.xml"],
            "reportlog": ["-p", "pytest_reportlog.plugin", "--report-log", "log.jsonl"],
            "allure": ["-p", "allure_pytest.plugin", "--alluredir", "allure"],
        }
        seconds: dict[str, list[float]] = {name: [] for name in arguments}
        for turn in range(SESSIONS):
            for name, more in arguments.items():
                if turn >= ROUNDS and name in ("reportlog", "allure"):
                    continue  # they have no target, and take their time
                spent = _pytest(folder, more)
                if spent is not None:
                    seconds[name].append(spent)
    spent = {name: _quicker_half(found) if found else None for name, found in seconds.items()}
    what = f"{TESTS:,} trivial tests in pytest"
    return [
        Figure(
            f"{what}; peer junitxml",
            "s CPU",
            spent["ours"],
            spent["bare"],
            spent["junitxml"],
            less_than_peer(1),
        ),
        Figure(
            f"{what}, without the run; peer junitxml",
            "s CPU",
            spent["ours, no run"],
            spent["bare"],
            spent["junitxml"],
            less_than_peer(1),
        ),
        Figure(
            f"{what}; peer pytest-reportlog",
            "s CPU",
            spent["ours"],
            spent["bare"],
            spent["reportlog"],
        ),
        Figure(
            f"{what}; peer allure-pytest", "s CPU", spent["ours"], spent["bare"], spent["allure"]
        ),
    ]


def _quicker_half(seconds: Sequence[float]) -> float:
    return statistics.mean(sorted(seconds)[: (len(seconds) + 1) // 2])


def _pytest(folder: Path, arguments: Sequence[str]) -> float | None:
    """CPU seconds of a session; None: the peer is not installed."""
    environment = place.environment() | {
        "VESTIGE_HOME": str(folder / "home"),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "vestige_pytest",
            *arguments,
            _FILE,
        ],
        cwd=folder,
        env=environment,
        capture_output=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        return None
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
