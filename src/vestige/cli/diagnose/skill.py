"""`vestige skill` and `vestige help`: playbooks, and hints of components."""

from __future__ import annotations

import click

from vestige.cli.options import Examples, Home
from vestige.cli.print_answer import answer_options, print_answer


@click.command(
    "skill",
    cls=Examples,
    examples="""
  vestige skill                     how to find the cause of a failure
  vestige skill --instrument        common instrumentation mistakes
  vestige skill > SKILL.md          add it to the instructions of an agent
""",
    exits="0 printed",
)
@click.option("--instrument", is_flag=True, help="Print the rules for instrumenting code.")
def skill(instrument: bool) -> None:
    """Print the debugging playbook for agents.

    It describes how to find a cause and report it with evidence, not how to fix it.
    """
    from vestige.skill import read_skill

    click.echo(read_skill("instrument" if instrument else "playbook"), nl=False)


@click.command(
    "help",
    cls=Examples,
    examples="""
  vestige help billing              debugging hints of the component `billing`
  vestige help billing --run r7     the hints in that run
  vestige help show                 same as `vestige show --help`
""",
    exits="0 ok, 2 component or run not found, 3 store unreadable",
)
@click.argument("component", required=False)
@click.option("--run", metavar="RUN", help="Hints in this run (default: the latest).")
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
    """Show the debugging hints of a component: hints, span types, example queries.

    Components register them with `logger.surface(...)`. For the name of a command, its help is
    shown.
    """
    from vestige.errors import NotFoundError
    from vestige.query.views.debugging_hints import help_for
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
