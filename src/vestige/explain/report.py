"""The report of `explain`: the findings of the checks, then the claims that were proved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from vestige.explain.claims import VERDICTS
from vestige.explain.investigation import Investigation
from vestige.explain.readable_runs import Scope
from vestige.limits import NOTE_MAX
from vestige.query import formatting
from vestige.query.debugger import Debugger
from vestige.query.failures.check import CheckAnswer, find_chains, render_finding
from vestige.query.failures.why import WhyAnswer
from vestige.query.text_layout import CommandAnswer, cost
from vestige.query.token_budget import fit_lines
from vestige.query.trajectory import build_trajectory
from vestige.query.views.show import header
from vestige.record.finding import Finding
from vestige.record.run import Run

FINDINGS_SHOWN: Final = 5
TASK_SHOWN: Final = 300
QUOTE_SHOWN: Final = 200

_VERDICTS: Final = {"cause": "Cause", "contributes": "Contributes", "ruled_out": "Ruled out"}


@dataclass
class ExplainAnswer(CommandAnswer):
    """The reasons why a run failed: findings of the checks, and claims that a model proved."""

    verb: ClassVar[str] = "explain"
    budget: ClassVar[int] = 1_500

    run: Run
    findings: Sequence[Finding]
    """The first finding of each causal chain."""
    check: CheckAnswer
    chain: WhyAnswer | None
    """The causal chain of the first finding that has more than one step."""
    task: str
    investigation: Investigation | None = None
    note_id: str | None = None
    """The note that holds the report, if it was stored."""

    def lines(self, budget: int) -> list[str]:
        lines = [*header(self.run)[:1], *self._task_lines(), *self._finding_lines()]
        lines += self._explanation()
        end = self._next_lines()
        if self.note_id is not None:
            end.insert(0, "The report is stored as a note of the run.")
        room = budget - cost(end)
        full = self.command("explain", self.run.info.short_id, "--json")
        return [*fit_lines(lines, room, lambda n: f"… {n} more lines: {full}"), *end]

    def findings_text(self) -> str:
        """Return the deterministic part, which the model gets first."""
        return "\n".join([*header(self.run)[:1], *self._task_lines(), *self._finding_lines()])

    def note_text(self) -> str:
        """Return the report as the text of a note, the proved cause first."""
        result = self.investigation
        lines: list[str] = []
        if result is not None:
            model = formatting.single_line(result.model, 60)
            lines = [*self._claim_lines(result), f"Explained by {model}.", ""]
        text = "\n".join([*lines, *self._finding_lines()])
        return text if len(text) <= NOTE_MAX else text[: NOTE_MAX - 1] + "…"

    def _task_lines(self) -> list[str]:
        return [f"task: {formatting.single_line(self.task, TASK_SHOWN)}"] if self.task else []

    def _finding_lines(self) -> list[str]:
        if not self.findings:
            return ["Findings of the checks: none."]
        lines = [f"Findings of the checks ({len(self.check.report.findings)}):"]
        for finding in self.findings[:FINDINGS_SHOWN]:
            lines += render_finding(finding, self.run, self.placed)
        if self.chain is not None:
            lines.append("Causal chain:")
            lines += [f"  {line}" for line in self.chain.lines(300)[: len(self.chain.steps)]]
        return lines

    def _explanation(self) -> list[str]:
        result = self.investigation
        if result is None:
            return []
        count = formatting.pluralize(len(result.claims), "proved claim")
        heading = f"Explanation by {formatting.single_line(result.model, 60)} ({count}):"
        return [heading, *self._claim_lines(result)]

    def _claim_lines(self, result: Investigation) -> list[str]:
        lines = []
        for claim in sorted(result.claims, key=lambda each: VERDICTS.index(each.verdict)):
            lines.append(f"{_VERDICTS[claim.verdict]}: {claim.statement}")
            lines += [
                f"    {each.span}: “{formatting.single_line(each.quote, QUOTE_SHOWN)}”"
                for each in claim.citations
            ]
        if result.rejected:
            count = formatting.pluralize(len(result.rejected), "claim")
            lines.append(f"{count} rejected: {formatting.single_line(_reasons(result), 240)}.")
        if result.stopped:
            lines.append(f"Stopped: {formatting.single_line(result.stopped, 400)}")
        return [*lines, self._usage_line(result)]

    def _usage_line(self, result: Investigation) -> str:
        spending = result.spending
        tokens = f"{formatting.number(spending.tokens)} of {formatting.number(spending.tokens_max)}"
        parts = [formatting.pluralize(spending.requests, "request"), f"{tokens} tokens"]
        if spending.cost_usd is None:
            parts.append("cost unknown")
        else:
            limit = "" if spending.cost_max is None else f" of at most ${spending.cost_max:g}"
            parts.append(f"${spending.cost_usd:.4f}{limit}")
        return " · ".join(parts)

    def _next_lines(self) -> list[str]:
        short = self.run.info.short_id
        commands = [self.command("transcript", short), self.command("groups", "--like", short)]
        call = self._find_call()
        if call is not None:
            commands.insert(
                0, f"vestige replay {short} --until {call} --set PATH=VALUE --trials 3 -- COMMAND"
            )
        return [f"next: {' | '.join(commands)}"]

    def _find_call(self) -> str | None:
        """Return the model call to fork at: the proved cause, else one of the causal chain."""
        calls = {
            span.id: span.short_id
            for span in self.run.spans
            if {"method", "url", "attempt"} <= span.attributes.keys()  # recorded on the wire
        }
        cause = None if self.investigation is None else self.investigation.cause
        ids = [] if cause is None else [each.span_id for each in cause.citations]
        ids += [finding.cause or "" for finding in self.findings]
        ids += [] if self.chain is None else [step.span.id for step in self.chain.steps]
        return next((calls[each] for each in ids if each in calls), None)

    def data(self) -> dict[str, Any]:
        info = self.run.info
        checked = self.check.data()
        return {
            "version": self.version,
            "run_id": info.id,
            "run": info.short_id,
            "task": self.task or None,
            "findings": [each for each in checked["findings"] if each["lead"]],
            "chain": [] if self.chain is None else self.chain.data()["chain"],
            "investigation": None if self.investigation is None else self.investigation.data(),
            "fork_at": self._find_call(),
            "note_id": self.note_id,
        }


def _reasons(result: Investigation) -> str:
    return "; ".join(dict.fromkeys(each.reason for each in result.rejected))


def build_report(debugger: Debugger, scope: Scope) -> ExplainAnswer:
    """Return the deterministic report of a run."""
    run = scope.evidence.run
    check = debugger.check(scope.run.id)
    chains = find_chains(run, check.report.findings)
    findings = [chain[0] for chain in chains]
    chain = _find_chain(debugger, scope, findings)
    task = scope.evidence.once(build_trajectory).task
    answer = ExplainAnswer(run, findings, check, chain, "" if task is None else task.text)
    answer.at = debugger.at
    return answer


def _find_chain(debugger: Debugger, scope: Scope, findings: Sequence[Finding]) -> WhyAnswer | None:
    """Return the causal chain of the first finding that has one."""
    spans = scope.evidence.spans
    for finding in findings[:FINDINGS_SHOWN]:
        if finding.cause in spans:
            found = debugger.why(spans[finding.cause].short_id)
            if len(found.steps) > 1:
                return found
    return None
