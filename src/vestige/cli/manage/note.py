"""`vestige note`, `vestige notes`: add notes to a run, and list them."""

from __future__ import annotations

import click

from vestige.cli.options import Examples, Home
from vestige.cli.print_answer import answer_options, open_debugger, print_answer


@click.command(
    "note",
    cls=Examples,
    examples="""
  vestige note r7 "the refund tool was down"        about a run
  vestige note r7.s12 "wrong customer" --author eva about a span
  vestige note r7.s12 "#culprit wrong rate"         with a tag: vestige list tag:culprit
  vestige note r7                                   list its notes
  vestige note r7 --edit 2 "the refund API was down"
  vestige note r7 --delete 2                        delete the second note
""",
    exits="0 ok, 2 run, span or note not found, or empty text, 3 store unreadable",
)
@click.argument("id")
@click.argument("text", required=False)
@click.option(
    "--author", metavar="NAME", help="Author (default: your name in git, or your account)."
)
@click.option("--edit", metavar="N", help="Replace the text of note N of the list.")
@click.option("--delete", metavar="N", help="Delete note N of the list.")
@answer_options
def note(
    id: str,
    text: str | None,
    author: str | None,
    edit: str | None,
    delete: str | None,
    home: Home,
    as_json: bool,
    budget: int | None,
) -> None:
    """Add a note to a run or a span, edit or delete one; without TEXT, list notes.

    ID is any id that leads to a run or a span. Secrets in a note are redacted before it is
    stored. Notes are exported and deleted together with their run.
    """
    if text is None and edit is None and delete is None:
        with open_debugger(home, id) as (debugger, found_id):
            print_answer(debugger.notes(found_id), as_json, budget)
        return
    import json

    from vestige.errors import UsageError
    from vestige.query.views.notes import note_data
    from vestige.transfer import add_note, is_source, open_path
    from vestige.transfer.write_note import delete_note, edit_note, find_author

    if is_source(id):
        raise UsageError(f"{id}: files are read-only. Import it first: `vestige import`.")
    if delete is not None and (text is not None or edit is not None):
        raise UsageError("note: --delete takes neither a text nor --edit.")
    with open_path(home) as debugger:
        if delete is not None:
            changed, done = delete_note(home, debugger, id, delete), "deleted from"
        elif edit is not None:
            changed, done = edit_note(home, debugger, id, edit, text or ""), "edited on"
        else:
            found = author or find_author()
            changed, done = add_note(home, debugger, id, text or "", author=found), "added to"
        run = debugger.store.load_run(changed.run_id)
    (data,) = note_data(run.spans, [changed])
    if as_json:
        click.echo(json.dumps(data, ensure_ascii=False, indent=2))
    else:
        click.echo(f"Note {done} {data['span'] or run.info.short_id}")


@click.command(
    "notes",
    cls=Examples,
    examples="""
  vestige notes r7             all notes of a run
  vestige notes r7.s12         notes on one span
  vestige notes crash.wink     notes in a bundle
""",
    exits="0 ok, 2 run not found, 3 input unreadable",
)
@click.argument("id", required=False)
@answer_options
def notes(id: str | None, home: Home, as_json: bool, budget: int | None) -> None:
    """List the notes on a run, oldest first.

    ID is any id that leads to a run or a span, or a path. Default: the latest run.
    """
    with open_debugger(home, id) as (debugger, found_id):
        print_answer(debugger.notes(found_id), as_json, budget)
