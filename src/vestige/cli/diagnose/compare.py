"""`vestige compare`: what sets two groups of runs apart."""

from __future__ import annotations

import click

from vestige.cli.answers import answer_options, open_debuggers, print_answer
from vestige.cli.options import Examples, Home


class _TwoGroups(Examples):
    """Keeps what click would drop: the `--` between the groups."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta["vestige.b"] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)


@click.command(
    "compare",
    cls=_TwoGroups,
    examples="""
  vestige compare r3 r5 -- r4 r6     what the first two have that the others have not
  vestige compare is:failed -- is:ok what the failed runs have that the good ones have not
  vestige compare 'is:failed name:triage since:2d' -- 'is:ok name:triage'
""",
    exits="0 compared, 2 no such run, an empty group, or a run in both, 3 unreadable store",
)
@click.argument("a", nargs=-1, required=True, metavar="A... -- B...")
@answer_options
@click.pass_context
def compare(
    ctx: click.Context, a: tuple[str, ...], home: Home, as_json: bool, budget: int | None
) -> None:
    """Compare two groups of runs, such as failed and good ones: what tells them apart.

    A group is made of ids, or it is a filter as `vestige list` takes it: then its newest runs are
    compared. A term that begins with a dash goes into quotes, behind another one.
    """
    b = ctx.meta.get("vestige.b", ())
    with open_debuggers(home, *a, *b) as (debugger, ids):
        wanted = [each or "" for each in ids]
        answer = debugger.compare(wanted[: len(a)], wanted[len(a) :])
    print_answer(answer, as_json, budget)
