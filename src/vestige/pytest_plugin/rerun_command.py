"""Arguments that start a pytest session again, without those that would change the replay."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

import pytest

from vestige.artifacts.replay_command import Replay

# Options that select tests, stop early, start workers or write reports.
_DROPPED = frozenset(
    (
        "-x",
        "--exitfirst",
        "--lf",
        "--last-failed",
        "--ff",
        "--failed-first",
        "--nf",
        "--new-first",
        "--sw",
        "--stepwise",
        "--sw-skip",
        "--stepwise-skip",
        "--sw-reset",
        "--stepwise-reset",
        "-f",
        "--looponfail",
    )
)
_DROPPED_WITH_VALUE = frozenset(
    (
        "-n",
        "--numprocesses",
        "--maxprocesses",
        "--max-worker-restart",
        "--dist",
        "--tx",
        "--maxfail",
        "--vestige-bundle",
        "--vestige-suite",
        "--junitxml",
        "--junit-xml",
        "--report-log",
        "--alluredir",
        "--randomly-seed",
    )
)

_TOGETHER = re.compile(r"-[fqsvxl]+")
_WORKERS = re.compile(r"-n(\d+|auto|logical)")


def replay_of(config: pytest.Config) -> Replay:
    """The command of this session, ready for tests to be named."""
    directory = os.fspath(config.invocation_params.dir)
    tests = [str(word) for word in config.getoption("file_or_dir") or ()]
    options = kept_options(list(map(str, config.invocation_params.args)), tests)
    seed = config.getoption("randomly_seed", None)
    if isinstance(seed, int):
        # The same numbers for each test, and the order that the names are given in.
        options += [f"--randomly-seed={seed}", "--randomly-dont-reorganize"]
    prefix = os.path.relpath(config.rootpath, directory).replace(os.sep, "/")
    return Replay(
        argv=[*_program(), *options],
        cwd=directory,
        tests=tests,
        by_case=True,
        prefix="" if prefix == "." else f"{prefix}/",
    )


def seed_of(config: pytest.Config) -> int:
    """The seed of pytest-randomly; 0: nothing was seeded."""
    seed = config.getoption("randomly_seed", None)
    return seed if isinstance(seed, int) else 0


def kept_options(arguments: Sequence[str], tests: Sequence[str]) -> list[str]:
    """Return the arguments without test names and without options that a replay must not repeat."""
    words = list(arguments)
    for test in reversed(tests):
        for at in range(
            len(words) - 1, -1, -1
        ):  # the last one: an option's value may look the same
            if words[at] == test:
                del words[at]
                break
    remaining: list[str] = []
    skip = False
    for word in map(_without_stops, words):
        name = word.partition("=")[0]
        if skip:
            skip = False
        elif name in _DROPPED_WITH_VALUE:
            skip = "=" not in word
        elif word not in _DROPPED and not _WORKERS.fullmatch(word):
            remaining.append(word)
    return remaining


def _without_stops(word: str) -> str:
    """`-xvs` as `-vs`: short options without a value may be written together."""
    if len(word) == 2 or _TOGETHER.fullmatch(word) is None:
        return word
    remaining = word.replace("x", "").replace("f", "")
    return remaining if remaining != "-" else "-x"


def _program() -> list[str]:
    script = sys.argv[0] if sys.argv else ""
    if os.path.basename(script) in ("pytest", "py.test") and os.path.isabs(script):
        return [sys.executable, script]
    return [sys.executable, "-m", "pytest"]
