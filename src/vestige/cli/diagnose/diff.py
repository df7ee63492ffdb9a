"""`vestige diff`: how two runs or spans differ."""

from __future__ import annotations

import shlex
from typing import Any

import click

from vestige.cli.answers import answer_options, open_debuggers, print_answer
from vestige.cli.options import Examples, Home


@click.command(
    "diff",
    cls=Examples,
    examples="""
  vestige diff r6 r7             two runs, at the first divergence
  vestige diff r7.s4 r7.s9       two spans, their bodies included
  vestige diff r7.s9 --prev      against the call like it before
  vestige diff r7 --vs-good      against the last good run like it
  vestige diff x.wink#3 x.wink#7 a session's state at two snapshots of a bundle
  vestige diff BUNDLE BUNDLE     two suites: newly failing, newly passing, slower
""",
    exits="0 the same, 1 they differ, 2 no such run or span, 3 unreadable store",
)
@click.argument("a")
@click.argument("b", required=False)
@click.option("--prev", is_flag=True, help="Against the one like it before.")
@click.option(
    "--before-after", is_flag=True, help="What a transform was given against what it sent."
)
@click.option("--vs-good", is_flag=True, help="Against the last run of this name that went well.")
@click.option(
    "--ignore",
    multiple=True,
    metavar="RULE",
    help="What not to compare: ids, times, numbers, or none. Of two runs: ids and times.",
)
@answer_options
def diff(
    a: str, b: str | None, home: Home, as_json: bool, budget: int | None, **options: Any
) -> None:
    """Show how two runs or two spans differ: structure first, then the first differing bytes.

    A and B are ids, or paths of runs in other formats. Of two test suites the cases come first:
    newly failing, newly passing, slower.
    """
    from vestige.query.diff.span_diff import DiffAnswer
    from vestige.transfer import is_source, split_source

    with open_debuggers(home, a, b) as (debugger, (first, second)):
        answer = debugger.diff(first or "", second if b is None else second or "", **options)
        if b is not None and is_source(a) and not as_json:
            # Their ids are of this comparison: to look at them, they must be kept.
            places = list(dict.fromkeys(split_source(each)[0] for each in (a, b)))
            if len(places) > 1 and isinstance(answer, DiffAnswer):
                answer.paths = (a, b)
            paths = shlex.join(places)
            click.echo(f"to go on with both: vestige import {paths}", err=True)
    print_answer(answer, as_json, budget)
