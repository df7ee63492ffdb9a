"""`vestige dataset`: examples for evaluation and fine-tuning, from recorded runs."""

from __future__ import annotations

from pathlib import Path

import click

from vestige.cli.options import DURATION, Examples, Home, home_option

UNITS = ("runs", "steps")
"""The units of transfer/dataset.py, repeated so that `--help` does not load it."""

SHAPES = ("openai", "anthropic")
"""The shapes of formats/messages, repeated for the same reason."""

LIMIT = 1_000


@click.command(
    cls=Examples,
    examples="""
  vestige dataset -o refunds 'tool:refund'          runs that called a tool
  vestige dataset -o failures --failed --since 30d  failed runs of the last month
  vestige dataset -o steps --unit steps             one example for each model call
  vestige dataset -o claude --shape anthropic       messages in Anthropic's shape
""",
    exits="0 written, 2 no run matches, or the folder exists, 3 store unreadable",
)
@click.argument("filter", nargs=-1)
@click.option(
    "-o",
    "--output",
    "folder",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="New folder for train.jsonl, test.jsonl and dataset.json.",
)
@click.option("--failed", is_flag=True, help="Only failed runs.")
@click.option("--since", type=DURATION, metavar="AGE", help="Only the last 2h, 7d, ...")
@click.option(
    "--unit",
    type=click.Choice(UNITS),
    default="runs",
    show_default=True,
    help="One example for each conversation, or for each model call.",
)
@click.option(
    "--shape",
    type=click.Choice(SHAPES),
    default="openai",
    show_default=True,
    help="Shape of the messages.",
)
@click.option(
    "--test",
    "test_share",
    type=click.FloatRange(0, 1),
    default=0.2,
    show_default=True,
    metavar="SHARE",
    help="Share of tasks in test.jsonl.",
)
@click.option("--seed", default="", metavar="TEXT", help="Another seed makes another split.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=LIMIT,
    show_default=True,
    metavar="N",
    help="Use at most N runs, the newest.",
)
@home_option
def dataset(
    filter: tuple[str, ...],
    folder: Path,
    failed: bool,
    since: float | None,
    unit: str,
    shape: str,
    test_share: float,
    seed: str,
    limit: int,
    home: Home,
) -> None:
    """Write a dataset of recorded runs, with labels from scores, notes and findings.

    FILTER is that of `vestige list`. Runs of the same task are never split between train and
    test. Secrets are redacted.
    """
    from vestige.cli.print_answer import open_debugger
    from vestige.query import formatting
    from vestige.transfer.dataset import DatasetOptions, write_dataset

    with open_debugger(home) as (debugger, _):
        found = debugger.list(" ".join(filter), failed=failed, since=since, limit=limit).data()
        runs = found["runs"]
        options = DatasetOptions(
            unit=unit,  # type: ignore[arg-type]  # checked by click
            shape=shape,  # type: ignore[arg-type]
            test_share=test_share,
            seed=seed,
        )
        run_ids = [run["id"] for run in runs]
        counts = write_dataset(debugger, run_ids, folder, options)
    examples = formatting.pluralize(counts.train + counts.test, "example")
    click.echo(f"{folder}: {examples} ({counts.train} train, {counts.test} test)")
    if counts.skipped:
        click.echo(f"  {formatting.pluralize(counts.skipped, 'run')} without an answer left out")
    if found.get("more"):
        click.echo(f"  Only the newest {limit} runs; use --limit for more.")
