"""Artifact bundles: what validating 10,000 files costs beside walking and hashing them.

The floor is a bare walk and a sha256 of every file, written by hand; both take turns in one run.
"""

from __future__ import annotations

import hashlib
import os
import resource
from collections.abc import Callable
from pathlib import Path

from bench import place
from bench.figures import Figure, Goal, at_most_floor
from vestige.formats.artifacts.read import DirectoryTree
from vestige.formats.artifacts.validate import check_bundle
from vestige.formats.artifacts.write import SuiteFacts, TraceFile, finish_bundle

FILES = 10_000
BYTES = 4_096
ROUNDS = 5


def measure() -> list[Figure]:
    with place.folder() as folder:
        root, facts = make(folder)

        def write() -> None:
            finish_bundle(root, facts)

        def check() -> None:
            count, problems = check_bundle(DirectoryTree(root))
            assert count > FILES and not problems

        write()
        ours, wrote, floor = in_turns(check, write, lambda: walk(root))
    size_mb = FILES * BYTES / 1e6
    return [
        Figure("validate 10,000 files, hashed, CPU", "s", ours, floor, goal=at_most_floor(2)),
        Figure("the same per 40 MB, CPU", "s", ours * 40 / size_mb, goal=Goal("below", 1)),
        Figure("finish a bundle of 10,000 files, CPU", "s", wrote, floor, goal=at_most_floor(2)),
    ]


def make(folder: Path) -> tuple[Path, SuiteFacts]:
    """A suite of a thousand cases with ten files each: texts, logs, some JSON."""
    root = folder / "bench" / "20260210_170000"
    root.mkdir(parents=True)
    trace = TraceFile(root, "bench", "20260210_170000")
    ts = "2026-02-10T17:00:00Z"
    trace.write("suite_start", ts=ts, tool="bench")
    for case in range(FILES // 10):
        name = f"case_{case}"
        trace.write("case_start", ts=ts, case=name)
        (root / name).mkdir()
        for number in range(10):
            suffix = ("txt", "bin", "log", "json", "txt")[number % 5]
            text = f'{{"case": {case}, "number": {number}, "text": "'
            data = (text + "x" * (BYTES - len(text) - 2) + '"}').encode()
            (root / name / f"{number}.{suffix}").write_bytes(data)
        trace.write("assert_pass", ts=ts, case=name)
        trace.write("case_end", ts=ts, case=name, status="pass")
    trace.write("suite_end", ts=ts)
    trace.close()
    start = 1_770_742_800 * 10**9
    facts = SuiteFacts(
        suite="bench",
        timestamp="20260210_170000",
        started_ns=start,
        ended_ns=start,
        generated_ns=start,
        command="true",
    )
    return root, facts


def walk(root: Path) -> None:
    """The floor: every file met, read and hashed once."""
    for folder, _, names in os.walk(root):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                hashlib.sha256(file.read()).hexdigest()


def in_turns(*functions: Callable[[], object]) -> list[float]:
    """CPU seconds of each, the lowest of several rounds."""
    best = [float("inf")] * len(functions)
    for _ in range(ROUNDS):
        for number, function in enumerate(functions):
            begun = _cpu_s()
            function()
            best[number] = min(best[number], _cpu_s() - begun)
    return best


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
