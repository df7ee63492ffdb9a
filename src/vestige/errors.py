"""Every exception that Vestige raises, in one tree.

    VestigeError                        exit code 1
    ├── UsageError (ValueError)         2   an argument or setting makes no sense
    │   └── SettingError                2   a VESTIGE_* variable or config.toml line
    ├── NotFoundError (LookupError)     2   no such run, span, body, path
    │   └── AmbiguousIdError            2   several things have that id
    ├── InvalidSuiteError               1   a suite's own bundle breaks the rules of its format
    └── UnreadableError (RuntimeError)  3   bytes from outside that we cannot use
        └── StoreError                  3   a store that is newer, damaged or locked

A message is one line: *where: what is wrong (what was expected). What to do.*
The emitting side raises none of these into the program that it records.
"""

from __future__ import annotations


class VestigeError(Exception):
    """The root: catch this to catch everything of ours."""

    exit_code = 1


class UsageError(VestigeError, ValueError):
    """The caller asked for something that makes no sense."""

    exit_code = 2


class SettingError(UsageError):
    """A setting has a value that it cannot have."""


class NotFoundError(VestigeError, LookupError):
    """What was asked for is not there."""

    exit_code = 2


class AmbiguousIdError(NotFoundError):
    """An id that fits several things: `candidates` lists them, and none is guessed."""

    def __init__(self, message: str, candidates: list[str]) -> None:
        super().__init__(message)
        self.candidates = candidates


class InvalidSuiteError(VestigeError, RuntimeError):
    """What a suite left is no valid bundle: `problems` has all of it, a line each."""

    def __init__(self, message: str, problems: list[str]) -> None:
        super().__init__(message)
        self.problems = problems


class UnreadableError(VestigeError, RuntimeError):
    """Bytes from outside that cannot be used."""

    exit_code = 3


class StoreError(UnreadableError):
    """A store that this version cannot open."""
