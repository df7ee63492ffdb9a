"""`vestige body`: an exact slice of an input or output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from vestige.cli.answers import answer_options, open_debugger, print_answer
from vestige.cli.options import Examples, Home

if TYPE_CHECKING:
    from vestige.query.views.body_view import Which


@click.command(
    "body",
    cls=Examples,
    examples="""
  vestige body r7.s12                        its input from the start; else its output
  vestige body r7.s12 --out --lines 1:40     lines of what came out
  vestige body r7.s12 --bytes 4000:8000      an exact stretch
  vestige body r7.s12 --path '$.messages[0]' one value inside JSON
""",
    exits="0 shown, 2 no such span, body or path in it, 3 unreadable store",
)
@click.argument("id")
@click.option("--in", "part", flag_value="input", help="What went in.")
@click.option("--out", "part", flag_value="output", help="What came out.")
@click.option("--head", is_flag=True, help="The first ten lines.")
@click.option(
    "--lines", metavar="A:B", help="From line A to line B, both included; the first is 1."
)
@click.option("--bytes", "bytes_", metavar="A:B", help="From byte A up to byte B; the first is 0.")
@click.option("--path", metavar="PATH", help="One value of a JSON body: $.messages[0].content.")
@answer_options
def body(
    id: str,
    part: Which | None,
    head: bool,
    lines: str | None,
    bytes_: str | None,
    path: str | None,
    home: Home,
    as_json: bool,
    budget: int | None,
) -> None:
    """Show what went into a span, or came out of it: the exact text, a stretch at a time.

    Each line stands behind a bar, for it is somebody else's text; what a terminal would
    obey is shown as an escape. Bytes that are no text are shown in hexadecimal.
    """
    with open_debugger(home, id) as (debugger, wanted):
        answer = debugger.body(
            wanted or "", part=part, head=head, lines=lines, bytes=bytes_, path=path
        )
        print_answer(answer, as_json, budget)
