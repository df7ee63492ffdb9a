"""The steps of a run as lines for a terminal: one for each step, with what failed in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vestige.limits import SHOW_LINES_MAX
from vestige.query import formatting
from vestige.query.failures.check import CheckReport, find_chains, find_main
from vestige.query.stats.costs import Cost, format_dollars
from vestige.query.trajectory import Step, Trajectory
from vestige.query.trajectory.headline import shorten_headline
from vestige.query.views.lines.common_attributes import find_common, render_common
from vestige.query.views.show import Row
from vestige.record.run import Run

HEADLINE_LEAST = 30


def step_rows(
    run: Run,
    trajectory: Trajectory,
    report: CheckReport,
    command: Callable[..., str],
    columns: int,
    limit: int | None = None,
    cost: Cost | None = None,
) -> list[Row]:
    """Return head, steps and next commands; empty for a run without model calls."""
    steps = trajectory.steps
    if not any(step.model or step.answer for step in steps):
        return []
    short = run.info.short_id
    rows = [*_head(run, trajectory, report, cost), ("", "ok")]
    shown, hidden = steps, 0
    limit = limit or SHOW_LINES_MAX
    if len(steps) > limit:
        shown, hidden = steps[:limit], len(steps) - limit
    rows += _render_steps(run, shown, columns)
    if hidden:
        after = command("transcript", short, "--step", f"{limit + 1}:{len(steps)}")
        rows.append((f"… {formatting.pluralize(hidden, 'step')} hidden; continue: {after}", "ok"))
    failed = next((step.span for step in reversed(steps) if step.is_failed and step.span), None)
    commands = [command("span", failed.short_id)] if failed is not None else []
    commands += [command("transcript", short), command("show", short, "--tree")]
    return [*rows, ("", "ok"), (f"… next: {' | '.join(commands)}", "ok")]


def _head(run: Run, trajectory: Trajectory, report: CheckReport, cost: Cost | None) -> list[Row]:
    info = run.info
    facts = [formatting.pluralize(len(trajectory.steps), "step")]
    if info.tokens:
        facts.append(formatting.token_counts(info.input_tokens, info.output_tokens))
    if cost is not None and cost.dollars is not None:
        facts.append(str(cost))
    name, outcome = formatting.single_line(info.name, 60), formatting.single_line(info.outcome, 20)
    after = f"{outcome}{formatting.after(info.elapsed_ns)}"
    rows: list[Row] = [
        (f"{info.short_id} {name}: {after} · {' · '.join(facts)}", f"head {info.outcome}")
    ]
    if trajectory.title and trajectory.title != info.name:
        rows.append((f"Task    {formatting.single_line(trajectory.title, 300)}", "ok"))
    chains = find_chains(run, report.findings)
    if chains:
        lead = find_main(chains[0])
        mood = {"error": "error", "warning": "warn"}.get(lead.severity, "ok")
        rows.append((f"Finding {formatting.single_line(lead.message, 300)}", mood))
    if trajectory.answer is not None and trajectory.answer.text.strip():
        text = " ".join(trajectory.answer.text.split())
        rows.append((f"Answer  {formatting.single_line(text, 300)}", "ok"))
    common = render_common(find_common(run.spans))
    return [*rows, (common, "log")] if common else rows


def _render_steps(run: Run, steps: Sequence[Step], columns: int) -> list[Row]:
    ids = [step.span.short_id.rpartition(".")[2] if step.span is not None else "" for step in steps]
    width = max(map(len, ids), default=0)
    numbers = len(str(steps[-1].number)) if steps else 1
    agents = {step.agent for step in steps}
    costs = [_price(step) for step in steps]
    cost_width = max(map(len, costs), default=0)
    rows: list[Row] = []
    for short, step, cost in zip(ids, steps, costs, strict=True):
        at = _clock(max(0, step.started_ns - run.info.started_ns))
        mark = "✕" if step.is_failed else " "
        agent = ""
        if step.agent and len(agents) > 1:
            agent = f"{formatting.single_line(step.agent, 24)}: "
        indent = "  " * min(step.depth, 4)
        took = formatting.duration(step.duration_ns)
        spent = f"  {cost:>{cost_width}}" if cost_width else ""
        begin = (
            f"{short:<{width}}  {at:>7}  {step.number:>{numbers}}  {took:>7}{spent}"
            f" {mark} {indent}{agent}"
        )
        room = max(HEADLINE_LEAST, columns - formatting.width(begin))
        # The mark of the step replaces that of its error.
        headline = step.headline.removeprefix("✕ ") if step.is_failed else step.headline
        text = begin + shorten_headline(headline, room)
        rows.append((text.rstrip(), "error" if step.is_failed else "ok"))
    return rows


def _price(step: Step) -> str:
    """Return the cost of a step with the steps of its sub-agents."""
    return "" if step.total_cost is None else format_dollars(step.total_cost)


def _clock(ns: int) -> str:
    """`0:14`, `1:02:03`: minutes and seconds since the start of the run."""
    minutes, seconds = divmod(ns // 10**9, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
