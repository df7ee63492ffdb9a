"""A policy: the rules of a TOML file that `check`, `gate` and `watch` evaluate.

    [tools]
    deny = ["delete_*"]
    require = ["look_up_order"]
    order = ["look_up_order", "refund"]

    [[arguments]]
    tool = "refund"
    path = "amount"
    max = 100

    [limits]
    cost_usd = 1.5

Names are patterns of `fnmatch`: `*` matches any text.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

import msgspec

from vestige.errors import UnreadableError, UsageError

FILE_MAX: Final = 1024 * 1024
_POINTER: Final = re.compile(r" - at `\$\.?(.*)`\Z")


class Names(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names that may or must not occur."""

    allow: list[str] = []
    """If there are any, no others may occur."""
    deny: list[str] = []


class ToolRules(Names, frozen=True, forbid_unknown_fields=True):
    """Names of tools."""

    require: list[str] = []
    """Each must be called."""
    order: list[str] = []
    """A tool may be called only after those that precede it here."""


class ArgumentRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A condition on one argument of a tool."""

    tool: str
    path: str
    """Keys with dots between them: `order.id`."""
    required: bool = False
    min: float | None = None
    max: float | None = None
    one_of: list[Any] | None = None
    matches: str | None = None
    """A regular expression that the whole text matches."""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The most that a run may use."""

    model_calls: int | None = None
    tool_calls: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    duration_s: float | None = None


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All rules of a file."""

    tools: ToolRules = ToolRules()
    arguments: list[ArgumentRule] = []
    models: Names = Names()
    hosts: Names = Names()
    limits: Limits = Limits()


def read_policy(path: Path) -> Policy:
    """Read a policy file. Raise UsageError if a rule is not valid."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_MAX + 1)
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read ({error.strerror}).") from None
    if len(data) > FILE_MAX:
        raise UnreadableError(f"{path}: larger than 1 MiB. A policy is a short TOML file.")
    return parse_policy(data, str(path))


def parse_policy(data: bytes, where: str) -> Policy:
    """Parse the rules; `where` is the file that an error names."""
    try:
        policy = msgspec.convert(tomllib.loads(data.decode()), Policy)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{where}: not valid TOML ({error}). Correct the file.") from None
    except msgspec.ValidationError as error:
        text = str(error)
        pointer = _POINTER.search(text)
        place = f" {pointer[1]}:" if pointer else ""
        problem = text[: pointer.start()] if pointer else text
        raise UsageError(f"{where}:{place} {problem}. See the guide on policies.") from None
    for rule in policy.arguments:
        _validate_pattern(rule, where)
    return policy


def _validate_pattern(rule: ArgumentRule, where: str) -> None:
    try:
        re.compile(rule.matches or "")
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(
            f"{where}: arguments of {rule.tool}: {rule.matches!r} is not a regular expression"
            f" ({error}). Correct `matches`."
        ) from None
