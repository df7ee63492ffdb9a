"""`vestige bundle show`: inspect a debug bundle. Also installed as `wink debug`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vestige.cli.options import Examples, json_option

if TYPE_CHECKING:
    from vestige.formats.wink.to_records import ReadContent
    from vestige.query.views.debug_bundle import View

VIEWS = ("overview", "snapshots", "logs", "files", "metadata")
WEB_VIEWS = {"snapshots": "state", "logs": "logs", "files": "files", "metadata": "metadata"}
"""The same views by their names in the web viewer."""
REFUSED_SHOWN = 20


@click.command(
    "debug",
    cls=Examples,
    examples="""
  vestige bundle show crash.wink                      summary
  vestige bundle show debug/                          the most recent bundle of a folder
  vestige bundle show crash.wink --view snapshots     state snapshots and changes
  vestige bundle show crash.wink --view logs          the log, oldest first
  vestige bundle show crash.wink --web                in the browser
  vestige bundle show crash.wink --export-files out   write its files to a folder
  vestige diff crash.wink#3 crash.wink#7        compare two snapshots
""",
    exits="0 ok, 1 parts are damaged or were not written, 2 file not found or target exists,"
    " 3 bundle unreadable",
)
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--web/--no-web",
    "web",
    default=None,
    help="Open the web viewer, or print text. Default: the viewer, at a terminal with a browser,"
    " if no other option is used.",
)
@click.option(
    "--view",
    type=click.Choice(VIEWS),
    default="overview",
    show_default=True,
    help="The view.",
)
@click.option(
    "--export-logs",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the log to a file, as JSON lines.",
)
@click.option(
    "--export-files",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the files to a folder; existing files are not replaced.",
)
@click.option(
    "--after", default=0, type=click.IntRange(0), metavar="N", help="Skip the first N lines."
)
@json_option
@click.option(
    "--budget",
    type=click.IntRange(1),
    metavar="N",
    help="Limit the output to N tokens (at most 8000).",
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
    """Inspect a debug bundle: state over time, logs, files, metadata.

    PATH is a bundle (.wink), a file of snapshots (.jsonl), or a folder, whose most recent bundle
    is used. It opens in the browser if there is one; otherwise it is shown as text in a pager.
    """
    from vestige.formats.wink.to_records import open_content
    from vestige.query.views.debug_bundle import BundleAnswer
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
    from vestige.cli.print_answer import page, print_answer, styled_line

    if not as_json and budget is None and sys.stdout.isatty():
        page([styled_line(text, mood) for text, mood in answer.all_lines()])
        return
    print_answer(answer, as_json, budget)


def _is_for_the_browser() -> bool:
    """Return whether to open the viewer: no option requires text, and there is a browser."""
    from click.core import ParameterSource

    from vestige.cli.view.ui import has_browser

    context = click.get_current_context()
    options = (
        name
        for name in context.params
        if name != "path" and context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    )
    return not any(options) and has_browser()


def _export(content: ReadContent, path: Path, logs: Path | None, files: Path | None) -> None:
    from vestige.query import formatting
    from vestige.transfer import bundle_files

    content.verify()
    damaged = [problem for problem in content.problems if problem.severity == "error"]
    for problem in damaged[:REFUSED_SHOWN]:
        click.echo(f"  {formatting.single_line(str(problem), 300)}", err=True)
    if logs is not None:
        count = bundle_files.export_logs(content, logs)
        click.echo(f"{logs}: {formatting.pluralize(count, 'log line')} from {path}")
    if files is None:
        sys.exit(1 if damaged else 0)
    made = bundle_files.export_files(content, files)
    size = formatting.size(made.size_bytes)
    click.echo(f"{files}: {formatting.pluralize(made.written, 'file')} ({size}) from {path}")
    for name, why in made.refused[:REFUSED_SHOWN]:
        click.echo(f"  {formatting.single_line(name, 200)}: {why}; not written", err=True)
    if len(made.refused) > REFUSED_SHOWN:
        click.echo(f"  {len(made.refused) - REFUSED_SHOWN} more not written", err=True)
    if made.refused or damaged:
        sys.exit(1)
