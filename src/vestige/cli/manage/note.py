"""`vestige note`, `vestige notes`: say something about a run, and read what was said."""

from __future__ import annotations

import click

from vestige.cli.answers import answer_options, open_debugger, print_answer
from vestige.cli.options import Examples, Home


@click.command(
    "note",
    cls=Examples,
    examples="""
  vestige note r7 "the refund tool was down"        about a run
  vestige note r7.s12 "wrong customer" --author eva about a span
  vestige note r7                                   what was said so far
""",
    exits="0 kept (or shown), 2 no such run or span, or no text in it, 3 unreadable store",
)
@click.argument("id")
@click.argument("text", required=False)
@click.option("--author", metavar="NAME", help="Who says it.")
@answer_options
def note(
    id: str, text: str | None, author: str | None, home: Home, as_json: bool, budget: int | None
) -> None:
    """Write a note about a run or a span; without TEXT, show those that there are.

    ID is anything that leads to a run or a span. Secrets in a note are masked before it is
    kept. Notes go with their run: into a .wink file, and away when it is pruned.
    """
    if text is None:
        with open_debugger(home, id) as (debugger, wanted):
            print_answer(debugger.notes(wanted), as_json, budget)
        return
    import json

    from vestige.errors import UsageError
    from vestige.query.views.notes import note_data
    from vestige.transfer import add_note, is_source, open_path

    if is_source(id):
        raise UsageError(
            f"{id}: is a file, and stays as it is. Take it in first: `vestige import`."
        )
    with open_path(home) as debugger:
        kept = add_note(home, debugger, id, text, author=author)
        run = debugger.store.load_run(kept.run_id)
    (data,) = note_data(run.spans, [kept])
    if as_json:
        click.echo(json.dumps(data, ensure_ascii=False, indent=2))
    else:
        click.echo(f"{data['span'] or run.info.short_id}: noted")


@click.command(
    "notes",
    cls=Examples,
    examples="""
  vestige notes r7             all notes of a run
  vestige notes r7.s12         those about one span
  vestige notes crash.wink     those that a bundle brought along
""",
    exits="0 shown (also when there are none), 2 no such run, 3 unreadable input",
)
@click.argument("id", required=False)
@answer_options
def notes(id: str | None, home: Home, as_json: bool, budget: int | None) -> None:
    """Show what was said about a run afterwards, oldest first.

    ID is anything that leads to a run or a span, or the path of one. Without ID, the latest.
    """
    with open_debugger(home, id) as (debugger, wanted):
        print_answer(debugger.notes(wanted), as_json, budget)
