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
from typing import Annotated, Any, Final

import msgspec

from vestige.errors import UnreadableError, UsageError

FILE_MAX: Final = 1024 * 1024
Limit = Annotated[int, msgspec.Meta(ge=0)]
LimitNumber = Annotated[float, msgspec.Meta(ge=0)]

_POINTER: Final = re.compile(r" - at `\$\.?(.*)`\Z")
_TYPE_ERROR: Final = re.compile(r"Expected `([^`]+)`(?: >= \d+)?(?:, got `([^`]+)`)?")
_TYPES: Final = {
    "array": "a list",
    "object": "a table",
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
}
"""Types of values in an error of msgspec, in words."""


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

    model_calls: Limit | None = None
    tool_calls: Limit | None = None
    tokens: Limit | None = None
    cost_usd: LimitNumber | None = None
    duration_s: LimitNumber | None = None


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
        raise UsageError(f"{where}: {_describe_error(str(error))}. Correct the file.") from None
    if policy == Policy():
        raise UsageError(
            f"{where}: no rules (expected at least one of {_join_keys(Policy)}). Add one, or leave"
            " out --policy."
        )
    for rule in policy.arguments:
        _validate_rule(rule, where)
    return policy


def _describe_error(text: str) -> str:
    """Return an error of msgspec in the words of a policy: the place, the problem, the expected."""
    pointer = _POINTER.search(text)
    place = pointer[1] if pointer else ""
    problem = text[: pointer.start()] if pointer else text
    name = re.search(r"`([^`]*)`", problem)
    if "unknown field" in problem and name:
        known = _join_keys(_TABLES.get(re.sub(r"\[.*", "", place), Policy))
        problem = f"unknown key {name[1]} (expected {known})"
    elif "missing required field" in problem and name:
        problem = f"the key {name[1]} is missing"
    elif found := _TYPE_ERROR.match(problem):
        expected = _TYPES.get(found[1].removesuffix(" | null"), found[1])
        got = f"is {_TYPES.get(found[2], found[2])} (expected {expected})" if found[2] else ""
        problem = got or f"out of range (expected {expected}, 0 or more)"
    return f"{place}: {problem}" if place else problem


def _join_keys(table: type[msgspec.Struct]) -> str:
    keys = table.__struct_fields__
    return f"{', '.join(keys[:-1])} or {keys[-1]}"


_TABLES: Final[dict[str, type[msgspec.Struct]]] = {
    "tools": ToolRules,
    "arguments": ArgumentRule,
    "models": Names,
    "hosts": Names,
    "limits": Limits,
}


def _validate_rule(rule: ArgumentRule, where: str) -> None:
    if rule == ArgumentRule(rule.tool, rule.path):
        raise UsageError(
            f"{where}: arguments of {rule.tool}: no condition on {rule.path} (expected required,"
            " min, max, one_of or matches). Add one."
        )
    try:
        re.compile(rule.matches or "")
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(
            f"{where}: arguments of {rule.tool}: {rule.matches!r} is not a regular expression"
            f" ({error}). Correct `matches`."
        ) from None
