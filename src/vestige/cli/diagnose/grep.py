"""`vestige grep`: text in inputs, outputs, attributes and log records."""

from __future__ import annotations

import click

from vestige.cli.answers import answer_options, open_debugger, print_answer
from vestige.cli.options import Examples, Home


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
