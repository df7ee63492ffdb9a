"""`vestige diff`: how two runs or spans differ."""

from __future__ import annotations

import shlex
from typing import Any

import click

from vestige.cli.options import Examples, Home
from vestige.cli.print_answer import answer_options, open_debuggers, print_answer


@click.command(
    "diff",
    cls=Examples,
    examples="""
  vestige diff r6 r7             two runs, first difference first
  vestige diff r7.s4 r7.s9       two spans and their payloads
  vestige diff r7.s9 --prev      a call and the previous similar call
  vestige diff r7 --vs-good      a run and the last successful run of this task
  vestige diff x.wink#3 x.wink#7 two state snapshots of a bundle
  vestige diff BUNDLE BUNDLE     two test suites: newly failing, newly passing, slower
""",
    exits="0 identical, 1 different, 2 run or span not found, 3 store unreadable",
)
@click.argument("a")
@click.argument("b", required=False)
@click.option("--prev", is_flag=True, help="Compare with the previous similar call.")
@click.option(
    "--before-after", is_flag=True, help="Compare the input of a transform with its output."
)
@click.option("--vs-good", is_flag=True, help="Compare with the last successful run of this task.")
@click.option(
    "--ignore",
    multiple=True,
    metavar="RULE",
    help="Ignore ids, times or numbers; or none (default for runs: ids and times).",
)
@answer_options
def diff(
    a: str, b: str | None, home: Home, as_json: bool, budget: int | None, **options: Any
) -> None:
    """Compare two runs or two spans: structure first, then the first different bytes.

    A and B are ids, or paths of runs in other formats. For test suites, newly failing, newly
    passing and slower cases come first.
    """
    from vestige.query.diff.span_diff import DiffAnswer
    from vestige.transfer import is_source, split_source

    with open_debuggers(home, a, b) as (debugger, (first, second)):
        answer = debugger.diff(first or "", second if b is None else second or "", **options)
        if b is not None and is_source(a) and not as_json:
            # The ids of files exist only during this comparison.
            places = list(dict.fromkeys(split_source(each)[0] for each in (a, b)))
            if len(places) > 1 and isinstance(answer, DiffAnswer):
                answer.paths = (a, b)
            paths = shlex.join(places)
            click.echo(f"To inspect both runs: vestige import {paths}", err=True)
    print_answer(answer, as_json, budget)
