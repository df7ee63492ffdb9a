"""`vestige check`, `why`, `grep`, `diff`, `stats`, `compare`, `sql`, `schema`: causes and proofs."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from vestige.cli.options import DURATION, Examples, Home
from vestige.cli.view.read import answer_options, open_debugger, open_debuggers, print_answer


@click.command(
    "check",
    cls=Examples,
    examples="""
  vestige check                  what is wrong with the latest run
  vestige check r7               findings, cause first, each with its proof
  vestige check r7 --verbose     also the names of the checks that passed
  vestige check r7 --json        all of them, for a program
  vestige check runs/3d1957bd-.. a run of AgentDbg: also the rules of its format
""",
    exits="0 no finding of severity error, 1 there is one, 2 no such run, 3 unreadable store",
)
@click.argument("id", required=False)
@click.option(
    "--after",
    default=0,
    type=click.IntRange(0),
    metavar="N",
    help="Pass over the first N findings.",
)
@click.option("--verbose", "-v", is_flag=True, help="Also the names of the checks that passed.")
@answer_options
def check(
    id: str | None, after: int, verbose: bool, home: Home, as_json: bool, budget: int | None
) -> None:
    """Look for known faults in a run, and say what was ruled out.

    The earliest finding of each causal chain comes first. `measured` is a fact of the
    record, `hypothesis` a reading of facts.
    """
    with open_debugger(home, id) as (debugger, wanted):
        answer = debugger.check(wanted, after=after, verbose=verbose)
    broken = _format_problems(id, as_json)
    print_answer(answer, as_json, budget)
    if broken:
        sys.exit(1)


def _format_problems(id: str | None, as_json: bool) -> bool:
    """Of a run of another tool: what its own format forbids, before what its story tells."""
    from vestige.transfer import check_source, is_source

    if id is None or not is_source(id):
        return False
    checked = check_source(Path(id))
    if checked is None:
        return False
    name, problems = checked
    for problem in problems[:PROBLEMS_SHOWN]:
        click.echo(f"{problem.severity} {problem.rule}: {problem}", err=as_json)
    if len(problems) > PROBLEMS_SHOWN:
        click.echo(f"… {len(problems) - PROBLEMS_SHOWN} more problems", err=as_json)
    click.echo(f"{name}: {len(problems)} problems with the format\n", err=as_json)
    return any(problem.severity == "error" for problem in problems)


PROBLEMS_SHOWN = 50
"""Of a format; a damaged file may have as many as it has lines."""


@click.command(
    "why",
    cls=Examples,
    examples="""
  vestige why                    of the latest run: from where its first finding sees the cause
  vestige why r7.s12             what led to this span, up to the first finding
  vestige why call_7 --json      the same chain, for a program
""",
    exits="0 shown, 2 no such span, or several, 3 unreadable store",
)
@click.argument("id", required=False)
@answer_options
def why(id: str | None, home: Home, as_json: bool, budget: int | None) -> None:
    """Follow the causes of a span upward, by links and parents, to the first finding.

    Of a run, by default the latest, from the span that its first finding names as the cause.
    """
    with open_debugger(home, id) as (debugger, wanted):
        answer = debugger.why(wanted)
    print_answer(answer, as_json, budget)


@click.command(
    "grep",
    cls=Examples,
    examples="""
  vestige grep "card refused"              in all runs, newest first
  vestige grep "card refused" r7           in one run, oldest first
  vestige grep --regex "refund \\d+" r7    a regular expression
  vestige grep --in logs -i timeout        only in log lines, upper or lower case
""",
    exits="0 searched (also when there is nothing), 2 bad pattern or no such run, 3 unreadable store",
)
@click.argument("pattern")
@click.argument("id", required=False)
@click.option(
    "--in",
    "where",
    metavar="PARTS",
    default="bodies,attrs,logs",
    show_default=True,
    help="Where to look.",
)
@click.option("--regex", is_flag=True, help="PATTERN is a regular expression (of Python).")
@click.option("--ignore-case", "-i", is_flag=True, help="Upper and lower case are the same.")
@click.option("--after", metavar="CURSOR", help="Go on where an answer stopped.")
@answer_options
def grep(
    pattern: str,
    id: str | None,
    where: str,
    regex: bool,
    ignore_case: bool,
    after: str | None,
    home: Home,
    as_json: bool,
    budget: int | None,
) -> None:
    """Find text in bodies, attributes and log lines: one hit a line, with its span.

    A text that many bodies share is one hit, at the first of them. It is found as it
    stands and as JSON writes it. A pattern that begins with a dash goes behind `--`.
    """
    with open_debugger(home, id) as (debugger, wanted):
        answer = debugger.grep(
            pattern, wanted, where=where, regex=regex, ignore_case=ignore_case, after=after
        )
    print_answer(answer, as_json, budget)


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


@click.command(
    "stats",
    cls=Examples,
    examples="""
  vestige stats                        by name: counts, durations, tokens, error rates
  vestige stats --by model --since 7d  what each model took this week
  vestige stats --by tool              tools by what they cost against what they are used for
""",
    exits="0 shown, 2 bad argument or no such home, 3 unreadable store",
)
@click.option(
    "--by",
    default="name",
    show_default=True,
    metavar="WHAT",
    help="One line for each name, model, tool, component, type or day.",
)
@click.option("--since", type=DURATION, metavar="AGE", help="Only this young: 12h, 7d; whole days.")
@answer_options
def stats(by: str, since: float | None, home: Home, as_json: bool, budget: int | None) -> None:
    """Count over all runs: how often, how long, how many tokens, how many failures."""
    with open_debugger(home) as (debugger, _):
        answer = debugger.stats(by=by, since=since)
    print_answer(answer, as_json, budget)


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


@click.command(
    "sql",
    cls=Examples,
    examples="""
  vestige sql "SELECT name, count(*) FROM spans GROUP BY name"
  vestige sql "SELECT * FROM runs WHERE outcome = 'error'" --json
  vestige sql --on x.wink "SELECT snapshot, slice_type, item_count FROM slices"
""",
    exits="0 shown (also when there is nothing), 2 bad query or no such home, 3 unreadable store",
)
@click.argument("query")
@click.option("--after", default=0, type=click.IntRange(0), metavar="N", help="Pass over N rows.")
@click.option("--on", metavar="PATH", help="Ask a bundle or another file instead of the home.")
@answer_options
def sql(
    query: str, after: int, on: str | None, home: Home, as_json: bool, budget: int | None
) -> None:
    """Ask the store itself, read-only, for what no other command answers.

    Time, rows and text are bounded. `vestige schema` has the tables and examples.
    """
    from vestige.errors import NotFoundError
    from vestige.query.text_layout import shell_word
    from vestige.transfer import is_source

    if on is not None and not is_source(on):
        raise NotFoundError(f"{on}: nothing there that can be opened.")
    with open_debugger(home, on) as (debugger, _):
        if on is not None:
            debugger.at = f"--on {shell_word(on)}"
        answer = debugger.sql(query, after=after)
    print_answer(answer, as_json, budget)


@click.command(
    "schema",
    cls=Examples,
    examples="""
  vestige schema             tables, their columns, and queries to begin with
  vestige schema spans       one table, with what each column means
""",
    exits="0 shown, 2 no such table",
)
@click.argument("table", required=False)
@answer_options
def schema(table: str | None, home: Home, as_json: bool, budget: int | None) -> None:
    """Show the store's tables, for `vestige sql`."""
    from vestige.query.search.sql_view import schema_answer

    print_answer(schema_answer(table), as_json, budget)
