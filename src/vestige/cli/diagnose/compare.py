"""`vestige compare`: what sets two groups of runs apart."""

from __future__ import annotations

import click

from vestige.cli.options import Examples, Home
from vestige.cli.print_answer import answer_options, open_debuggers, print_answer


class _TwoGroups(Examples):
    """Keep the `--` between the groups, which click would drop."""

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
  vestige compare r3 r5 -- r4 r6     what sets the first two apart
  vestige compare is:failed -- is:ok what sets failed runs apart
  vestige compare 'is:failed name:triage since:2d' -- 'is:ok name:triage'
""",
    exits="0 ok, 2 run not found, empty group, or a run in both groups, 3 store unreadable",
)
@click.argument("a", nargs=-1, required=True, metavar="A... -- B...")
@answer_options
@click.pass_context
def compare(
    ctx: click.Context, a: tuple[str, ...], home: Home, as_json: bool, budget: int | None
) -> None:
    """Compare two groups of runs, such as failed and successful ones.

    A group consists of ids, or is a filter as for `vestige list`, whose newest runs are compared.
    A filter term that starts with a dash must follow another term, in the same quotes.
    """
    b = ctx.meta.get("vestige.b", ())
    with open_debuggers(home, *a, *b) as (debugger, ids):
        runs = [each or "" for each in ids]
        answer = debugger.compare(runs[: len(a)], runs[len(a) :])
    print_answer(answer, as_json, budget)
