"""`wink`: the name under which users of debug bundles know the command."""

from __future__ import annotations

import click

from vestige._version import __version__
from vestige.cli.main import Root
from vestige.cli.view.debug import debug


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="wink")
def wink() -> None:
    """Debug bundles. The rest of the debugger is `vestige`."""


wink.add_command(debug)


def main() -> None:
    """The console script."""
    wink(prog_name="wink")
