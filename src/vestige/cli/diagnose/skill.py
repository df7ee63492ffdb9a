"""`vestige skill` and `vestige help`: what to know before one debugs, or instruments."""

from __future__ import annotations

import click

from vestige.cli.answers import answer_options, print_answer
from vestige.cli.options import Examples, Home


@click.command(
    "skill",
    cls=Examples,
    examples="""
  vestige skill                     how to find a cause: for a debugging agent, or a person
  vestige skill --instrument        what one gets wrong when instrumenting code
  vestige skill > SKILL.md          into an agent's instructions
""",
    exits="0 printed",
)
@click.option("--instrument", is_flag=True, help="The rule for code that records.")
def skill(instrument: bool) -> None:
    """Print the playbook of a debugging agent.

    It finds a cause and reports it with evidence; it does not fix.
    """
    from vestige.skill import read_skill

    click.echo(read_skill("instrument" if instrument else "playbook"), nl=False)


@click.command(
    "help",
    cls=Examples,
    examples="""
  vestige help billing              what the component `billing` says about reading it
  vestige help billing --run r7     as it stood in that run
  vestige help show                 the same as `vestige show --help`
""",
    exits="0 shown, 2 no such component or run, 3 unreadable store",
)
@click.argument("component", required=False)
@click.option("--run", metavar="RUN", help="Of this run's process. Default: the latest.")
@answer_options
@click.pass_context
def help_component(
    context: click.Context,
    component: str | None,
    run: str | None,
    budget: int | None,
    home: Home,
    as_json: bool,
) -> None:
    """Show a component's debug surface: its hints, its span types, its queries ready to run.

    Components register one with `logger.surface(...)`; most need none. A command's name
    gives the help of that command.
    """
    from vestige.errors import NotFoundError
    from vestige.query.views.debug_surfaces import help_for
    from vestige.transfer import open_path

    root = context.find_root()
    if component is None:
        click.echo(root.get_help())
        return
    try:
        with open_path(home) as debugger:
            answer = help_for(debugger.store, component, run)
            answer.at = debugger.at
    except NotFoundError:
        assert isinstance(root.command, click.Group)
        named = root.command.get_command(root, component)
        if named is None:
            raise
        click.echo(named.get_help(click.Context(named, root, info_name=component)))
        return
    print_answer(answer, as_json, budget)
