"""Trajectory: a run as ordered steps, each content once.

    trajectory = evidence.once(build_trajectory)
    for step in trajectory.steps: print(step.number, step.headline)

model.py          Trajectory, Step, Action, Item
build.py          the entry point
drafts.py         spans -> drafts of steps
fill.py           the new contents of each step
plain_steps.py    steps of runs without model calls
scopes.py         which agent or tool each span belongs to
contents.py       normalised text, and the set of contents already shown
roles.py          messages of providers and frameworks -> items
code_blocks.py    fenced code, thoughts and ReAct text in answers
actions.py        tool spans, code executions and sub-agents
file_edits.py     files that a tool call edited, as differences
conversations.py  conversations of a process, separated by their messages
parts.py          parts of a very long run, each with its own trajectory
costs.py          the costs of steps, on request
headline.py       one line for a step; the task, the title and the final answer of a run
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vestige._runtime.import_hooks import lazy_exports

if TYPE_CHECKING:
    from vestige.query.trajectory.build import build_trajectory
    from vestige.query.trajectory.types import Action, Item, Step, Trajectory

__all__ = ["Action", "Item", "Step", "Trajectory", "build_trajectory"]

__getattr__ = lazy_exports(
    __name__,
    {
        "build_trajectory": "vestige.query.trajectory.build",
        **dict.fromkeys(("Action", "Item", "Step", "Trajectory"), "vestige.query.trajectory.types"),
    },
)
