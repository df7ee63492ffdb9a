"""`doctor`: where the data is, whether it is complete, and what to do if it is not."""

from __future__ import annotations

from typing import Any

import msgspec

from vestige.query import formatting
from vestige.query.text_layout import CommandAnswer, fit
from vestige.record.health import Health


class DoctorAnswer(CommandAnswer):
    """The health of a data directory."""

    verb = "doctor"
    budget = 200

    def __init__(self, health: Health) -> None:
        self.health = health
        self.exit_code = 1 if health.problems else 0

    def lines(self, budget: int) -> list[str]:
        return [text for text, _ in self.styled(budget)]

    def styled(self, budget: int) -> list[tuple[str, str]]:
        """Return styled lines; a small budget drops facts before problems."""
        verdict = [f"!! {problem}" for problem in self.health.problems] or ["OK, nothing missing"]
        more = self.command("doctor", "--json")
        rows = fit(
            [], _facts(self.health), verdict, budget, lambda left: f"… {left} more lines: {more}"
        )
        style = "stamp" if self.health.problems else "ok"
        return [(row, style if row in verdict else "log") for row in rows]

    def data(self) -> dict[str, Any]:
        return {"version": self.version, **msgspec.to_builtins(self.health)}


def _facts(health: Health) -> list[str]:
    lag = formatting.size(health.lag_bytes) if health.lag_bytes else "none"
    age = formatting.duration(int(health.retention_age_s * 1e9))
    body_bytes = formatting.size(health.retention_body_bytes)
    counts = [(health.runs, "run"), (health.spans, "span"), (health.logs, "log line")]
    files = formatting.pluralize(health.journal_files, "file")
    facts = [
        ("home", health.home),
        ("store", f"{health.store}  {formatting.size(health.store_bytes)}"),
        ("", ", ".join(formatting.pluralize(count, noun) for count, noun in counts)),
        ("payloads", f"{health.bodies:,} ({formatting.size(health.body_bytes)})"),
        ("journals", f"{files}, {formatting.size(health.journal_bytes)}; lag: {lag}"),
        ("collector", "running" if health.collecting else "off (not needed)"),
        ("processes", f"{health.writers_alive} running, {health.writers_dead} crashed"),
        ("scanner", health.scanner),
        ("retention", f"{age}, {body_bytes} of payloads"),
    ]
    if not health.home:  # a tenant does not see the server's files
        facts = facts[2:]
    return [f"{name:<10} {formatting.single_line(text, 300)}" for name, text in facts]
