"""Guardrails: limits that a program sets for itself, and the exceptions that enforce them.

    limits = Guardrails(max_llm_calls=50)
    limits.broken(counts, events, elapsed_s)      # None, or the exception to raise

A limit of N lets N events pass and stops the program at N + 1, after that event is written. The
exception does not derive from `Exception` (errors.py), so that an agent's own `except Exception`
cannot swallow it.
"""

from __future__ import annotations

import msgspec

from vestige.errors import AgentDbgGuardrailExceeded, AgentDbgLoopAbort
from vestige.formats.agentdbg.file_structs import Counts


class Guardrails(msgspec.Struct, frozen=True):
    """The limits of one run, or of a part of it. None: no limit."""

    stop_on_loop: bool = False
    stop_on_loop_min_repetitions: int = 3
    max_llm_calls: int | None = None
    max_tool_calls: int | None = None
    max_events: int | None = None
    max_duration_s: float | None = None

    @property
    def any(self) -> bool:
        return self.stop_on_loop or not (
            self.max_llm_calls is self.max_tool_calls is self.max_events is None
            and self.max_duration_s is None
        )

    def broken(
        self, counts: Counts, events: int, elapsed_s: float
    ) -> AgentDbgGuardrailExceeded | None:
        """Return the first limit that is exceeded."""
        for name, limit, actual in (
            ("max_llm_calls", self.max_llm_calls, counts.llm_calls),
            ("max_tool_calls", self.max_tool_calls, counts.tool_calls),
            ("max_events", self.max_events, events),
        ):
            if limit is not None and actual > limit:
                return AgentDbgGuardrailExceeded(
                    name, limit, actual, f"guardrail {name}: {actual} > {limit}"
                )
        limit_s = self.max_duration_s
        if limit_s is not None and elapsed_s >= limit_s:
            text = f"guardrail max_duration_s: elapsed {elapsed_s:.3f}s >= {limit_s}s"
            return AgentDbgGuardrailExceeded("max_duration_s", limit_s, elapsed_s, text)
        return None

    def broken_by_loop(self, repetitions: int) -> AgentDbgLoopAbort | None:
        least = self.stop_on_loop_min_repetitions
        if not self.stop_on_loop or repetitions < least:
            return None
        text = (
            f"guardrail stop_on_loop: repetitions {repetitions} >= "
            f"stop_on_loop_min_repetitions {least}"
        )
        return AgentDbgLoopAbort(least, repetitions, text)


def over(
    base: Guardrails,
    *,
    stop_on_loop: bool | None = None,
    stop_on_loop_min_repetitions: int | None = None,
    max_llm_calls: int | None = None,
    max_tool_calls: int | None = None,
    max_events: int | None = None,
    max_duration_s: float | None = None,
) -> tuple[Guardrails, list[str]]:
    """Return the limits of the code over those of the settings, and invalid ones."""
    values = {
        "stop_on_loop_min_repetitions": (stop_on_loop_min_repetitions, 2),
        "max_llm_calls": (max_llm_calls, 0),
        "max_tool_calls": (max_tool_calls, 0),
        "max_events": (max_events, 0),
        "max_duration_s": (max_duration_s, 0),
    }
    changes: dict[str, object] = {}
    odd: list[str] = []
    for name, (value, least) in values.items():
        if value is None:
            continue
        if isinstance(value, (int, float)) and value >= least:
            changes[name] = value
        else:
            odd.append(
                f"{name}={value!r} is not a limit (expected a number from {least}). Ignored."
            )
    if stop_on_loop is not None:
        changes["stop_on_loop"] = bool(stop_on_loop)
    return msgspec.structs.replace(base, **changes), odd
