"""`vestige span`, `segments`: one span, and the sources of its prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from vestige.cli.options import Examples, Home
from vestige.cli.print_answer import answer_options, open_debugger, print_answer

if TYPE_CHECKING:
    from vestige.query.answer import Answer


@click.command(
    "span",
    cls=Examples,
    examples="""
  vestige span r7.s12                attributes, parent, children, links, bodies
  vestige span call_7                the span that has this id as an attribute
  vestige span r7.s12 --prompt       the sources of its prompt, the largest first
  vestige span r7.s12 --json         as JSON, nothing truncated
""",
    exits="0 ok, 2 span not found or ambiguous, 3 store unreadable",
)
@click.argument("id")
@click.option("--prompt", "breakdown", is_flag=True, help="Break down its prompt by source.")
@click.option("--ids", is_flag=True, help="Show the full id, too.")
@answer_options
def span(
    id: str, breakdown: bool, ids: bool, home: Home, as_json: bool, budget: int | None
) -> None:
    """Show one span: attributes, position, payload previews.

    ID is a span id, its first characters (four or more), a short id such as r7.s12, or the
    value of an attribute. For the id of a run, its root span is shown.
    """
    with open_debugger(home, id) as (debugger, found_id):
        answer: Answer
        if breakdown:
            answer = debugger.segments(found_id or "")
        else:
            answer = debugger.span(found_id or "", ids=ids)
    print_answer(answer, as_json, budget)


@click.command(
    "segments",
    cls=Examples,
    examples="""
  vestige segments r7.s12            the sources of its prompt, the largest first
  vestige segments r7.s12 --json     each part with its position in the request
""",
    exits="0 ok, 2 span not found, or no prompt in a known format, 3 store unreadable",
)
@click.argument("id")
@answer_options
def segments(id: str, home: Home, as_json: bool, budget: int | None) -> None:
    """Break down a prompt by source, with sizes and shares.

    The sources are those that the program reported (`span.segments`); otherwise they are inferred
    from the request: tools, system prompt and messages.
    """
    with open_debugger(home, id) as (debugger, found_id):
        answer = debugger.segments(found_id or "")
    print_answer(answer, as_json, budget)
