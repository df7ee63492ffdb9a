"""Options that commands share: `--home`, `--json`; help texts with examples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vestige.home import Home, get_home
from vestige.settings import parse_duration, parse_size

if TYPE_CHECKING:
    from vestige.query.policy.policy import Policy

F = TypeVar("F", bound=Callable[..., Any])


class Examples(click.Command):
    """A command whose help ends with examples and exit statuses, laid out as written."""

    def __init__(self, *args: Any, examples: str, exits: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples.strip("\n")
        self.exits = exits

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"\nExamples:\n{self.examples}\n\nExit status: {self.exits}\n")


def home_option(function: F) -> F:
    """Add `--home DIR`, passed as a `Home`."""
    return click.option(
        "--home",
        "home",
        metavar="DIR",
        callback=lambda ctx, param, value: get_home(value),
        help="Data directory (default: $VESTIGE_HOME or ~/.vestige).",
    )(function)


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def policy_option(function: F) -> F:
    """Add `--policy FILE`, passed as a `Policy`."""
    return click.option(
        "--policy",
        metavar="FILE",
        type=click.Path(path_type=Path, dir_okay=False),
        callback=lambda ctx, param, value: None if value is None else _read_policy(value),
        help="Rules on tools, arguments, models, hosts and limits (TOML).",
    )(function)


def _read_policy(path: Path) -> Policy:
    from vestige.query.policy.policy import read_policy

    return read_policy(path)


class _Parsed(click.ParamType[Any]):
    """An option type that wraps one of the parsers of `vestige.settings`."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(f"{value!r}: {error}.", param, ctx)


DURATION = _Parsed("duration", parse_duration)
SIZE = _Parsed("size", parse_size)

__all__ = ["DURATION", "SIZE", "Examples", "Home", "home_option", "json_option", "policy_option"]
