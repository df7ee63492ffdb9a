"""Decide whether executions of a change are as good as the baseline.

A number fails if the median of the trials exceeds a limit that follows from the baseline: its
largest value, plus its spread, and at least `MARGIN` more. Names and failures fail if no run of
the baseline has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from vestige.query import formatting
from vestige.query.gate.measure_execution import Measurement

MARGIN: Final = 0.5
"""Share by which a number may always exceed the largest value of the baseline."""
NUMBERS: Final = {
    "more-model-calls": ("model_calls", 2.0),
    "more-tool-calls": ("tool_calls", 2.0),
    "more-tokens": ("tokens", 50.0),
    "more-cost": ("cost_usd", 0.001),
    "more-time": ("duration_s", 1.0),
}
"""Reason codes of numbers: the field, and the least excess that counts."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason why a gate failed."""

    code: str
    message: str
    run: str
    """The run that shows it."""


POLICY_PREFIX = "policy/"


def find_unknown_code(codes: Iterable[str]) -> str | None:
    """Return the first code that no reason has. Those of policies are not listed."""
    known = {"command-failed", "new-failure", "new-tool", "new-host", "loop", *NUMBERS}
    return next((c for c in codes if c not in known and not c.startswith(POLICY_PREFIX)), None)


def find_reasons(trials: Sequence[Measurement], baseline: Sequence[Measurement]) -> list[Reason]:
    """Return why the trials fail. An empty baseline only checks commands and policy."""
    found = [*_failed_commands(trials), *_broken_rules(trials)]
    if baseline:
        found += _new_failures(trials, baseline)
        found += _new_names("new-tool", "tool", trials, baseline)
        found += _new_names("new-host", "host", trials, baseline)
        found += _new_loops(trials, baseline)
        found += _larger_numbers(trials, baseline)
    return found


def _failed_commands(trials: Sequence[Measurement]) -> Iterator[Reason]:
    for trial in trials:
        if trial.exit_code:
            message = f"The command exited with status {trial.exit_code}."
            yield Reason("command-failed", message, trial.run)


def _broken_rules(trials: Sequence[Measurement]) -> Iterator[Reason]:
    seen: set[tuple[str, str]] = set()
    for trial in trials:
        for rule, message in trial.violations:
            if (rule, message) not in seen:
                seen.add((rule, message))
                yield Reason(f"policy/{rule}", message, trial.run)


def _new_failures(
    trials: Sequence[Measurement], baseline: Sequence[Measurement]
) -> Iterator[Reason]:
    known = [signature for run in baseline for signature in run.failures]
    for trial in trials:
        for signature in trial.failures:
            if not any(signature.is_similar(each) for each in known):
                known.append(signature)
                text = ": ".join(
                    part for part in (signature.subject, signature.error, signature.text) if part
                )
                shown = formatting.single_line(f"{signature.kind}: {text}", 240)
                yield Reason("new-failure", f"New failure: {shown}", trial.run)


def _new_names(
    code: str, noun: str, trials: Sequence[Measurement], baseline: Sequence[Measurement]
) -> Iterator[Reason]:
    def names(run: Measurement) -> Sequence[str]:
        return list(run.tools) if noun == "tool" else run.hosts

    known = {name for run in baseline for name in names(run)}
    for trial in trials:
        for name in names(trial):
            if name not in known:
                known.add(name)
                shown = formatting.single_line(name, 80)
                message = f"{noun} {shown} is not used in the baseline."
                yield Reason(code, message, trial.run)


def _new_loops(trials: Sequence[Measurement], baseline: Sequence[Measurement]) -> Iterator[Reason]:
    if any(run.loops for run in baseline):
        return
    for trial in trials:
        if trial.loops:
            yield Reason("loop", formatting.single_line(trial.loops[0], 240), trial.run)
            return


def _larger_numbers(
    trials: Sequence[Measurement], baseline: Sequence[Measurement]
) -> Iterator[Reason]:
    for code, (name, least) in NUMBERS.items():
        before = [float(getattr(run, name)) for run in baseline]
        now = [float(getattr(run, name)) for run in trials]
        highest = max(before)
        limit = max(highest + (highest - min(before)), highest * (1 + MARGIN))
        typical = median(now)
        if typical > limit and typical - highest >= least:
            largest = max(trials, key=lambda run: float(getattr(run, name)))
            yield Reason(
                code,
                f"{name} is {typical:g} (baseline: at most {highest:g}, allowed: {limit:g}).",
                largest.run,
            )
