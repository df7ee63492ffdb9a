"""Trajectory: a run as ordered steps, each content once.

    trajectory = evidence.once(build_trajectory)
    for step in trajectory.steps: print(step.number, step.headline)

build.py                      the entry point
types.py                      Trajectory, Step, Action, Item
step_drafts.py                spans -> drafts of steps
fill_steps.py                 the new contents of each step
steps_without_model_calls.py  steps of runs without model calls
span_roles.py                 which agent or tool each span belongs to
seen_contents.py              normalised text, and the set of contents already shown
message_items.py              messages of providers and frameworks -> items
call_messages.py              one model call as a chat
earlier_calls.py              the earlier model calls of a call's conversation
code_blocks.py                fenced code, thoughts and ReAct text in answers
actions.py                    tool spans, code executions and sub-agents
file_edits.py                 files that a tool call edited, as differences
conversations.py              conversations of a process, separated by their messages
run_parts.py                  parts of a very long run, each with its own trajectory
first_and_last_steps.py       the beginning and the end of a very long run, for its summary
costs.py                      the costs of steps, on request
headline.py                   one line for a step; the title and the final answer of a run
task.py                       the task of a run, without its trajectory
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
