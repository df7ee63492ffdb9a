"""`vestige watch`: stop, pause or report a running program that breaks a rule."""

from __future__ import annotations

from functools import partial
from threading import Thread
from typing import TYPE_CHECKING

import click

from vestige.cli.options import DURATION, Examples, Home, home_option, policy_option
from vestige.errors import UsageError, VestigeError

if TYPE_CHECKING:
    from vestige.query.debugger import Debugger
    from vestige.query.policy.policy import Policy
    from vestige.query.watch.rule_breaches import Breach, WatchRules
    from vestige.record.run import RunInfo

TICK_S = 0.1
"""Seconds between two looks at the runs."""
AUTHOR = "vestige watch"


@click.command(
    "watch",
    cls=Examples,
    examples="""
  vestige watch --max-cost 5 --stop        stop every program that spends more than $5
  vestige watch r7 --loop --pause          pause this run if it repeats itself
  vestige watch --silence 2m               report programs that record nothing for two minutes
  vestige watch --policy policy.toml --webhook https://ops.example/hook
""",
    exits="0 the run has ended, 1 a rule was broken, 2 usage or run not found, 130 Ctrl-C",
)
@click.argument("run", required=False)
@click.option("--max-cost", type=click.FloatRange(0), metavar="USD", help="Highest cost.")
@click.option("--loop", is_flag=True, help="Report an agent that repeats itself.")
@click.option("--silence", type=DURATION, metavar="TIME", help="Longest time without a record.")
@policy_option
@click.option("--stop", is_flag=True, help="End the program: SIGTERM, then SIGKILL.")
@click.option("--pause", is_flag=True, help="Pause the program; `kill -CONT PID` resumes it.")
@click.option("--webhook", metavar="URL", help="Send one POST, signed with HMAC-SHA256.")
@home_option
def watch(
    run: str | None,
    max_cost: float | None,
    loop: bool,
    silence: float | None,
    policy: Policy | None,
    stop: bool,
    pause: bool,
    webhook: str | None,
    home: Home,
) -> None:
    """Watch running programs, and act when one breaks a rule.

    Without RUN, all programs that are running or start meanwhile are watched, until Ctrl-C. With
    RUN, the watch ends with it. The reason is printed and added to the run as a note. Without
    --stop, --pause or --webhook, nothing else happens. If the watch is killed, the programs go on.

    VESTIGE_WEBHOOK_SECRET is the key of the signature in the header X-Vestige-Signature.
    """
    from vestige.cli.webhook import validate_url
    from vestige.query.watch.rule_breaches import WatchRules

    rules = WatchRules(max_cost, loop, silence, policy)
    if not rules:
        raise UsageError("watch: no rule. Use --max-cost, --loop, --silence or --policy.")
    if stop and pause:
        raise UsageError("watch: --stop and --pause exclude each other. Use one of them.")
    url = None if webhook is None else validate_url(webhook)
    home.make()
    watch = _Watch(home, rules, stop, pause, url)
    try:
        status = _watch(watch, run)
    except KeyboardInterrupt:
        status = 130
    watch.wait_for_reports()
    click.get_current_context().exit(status)


class _Watch:
    """The rules, and what happens when one is broken."""

    def __init__(
        self, home: Home, rules: WatchRules, stop: bool, pause: bool, url: str | None
    ) -> None:
        self.home, self.rules = home, rules
        self._stop, self._pause, self._url = stop, pause, url
        self._reports: list[Thread] = []

    def act(self, debugger: Debugger, run: RunInfo, breach: Breach) -> None:
        """Stop or pause the program, add the reason to the run, report it and print it."""
        from vestige.collector.process_signals import (
            find_live_processes,
            pause_processes,
            stop_processes,
        )

        pids = find_live_processes(self.home, debugger.store.load_run(run.id))
        verb = (
            "Stopped" if self._stop and pids else "Paused" if self._pause and pids else "Reported"
        )
        if self._stop:
            record = partial(_record_stop, self.home, debugger, run, breach)
            stop_processes(pids, record if pids else None)
        elif self._pause:
            pause_processes(pids)
        _add_note(self.home, debugger, run, f"{verb}: {breach.code}: {breach.message}")
        if self._url is not None:
            # In a thread: other programs are watched while a receiver does not answer.
            report = Thread(target=self._report, args=(run, breach, verb.lower()), daemon=True)
            self._reports.append(report)
            report.start()
        click.echo(f"{run.short_id} {verb.lower()}: {breach.code}: {breach.message}")

    def wait_for_reports(self) -> None:
        """Wait until the reports are sent, at most as long as one may take."""
        from vestige.cli.webhook import TIMEOUT_S

        for report in self._reports:
            report.join(TIMEOUT_S)

    def _report(self, run: RunInfo, breach: Breach, action: str) -> None:
        from vestige.cli.webhook import send_webhook
        from vestige.record.redaction.output_redaction import redact_values

        event = {
            "version": 1,
            "run_id": run.id,
            "short_id": run.short_id,
            "name": run.name,
            "code": breach.code,
            "message": breach.message,
            "span_id": breach.span_id,
            "action": action,
        }
        problem = send_webhook(self._url or "", redact_values(event))
        if problem is not None:
            click.echo(f"vestige: webhook not delivered ({problem}).", err=True)


def _record_stop(home: Home, debugger: Debugger, run: RunInfo, breach: Breach) -> None:
    """Record the reason in the runs of the program, where `vestige check` finds it."""
    from vestige.collector.stop_reason import StopReason, record_stop
    from vestige.recorder import Recorder

    reason = StopReason(f"{breach.code}: {breach.message}", breach.run_id, breach.span_id)
    ids = [each.id for each in _shown_runs(debugger, run)]
    with Recorder(home, crash_hooks=False, silence_s=0) as recorder:
        record_stop(recorder, [run.id, *ids], AUTHOR, reason)


def _shown_runs(debugger: Debugger, run: RunInfo) -> list[RunInfo]:
    """Return the runs of a program that lists show."""
    from vestige.store.protocol import RunFilter

    runs = debugger.store.list_runs(RunFilter(of_process=run.id, with_implicit=True))
    return [each for each in runs if not each.implicit] or [run]


def _add_note(home: Home, debugger: Debugger, run: RunInfo, text: str) -> None:
    """Add a note to the runs of the program that lists show."""
    from vestige.transfer import add_note

    try:
        for each in _shown_runs(debugger, run):
            add_note(home, debugger, each.id, text, author=AUTHOR)
    except VestigeError as error:
        click.echo(f"vestige: the reason was not stored ({error})", err=True)


def _watch(watch: _Watch, id: str | None) -> int:
    """Look at the runs until the one of `id` has ended. Return the exit status."""
    from vestige._runtime import clock
    from vestige.cli.print_answer import open_debugger
    from vestige.collector.loop import catch_up
    from vestige.query.watch.rule_breaches import Watcher
    from vestige.store.protocol import RunFilter

    with open_debugger(watch.home) as (debugger, _):
        chosen = None if id is None else debugger.resolve(id, "run").run.id
        watchers: dict[str, Watcher] = {}
        broken: set[str] = set()
        while True:
            catch_up(watch.home)
            running = [
                run
                for run in debugger.store.list_runs(RunFilter(with_implicit=True, limit=200))
                if run.outcome == "running" and (run.process_run or run.id) == run.id
            ]
            for run in running:
                if run.id in broken or chosen not in (None, run.id):
                    continue
                watcher = watchers.setdefault(run.id, Watcher(debugger.store, watch.rules))
                breach = watcher.check(run.id, clock.SYSTEM.now_ns())
                if breach is not None:
                    broken.add(run.id)
                    watch.act(debugger, run, breach)
            if chosen is not None and chosen in broken:
                return 1
            if chosen is not None and chosen not in {run.id for run in running}:
                click.echo(f"{id} has ended.")
                return 0
            clock.sleep(TICK_S)
