"""`vestige artifacts merge`: the bundles of a suite's shards become one."""

from __future__ import annotations

from copy import copy
from functools import partial
from pathlib import Path

import click

from vestige.cli.options import Examples


@click.command(
    "artifacts",
    cls=Examples,
    examples="""
  vestige artifacts merge shard-1 shard-2 -o merged          one bundle with all cases
  vestige artifacts merge unit e2e -o all --suite nightly    bundles of different suites
""",
    exits="0 written, 2 bundle not found or target exists, 3 a bundle is invalid",
)
@click.argument("action", type=click.Choice(("merge",)))
@click.argument(
    "bundles", nargs=-1, required=True, metavar="BUNDLE...", type=click.Path(path_type=Path)
)
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(path_type=Path),
    metavar="PATH",
    required=True,
    help="Where to write the merged bundle. It must not exist.",
)
@click.option(
    "--suite", metavar="NAME", help="Suite name of the merged bundle (default: unchanged)."
)
def artifacts(action: str, bundles: tuple[Path, ...], target: Path, suite: str | None) -> None:
    """Merge artifact bundles: the shards of one suite, or several suites.

    Every BUNDLE must be valid. The result is valid, and is written completely or not at all.
    """
    from vestige.errors import NotFoundError
    from vestige.formats.artifacts.merge import merge_bundles

    for bundle in bundles:
        if not bundle.is_dir():
            raise NotFoundError(f"{bundle}: bundle not found (expected a directory).")
    click.echo(str(merge_bundles(bundles, target, suite)))


def _without_action(command: Examples) -> Examples:
    """Return the command as an entry of `vestige bundle`, without its action argument."""
    merging = copy(command)
    merging.name = "merge"
    merging.params = [param for param in command.params if param.name != "action"]
    assert command.callback is not None
    merging.callback = partial(command.callback, "merge")
    merging.examples = command.examples.replace("vestige artifacts merge", "vestige bundle merge")
    return merging


merge = _without_action(artifacts)
