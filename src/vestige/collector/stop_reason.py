"""Record in a run why a command of Vestige stopped its program.

The reason is a log record, so that it is there whatever the program does at SIGTERM: it may end
itself without an error, or not be a Python program. The check `crash` reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vestige.record.types import OWN_COMPONENT, VERSION, Log
from vestige.recorder import Recorder


@dataclass(frozen=True, slots=True)
class StopReason:
    """The reason for which a program is stopped."""

    text: str
    """The code of the rule and a sentence: `cost: Cost is $5.01 (limit $5.00).`"""
    run_id: str | None = None
    """The run with the last call, which may be one that the program opened."""
    span_id: str | None = None
    """The last call."""


def record_stop(
    recorder: Recorder, run_ids: Sequence[str], author: str, reason: StopReason
) -> None:
    """Record the reason in each run, at the last call in the run that has it."""
    if not recorder.enabled:
        return
    emitter = recorder._emitter
    for run_id in dict.fromkeys(run_ids):
        emitter.send(
            Log(
                VERSION,
                emitter.writer,
                next(emitter.seq),
                emitter.now_ns(),
                run_id,
                OWN_COMPONENT,
                "error",
                f"stopped by {author}: {reason.text}",
                reason.span_id if run_id == reason.run_id else None,
                {"stopped": reason.text, "stopped_by": author},
            )
        )
