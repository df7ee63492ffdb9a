"""What commands share: `--home`, `--json`, and help texts with examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from vestige.home import Home, get_home
from vestige.settings import parse_duration, parse_size

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
    """`--home DIR`, as a `Home`."""
    return click.option(
        "--home",
        "home",
        metavar="DIR",
        callback=lambda ctx, param, value: get_home(value),
        help="Where everything is kept. Default: $VESTIGE_HOME, else ~/.vestige.",
    )(function)


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="For a program: stable keys.")(
        function
    )


class _Parsed(click.ParamType[Any]):
    """An option that one of our parsers reads."""

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

__all__ = ["DURATION", "SIZE", "Examples", "Home", "home_option", "json_option"]
