"""`list`: runs, newest first, one line each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from vestige.query import words
from vestige.query.costs import Cost
from vestige.query.layout import Asked, columns, fit
from vestige.query.show import list_data
from vestige.record.finding import Finding
from vestige.record.run import RunInfo

HEAD = ("ID", "NAME", "OUTCOME", "STARTED", "TOOK", "SPANS", "FAILED", "TOKENS")


@dataclass
class ListAnswer(Asked):
    """Runs as a list shows them; the top finding where findings are stored."""

    verb: ClassVar[str] = "list"
    budget: ClassVar[int] = 600

    runs: Sequence[RunInfo]
    more: bool
    """There are older ones that the same question would list."""
    limit: int
    now_ns: int
    options: Sequence[str] = ()
    """As they were given, for the next command."""
    findings: Mapping[str, Finding] = field(default_factory=dict)
    """By run id: the first thing to say about it."""
    costs: Mapping[str, Cost] | None = None
    """By run id; None: money was not asked for."""
    partial: Collection[str] = ()
    """Ids of runs that are not all here."""

    def lines(self, budget: int) -> list[str]:
        if not self.runs:
            if self.options:
                return [f"No such runs. All there are: {self.command('list')}"]
            return ["No runs. Record one: vestige run -- python your_agent.py"]
        head, *rows = self._table()

        def more(left_out: int) -> str:
            last = self.runs[max(0, len(rows) - left_out - 1)].short_id
            again = [*self.options, "--limit", str(self.limit), "--after", last]
            return f"… {left_out} of {len(rows)} runs left out: {self.command('list', *again)}"

        end: list[str] = []
        if self.more:
            wider = self.command("list", *self.options, "--limit", str(self.limit * 5))
            end = [f"… more: {wider}"]
        return fit([head], rows, end, budget, more)

    def styled(self, budget: int) -> list[tuple[str, str]]:
        """The lines, and the outcome that each tells of."""
        lines = self.lines(budget)
        outcomes = {run.short_id: run.outcome for run in self.runs}
        moods = [outcomes.get(line.partition(" ")[0], "log") for line in lines]
        return list(zip(lines, moods, strict=True))

    def _table(self) -> list[str]:
        told = [run for run in self.runs if run.id in self.findings]
        priced = ["COST"] if self.costs is not None else []
        table = [[*HEAD, *priced, *(["TOP FINDING"] if told else [])]]
        for run in self.runs:
            took = run.duration_ns if run.duration_ns is not None else run.last_ns - run.started_ns
            row = [
                run.short_id,
                words.one_line(run.name, 40)
                + (" (partial)" if run.id in self.partial else "")
                + (" *" if run.pinned else ""),
                words.one_line(run.outcome, 20),
                words.ago(run.started_ns, self.now_ns),
                words.duration(took),
                str(run.span_count),
                str(run.error_count) if run.error_count else "",
                words.number(run.tokens) if run.tokens else "",
            ]
            if self.costs is not None:
                row.append(str(self.costs.get(run.id, "")))
            if told:
                finding = self.findings.get(run.id)
                row.append(words.one_line(finding.kind, 40) if finding else "")
            table.append(row)
        return columns(table, right=(4, 5, 6, 7, *((8,) if self.costs is not None else ())))

    def data(self) -> dict[str, Any]:
        data = list_data(list(self.runs))
        for run in data["runs"]:
            finding = self.findings.get(run["id"])
            if finding is not None:
                run["top_finding"] = finding.kind
            if run["id"] in self.partial:
                run["partial"] = True
            if self.costs is not None:
                cost = self.costs.get(run["id"])
                run["cost_usd"] = None if cost is None else cost.dollars
        return data
