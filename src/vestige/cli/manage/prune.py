"""`vestige store prune`: delete old runs."""

from __future__ import annotations

from pathlib import Path

import click

from vestige.cli.options import DURATION, SIZE, Examples, Home, home_option


@click.command(
    "prune",
    cls=Examples,
    examples="""
  vestige store prune --dry-run                      what the current settings would delete
  vestige store prune --max-age 7d                   runs older than a week
  vestige store prune --max-body-bytes 256MB         payloads above this size, oldest use first
  vestige store prune --bundles debug --keep 20      a folder of .wink files, oldest first
  vestige store prune --bundles tests/artifacts --max-age 14d    a tree of test suites
""",
    exits="0 done, 2 bad argument or no data directory, 3 store unreadable",
)
@click.option("--max-age", type=DURATION, metavar="AGE", help="Delete runs older than this: 7d.")
@click.option(
    "--max-body-bytes", type=SIZE, metavar="SIZE", help="Keep at most this much of payloads: 256MB."
)
@click.option(
    "--bundles",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Prune the bundles in a folder, instead of the data directory.",
)
@click.option("--keep", type=click.IntRange(0), metavar="N", help="(bundles) Keep the newest N.")
@click.option(
    "--max-bytes", type=SIZE, metavar="SIZE", help="(bundles) Keep at most this much, newest first."
)
@click.option("--dry-run", is_flag=True, help="Show what would be deleted.")
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
    """Delete old runs.

    Without options, the retention settings apply. Pinned runs, unfinished runs and the daily
    totals for `vestige stats` are never deleted.
    """
    if bundles is not None:
        if max_body_bytes is not None:
            raise click.UsageError("--max-body-bytes does not apply to --bundles. Use --max-bytes.")
        _prune_bundles(bundles, keep, max_age, max_bytes, dry_run)
        return
    if keep is not None or max_bytes is not None:
        raise click.UsageError("--keep and --max-bytes require --bundles DIR.")
    from vestige._runtime.clock import SYSTEM
    from vestige.cli.print_answer import opened
    from vestige.query import formatting
    from vestige.settings import read_settings
    from vestige.store.protocol import RetentionPolicy

    settings = read_settings(home)
    policy = RetentionPolicy(settings.retention_age_s, settings.retention_body_bytes)
    if max_age is not None or max_body_bytes is not None:
        policy = RetentionPolicy(max_age, max_body_bytes)
    with opened(home, readonly=False) as store:
        before = store.sizes().file_bytes
        pruned = store.prune(policy, SYSTEM.now_ns(), dry_run)
        after = store.sizes().file_bytes
    verb = "would delete" if dry_run else "deleted"
    click.echo(
        f"{verb} {formatting.pluralize(pruned.runs, 'run')}"
        f" ({formatting.pluralize(pruned.spans, 'span')})"
        f" and {formatting.pluralize(pruned.bodies, 'payload')}"
        f" ({formatting.size(pruned.freed_bytes)})"
    )
    if not dry_run and before > after:
        click.echo(f"store size: from {formatting.size(before)} to {formatting.size(after)}")


def _prune_bundles(
    folder: Path, keep: int | None, max_age: float | None, max_bytes: int | None, dry_run: bool
) -> None:
    from vestige._runtime.clock import SYSTEM
    from vestige.query import formatting
    from vestige.transfer.bundle_files import prune_bundles

    pruned = prune_bundles(
        folder, SYSTEM.now_ns(), keep=keep, age_max_s=max_age, bytes_max=max_bytes, dry_run=dry_run
    )
    verb = "would delete" if dry_run else "deleted"
    for path, size in pruned.removed:
        click.echo(f"{verb} {path} ({formatting.size(size)})")
    click.echo(
        f"{verb} {len(pruned.removed)} in total ({formatting.size(pruned.freed_bytes)});"
        f" {formatting.pluralize(pruned.left, 'bundle')} left"
        f" ({formatting.size(pruned.left_bytes)})"
    )
