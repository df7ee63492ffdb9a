"""`overview`: a run in one look: how it ended, its shape, what is wrong, what to ask next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from vestige.query import formatting
from vestige.query.failures.check import CheckReport, find_chains, finding_data, render_finding
from vestige.query.failures.suite_cases import render_failed_cases
from vestige.query.stats.costs import Cost
from vestige.query.text_layout import CommandAnswer, fit
from vestige.query.views.notes import note_data, note_lines
from vestige.query.views.show import header, run_data, stamps
from vestige.record.note import Note
from vestige.record.run import Run, RunInfo

FINDINGS_SHOWN = 3
TYPES_SHOWN = 10


@dataclass
class OverviewAnswer(CommandAnswer):
    """What one wants to know first."""

    verb: ClassVar[str] = "overview"
    budget: ClassVar[int] = 600

    run: Run
    examined: CheckReport
    good: RunInfo | None
    """The last run of the same name that went well."""
    surfaces: Sequence[str] = field(default_factory=tuple)
    """What the components under investigation offer, in words."""
    cost: Cost | None = None
    """Of its model calls; None where there were none."""
    how: str = ""
    """How the id led here, where that is not plain; for a conversation, its other runs."""
    notes: Sequence[Note] = ()
    """What was said about it afterwards."""

    def lines(self, budget: int) -> list[str]:
        short = self.run.info.short_id
        head = [*header(self.run), *(f"!! {text}" for text in stamps(self.run)[:2])]
        if budget < 200:
            head = head[:1]
        rows = [
            *self._found(),
            *render_failed_cases(self.run),
            *self._shape(),
            *self._cost(),
            *self._findings(),
            *note_lines(self.notes, lambda: self.command("notes", short)),
            *self._good(),
            *self.surfaces,
        ]
        whole = self.command("overview", short, "--json")
        return fit(head, rows, self._next(), budget, lambda n: f"… {n} lines left out: {whole}")

    def _found(self) -> list[str]:
        if not self.how:
            return []
        conversation = self.run.info.conversation_id
        if conversation and "conversation" in self.how:
            all_of_it = self.command("list", "--all", "--conversation", conversation)
            return [f"found as: {self.how}: {all_of_it}"]
        return [f"found as: {self.how}"]

    def _shape(self) -> list[str]:
        counts = Counter(formatting.single_line(span.type, 20) for span in self.run.spans)
        failed = Counter(
            formatting.single_line(span.type, 20)
            for span in self.run.spans
            if span.status not in ("ok", None)
        )
        took: Counter[str] = Counter()
        unfinished: Counter[str] = Counter()
        for span in self.run.spans:
            took[formatting.single_line(span.type, 20)] += span.duration_ns or 0
            unfinished[formatting.single_line(span.type, 20)] += span.status is None
        parts = []
        for kind, count in sorted(counts.items(), key=lambda each: (-each[1], each[0]))[
            :TYPES_SHOWN
        ]:
            told = [formatting.duration(took[kind])] if count > unfinished[kind] else []
            told += [f"{failed[kind]} failed"] if failed[kind] else []
            told += [f"{unfinished[kind]} open"] if unfinished[kind] else []
            parts.append(f"{count} {kind} ({', '.join(told)})")
        if len(counts) > TYPES_SHOWN:
            parts.append(f"{len(counts) - TYPES_SHOWN} more types")
        rows = [f"shape: {', '.join(parts)}"] if parts else []
        if (never := unfinished.total()) and self.run.info.outcome != "running":
            rows.append(f"never ended: {formatting.pluralize(never, 'span')}")
        return rows

    def _cost(self) -> list[str]:
        if self.cost is None:
            return []
        models = ", ".join(formatting.single_line(model, 40) for model in self.cost.unknown[:3])
        missing = f" (no price is known for {models})" if models else ""
        return [f"cost: {self.cost}{missing}"]

    def _findings(self) -> list[str]:
        chains = find_chains(self.run, self.examined.findings)
        if not chains:
            return [
                f"findings: none; {formatting.pluralize(len(self.examined.passed), 'check')} passed"
            ]
        rows = [
            line
            for chain in chains[:FINDINGS_SHOWN]
            for line in render_finding(chain[0], self.run, self.placed)
        ]
        rest = len(self.examined.findings) - min(len(chains), FINDINGS_SHOWN)
        if rest:
            # `check` begins with what each chain began with: after those, if all of them are here.
            after = ["--after", str(len(chains))] if len(chains) <= FINDINGS_SHOWN else []
            check = self.command("check", self.run.info.short_id, *after)
            rows.append(f"… {formatting.pluralize(rest, 'more finding')}: {check}")
        return rows

    def _good(self) -> list[str]:
        if self.good is None:
            return []
        same = self.command("diff", self.good.short_id, self.run.info.short_id)
        return [
            f"last good run like it: {self.good.short_id} {formatting.timestamp(self.good.started_ns)}: {same}"
        ]

    def _next(self) -> list[str]:
        short = self.run.info.short_id
        failed = ["--errors"] if self.run.info.error_count else []
        commands = [self.command("check", short), self.command("show", short, *failed)]
        hurt = [
            span for span in self.run.spans if span.status not in ("ok", None) and span.parent_id
        ]
        if hurt:
            commands.append(self.command("why", hurt[-1].short_id))
        return [f"next: {' | '.join(commands)}"]

    def data(self) -> dict[str, Any]:
        short = {span.id: span.short_id for span in self.run.spans}
        return {
            "version": self.version,
            "run": run_data(self.run.info),
            "types": dict(sorted(Counter(span.type for span in self.run.spans).items())),
            "findings": [finding_data(finding, short) for finding in self.examined.findings],
            "passed": sorted(self.examined.passed),
            "cost_usd": None if self.cost is None else self.cost.dollars,
            "good_run": None if self.good is None else run_data(self.good),
            "stamps": stamps(self.run),
            "notes": note_data(self.run.spans, self.notes),
        }
