"""`vestige store load`: store the segments that servers have written."""

from __future__ import annotations

import os

import click

from vestige.cli.manage.collect import stop_when
from vestige.cli.options import Examples, Home, home_option
from vestige.errors import StoreError, UsageError

INTERVAL_S = 1.0
"""Seconds between two batches, unless more segments wait than one batch takes."""
RETRY_S = 5.0
"""Seconds until the next try if the store or the place of the segments fails."""


@click.command(
    "load",
    cls=Examples,
    examples="""
  vestige store load --segments s3://traces/segments --store clickhouse://db:8123/vestige
  vestige store load --segments /var/lib/vestige/segments --once
""",
    exits="0 stopped or done, 1 a segment was rejected (--once), 2 bad address, 3 store unreadable",
)
@click.option("--segments", metavar="PLACE", help="s3://BUCKET/PREFIX or a directory.")
@click.option("--store", "address", metavar="ADDRESS", help="clickhouse://HOST:8123/DATABASE.")
@click.option("--once", is_flag=True, help="Load all segments that are there now, then exit.")
@home_option
def load(segments: str | None, address: str | None, once: bool, home: Home) -> None:
    """Store the segments of `vestige server start --segments` in large batches.

    A segment is deleted when it is stored. A loader that is killed continues where it stopped;
    no record is stored twice. One loader is enough; a second one only repeats its work.
    """
    from vestige.fleet.segments.segment_loader import SegmentLoader
    from vestige.fleet.segments.segment_storage import open_storage
    from vestige.query import formatting
    from vestige.settings import find_segments

    if address is not None:
        os.environ["VESTIGE_STORE"] = address
    if not (place := segments or find_segments(home)):
        raise UsageError(
            "segments: no place is set (expected --segments s3://BUCKET/PREFIX or a directory)."
        )
    loader = SegmentLoader(home, open_storage(place))
    stop = stop_when(until_eof=False)
    if not once:
        click.echo(f"Loading segments of {place} (Ctrl-C to stop)", err=True)
    done = records = rejected = 0
    wait_s = 0.0
    while not stop.wait(wait_s):
        try:
            result = loader.load_batch()
        except (OSError, StoreError) as error:
            if once:
                raise
            click.echo(f"vestige: {error} Trying again in {RETRY_S:g} s.", err=True)
            wait_s = RETRY_S
            continue
        done, rejected = done + result.segments, rejected + result.rejected
        records += result.new
        for reason in result.reasons:
            click.echo(f"vestige: moved to rejected/: {reason}", err=True)
        if once and not result.is_full:
            break
        wait_s = 0.0 if result.is_full and not result.is_blocked else INTERVAL_S
    loader.close()
    loaded = formatting.pluralize(done, "segment")
    click.echo(f"loaded {loaded}, {formatting.pluralize(records, 'new record')}")
    if once and rejected:
        raise SystemExit(1)
