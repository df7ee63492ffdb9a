"""The result of `gate`: passed, or the reasons why not, for people and for CI systems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, ClassVar, Final

import msgspec

from vestige.formats.junit_xml import JunitCase, Report, render_report
from vestige.query import formatting
from vestige.query.gate.measure_execution import Measurement
from vestige.query.gate.verdict import Reason
from vestige.query.text_layout import CommandAnswer, columns, fit

MARKER: Final = "<!-- vestige-gate -->"
"""Identifies the comment of a pull request that is updated."""
FIELDS: Final = ("model_calls", "tool_calls", "tokens", "cost_usd", "duration_s")


@dataclass
class GateAnswer(CommandAnswer):
    """The verdict on a change."""

    verb: ClassVar[str] = "gate"
    budget: ClassVar[int] = 1_000

    trials: Sequence[Measurement]
    baseline: Sequence[Measurement]
    reasons: Sequence[Reason]

    def __post_init__(self) -> None:
        self.exit_code = int(bool(self.reasons))

    def lines(self, budget: int) -> list[str]:
        head = [self._headline()]
        rows = [f"✕ {each.code}: {each.message} ({each.run})" for each in self.reasons]
        rows += columns(self._table(), right=(1, 2))
        shown = self.reasons[0].run if self.reasons else self.trials[-1].run
        end = [f"next: {self.command('overview', shown)}"]
        return fit(head, rows, end, budget, lambda left_out: f"… {left_out} more lines: --json")

    def _headline(self) -> str:
        trials = formatting.pluralize(len(self.trials), "trial")
        against = (
            f" against a baseline of {formatting.pluralize(len(self.baseline), 'run')}"
            if self.baseline
            else ""
        )
        if self.reasons:
            count = formatting.pluralize(len(self.reasons), "reason")
            return f"Gate failed: {count}, {trials}{against}"
        return f"Gate passed: {trials}{against}"

    def _table(self) -> list[list[str]]:
        rows = [["", "baseline", "now"]]
        for name in FIELDS:
            before, now = (
                f"{median(float(getattr(run, name)) for run in runs):g}" if runs else "-"
                for runs in (self.baseline, self.trials)
            )
            rows.append([name, before, now])
        return rows

    def data(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "passed": not self.reasons,
            "reasons": [
                {"code": each.code, "message": each.message, "run": each.run}
                for each in self.reasons
            ],
            "trials": msgspec.to_builtins(list(self.trials)),
            "baseline": msgspec.to_builtins(list(self.baseline)),
        }

    # --- reports for CI systems ---------------------------------------------------------------

    def markdown(self) -> str:
        """Return the comment of a pull request; `MARKER` finds the one to update."""
        mark = "❌" if self.reasons else "✅"
        lines = [MARKER, f"### {mark} {self._headline()}", ""]
        lines += [
            f"- **{each.code}**: {_inline(each.message)} (`{each.run}`)" for each in self.reasons
        ]
        lines += ["", "| | baseline | now |", "|---|---:|---:|"]
        lines += [f"| {name} | {before} | {now} |" for name, before, now in self._table()[1:]]
        return "\n".join(lines) + "\n"

    def junit(self) -> bytes:
        """Return a JUnit report: one failed case for each reason, or one that passed."""
        cases = [
            JunitCase(
                "vestige.gate",
                reason.code,
                outcome="fail",
                type=reason.code,
                message=reason.message,
                text=f"{reason.message}\nSee: {self.command('overview', reason.run)}",
            )
            for reason in self.reasons
        ]
        return render_report(
            Report("vestige gate", cases=cases or [JunitCase("vestige.gate", "gate")])
        )


def _inline(text: str) -> str:
    """Quote text for one line of Markdown."""
    return formatting.single_line(text, 300).replace("|", "\\|").replace("<", "&lt;")
