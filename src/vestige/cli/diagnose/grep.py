"""`vestige grep`: text in inputs, outputs, attributes and log records."""

from __future__ import annotations

import click

from vestige.cli.options import Examples, Home
from vestige.cli.print_answer import answer_options, open_debugger, print_answer


@click.command(
    "grep",
    cls=Examples,
    examples="""
  vestige grep "card refused"              in all runs, newest first
  vestige grep "card refused" r7           in one run, oldest first
  vestige grep --regex "refund \\d+" r7    a regular expression
  vestige grep --in logs -i timeout        only in log records, ignoring case
""",
    exits="0 ok, 2 bad pattern or run not found, 3 store unreadable",
)
@click.argument("pattern")
@click.argument("id", required=False)
@click.option(
    "--in",
    "where",
    metavar="PARTS",
    default="bodies,attrs,logs",
    show_default=True,
    help="Parts to search.",
)
@click.option("--regex", is_flag=True, help="PATTERN is a Python regular expression.")
@click.option("--ignore-case", "-i", is_flag=True, help="Ignore case.")
@click.option("--words", is_flag=True, help="All words of PATTERN near each other, in any order.")
@click.option("--after", metavar="CURSOR", help="Continue from a cursor.")
@answer_options
def grep(
    pattern: str,
    id: str | None,
    where: str,
    regex: bool,
    ignore_case: bool,
    words: bool,
    after: str | None,
    home: Home,
    as_json: bool,
    budget: int | None,
) -> None:
    """Search payloads, attributes and log records: one line per match, with its span.

    Identical text in several payloads is one match, in the first one. Plain and JSON-escaped text
    both match. Put a pattern that starts with a dash after `--`.
    """
    with open_debugger(home, id) as (debugger, found_id):
        answer = debugger.grep(
            pattern,
            found_id,
            where=where,
            regex=regex,
            ignore_case=ignore_case,
            after=after,
            words=words,
        )
    print_answer(answer, as_json, budget)
