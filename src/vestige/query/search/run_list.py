"""The `list` command: runs that match a filter, newest first.

Costs are not stored. A filter by cost therefore prices at most `PRICED_MAX` runs, and the
answer shows how to continue.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from msgspec.structs import replace

from vestige.errors import UsageError
from vestige.query import formatting
from vestige.query.failures.top_findings import Examine, find_top_findings
from vestige.query.stats.costs import Cost, run_costs
from vestige.query.text_layout import CommandAnswer, columns, fit_page
from vestige.query.views.show import list_data
from vestige.record.finding import Finding
from vestige.record.run import RunInfo
from vestige.store.protocol import ConversationInfo, RunFilter, Store, Term
from vestige.store.sqlite.read.reports import connection_of, find_partial

HEAD = ("ID", "NAME", "OUTCOME", "STARTED", "DURATION", "SPANS", "ERRORS", "TOKENS")


@dataclass
class ListAnswer(CommandAnswer):
    """Runs with their most severe findings, if they were examined."""

    verb: ClassVar[str] = "list"
    budget: ClassVar[int] = 600

    runs: Sequence[RunInfo]
    more: bool
    """True if older runs match, too."""
    limit: int
    now_ns: int
    options: Sequence[str] = ()
    """The options of this command, for the next one."""
    findings: Mapping[str, Finding] = field(default_factory=dict)
    """The most severe finding, by run id."""
    costs: Mapping[str, Cost] | None = None
    """Costs by run id; None if not requested."""
    groups: Mapping[str, ConversationInfo] | None = None
    """Conversations by run id; None if runs are not grouped."""
    searched: int | None = None
    """The number of runs searched, if the search stopped before the oldest one."""
    next: str | None = None
    """The run after which to continue; None at the end."""
    partial: Collection[str] = ()
    """Ids of runs that were imported from truncated bundles."""
    unexamined: Sequence[str] | None = None
    """Ids of finished runs without findings yet; None if runs are not to be examined."""
    hidden: bool = False
    """True if only runs without recorded activity exist, which the list omits."""

    def lines(self, budget: int) -> list[str]:
        if not self.runs:
            if self.next is not None:
                return [f"None of the newest {self.searched} runs match. {self._continue()}"]
            if self.options:
                return [f"No runs match. List all: {self.command('list')}"]
            if self.hidden:
                command = self.command("list", "--all")
                return [f"No model calls, tools or logs recorded. List empty runs: {command}"]
            return ["No runs yet. Record one: vestige run -- python your_agent.py"]
        head, *rows = self._table()

        def more(left_out: int) -> str:
            last = self.runs[len(rows) - left_out - 1].short_id
            return f"… {left_out} of {len(rows)} runs not shown: {self._after(last)}"

        end: list[str] = []
        unexamined = next((run for run in self.runs if run.id in (self.unexamined or ())), None)
        if unexamined is not None:
            end.append(f"?: not checked yet: {self.command('check', unexamined.short_id)}")
        if self.searched is not None and self.next is not None:
            end.append(f"… {self._continue()} ({self.searched} runs searched)")
        elif self.next is not None:
            end.append(f"… more: {self._after(self.next)}")
        return fit_page([head], rows, end, budget, more)

    def _continue(self) -> str:
        return f"Continue: {self._after(self.next or '')}"

    def _after(self, run: str) -> str:
        return self.command("list", *self.options, "--limit", str(self.limit), "--after", run)

    def styled(self, budget: int) -> list[tuple[str, str]]:
        """Return each line with the outcome of its run, or `log`."""
        lines = self.lines(budget)
        outcomes = {run.short_id: run.outcome for run in self.runs}
        return [(line, outcomes.get(line.partition(" ")[0], "log")) for line in lines]

    def _table(self) -> list[str]:
        with_findings = bool(self.findings or self.unexamined)
        head = [*HEAD]
        head += ["COST"] if self.costs is not None else []
        head += ["RUNS"] if self.groups is not None else []
        head += ["FINDING"] if with_findings else []
        table = [head]
        for run in self.runs:
            elapsed = run.last_ns - run.started_ns
            row = [
                run.short_id,
                formatting.single_line(run.name, 40)
                + (" (partial)" if run.id in self.partial else "")
                + (" *" if run.pinned else ""),
                formatting.single_line(run.outcome, 20),
                formatting.relative_time(run.started_ns, self.now_ns),
                formatting.duration(elapsed if run.duration_ns is None else run.duration_ns),
                str(run.span_count),
                str(run.error_count) if run.error_count else "",
                formatting.number(run.tokens) if run.tokens else "",
            ]
            if self.costs is not None:
                row.append(str(self.costs.get(run.id, "")))
            if self.groups is not None:
                row.append(self._group_cell(run))
            if with_findings:
                row.append(self._finding_cell(run))
            table.append(row)
        return columns(table, right=(4, 5, 6, 7, *((8,) if self.costs is not None else ())))

    def _finding_cell(self, run: RunInfo) -> str:
        if run.id in (self.unexamined or ()):
            return "?"
        finding = self.findings.get(run.id)
        return formatting.single_line(finding.kind, 40) if finding else ""

    def _group_cell(self, run: RunInfo) -> str:
        group = (self.groups or {}).get(run.id)
        if group is None:
            return ""
        failed = f", {group.failed} failed" if group.failed else ""
        return f"{group.runs} of {formatting.single_line(group.conversation_id, 30)}{failed}"

    def data(self) -> dict[str, Any]:
        data = list_data(list(self.runs))
        data |= {"next": self.next, "more": self.next is not None, "looked_at": self.searched}
        for run in data["runs"]:
            finding = self.findings.get(run["id"])
            if finding is not None:
                run["top_finding"] = finding.kind
            if self.unexamined is not None:
                run["examined"] = run["id"] not in self.unexamined and run["outcome"] != "running"
            if run["id"] in self.partial:
                run["partial"] = True
            if self.costs is not None:
                cost = self.costs.get(run["id"])
                run["cost_usd"] = None if cost is None else cost.dollars
            if self.groups is not None:
                group = self.groups.get(run["id"])
                run["group"] = None if group is None else _group_data(group)
        return data


def _group_data(group: ConversationInfo) -> dict[str, Any]:
    return {
        "conversation_id": group.conversation_id,
        "runs": group.runs,
        "failed": group.failed,
        "first_started_at": formatting.timestamp(group.first_ns),
        "input_tokens": group.input_tokens,
        "output_tokens": group.output_tokens,
    }


# --- the search ---------------------------------------------------------------------------------

PRICED_MAX = 1_000
"""Runs that are priced for one answer, if a filter has a cost term."""
PRICED_STEP = 250


@dataclass(frozen=True, slots=True)
class ListQuery:
    """A filter, and the extra columns to compute."""

    filter: RunFilter
    limit: int
    cost: bool
    options: Sequence[str]
    examine: Examine | None = None
    """If set, small unexamined runs are examined (query/failures/top_findings.py)."""


@dataclass(frozen=True, slots=True)
class _Page:
    """Runs found; the fields have the meaning that they have in `ListAnswer`."""

    runs: Sequence[RunInfo]
    more: bool
    searched: int | None
    next: str | None


def find_matching(
    store: Store, terms: tuple[Term, ...], limit: int
) -> tuple[Sequence[RunInfo], bool]:
    """Return the newest runs that match, and whether more may match."""
    page = _find_page(store, ListQuery(RunFilter(terms=terms), limit, cost=False, options=()))
    return page.runs, page.next is not None


def list_answer(store: Store, query: ListQuery, now_ns: int) -> ListAnswer:
    page = _find_page(store, query)
    runs = page.runs
    ids = [run.id for run in runs]
    top = find_top_findings(store, runs, query.examine)
    return ListAnswer(
        runs,
        page.more,
        query.limit,
        now_ns,
        query.options,
        top.findings,
        run_costs(store, ids) if query.cost or _cost_terms(query) else None,
        store.conversations(ids) if query.filter.newest_of_conversation else None,
        page.searched,
        page.next,
        _find_truncated(store, runs),
        top.unexamined if query.examine is not None else None,
        not (runs or query.options or query.filter.terms) and _has_hidden(store, query.filter),
    )


def _has_hidden(store: Store, run_filter: RunFilter) -> bool:
    return bool(store.list_runs(replace(run_filter, with_implicit=True, limit=1)))


def _find_truncated(store: Store, runs: Sequence[RunInfo]) -> set[str]:
    imported = [run.id for run in runs if run.component == "openwop"]
    return find_partial(connection_of(store), imported) if imported else set()


def _find_page(store: Store, query: ListQuery) -> _Page:
    cost_terms = _cost_terms(query)
    if cost_terms:
        return _find_by_cost(store, query, cost_terms)
    return _find_by_filter(store, query.filter, query.limit)


def _cost_terms(query: ListQuery) -> list[Term]:
    return [term for term in query.filter.terms if term.key == "cost"]


def _find_by_filter(store: Store, run_filter: RunFilter, limit: int) -> _Page:
    listed = store.search_runs(replace(run_filter, limit=limit + 1))
    runs = listed.runs[:limit]
    if len(listed.runs) > limit:
        return _Page(runs, True, None, runs[-1].short_id)
    return _Page(runs, False, listed.looked_at, listed.last)


def _find_by_cost(store: Store, query: ListQuery, cost_terms: Sequence[Term]) -> _Page:
    """Price batches of runs that match all other terms, until enough match the cost terms."""
    terms = tuple(term for term in query.filter.terms if term.key != "cost")
    run_filter = replace(query.filter, terms=terms)
    matching: list[RunInfo] = []
    priced = 0
    while True:
        batch = _find_by_filter(store, run_filter, PRICED_STEP)
        costs = run_costs(store, [run.id for run in batch.runs])
        for run in batch.runs:
            if len(matching) == query.limit:
                return _Page(matching, True, None, matching[-1].short_id)
            if all(_matches_cost(term, costs.get(run.id)) for term in cost_terms):
                matching.append(run)
        priced += len(batch.runs)
        if batch.next is None or batch.searched is not None or priced >= PRICED_MAX:
            searched = priced if batch.searched is None else batch.searched
            return _Page(matching, False, None if batch.next is None else searched, batch.next)
        run_filter = replace(run_filter, after=batch.next)


_COMPARE = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
    "=": operator.eq,
}


def _matches_cost(term: Term, cost: Cost | None) -> bool:
    """Compare a run's cost. No model calls cost 0, and an unknown cost never matches."""
    dollars = 0.0 if cost is None else cost.dollars
    if dollars is None:
        return False
    return bool(_COMPARE[term.op](dollars, term.value)) is not term.negated


def is_grouped(group: str | None) -> bool:
    """Return True for `conversation`, False for None; raise UsageError for other values."""
    if group not in (None, "conversation"):
        shown = formatting.single_line(group, 40)
        raise UsageError(f"--group: unknown value {shown!r} (expected conversation).")
    return group is not None
