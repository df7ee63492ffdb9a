"""`list`: runs, newest first, one line each; those that a filter wants, or one of each conversation.

    list_answer(store, Listing(terms=parse_filter("is:failed cost>0.1", now_ns)), now_ns)

What a run cost is no column of it: a filter by cost prices so many runs, and says where it stopped.
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

HEAD = ("ID", "NAME", "OUTCOME", "STARTED", "TOOK", "SPANS", "ERRORS", "TOKENS")


@dataclass
class ListAnswer(CommandAnswer):
    """Runs as a list shows them; the finding that `check` leads with, where one has looked."""

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
    groups: Mapping[str, ConversationInfo] | None = None
    """The conversation that a run is part of, by run id; None: every run stands for itself."""
    looked_at: int | None = None
    """So many runs were looked into, and there are more."""
    next: str | None = None
    """The run after which to go on; None: these are all."""
    partial: Collection[str] = ()
    """Ids of runs that are not all here."""
    unseen: Sequence[str] | None = None
    """Ids of finished runs that nobody has examined; None: the list was not asked to look."""
    hidden: bool = False
    """There is nothing to list, but for runs that say no more than that a program ran."""

    def lines(self, budget: int) -> list[str]:
        if not self.runs:
            if self.next is not None:
                return [f"None of the newest {self.looked_at} runs. {self._go_on()}"]
            if self.options:
                return [f"No such runs. All there are: {self.command('list')}"]
            if self.hidden:
                return [
                    f"No model call, tool or log line was recorded. What ran: {self.command('list', '--all')}"
                ]
            return ["No runs. Record one: vestige run -- python your_agent.py"]
        head, *rows = self._table()

        def more(left_out: int) -> str:
            last = self.runs[len(rows) - left_out - 1].short_id
            return f"… {left_out} of {len(rows)} runs left out: {self._after(last)}"

        end: list[str] = []
        if self.looked_at is not None and self.next is not None:
            end = [f"… {self._go_on()} ({self.looked_at} runs were looked into)"]
        elif self.next is not None:
            end = [f"… more: {self._after(self.next)}"]
        end = [*self._say_unseen(), *end]
        return fit_page([head], rows, end, budget, more)

    def _say_unseen(self) -> list[str]:
        first = next((run for run in self.runs if run.id in (self.unseen or ())), None)
        if first is None:
            return []
        return [f"?: not examined yet: {self.command('check', first.short_id)}"]

    def _go_on(self) -> str:
        return f"Further back: {self._after(self.next or '')}"

    def _after(self, run: str) -> str:
        return self.command("list", *self.options, "--limit", str(self.limit), "--after", run)

    def styled(self, budget: int) -> list[tuple[str, str]]:
        """The lines, and the outcome that each tells of."""
        lines = self.lines(budget)
        outcomes = {run.short_id: run.outcome for run in self.runs}
        moods = [outcomes.get(line.partition(" ")[0], "log") for line in lines]
        return list(zip(lines, moods, strict=True))

    def _table(self) -> list[str]:
        told = bool(self.findings or self.unseen)
        priced = ["COST"] if self.costs is not None else []
        grouped = ["RUNS"] if self.groups is not None else []
        table = [[*HEAD, *priced, *grouped, *(["TOP FINDING"] if told else [])]]
        for run in self.runs:
            took = run.duration_ns if run.duration_ns is not None else run.last_ns - run.started_ns
            row = [
                run.short_id,
                formatting.single_line(run.name, 40)
                + (" (partial)" if run.id in self.partial else "")
                + (" *" if run.pinned else ""),
                formatting.single_line(run.outcome, 20),
                formatting.relative_time(run.started_ns, self.now_ns),
                formatting.duration(took),
                str(run.span_count),
                str(run.error_count) if run.error_count else "",
                formatting.number(run.tokens) if run.tokens else "",
            ]
            if self.costs is not None:
                row.append(str(self.costs.get(run.id, "")))
            if self.groups is not None:
                row.append(self._group_cell(run))
            if told:
                row.append(self._top_cell(run))
            table.append(row)
        return columns(table, right=(4, 5, 6, 7, *((8,) if self.costs is not None else ())))

    def _top_cell(self, run: RunInfo) -> str:
        if run.id in (self.unseen or ()):
            return "?"
        finding = self.findings.get(run.id)
        return formatting.single_line(finding.kind, 40) if finding else ""

    def _group_cell(self, run: RunInfo) -> str:
        group = (self.groups or {}).get(run.id)
        if group is None:
            return ""
        bad = f", {group.failed} failed" if group.failed else ""
        return f"{group.runs} of {formatting.single_line(group.conversation_id, 30)}{bad}"

    def data(self) -> dict[str, Any]:
        data = list_data(list(self.runs))
        data |= {"next": self.next, "more": self.next is not None, "looked_at": self.looked_at}
        for run in data["runs"]:
            finding = self.findings.get(run["id"])
            if finding is not None:
                run["top_finding"] = finding.kind
            if self.unseen is not None:
                run["examined"] = run["id"] not in self.unseen and run["outcome"] != "running"
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


# --- looking for them ----------------------------------------------------------------------------

PRICED_MAX = 1_000
"""Runs that are priced for one answer, where one filters by cost."""
PRICED_STEP = 250


@dataclass(frozen=True, slots=True)
class Listing:
    """What is asked for."""

    wanted: RunFilter
    limit: int
    cost: bool
    options: Sequence[str]
    examine: Examine | None = None
    """Then runs that nobody has examined are, within bounds (query/failures/top_findings.py)."""


@dataclass(frozen=True, slots=True)
class _Found:
    runs: Sequence[RunInfo]
    more: bool
    looked_at: int | None
    next: str | None


def find_matching(
    store: Store, terms: tuple[Term, ...], limit: int
) -> tuple[Sequence[RunInfo], bool]:
    """The newest runs that a filter wants, and whether there may be more."""
    found = _look_for(store, Listing(RunFilter(terms=terms), limit, cost=False, options=()))
    return found.runs, found.next is not None


def _look_for(store: Store, asked: Listing) -> _Found:
    prices = _prices(asked)
    if prices:
        return _look_priced(store, asked, prices)
    return _look(store, asked.wanted, asked.limit)


def _prices(asked: Listing) -> list[Term]:
    return [term for term in asked.wanted.terms if term.key == "cost"]


def list_answer(store: Store, asked: Listing, now_ns: int) -> ListAnswer:
    found = _look_for(store, asked)
    runs = found.runs
    ids = [run.id for run in runs]
    tops = find_top_findings(store, runs, asked.examine)
    groups = None
    if asked.wanted.newest_of_conversation:
        groups = store.conversations(ids)
    return ListAnswer(
        runs,
        found.more,
        asked.limit,
        now_ns,
        asked.options,
        tops.findings,
        run_costs(store, ids) if asked.cost or _prices(asked) else None,
        groups,
        found.looked_at,
        found.next,
        _partial(store, runs),
        tops.unseen if asked.examine is not None else None,
        not (runs or asked.options or asked.wanted.terms) and _hides(store, asked.wanted),
    )


def _hides(store: Store, wanted: RunFilter) -> bool:
    """Whether there would be runs, were those listed that say no more than that a program ran."""
    return bool(store.list_runs(replace(wanted, with_implicit=True, limit=1)))


def _partial(store: Store, runs: Sequence[RunInfo]) -> set[str]:
    """Of runs that came in bundles, those whose bundle was truncated."""
    came = [run.id for run in runs if run.component == "openwop"]
    return find_partial(connection_of(store), came) if came else set()


def _look(store: Store, wanted: RunFilter, limit: int) -> _Found:
    listed = store.search_runs(replace(wanted, limit=limit + 1))
    runs = listed.runs[:limit]
    if len(listed.runs) > limit:
        return _Found(runs, True, None, runs[-1].short_id)
    return _Found(runs, False, listed.looked_at, listed.last)


def _look_priced(store: Store, asked: Listing, prices: Sequence[Term]) -> _Found:
    """Batch after batch of runs that all else wants, until enough cost what is asked for."""
    terms = tuple(term for term in asked.wanted.terms if term.key != "cost")
    wanted = replace(asked.wanted, terms=terms)
    kept: list[RunInfo] = []
    priced = 0
    while True:
        batch = _look(store, wanted, PRICED_STEP)
        costs = run_costs(store, [run.id for run in batch.runs])
        for run in batch.runs:
            if len(kept) == asked.limit:
                return _Found(kept, True, None, kept[-1].short_id)
            if all(_costs_so(term, costs.get(run.id)) for term in prices):
                kept.append(run)
        priced += len(batch.runs)
        if batch.next is None or batch.looked_at is not None or priced >= PRICED_MAX:
            looked_at = priced if batch.looked_at is None else batch.looked_at
            return _Found(kept, False, None if batch.next is None else looked_at, batch.next)
        wanted = replace(wanted, after=batch.next)


_COMPARE = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
    "=": operator.eq,
}


def _costs_so(term: Term, cost: Cost | None) -> bool:
    """A run without model calls costs nothing; one of which nothing is known is never meant."""
    dollars = 0.0 if cost is None else cost.dollars
    if dollars is None:
        return False
    return bool(_COMPARE[term.op](dollars, term.value)) is not term.negated


def check_group(group: str | None) -> bool:
    if group not in (None, "conversation"):
        raise UsageError(
            f"--group: {formatting.single_line(group, 40)!r} is not known (expected conversation)."
        )
    return group is not None
