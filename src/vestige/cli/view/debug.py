"""`vestige debug`: look into a debug bundle. Also installed as `wink debug`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vestige.cli.options import Examples, json_option

if TYPE_CHECKING:
    from vestige.formats.wink.to_records import ReadContent
    from vestige.query.views.bundle_view import BundleAnswer, View

VIEWS = ("overview", "snapshots", "logs", "files", "metadata")
WEB_VIEWS = {"snapshots": "state", "logs": "logs", "files": "files", "metadata": "metadata"}
"""The names that the page has for them."""
REFUSED_SHOWN = 20


@click.command(
    "debug",
    cls=Examples,
    examples="""
  vestige debug crash.wink                      what happened, in one look
  vestige debug debug/                          the most recent bundle of a folder
  vestige debug crash.wink --view snapshots     the state over time, and what changed
  vestige debug crash.wink --view logs          the log, oldest first
  vestige debug crash.wink --web                in the browser
  vestige debug crash.wink --export-files out   its files, into a folder
  vestige diff crash.wink#3 crash.wink#7        two states, as any two spans
""",
    exits="0 shown or written, 1 some of it is damaged or was not written, 2 no such file, or it is in the way,"
    " 3 unreadable bundle",
)
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--web/--no-web",
    "web",
    default=None,
    help="In the browser, or as text. Default: in the browser, where a person is at a terminal"
    " that has one, and no other option is given.",
)
@click.option(
    "--view",
    type=click.Choice(VIEWS),
    default="overview",
    show_default=True,
    help="Which side of it.",
)
@click.option(
    "--export-logs",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write its log to a file, as JSON lines.",
)
@click.option(
    "--export-files",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write its files into a folder; what is there stays.",
)
@click.option(
    "--after", default=0, type=click.IntRange(0), metavar="N", help="Pass over the first N lines."
)
@json_option
@click.option(
    "--budget",
    type=click.IntRange(1),
    metavar="N",
    help="At most so many tokens of text; never above 8000.",
)
def debug(
    path: Path,
    web: bool | None,
    view: View,
    export_logs: Path | None,
    export_files: Path | None,
    after: int,
    as_json: bool,
    budget: int | None,
) -> None:
    """Look into a debug bundle: state over time, logs, files, metadata.

    PATH is a bundle (.wink), a file of snapshots (.jsonl), or a folder, of which the most
    recent one is taken. It opens in the browser where there is one; else, at a terminal,
    everything is shown as text, page by page.
    """
    from vestige.formats.wink.to_records import open_content
    from vestige.query.views.bundle_view import BundleAnswer
    from vestige.transfer.bundle_files import find_bundle

    found = find_bundle(path)
    if web is None:
        web = _is_for_the_browser()
    if web:
        from vestige.cli.view.ui import open_viewer
        from vestige.home import get_home

        open_viewer(get_home(), str(found), view=WEB_VIEWS.get(view))
        return
    content = open_content(found)
    if export_logs is not None or export_files is not None:
        _export(content, found, export_logs, export_files)
        return
    answer = BundleAnswer(content, view, str(found), after)
    if not as_json and budget is None and sys.stdout.isatty():
        _page(answer)
        return
    from vestige.cli.answers import print_answer

    print_answer(answer, as_json, budget)


def _is_for_the_browser() -> bool:
    """Was nothing asked for that only text can give, and is there a browser and a page for it?"""
    from click.core import ParameterSource

    from vestige.cli.view.ui import has_browser

    context = click.get_current_context()
    given = (
        name
        for name in context.params
        if name != "path" and context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    )
    return not any(given) and has_browser()


def _page(answer: BundleAnswer) -> None:
    """All of it; through a pager where it is longer than the screen."""
    import shutil

    from vestige.cli.answers import styled_line

    lines = [styled_line(text, mood) for text, mood in answer.all_lines()]
    if len(lines) < shutil.get_terminal_size().lines:
        for line in lines:
            click.echo(line)
    else:
        os.environ.setdefault("LESS", "-R")  # colours, in the pager that most have
        coloured = click.get_current_context().color is not False
        click.echo_via_pager((f"{line}\n" for line in lines), color=coloured)


def _export(content: ReadContent, path: Path, logs: Path | None, files: Path | None) -> None:
    from vestige.query import formatting
    from vestige.transfer import bundle_files

    content.verify()
    damaged = [problem for problem in content.problems if problem.severity == "error"]
    for problem in damaged[:REFUSED_SHOWN]:
        click.echo(f"  {formatting.single_line(str(problem), 300)}", err=True)
    if logs is not None:
        count = bundle_files.export_logs(content, logs)
        click.echo(f"{logs}: {formatting.pluralize(count, 'log line')} of {path}")
    if files is None:
        sys.exit(1 if damaged else 0)
    made = bundle_files.export_files(content, files)
    size = formatting.size(made.size_bytes)
    click.echo(f"{files}: {formatting.pluralize(made.written, 'file')} ({size}) of {path}")
    for name, why in made.refused[:REFUSED_SHOWN]:
        click.echo(f"  {formatting.single_line(name, 200)}: {why}; not written", err=True)
    if len(made.refused) > REFUSED_SHOWN:
        click.echo(f"  {len(made.refused) - REFUSED_SHOWN} more were not written", err=True)
    if made.refused or damaged:
        sys.exit(1)
