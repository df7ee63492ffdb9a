"""`vestige store pin` and `unpin`: protect runs from pruning."""

from __future__ import annotations

import click

from vestige.cli.options import Examples, Home, home_option


@click.command(
    "pin",
    cls=Examples,
    examples="  vestige store pin r7        keep this run at any age",
    exits="0 done, 2 no such run",
)
@click.argument("run")
@home_option
def pin(run: str, home: Home) -> None:
    """Protect a run from pruning."""
    _set_pinned(home, run, True)


@click.command(
    "unpin",
    cls=Examples,
    examples="  vestige store unpin r7      allow pruning again",
    exits="0 done, 2 no such run",
)
@click.argument("run")
@home_option
def unpin(run: str, home: Home) -> None:
    """Allow pruning of a pinned run again."""
    _set_pinned(home, run, False)


def _set_pinned(home: Home, text: str, pinned: bool) -> None:
    from vestige.cli.print_answer import opened
    from vestige.query.ids.resolve import find_run

    with opened(home, readonly=False) as store:
        run = find_run(store, text)
        store.pin(run.id, pinned)
    click.echo(f"{run.short_id} {run.name}: {'pinned' if pinned else 'no longer pinned'}")
