"""Build the command that runs the failed cases of a bundle again.

    replay = Replay(["python", "-m", "pytest"], "/work/shop", ["tests"], by_case=True)
    render_command(replay, {"TZ": "UTC"}, ["tests/test_pay.py::test_card"])

The words are kept beside the text (`repro.json`, key `vestige`), so that running a bundle's
command needs no shell, and one case can be picked.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from vestige.errors import NotFoundError, UnreadableError, UsageError
from vestige.limits import KIB
from vestige.record.redaction.masking import MARK

COMMAND_MAX = 96 * KIB
"""Characters of tests on a command line; beyond, whole files are named. (One argument to `sh -c`
may have 128 KiB.)"""

REPRO = "repro.json"
_WHERE = r" @gw\d+\Z"
_UNPRINTABLE = r"[\x00-\x1f\x7f]"


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """The command that starts a suite."""

    argv: list[str]
    """The arguments that select no tests."""
    cwd: str
    tests: list[str] = msgspec.field(default_factory=list)
    """The selected tests."""
    by_case: bool = False
    """A case's name is an argument that selects it."""
    prefix: str = ""
    """From `cwd` to where the names of cases begin, with a slash."""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of `repro.json`."""

    command: str
    vestige: Replay | None = None


def where_of(worker: str) -> str:
    """Return the suffix of a case name that is unique per worker; it does not select the case."""
    return f" @{worker}"


def selected(replay: Replay, cases: Sequence[str]) -> list[str]:
    """Return the arguments that run these cases, in this order; all cases for an empty list."""
    if not cases or not replay.by_case:
        return list(replay.tests)
    chosen = list(dict.fromkeys(replay.prefix + _selector(case) for case in cases))
    if sum(len(name) + 3 for name in chosen) > COMMAND_MAX:
        chosen = list(dict.fromkeys(name.partition("::")[0] for name in chosen))
    return chosen if sum(len(name) + 3 for name in chosen) <= COMMAND_MAX else list(replay.tests)


def _selector(case: str) -> str:
    """Select by the part before the parameters if a name was redacted or cannot be typed."""
    if MARK not in case and " @gw" not in case and case.isprintable():
        return case  # nearly all of them, and suites have thousands
    case = re.sub(_WHERE, "", case)
    for part in (case, case.partition("[")[0], case.partition("::")[0]):
        if MARK not in part and not re.search(_UNPRINTABLE, part):
            return part
    return "."


def render_command(replay: Replay, environment: Mapping[str, str], cases: Sequence[str]) -> str:
    """Render one line for a shell."""
    return " ".join((_beginning(replay, environment), *map(shlex.quote, selected(replay, cases))))


def command_of_case(replay: Replay, environment: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that renders the command of one case, with shared parts built once."""
    beginning = _beginning(replay, environment)
    if not replay.by_case:
        command = render_command(replay, environment, ())
        return lambda case: command
    return lambda case: f"{beginning} {_quoted(replay.prefix + _selector(case))}"


def _quoted(word: str) -> str:
    """Quote for a shell. Faster than `shlex.quote` for names with parameters."""
    return f"'{word}'" if "[" in word and "'" not in word else shlex.quote(word)


def _beginning(replay: Replay, environment: Mapping[str, str]) -> str:
    variables = [f"{name}={value}" for name, value in environment.items()]
    words = [*(["env", *variables] if variables else []), *replay.argv]
    return f"cd {shlex.quote(replay.cwd)} && {shlex.join(words)}"


# --- running it --------------------------------------------------------------------------------


def read_repro(bundle: Path) -> Recorded:
    """Read how a bundle's suite is run again."""
    path = bundle / REPRO
    try:
        return msgspec.json.decode(path.read_bytes(), type=Recorded)
    except FileNotFoundError:
        raise NotFoundError(f"{path}: not there. Is {bundle} an artifact bundle?") from None
    except (msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
        raise UnreadableError(f"{path}: cannot be used ({error}).") from None


def read_environment(bundle: Path) -> dict[str, str]:
    """Return the variables of `repro.env`."""
    found: dict[str, str] = {}
    try:
        text = (bundle / "repro.env").read_bytes().decode(errors="replace")
    except OSError:
        return found
    # Split at newlines only: values may contain other characters that `splitlines` splits at.
    for line in text.split("\n"):
        name, equals, value = line.rstrip("\r").partition("=")
        if equals and name.isidentifier():
            try:
                found[name] = "".join(shlex.split(value))
            except ValueError:
                continue
    return found


def find_case(cases: Sequence[str], case_name: str) -> str:
    """Find a case by its name, or by a part that only its name has."""
    if case_name in cases:
        return case_name
    near = [case for case in dict.fromkeys(cases) if case_name in case]
    if len(near) == 1:
        return near[0]
    if not near:
        raise NotFoundError(f"{case_name}: no such case in the bundle.")
    raise UsageError(
        f"{case_name}: {len(near)} cases have that in their name ({', '.join(near[:3])}, ...). "
        f"Say more of it."
    )


def words_to_run(recorded: Recorded, cases: Sequence[str]) -> tuple[list[str], str | None]:
    """Return words and folder. A command without a list of words is run by a shell."""
    replay = recorded.vestige
    if replay is None:
        return ["sh", "-c", recorded.command], None
    argv = list(replay.argv)
    if argv and os.path.isabs(argv[0]) and not os.path.exists(argv[0]):
        argv[0] = sys.executable  # the bundle comes from another machine
    return [*argv, *selected(replay, cases)], replay.cwd
