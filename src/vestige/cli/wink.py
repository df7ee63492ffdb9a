"""`wink`: the name under which users of debug bundles know the command.

The package weakincentives installs a script of the same name, and the one installed last runs.
Command lines that are not ours are passed on to weakincentives: `wink query`, `wink docs`, and
`wink debug` with an option that only its version has.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, ClassVar, Final

import click

from vestige._version import __version__
from vestige.cli.main import Root
from vestige.cli.view.debug import debug

_OWN_OPTIONS: Final = frozenset(("-h", "--help", "--version"))


class Wink(Root):
    """The group of Vestige's own `wink` commands."""

    sections: ClassVar[Mapping[str, Iterable[str]]] = {"Commands": ("debug",)}


@click.group(
    cls=Wink,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Other commands are passed to the wink of weakincentives, if it is installed.",
)
@click.version_option(__version__, prog_name="wink")
def wink() -> None:
    """Inspect debug bundles. All other commands are in `vestige`."""


wink.add_command(debug)


def main() -> None:
    """Run the console script."""
    arguments = sys.argv[1:]
    theirs = None if is_ours(arguments) else find_theirs()
    if theirs is not None:
        sys.exit(theirs(arguments))
    wink(prog_name="wink")


def is_ours(arguments: Sequence[str]) -> bool:
    """Return whether Vestige's `wink` understands this command line."""
    if not arguments or arguments[0] in _OWN_OPTIONS:
        return True
    if arguments[0] != debug.name:
        return False
    known = {
        option for param in debug.params for option in (*param.opts, *param.secondary_opts)
    } | _OWN_OPTIONS
    options = (one.partition("=")[0] for one in arguments[1:] if one.startswith("-"))
    return all(option in known for option in options)


def find_theirs() -> Callable[[list[str]], Any] | None:
    """Return the entry point of weakincentives' own `wink`; None if it is not installed."""
    if find_spec("weakincentives") is None:
        return None
    try:
        from weakincentives.cli.wink import (  # type: ignore[import-not-found]  # optional
            main as theirs,
        )
    except ImportError as error:
        click.echo(
            f"wink: weakincentives' own commands cannot be loaded ({error})."
            " Install them: pip install 'weakincentives[wink]'.",
            err=True,
        )
        sys.exit(2)
    found: Callable[[list[str]], Any] = theirs
    return found
