"""`vestige span`, `segments`: one span, and the sources of its prompt."""

from __future__ import annotations

import click

from vestige.cli.answers import answer_options, open_debugger, print_answer
from vestige.cli.options import Examples, Home


@click.command(
    "span",
    cls=Examples,
    examples="""
  vestige span r7.s12                attributes, parent, children, links, bodies
  vestige span call_7                the span that has this id as an attribute
  vestige span r7.s12 --prompt       the sources of its prompt, the largest first
  vestige span r7.s12 --json         as JSON, nothing truncated
""",
    exits="0 shown, 2 no such span, or several, 3 unreadable store",
)
@click.argument("id")
@click.option("--prompt", "breakdown", is_flag=True, help="Break down its prompt by source.")
@answer_options
def span(id: str, breakdown: bool, home: Home, as_json: bool, budget: int | None) -> None:
    """Show one span: attributes, position, payload previews.

    ID is a span id, its first characters (four or more), a short id such as r7.s12, or the
    value of an attribute. Of a run, its root span is shown.
    """
    with open_debugger(home, id) as (debugger, wanted):
        answer = debugger.segments(wanted or "") if breakdown else debugger.span(wanted or "")
    print_answer(answer, as_json, budget)


@click.command(
    "segments",
    cls=Examples,
    examples="""
  vestige segments r7.s12            who put what into this call's prompt, the largest first
  vestige segments r7.s12 --json     each part with its place in the request
""",
    exits="0 shown, 2 no such span, or no prompt of a known form, 3 unreadable store",
)
@click.argument("id")
@answer_options
def segments(id: str, home: Home, as_json: bool, budget: int | None) -> None:
    """Show what a prompt is made of: by contributor, with sizes and shares.

    As the program said (`span.segments`); else as the request's own shape tells: its tools,
    system prompt and messages.
    """
    with open_debugger(home, id) as (debugger, wanted):
        answer = debugger.segments(wanted or "")
    print_answer(answer, as_json, budget)
