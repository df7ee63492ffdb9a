"""`vestige show`: the steps of a run, or another view of it."""

from __future__ import annotations

from typing import Any, Final

import click

from vestige.cli.options import Examples, Home
from vestige.cli.print_answer import answer_options, open_debugger, print_answer
from vestige.limits import SHOW_LINES_MAX

VIEWS: Final = {
    "steps": ("errors", "type", "from", "to", "depth", "no-fold", "after", "limit", "ids", "tree"),
    "overview": (),
    "transcript": ("after", "limit"),
    "outline": ("after",),
    "state": ("against", "after"),
    "files": ("at",),
    "notes": (),
}
"""Each view, and the options that apply to it."""


@click.command(
    "show",
    cls=Examples,
    examples="""
  vestige show                        the latest run, step by step
  vestige show 4f2a --errors          only failed spans, with their parents
  vestige show r7 --type tool         only tool calls
  vestige show r7 --from 2 --to 3.5   only these seconds of the run
  vestige show r7 --view transcript   messages and tool calls, like a chat
  vestige show r7 --view overview     outcome, findings, next commands
  vestige show --follow               the current run, as it happens
  vestige show runs/3d1957bd-...      a run directory of AgentDbg
  vestige show r7 --json              as JSON
""",
    exits="0 ok, 2 not found, 3 store unreadable",
)
@click.argument("run", required=False)
@click.option(
    "--view",
    type=click.Choice(list(VIEWS)),
    default="steps",
    show_default=True,
    help="View of the run.",
)
@click.option("--follow", "-f", is_flag=True, help="Show steps as they happen, up to the end.")
@click.option("--errors", is_flag=True, help="Only failed spans, with their parents.")
@click.option("--type", "type", metavar="TYPE", help="Only spans of this type: llm, tool, ...")
@click.option("--from", "from_", metavar="S", help="Start at this second of the run, or at a span.")
@click.option("--to", metavar="S", help="Stop at this second of the run, or at a span.")
@click.option("--depth", type=click.IntRange(0), metavar="N", help="Maximum depth.")
@click.option("--no-fold", is_flag=True, help="Do not collapse repeated lines.")
@click.option("--ids", is_flag=True, help="Show full ids, too.")
@click.option("--tree", is_flag=True, help="Show every span and log record on a terminal, too.")
@click.option("--at", metavar="S", help="Files at this second of the run, or when a span started.")
@click.option("--against", type=click.IntRange(0), metavar="N", help="Compare with snapshot N.")
@click.option("--after", metavar="PLACE", help="Continue after a line number, cursor or span.")
@click.option(
    "--limit",
    show_default=str(SHOW_LINES_MAX),
    type=click.IntRange(1),
    metavar="N",
    help="Show at most N lines or items.",
)
@answer_options
@click.pass_context
def show(
    ctx: click.Context,
    /,
    run: str | None,
    view: str,
    follow: bool,
    home: Home,
    as_json: bool,
    budget: int | None,
    **options: Any,
) -> None:
    """Show a run as steps, overview, transcript, files or state.

    On a terminal, the default is its steps, else one line per span or log record, oldest first.
    A step is one model call and what it did. `--tree` shows the spans on a terminal, too, and so
    does every option that selects spans. Attributes that all spans share are shown once.

    RUN is a run id or its first characters, a short id such as r7, any other id that leads to a
    run, a pasted log line, or a path: a data directory, a journal, a run of another tool. Default:
    the latest run. Every span's line starts with its short id.
    """
    _require_fitting(view, options)
    if follow:
        from vestige.cli.view.follow import follow as follow_run

        ctx.invoke(follow_run, run=run, errors=options["errors"], type=options["type"], home=home)
        return
    if view == "steps":
        after = None if options.pop("after") is None else _number(ctx)
        _show_steps(run, home, as_json, budget, after=after, **options)
        return
    chosen = {"home": home, "as_json": as_json, "budget": budget, "id": run}
    for name in VIEWS[view]:
        if options[name] is not None:
            chosen["than" if name == "against" else name] = (
                _number(ctx) if view == "state" and name == "after" else options[name]
            )
    ctx.invoke(ctx.find_root().command.commands[view], **chosen)  # type: ignore[attr-defined]


def _require_fitting(view: str, options: dict[str, Any]) -> None:
    """Refuse an option that the view would ignore."""
    for name, value in options.items():
        option = name.strip("_").replace("_", "-")
        if value not in (None, False) and option not in VIEWS[view]:
            fitting = ", ".join(f"--{each}" for each in VIEWS[view]) or "no such options"
            raise click.UsageError(
                f"--{option} does not apply to --view {view} (expected {fitting})."
            )


def _number(ctx: click.Context) -> int:
    """Return `--after` as a number of lines or of a snapshot."""
    value: int = click.IntRange(0).convert(ctx.params["after"], None, ctx)
    return value


def _show_steps(
    run: str | None,
    home: Home,
    as_json: bool,
    budget: int | None,
    *,
    errors: bool,
    no_fold: bool,
    at: None,
    against: None,
    ids: bool,
    tree: bool,
    **narrowing: Any,
) -> None:
    limit = narrowing.pop("limit")
    narrowed = errors or as_json or any(value is not None for value in narrowing.values())
    with open_debugger(home, run, glance=not narrowed) as (debugger, run_id):
        answer = debugger.show(
            run_id, errors=errors, fold=not no_fold, limit=limit, ids=ids, tree=tree, **narrowing
        )
        # The arguments of tools are read for the lines that are shown.
        print_answer(answer, as_json, budget)
