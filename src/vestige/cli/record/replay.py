"""`vestige replay RUN -- COMMAND`: run a program again with recorded responses, or fork a run."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from vestige.cli.options import Examples, Home, home_option

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vestige.cli.record.replay_plan import Plan
    from vestige.wire.replaying.response_player import Entry
    from vestige.wire.replaying.tool_player import ToolUse


class _OptionsAfterRun(Examples):
    """A command whose options may also follow the run. What comes after them is the command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        names = {name for each in self.get_params(ctx) for name in each.opts if name[:2] == "--"}
        options, words = _take_options(args, names)
        run, words = words[:1], words[1:]
        more, words = _take_options(words, names)
        return super().parse_args(ctx, [*options, *more, *run, *words])


def _take_options(words: list[str], names: set[str]) -> tuple[list[str], list[str]]:
    """Split the options at the beginning, with their values, from the other words."""
    at = 0
    while at < len(words) and words[at].partition("=")[0] in names:
        at += 1 if "=" in words[at] or words[at] == "--help" else 2
    return words[:at], words[at:]


@click.command(
    "replay",
    cls=_OptionsAfterRun,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    examples="""
  vestige replay r7 -- python agent.py       run it again, with the responses of r7
  vestige replay r7 --until s41 -- python agent.py
                                             recorded responses before s41, then live
  vestige replay r7 --until s41 --set messages[0].content=@prompt.txt -- python agent.py
                                             with another system prompt from s41 on
  vestige replay r7 --until s41 --set model=gpt-5 --trials 5 -- python agent.py
                                             five forks with the change, five without
  vestige replay r7 --until s41 --tools recorded -- python agent.py
                                             also without running tools before s41
""",
    exits="that of the command (with --trials: of the first fork with the change that failed);"
    " 128 + n if signal n killed it; 2 run not found, or it has no model calls",
)
@home_option
@click.argument("id")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
@click.option(
    "--until",
    metavar="SPAN",
    help="Fork the run: answer the calls before this step from the recording, send the others.",
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="PATH=VALUE",
    help="Change the request at the step of --until: a path in its JSON body, and text, @FILE or"
    " (with :=) JSON. Can be repeated.",
)
@click.option(
    "--tools",
    type=click.Choice(["live", "recorded"]),
    default="live",
    show_default=True,
    help="Run tools, or use their recorded results (@vestige.tool, and tools of most frameworks);"
    " after the step of --until, they run.",
)
@click.option(
    "--trials",
    type=click.IntRange(1, 100),
    metavar="N",
    help="Fork N times with the changes and N times without, and compare the outcomes.",
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="RULE",
    help="Values that may differ: time, uuid, id, a path such as messages[0].content (* is any"
    " key or index), or /a regular expression/. Can be repeated.",
)
def replay(
    home: Home,
    id: str,
    command: tuple[str, ...],
    until: str | None,
    sets: tuple[str, ...],
    tools: str,
    trials: int | None,
    ignore: tuple[str, ...],
) -> None:
    """Run COMMAND again with the model responses recorded in run ID.

    Each model call is answered from the recording, matched by method, path and body, and is not
    sent. Unrecorded calls fail with status 400; the first one is shown as a diff. Everything else
    runs normally, tools included (see --tools). The new run is recorded, too.

    With --until, only the calls before that step are answered from the recording. The call of the
    step is changed by --set and sent, and so are all later ones. A changed value is also replaced
    in later requests, where the same path has the same value.
    """
    if command[0] == "--":
        command = command[1:]
    if not command:
        raise click.UsageError("Missing argument 'COMMAND...'.")
    if until is None and (sets or trials):
        raise click.UsageError("--set and --trials need --until: the step at which to fork.")
    invocation = _Invocation(home, id, command, until, sets, ignore, tools)
    if trials is None:
        sys.exit(_replay(invocation).code)
    sys.exit(_run_trials(invocation, trials))


class _Invocation(NamedTuple):
    """The arguments of the command, from which a proposal makes the next one."""

    home: Home
    id: str
    command: tuple[str, ...]
    until: str | None
    sets: tuple[str, ...]
    ignore: tuple[str, ...]
    tools: str = "live"

    def with_rules(self, rules: list[str]) -> str:
        words = [] if self.until is None else ["--until", self.until]
        words += [word for each in self.sets for word in ("--set", each)]
        words += [] if self.tools == "live" else ["--tools", self.tools]
        words += [word for rule in [*self.ignore, *rules] for word in ("--ignore", rule)]
        return shlex.join(["vestige", "replay", self.id, *words, "--", *self.command])


class _Outcome(NamedTuple):
    """The end of one replay."""

    code: int
    run_id: str
    reached: bool
    """True if the step of `--until` was reached."""


def _replay(invocation: _Invocation) -> _Outcome:
    """Run the command once, and report to stderr."""
    from vestige.boot import boot_environment
    from vestige.cli.record.replay_plan import make_plan, read_lines, read_tools
    from vestige.collector.run_supervisor import run_command
    from vestige.proxy.launch import make_proxy
    from vestige.transfer import open_path
    from vestige.wire.replaying.matching_rules import parse_rules
    from vestige.wire.replaying.response_player import SCRIPT_VARIABLE, read_report, write_script
    from vestige.wire.replaying.tool_player import read_use, write_tools

    home = invocation.home
    parse_rules(invocation.ignore)
    with tempfile.TemporaryDirectory(prefix="vestige-replay-") as folder:
        script = os.path.join(folder, "script")
        with open_path(home) as debugger:
            plan = make_plan(
                debugger, invocation.id, invocation.until, invocation.sets, invocation.ignore
            )
            _note_additions(plan)
            write_script(script, read_lines(debugger, plan), plan.settings)
            if invocation.tools == "recorded":
                write_tools(script, read_tools(debugger, plan))
        env = {**boot_environment(os.environ), SCRIPT_VARIABLE: script}
        kind = "replay" if plan.fork is None else "fork"
        name = f"{kind} of {plan.run.short_id} {plan.run.name}"
        ended: list[str] = []
        code = run_command(
            home,
            invocation.command,
            env,
            name,
            lambda run_id, ok: ended.append(run_id),
            attributes=plan.attributes(),
            proxy=make_proxy(home),
        )
        entries = read_report(script)
        run_id = ended[0] if ended else ""
        reached = plan.fork is not None and any(
            entry.sent and entry.span_id == plan.fork.id and not entry.differs for entry in entries
        )
        _report(plan, entries, run_id, reached, invocation)
        if invocation.tools == "recorded":
            _report_tools(plan, read_use(script))
    return _Outcome(code, run_id, reached)


def _note_additions(plan: Plan) -> None:
    """Print which changes add a value: the path may be misspelt."""
    from vestige.wire.replaying.request_edits import MISSING

    for change in plan.settings.changes:
        if change.before == MISSING:
            line = f"vestige: --set {change.name}: the request does not have it, so it is added."
            click.echo(line, err=True)


def _run_trials(invocation: _Invocation, count: int) -> int:
    """Fork several times with the changes and without, and report which forks succeeded."""
    changed = [_replay(invocation) for _ in range(count)]
    control = []
    if invocation.sets:
        control = [_replay(invocation._replace(sets=())) for _ in range(count)]
    for name, outcomes in (("with the change", changed), ("without it", control)):
        if outcomes:
            ok = sum(each.code == 0 for each in outcomes)
            click.echo(f"vestige: {name}: {ok} of {len(outcomes)} succeeded.", err=True)
    if not all(each.reached for each in [*changed, *control]):
        click.echo("vestige: not every fork reached the step, so this proves nothing.", err=True)
    else:
        click.echo(f"vestige: {_conclude(changed, control, str(invocation.until))}", err=True)
    return next((each.code for each in changed if each.code), 0)


def _conclude(changed: list[_Outcome], control: list[_Outcome], step: str) -> str:
    """Return what the outcomes show about the step."""
    good, other = ({each.code == 0 for each in outcomes} for outcomes in (changed, control))
    if not control:
        same = len(good) == 1
        return f"the outcome {'is the same' if same else 'varies'} from {step} on."
    if len(good) == len(other) == 1 and good != other:
        return f"the change at {step} decided the outcome in all forks."
    if good == other and len(good) == 1:
        return f"the change at {step} made no difference to the outcome."
    return f"the outcome also varies by itself from {step} on. More trials show by how much."


def _report(
    plan: Plan, entries: list[Entry], run_id: str, reached: bool, invocation: _Invocation
) -> None:
    """Print the result to stderr: stdout belongs to the command."""
    from vestige.query.formatting import pluralize

    sent = sum(entry.sent and not entry.differs for entry in entries)
    served = sum(not entry.differs and not entry.sent for entry in entries)
    count = plan.before_count
    line = f"vestige: replayed {served} of {count} recorded calls"
    if plan.fork is not None:
        line += f" before {plan.fork.short_id}, sent {pluralize(sent, 'call')}"
    click.echo(f"{line}.", err=True)
    if plan.fork is not None and not reached:
        click.echo(f"vestige: the command never made the call {plan.fork.short_id}.", err=True)
    first = next((entry for entry in entries if entry.differs), None)
    if first is not None:
        _show_difference(first, sum(entry.differs for entry in entries), invocation)
    if reached:
        _show_next(invocation.home, plan, run_id)


def _report_tools(plan: Plan, use: ToolUse) -> None:
    """Print how many tool calls were answered from the recording, and which tools ran."""
    lines = [f"replayed {len(use.answered)} of {len(plan.tools)} recorded tool calls."]
    if use.unknown:
        lines[0] += f" Not in the recording: {_join_names(use.unknown)}."
    if use.ran:
        lines.append(f"these tools ran: {_join_names(use.ran)}.")
    answered = set(use.answered)
    unused = [span.name for span in plan.tools if span.id not in answered]
    unused = [name for name in unused if name not in (*use.unknown, *use.ran)]
    if unused:
        lines.append(
            f"the program did not ask for the results of {_join_names(unused)}: it did not call"
            " them, or they ran without a hook (the tracing of some frameworks can be off)."
        )
    if plan.inferred_tools:
        names = _join_names(plan.inferred_tools)
        lines.append(
            f"these tools ran, as nothing hooks them: {names}. Add @vestige.tool to replay them."
        )
    for line in lines:
        click.echo(f"vestige: {line}", err=True)


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def _show_next(home: Home, plan: Plan, run_id: str) -> None:
    """Print the command that compares the fork with its origin."""
    from vestige.errors import VestigeError
    from vestige.transfer import open_path

    try:
        with open_path(home) as debugger:
            short = debugger.resolve(run_id, "run").run.short_id
    except VestigeError:  # Another process is still collecting the new run.
        short = run_id
    click.echo(f"vestige: next: vestige diff {plan.run.short_id} {short}", err=True)


def _show_difference(first: Entry, count: int, invocation: _Invocation) -> None:
    from vestige.cli.record.replay_plan import read_body
    from vestige.query.diff.body_diff import diff_bodies
    from vestige.query.formatting import pluralize
    from vestige.transfer import open_path

    summary = (
        f"vestige: {pluralize(count, 'request')} not in the recording."
        f" The first: {first.method} {first.target}"
    )
    if first.reason:
        click.echo(f"vestige: {first.method} {first.target}: {first.reason}.", err=True)
        return
    if first.span_id is None:
        click.echo(f"{summary}: the recording has no further call.", err=True)
        return
    with open_path(invocation.home) as debugger:
        answer: Any = debugger.span(first.span_id)
        before = read_body(debugger, answer.span.input).decode(errors="replace")
        click.echo(f"{summary}, compared with {answer.span.short_id}:", err=True)
        for line in diff_bodies(before, first.body).lines():
            click.echo(f"  {line}", err=True)
        _show_proposal(before, first.body, invocation)


_OTHER_REQUEST = (
    "The program asks something else than in the recording. Run the version that was recorded, and"
    " change it from a step on with --until and --set. --ignore PATH leaves out a value that does"
    " not matter."
)


def _show_proposal(before: str, after: str, invocation: _Invocation) -> None:
    """Print where the bodies differ, and the command that ignores it."""
    from vestige.wire.replaying.matching_rules import find_unused, parse_rules
    from vestige.wire.replaying.propose_rules import propose

    rules = parse_rules(invocation.ignore)
    proposal = propose(before.encode(errors="replace"), after.encode(errors="replace"), rules)
    for line in proposal.lines():
        click.echo(f"  {line}", err=True)
    for rule in find_unused(before.encode(errors="replace"), rules):
        click.echo(f"  --ignore {rule}: this request does not have it", err=True)
    if proposal.rules:
        click.echo(f"To ignore it: {invocation.with_rules(proposal.rules)}", err=True)
    elif proposal.is_another_request:
        click.echo(_OTHER_REQUEST, err=True)
