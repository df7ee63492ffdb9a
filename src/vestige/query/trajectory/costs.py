"""Costs of steps: of the model call alone, and with the steps of its sub-agents.

price_steps(evidence)      # sets Step.cost and Step.total_cost
"""

from __future__ import annotations

from vestige.query.evidence import Evidence
from vestige.query.stats.costs import span_costs
from vestige.query.trajectory.build import build_trajectory
from vestige.query.trajectory.types import Step, Trajectory


def price_steps(evidence: Evidence) -> Trajectory:
    """Return the trajectory with the cost of each step.

    The price table takes a while to load, so a trajectory is built without costs. A call counts
    once: a client's span around it, and the sum on an agent's span, are not added.
    """
    trajectory = evidence.once(build_trajectory)
    for step in trajectory.steps:
        step.cost = step.total_cost = _price(evidence, step)
    # A sub-agent's steps come after their caller, so the innermost are added first.
    for step in reversed(trajectory.steps):
        if step.parent is not None and step.total_cost is not None:
            caller = trajectory.steps[step.parent - trajectory.steps[0].number]
            caller.total_cost = (caller.total_cost or 0.0) + step.total_cost
    return trajectory


def _price(evidence: Evidence, step: Step) -> float | None:
    spans = [evidence.spans[span_id] for span_id in step.span_ids if span_id in evidence.spans]
    calls = [span for span in spans if span.type == "llm"]
    return span_costs(calls, evidence.prices).dollars if calls else None
