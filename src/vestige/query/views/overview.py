"""`overview`: how a run ended, its span counts, top findings, and the next commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from vestige.query import formatting
from vestige.query.failures.check import CheckReport, find_chains, finding_data, render_finding
from vestige.query.failures.suite_cases import render_failed_cases
from vestige.query.stats.costs import Cost, format_dollars
from vestige.query.text_layout import CommandAnswer, fit
from vestige.query.views.notes import note_data, note_lines
from vestige.query.views.show import header, run_data, stamps
from vestige.record.note import Note
from vestige.record.run import Run, RunInfo

FINDINGS_SHOWN = 3
TYPES_SHOWN = 10


@dataclass
class OverviewAnswer(CommandAnswer):
    """The first answer about a run."""

    verb: ClassVar[str] = "overview"
    budget: ClassVar[int] = 600

    run: Run
    report: CheckReport
    last_good: RunInfo | None
    """The latest successful run of the same name."""
    surfaces: Sequence[str] = field(default_factory=tuple)
    """A line for each suspect component that has a debug surface."""
    cost: Cost | None = None
    """Cost of the model calls; None if there were none."""
    found_as: str = ""
    """How the id was resolved; empty for a run's own id."""
    notes: Sequence[Note] = ()

    def lines(self, budget: int) -> list[str]:
        short = self.run.info.short_id
        head = [*header(self.run), *(f"!! {text}" for text in stamps(self.run)[:2])]
        if budget < 200:
            head = head[:1]
        rows = [
            *self._resolution(),
            *render_failed_cases(self.run),
            *self._span_counts(),
            *self._cost(),
            *self._findings(),
            *note_lines(self.notes, lambda: self.command("notes", short)),
            *self._last_good(),
            *self.surfaces,
        ]
        full = self.command("overview", short, "--json")
        return fit(head, rows, self._next(), budget, lambda n: f"… {n} lines hidden: {full}")

    def _resolution(self) -> list[str]:
        if not self.found_as:
            return []
        conversation = self.run.info.conversation_id
        if conversation and "conversation" in self.found_as:
            runs = self.command("list", "--all", "--conversation", conversation)
            return [f"found as: {self.found_as}: {runs}"]
        return [f"found as: {self.found_as}"]

    def _span_counts(self) -> list[str]:
        counts: Counter[str] = Counter()
        failed: Counter[str] = Counter()
        took_ns: Counter[str] = Counter()
        unfinished: Counter[str] = Counter()
        for span in self.run.spans:
            kind = formatting.single_line(span.type, 20)
            counts[kind] += 1
            failed[kind] += span.status not in ("ok", None)
            took_ns[kind] += span.duration_ns or 0
            unfinished[kind] += span.status is None
        parts = []
        by_count = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
        for kind, count in by_count[:TYPES_SHOWN]:
            facts = [formatting.duration(took_ns[kind])] if count > unfinished[kind] else []
            facts += [f"{failed[kind]} failed"] if failed[kind] else []
            facts += [f"{unfinished[kind]} open"] if unfinished[kind] else []
            parts.append(f"{count} {kind} ({', '.join(facts)})")
        if len(counts) > TYPES_SHOWN:
            parts.append(f"{len(counts) - TYPES_SHOWN} more types")
        rows = [f"spans: {', '.join(parts)}"] if parts else []
        if (count := unfinished.total()) and self.run.info.outcome != "running":
            rows.append(f"unfinished: {formatting.pluralize(count, 'span')}")
        return rows

    def _cost(self) -> list[str]:
        if self.cost is None:
            return []
        models = [
            "calls without a model" if model == "?" else formatting.single_line(model, 40)
            for model in self.cost.unknown[:3]
        ]
        missing = f" (no price for {', '.join(models)})" if models else ""
        if self.cost.dollars is None:
            return [f"cost: unknown{missing}"]
        at_least = "at least " if models else ""
        return [f"cost: {at_least}{format_dollars(self.cost.dollars)}{missing}"]

    def _findings(self) -> list[str]:
        chains = find_chains(self.run, self.report.findings)
        if not chains:
            return [
                f"findings: none; {formatting.pluralize(len(self.report.passed), 'check')} passed"
            ]
        rows = [
            line
            for chain in chains[:FINDINGS_SHOWN]
            for line in render_finding(chain[0], self.run, self.placed)
        ]
        rest = len(self.report.findings) - min(len(chains), FINDINGS_SHOWN)
        if rest:
            # `check` lists the first finding of every chain before the others.
            after = ["--after", str(len(chains))] if len(chains) <= FINDINGS_SHOWN else []
            check = self.command("check", self.run.info.short_id, *after)
            rows.append(f"… {formatting.pluralize(rest, 'more finding')}: {check}")
        return rows

    def _last_good(self) -> list[str]:
        good = self.last_good
        if good is None:
            return []
        diff = self.command("diff", good.short_id, self.run.info.short_id)
        return [
            f"last successful run: {good.short_id} {formatting.timestamp(good.started_ns)}: {diff}"
        ]

    def _next(self) -> list[str]:
        short = self.run.info.short_id
        errors = ["--errors"] if self.run.info.error_count else []
        commands = [self.command("check", short), self.command("show", short, *errors)]
        failed_spans = [
            span for span in self.run.spans if span.status not in ("ok", None) and span.parent_id
        ]
        if failed_spans:
            commands.append(self.command("why", failed_spans[-1].short_id))
        return [f"next: {' | '.join(commands)}"]

    def data(self) -> dict[str, Any]:
        short = {span.id: span.short_id for span in self.run.spans}
        return {
            "version": self.version,
            "run": run_data(self.run.info),
            "types": dict(sorted(Counter(span.type for span in self.run.spans).items())),
            "findings": [finding_data(finding, short) for finding in self.report.findings],
            "passed": sorted(self.report.passed),
            "cost_usd": None if self.cost is None else self.cost.dollars,
            "good_run": None if self.last_good is None else run_data(self.last_good),
            "stamps": stamps(self.run),
            "notes": note_data(self.run.spans, self.notes),
        }
