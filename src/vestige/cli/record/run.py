"""`vestige run -- COMMAND`: record a program without changing it."""

from __future__ import annotations

import os
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vestige.cli.options import Examples, Home, home_option
from vestige.home import is_default
from vestige.limits import END_LINE_S

if TYPE_CHECKING:
    from vestige.collector.stop_reason import StopReason
    from vestige.query.watch.rule_breaches import WatchRules


@click.command(
    "run",
    cls=Examples,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    examples="""
  vestige run -- python agent.py                 record a program
  vestige run --name nightly -- python -m agent  set the name of the run
  vestige run --no-wire -- python agent.py       without HTTP calls
  vestige run --quiet -- python agent.py         without the summary line
  vestige run --max-cost 5 -- python agent.py    stop it after $5 of model calls
""",
    exits="that of the command; 128 + n if signal n killed it; 2 could not be started",
)
@click.option("--name", metavar="NAME", help="Name of the run (default: program name).")
@click.option("--no-wire", is_flag=True, help="Do not record HTTP calls to model providers.")
@click.option("--no-logs", is_flag=True, help="Do not record the records of `logging`.")
@click.option("--no-prints", is_flag=True, help="Do not record stdout and stderr.")
@click.option(
    "--max-cost", type=click.FloatRange(0), metavar="USD", help="Stop the command at this cost."
)
@click.option(
    "--policy",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Stop the command if it breaks a rule of this policy (TOML).",
)
@click.option("--quiet", "-q", is_flag=True, help="Do not print the summary line.")
@home_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def run(
    name: str | None,
    no_wire: bool,
    no_logs: bool,
    no_prints: bool,
    max_cost: float | None,
    policy: Path | None,
    quiet: bool,
    home: Home,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND with recording on.

    Python programs are recorded from the start, child processes included: HTTP calls to model
    providers, log records, stdout and stderr. Of other programs (Node, Go, curl, claude), the model
    calls are recorded through a proxy, which needs `vestige[proxy]`, and stdout and stderr unless
    they are a terminal. Terminal, signals and exit code of the command are unchanged.

    With --max-cost or --policy, the command is stopped (SIGTERM, then SIGKILL) when it breaks the
    rule, and the reason is recorded in the run. A policy that cannot be read is reported, and the
    command runs without it.

    On a terminal, a summary line with the next command is printed to stderr at the end. It is
    omitted if stderr is a file or a pipe.
    """
    if command[0].startswith("--"):
        from difflib import get_close_matches

        options = [name for each in run.params for name in each.opts]
        close = get_close_matches(command[0], options)
        raise click.NoSuchOption(command[0], possibilities=close)
    from vestige.boot import boot_environment
    from vestige.collector.run_supervisor import run_command
    from vestige.proxy.launch import make_proxy

    env = boot_environment(os.environ, wire=not no_wire, logs=not no_logs, prints=not no_prints)
    summary = not quiet and sys.stderr is not None and sys.stderr.isatty()
    then = partial(_print_summary, home) if summary else None
    rules = _read_rules(max_cost, policy)
    guard = partial(_find_reason, home, rules) if rules else None
    proxy = None if no_wire else make_proxy(home, prints=not no_prints)
    sys.exit(run_command(home, command, env, name, then, guard, proxy=proxy))


def _read_rules(max_cost: float | None, policy: Path | None) -> WatchRules | None:
    """Return the rules of the options. A policy that is not valid never stops a program."""
    if max_cost is None and policy is None:
        return None
    from vestige.errors import VestigeError
    from vestige.providers.prices import load_table
    from vestige.query.policy.policy import read_policy
    from vestige.query.watch.rule_breaches import WatchRules

    try:
        rules = None if policy is None else read_policy(policy)
    except VestigeError as error:
        click.echo(f"vestige: {error} The command runs without the policy.", err=True)
        rules = None
    if max_cost is not None:
        load_table()  # Before the command starts: the table takes a moment, and calls do not wait.
    return WatchRules(max_cost_usd=max_cost, policy=rules)


def _find_reason(home: Home, rules: WatchRules, run_id: str) -> StopReason | None:
    """Return which rule the command of a run broke, or None."""
    from vestige._runtime import clock
    from vestige.collector.stop_reason import StopReason
    from vestige.query.watch.rule_breaches import Watcher
    from vestige.settings import find_store
    from vestige.store.open import open_store

    with open_store(find_store(home), readonly=True, root=home.root) as store:
        breach = Watcher(store, rules).check(run_id, clock.SYSTEM.now_ns())
    if breach is None:
        return None
    return StopReason(f"{breach.code}: {breach.message}", breach.run_id, breach.span_id)


def _print_summary(home: Home, run_id: str, ok: bool) -> None:
    """Print the summary line. A failure here must not change the command's exit code."""
    try:
        click.echo(f"vestige: {_end_line(home, run_id, ok)}", err=True)
    except (Exception, KeyboardInterrupt):  # noqa: BLE001  # the command itself has ended
        return


def _end_line(home: Home, run_id: str, ok: bool) -> str:
    """Return the summary from the store, or a short one if the store takes too long."""
    from vestige._runtime import clock
    from vestige.query.views.run_command_summary import next_command

    at = "" if is_default(home) else f"--home {shlex.quote(str(home.root))}"
    deadline = clock.monotonic() + END_LINE_S
    while clock.monotonic() < deadline:
        line = _read_end_line(home, run_id, at)
        if line is not None:
            return line
        clock.sleep(0.02)  # another process is collecting this home
    return f"recorded. Next: {next_command(run_id, ok, at)}"


def _read_end_line(home: Home, run_id: str, at: str) -> str | None:
    from vestige.errors import VestigeError
    from vestige.query.views.run_command_summary import end_line
    from vestige.settings import find_store
    from vestige.store.open import open_store

    try:
        with open_store(find_store(home), readonly=True, root=home.root) as store:
            return end_line(store, run_id, at)
    except VestigeError:  # no store yet, or unreadable: the next command reports it
        return None
