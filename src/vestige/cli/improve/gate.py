"""`vestige gate`: fail a build if an agent got worse."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vestige.cli.options import Examples, Home, policy_option
from vestige.cli.print_answer import answer_options, open_debugger, print_answer
from vestige.errors import UsageError

RUNS_MAX = 200
"""Runs of a bundle or an export that are measured."""

if TYPE_CHECKING:
    from vestige.query.gate.gate_answer import GateAnswer
    from vestige.query.gate.measure_execution import Measurement
    from vestige.query.policy.policy import Policy


@click.command(
    "gate",
    cls=Examples,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    examples="""
  vestige gate --save baseline.json --trials 3 -- python agent.py   write a baseline
  vestige gate --baseline baseline.json -- python agent.py          compare a change with it
  vestige gate --baseline 'name:triage is:ok' -- python agent.py    compare with recorded runs
  vestige gate --policy policy.toml -- python agent.py              only check a policy
  vestige gate --baseline baseline.json --runs 'since:1h'           gate runs that are recorded
  vestige gate --baseline suite/old --runs suite/new                compare two recorded suites
""",
    exits="0 passed, 1 failed, 2 usage or run not found, 3 baseline or store unreadable",
)
@click.option(
    "--baseline", metavar="FILE|RUNS", help="A baseline file; or ids, a filter or a path of runs."
)
@policy_option
@click.option(
    "--trials",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    metavar="N",
    help="Run COMMAND N times. Numbers are compared by their median.",
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="CODE",
    help="Do not fail for this reason, such as more-time on another machine. Can be repeated.",
)
@click.option("--runs", metavar="RUNS", help="Gate these recorded runs instead of COMMAND.")
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the trials as a new baseline, unless one of them failed.",
)
@click.option(
    "--junit", type=click.Path(path_type=Path), metavar="FILE", help="Write a JUnit report."
)
@click.option(
    "--markdown",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a comment for a pull request.",
)
@answer_options
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def gate(
    baseline: str | None,
    policy: Policy | None,
    trials: int,
    ignore: tuple[str, ...],
    runs: str | None,
    save: Path | None,
    junit: Path | None,
    markdown: Path | None,
    home: Home,
    as_json: bool,
    budget: int | None,
    command: tuple[str, ...],
) -> None:
    """Fail if COMMAND got worse than a baseline, or broke a policy.

    COMMAND is run with recording on. Reasons to fail: the command failed, a new kind of failure, a
    tool or host that the baseline does not use, a loop, more calls, tokens, cost or time than the
    spread of the baseline allows, or a broken policy. On GitHub, reasons are annotations of the
    step.
    """
    from vestige.query.gate.baseline import write_baseline
    from vestige.query.gate.gate_answer import GateAnswer
    from vestige.query.gate.verdict import find_reasons, find_unknown_code

    if bool(command) == bool(runs):
        raise UsageError("gate: write a command after `--`, or select runs with --runs, not both.")
    unknown = find_unknown_code(ignore)
    if unknown is not None:
        raise UsageError(
            f"--ignore {unknown}: no reason has this code"
            " (expected one such as more-time, new-tool or policy/argument)."
        )
    _check_folders(save, junit, markdown)
    before = _read_baseline(home, baseline) if baseline else []
    if command:
        executed = _run_trials(home, command, trials, quiet=as_json)
        ids, codes = [run_id for run_id, _ in executed], [code for _, code in executed]
        measured, at = _measure(home, ids, policy, codes)
    else:
        measured, at = _measure_selected(home, runs or "", policy)
    reasons = [each for each in find_reasons(measured, before) if each.code not in ignore]
    answer = GateAnswer(measured, before, reasons)
    answer.at = at
    if save is not None and any(reason.code == "command-failed" for reason in reasons):
        # Its calls and cost would be the measure of later changes.
        click.echo(
            f"gate: {save}: not written, because a trial failed (expected exit status 0)."
            " Correct the command, or add --ignore command-failed.",
            err=True,
        )
    elif save is not None:
        write_baseline(save, measured)
    _write_reports(answer, junit, markdown)
    print_answer(answer, as_json, budget)


def _run_trials(
    home: Home, command: Sequence[str], trials: int, *, quiet: bool
) -> list[tuple[str, int]]:
    """Run the command, and return the run id and exit code of each trial."""
    from vestige.boot import boot_environment
    from vestige.collector.run_supervisor import run_command

    env = boot_environment(os.environ, wire=True, logs=True, prints=True)
    ids: list[str] = []
    with _stdout_to_stderr() if quiet else nullcontext():
        codes = [
            run_command(home, command, env, None, lambda run_id, ok: ids.append(run_id))
            for _ in range(trials)
        ]
    if len(ids) < trials:
        raise UsageError("gate: recording is off, so there is nothing to compare. Turn it on.")
    return list(zip(ids, codes, strict=True))


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Send the output of the command to stderr, so that stdout has only the JSON."""
    sys.stdout.flush()
    saved = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def _read_baseline(home: Home, text: str) -> list[Measurement]:
    from vestige.query.gate.baseline import read_baseline
    from vestige.transfer import is_source

    path = Path(text)
    if (path.is_file() and not is_source(text)) or (path.suffix == ".json" and not path.exists()):
        return read_baseline(path).runs
    return _measure_selected(home, text, None)[0]


def _measure_selected(
    home: Home, text: str, policy: Policy | None
) -> tuple[list[Measurement], str]:
    """Measure recorded runs: ids, a filter, or the path of a bundle, an export or a suite.

    Return also the options with which other commands read the same store.
    """
    from vestige.query.search.run_groups import find_group
    from vestige.store.protocol import RunFilter
    from vestige.transfer import is_source

    path = text if is_source(text) else None
    with open_debugger(home, path) as (debugger, _):
        if path is None:
            ids = find_group(debugger.store, text.split(), verb="gate")[0]
        else:
            ids = [run.id for run in debugger.store.list_runs(RunFilter(limit=RUNS_MAX))]
        return [debugger.measure(run_id, policy=policy) for run_id in ids], debugger.at


def _measure(
    home: Home, ids: Sequence[str], policy: Policy | None, codes: Sequence[int]
) -> tuple[list[Measurement], str]:
    with open_debugger(home) as (debugger, _):
        measured = [
            debugger.measure(run_id, policy=policy, exit_code=code)
            for run_id, code in zip(ids, codes, strict=True)
        ]
        return measured, debugger.at


def _check_folders(*paths: Path | None) -> None:
    """Raise before the trials, which may be expensive, if a report cannot be written."""
    for path in paths:
        if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
            raise UsageError(
                f"{path}: cannot be written (expected a file in an existing folder)."
                " Create the folder."
            )


def _write_reports(answer: GateAnswer, junit: Path | None, markdown: Path | None) -> None:
    if junit is not None:
        junit.write_bytes(answer.junit())
    if markdown is not None:
        markdown.write_text(answer.markdown(), encoding="utf-8")
    if os.environ.get("GITHUB_ACTIONS") == "true":
        from vestige.cli.github_annotations import append_summary, render_annotation

        for reason in answer.reasons:
            click.echo(render_annotation("error", reason.code, reason.message), err=True)
        append_summary(answer.markdown())
