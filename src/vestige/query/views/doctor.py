"""`doctor`: where the evidence is, whether it is complete, and what to do if not."""

from __future__ import annotations

from typing import Any

import msgspec

from vestige.query import formatting
from vestige.query.text_layout import CommandAnswer, fit
from vestige.record.health import Health


class DoctorAnswer(CommandAnswer):
    """One look at a home."""

    verb = "doctor"
    budget = 200

    def __init__(self, health: Health) -> None:
        self.health = health
        self.exit_code = 1 if health.problems else 0

    def lines(self, budget: int) -> list[str]:
        return [text for text, _ in self.styled(budget)]

    def styled(self, budget: int) -> list[tuple[str, str]]:
        """Lines, each with its mood; losses are never cut away, the rest is."""
        told = [f"!! {problem}" for problem in self.health.problems] or ["healthy: nothing lost"]
        more = self.command("doctor", "--json")
        rows = fit(
            [], _facts(self.health), told, budget, lambda left: f"… {left} more lines: {more}"
        )
        mood = "stamp" if self.health.problems else "ok"
        return [(row, mood if row in told else "log") for row in rows]

    def data(self) -> dict[str, Any]:
        return {"version": self.version, **msgspec.to_builtins(self.health)}


def _facts(health: Health) -> list[str]:
    lag = formatting.size(health.lag_bytes) if health.lag_bytes else "none"
    age = formatting.duration(int(health.retention_age_s * 1e9))
    kept = formatting.size(health.retention_body_bytes)
    held = [(health.runs, "run"), (health.spans, "span"), (health.logs, "log line")]
    files = formatting.pluralize(health.journal_files, "file")
    facts = [
        ("home", health.home),
        ("store", f"{health.store}  {formatting.size(health.store_bytes)}"),
        ("", ", ".join(formatting.pluralize(count, thing) for count, thing in held)),
        ("bodies", f"{formatting.size(health.body_bytes)} stored, {health.bodies} of them"),
        ("journals", f"{files}, {formatting.size(health.journal_bytes)}; lag: {lag}"),
        ("collector", "running" if health.collecting else "not running (reading commands take in)"),
        ("writers", f"{health.writers_alive} alive, {health.writers_dead} ended unexpectedly"),
        ("scanner", health.scanner),
        ("retention", f"{age}, {kept} of bodies"),
    ]
    if not health.home:  # a tenant's: the files are none of its own
        facts = facts[2:]
    return [f"{name:<10} {formatting.single_line(text, 300)}" for name, text in facts]
