"""`vestige prune`, `pin`, `unpin`: what is kept, and for how long."""

from __future__ import annotations

from pathlib import Path

import click

from vestige.cli.options import DURATION, SIZE, Examples, Home, home_option


@click.command(
    "prune",
    cls=Examples,
    examples="""
  vestige prune --dry-run                      what would go by the settings in force
  vestige prune --max-age 7d                   runs older than a week
  vestige prune --max-body-bytes 256MB         bodies beyond that, least recently used first
  vestige prune --bundles debug --keep 20      a folder of .wink files, oldest first
  vestige prune --bundles tests/artifacts --max-age 14d    a tree of test suites
""",
    exits="0 done, 2 bad argument or no such home, 3 unreadable store",
)
@click.option("--max-age", type=DURATION, metavar="AGE", help="Remove runs older than this: 7d.")
@click.option(
    "--max-body-bytes", type=SIZE, metavar="SIZE", help="Keep this much of bodies: 256MB."
)
@click.option(
    "--bundles",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Look at the debug bundles of a folder, and the bundles of suites below it, instead of the home.",
)
@click.option("--keep", type=click.IntRange(0), metavar="N", help="Of bundles: keep the newest N.")
@click.option(
    "--max-bytes", type=SIZE, metavar="SIZE", help="Of bundles: keep this much, newest first."
)
@click.option("--dry-run", is_flag=True, help="Say what would go; remove nothing.")
@home_option
def prune(
    max_age: float | None,
    max_body_bytes: int | None,
    bundles: Path | None,
    keep: int | None,
    max_bytes: int | None,
    dry_run: bool,
    home: Home,
) -> None:
    """Remove what is old, or too much.

    Without options the retention settings apply. Pinned runs and runs that are still
    running stay; so do the daily sums of counts, durations and tokens.
    """
    if bundles is not None:
        if max_body_bytes is not None:
            raise click.UsageError("--max-body-bytes is for a home; a folder has --max-bytes.")
        _prune_bundles(bundles, keep, max_age, max_bytes, dry_run)
        return
    if keep is not None or max_bytes is not None:
        raise click.UsageError("--keep and --max-bytes go with --bundles DIR.")
    from vestige._runtime.clock import SYSTEM
    from vestige.cli.answers import opened
    from vestige.query import formatting
    from vestige.settings import read_settings
    from vestige.store.protocol import RetentionPolicy

    settings = read_settings(home)
    policy = RetentionPolicy(settings.retention_age_s, settings.retention_body_bytes)
    if max_age is not None or max_body_bytes is not None:
        policy = RetentionPolicy(max_age, max_body_bytes)
    with opened(home, readonly=False) as store:
        before = home.store.stat().st_size
        pruned = store.prune(policy, SYSTEM.now_ns(), dry_run)
        after = home.store.stat().st_size
    verb = "would remove" if dry_run else "removed"
    click.echo(
        f"{verb} {formatting.pluralize(pruned.runs, 'run')} ({formatting.pluralize(pruned.spans, 'span')})"
        f" and {pruned.bodies} {'body' if pruned.bodies == 1 else 'bodies'}"
        f" ({formatting.size(pruned.freed_bytes)})"
    )
    if not dry_run and before > after:
        click.echo(f"the store shrank from {formatting.size(before)} to {formatting.size(after)}")


def _prune_bundles(
    folder: Path, keep: int | None, max_age: float | None, max_bytes: int | None, dry_run: bool
) -> None:
    from vestige._runtime.clock import SYSTEM
    from vestige.query import formatting
    from vestige.transfer.bundle_files import prune_bundles

    pruned = prune_bundles(
        folder, SYSTEM.now_ns(), keep=keep, age_max_s=max_age, bytes_max=max_bytes, dry_run=dry_run
    )
    verb = "would remove" if dry_run else "removed"
    for path, size in pruned.removed:
        click.echo(f"{verb} {path} ({formatting.size(size)})")
    click.echo(
        f"{verb} {len(pruned.removed)} in all ({formatting.size(pruned.freed_bytes)});"
        f" {formatting.pluralize(pruned.left, 'bundle')} ({formatting.size(pruned.left_bytes)})"
        f" {'stays' if pruned.left == 1 else 'stay'}"
    )


@click.command(
    "pin",
    cls=Examples,
    examples="  vestige pin r7        keep this run, whatever its age",
    exits="0 done, 2 no such run",
)
@click.argument("run")
@home_option
def pin(run: str, home: Home) -> None:
    """Keep a run and its bodies out of reach of pruning."""
    _set_pinned(home, run, True)


@click.command(
    "unpin",
    cls=Examples,
    examples="  vestige unpin r7      let retention have it",
    exits="0 done, 2 no such run",
)
@click.argument("run")
@home_option
def unpin(run: str, home: Home) -> None:
    """Let a pinned run be pruned again."""
    _set_pinned(home, run, False)


def _set_pinned(home: Home, text: str, pinned: bool) -> None:
    from vestige.cli.answers import opened
    from vestige.query.ids.resolve import find_run

    with opened(home, readonly=False) as store:
        run = find_run(store, text)
        store.pin(run.id, pinned)
    click.echo(f"{run.short_id} {run.name}: {'pinned' if pinned else 'not pinned any more'}")
