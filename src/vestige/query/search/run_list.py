"""The `list` command: runs that match a filter, newest first or in another order.

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
from vestige.limits import LIST_MAX
from vestige.query import formatting
from vestige.query.failures.top_findings import Examine, find_top_findings
from vestige.query.ids.lineage import Lineage, find_origins
from vestige.query.run_as_data import list_data
from vestige.query.search import run_order
from vestige.query.search.grep import format_match, hit_data
from vestige.query.search.run_titles_and_results import RunText, read_run_texts
from vestige.query.search.runs_with_text import add_runs_with_text
from vestige.query.search.totals_of_matching_runs import (
    RunTotals,
    TotalsBucket,
    add_up_by_time,
    add_up_runs,
)
from vestige.query.stats.costs import Cost, run_costs
from vestige.query.text_layout import CommandAnswer, columns, drop_columns, fit_page
from vestige.record.finding import Finding
from vestige.record.run import UNKNOWN, RunInfo
from vestige.store.protocol import ConversationInfo, Hit, NoteSummary, RunFilter, Store, Term

NARROW_DROPS = ("SPANS", "ERRORS", "TOKENS", "RESULT")
"""Columns that a narrow terminal does not show, in this order."""
NARROW_TEXT = 16
"""Width of names and findings below which a column is dropped instead."""
FINDING_SHOWN = 60
RESULT_SHOWN = 80
MATCH_SHOWN = 80
NOTE_SHOWN = 300
NO_TEXT = RunText()
NUMBERS = frozenset(("DURATION", "SPANS", "ERRORS", "TOKENS", "COST"))
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
    texts: Mapping[str, RunText] = field(default_factory=dict)
    """Title, task and result, by run id."""
    hidden: bool = False
    """True if only runs without recorded activity exist, which the list omits."""
    notes: Mapping[str, NoteSummary] = field(default_factory=dict)
    """Notes by run id."""
    totals: RunTotals | None = None
    """Sums over all runs that match; None if not requested."""
    buckets: Sequence[TotalsBucket] | None = None
    """The totals by hour or day; None if not requested."""
    understood: str | None = None
    """A sentence about the runs that the words of the filter select."""
    matches: Mapping[str, Hit] = field(default_factory=dict)
    """A match of the words in each run, by run id."""
    origins: Mapping[str, Lineage] = field(default_factory=dict)
    """The origins of replays and forks, by run id."""

    def lines(self, budget: int) -> list[str]:
        if not self.runs:
            if self.next is not None:
                return [f"None of the newest {self.searched} runs match. {self._continue()}"]
            if self.options:
                searched = f" (searched: {self.understood})" if self.understood else ""
                return [f"No runs match{searched}. List all: {self.command('list')}"]
            if self.hidden:
                command = self.command("list", "--all")
                return [f"No model calls, tools or logs recorded. List empty runs: {command}"]
            return ["No runs yet. Record your first one: vestige run -- python your_agent.py"]
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
        elif self.searched is not None:
            end.append(f"Only the newest {self.searched} runs were searched.")
        if self.totals is not None:
            end.append(self.totals.line())
        return fit_page([head], rows, end, budget, more)

    def _continue(self) -> str:
        return f"Continue: {self._after(self.next or '')}"

    def _after(self, run: str) -> str:
        limit = ("--limit", str(self.limit)) if self.limit != LIST_MAX else ()
        return self.command("list", *self.options, *limit, "--after", run)

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
        ends_with = self._last_heading()
        head += [ends_with] if ends_with else []
        table = [head]
        for run in self.runs:
            row = [
                run.short_id,
                formatting.single_line(self._title(run), 40)
                + (" (partial)" if run.id in self.partial else "")
                + (f" ({self.origins[run.id].mark()})" if run.id in self.origins else "")
                + _missing(run)
                + (" *" if run.pinned else "")
                + (" ✎" if run.id in self.notes else ""),
                formatting.single_line(run.outcome, 20),
                formatting.relative_time(run.started_ns, self.now_ns),
                formatting.duration(run.elapsed_ns),
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
            if ends_with == "MATCH":
                row.append(_match_cell(self.matches.get(run.id)))
            elif ends_with:
                row.append(self._result_cell(run))
            table.append(row)
        if self.columns is not None:
            table = drop_columns(table, NARROW_DROPS, self.columns, NARROW_TEXT)
        right = [column for column, heading in enumerate(table[0]) if heading in NUMBERS]
        return columns(table, right, self.columns)

    def _finding_cell(self, run: RunInfo) -> str:
        if run.id in (self.unexamined or ()):
            return "?"
        finding = self.findings.get(run.id)
        return formatting.single_line(finding.message, FINDING_SHOWN) if finding else ""

    def _last_heading(self) -> str:
        """Return the heading of the last column of a terminal: where the words are, or results."""
        if self.columns is None:
            return ""
        if self.matches:
            return "MATCH"
        return "RESULT" if any(text.result for text in self.texts.values()) else ""

    def _result_cell(self, run: RunInfo) -> str:
        text = self.texts.get(run.id, NO_TEXT)
        result = text.result if run.outcome in ("ok", UNKNOWN) else None
        return formatting.single_line(result or "", RESULT_SHOWN)

    def _title(self, run: RunInfo) -> str:
        return self.texts.get(run.id, NO_TEXT).title or run.name

    def _group_cell(self, run: RunInfo) -> str:
        group = (self.groups or {}).get(run.id)
        if group is None:
            return ""
        failed = f", {group.failed} failed" if group.failed else ""
        return f"{group.runs} of {formatting.single_line(group.conversation_id, 30)}{failed}"

    def data(self) -> dict[str, Any]:
        data = list_data(list(self.runs))
        data |= {"next": self.next, "more": self.next is not None, "looked_at": self.searched}
        if self.understood is not None:
            data["understood"] = self.understood
        for run in data["runs"]:
            finding = self.findings.get(run["id"])
            text = self.texts.get(run["id"], NO_TEXT)
            run |= {
                "title": text.title or run["name"],
                "task": text.task,
                "result": text.result,
            }
            if finding is not None:
                run |= {
                    "top_finding": finding.kind,
                    "finding": finding.message,
                    "finding_severity": finding.severity,
                }
            note = self.notes.get(run["id"])
            if note is not None:
                run |= {"note_count": note.count, "latest_note": note.latest[:NOTE_SHOWN]}
            if self.unexamined is not None:
                run["examined"] = run["id"] not in self.unexamined and run["outcome"] != "running"
            origin = self.origins.get(run["id"])
            if origin is not None:
                key = "replay_of" if origin.span_id is None else "fork_of"
                run[key] = origin.run or origin.run_id
            match = self.matches.get(run["id"])
            if match is not None:
                run["match"] = hit_data(match)
            if run["id"] in self.partial:
                run["partial"] = True
            if self.costs is not None:
                cost = self.costs.get(run["id"])
                run["cost_usd"] = None if cost is None else cost.dollars
                run["cost_complete"] = cost is None or not cost.unknown
                run["model_calls"] = 0 if cost is None else cost.calls
            if self.groups is not None:
                group = self.groups.get(run["id"])
                run["group"] = None if group is None else _group_data(group)
        if self.totals is not None:
            data["totals"] = self.totals.data()
        if self.buckets is not None:
            data["buckets"] = [bucket.data() for bucket in self.buckets]
        return data


def _match_cell(hit: Hit | None) -> str:
    if hit is None:
        return ""
    span = hit.span_ref.short_id.rpartition(".")[2]
    return formatting.single_line(f"{span}: {format_match(hit)}", MATCH_SHOWN)


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
    sort: str | None = None
    """`cost` or `calls`; other orders are part of the filter."""
    reverse: bool = False
    totals: bool = False
    buckets: bool = False
    """Also add up by hour or day."""


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
    terms = add_runs_with_text(store, terms).terms
    page = _find_page(store, ListQuery(RunFilter(terms=terms), limit, cost=False, options=()))
    return page.runs, page.next is not None


def list_answer(store: Store, query: ListQuery, now_ns: int) -> ListAnswer:
    page = _find_page(store, query)
    runs = page.runs
    with_costs = query.cost or query.sort is not None or _cost_terms(query)
    ids = [run.id for run in runs]
    top = find_top_findings(store, runs, query.examine)
    totals, buckets = _find_totals(store, query, now_ns)
    return ListAnswer(
        runs,
        page.more,
        query.limit,
        now_ns,
        query.options,
        top.findings,
        run_costs(store, ids) if with_costs else None,
        store.conversations(ids) if query.filter.newest_of_conversation else None,
        page.searched,
        page.next,
        _find_truncated(store, runs),
        top.unexamined if query.examine is not None else None,
        read_run_texts(store, runs),
        not (runs or query.options or query.filter.terms) and _has_hidden(store, query.filter),
        store.summarize_notes(ids),
        totals,
        buckets=buckets,
        origins=find_origins(store, ids),
    )


def _find_totals(
    store: Store, query: ListQuery, now_ns: int
) -> tuple[RunTotals | None, Sequence[TotalsBucket] | None]:
    if not query.totals and not query.buckets:
        return None, None
    found = _find_priced(store, query)
    totals = add_up_runs(found.runs, found.costs, found.searched is None)
    if not query.buckets:
        return totals, None
    since_ns = query.filter.since_ns
    range_ns = None if since_ns is None else (since_ns, now_ns)
    return totals, add_up_by_time(found.runs, found.costs, range_ns)


def _has_hidden(store: Store, run_filter: RunFilter) -> bool:
    return bool(store.list_runs(replace(run_filter, with_implicit=True, limit=1)))


def _find_truncated(store: Store, runs: Sequence[RunInfo]) -> set[str]:
    imported = [run.id for run in runs if run.component == "openwop"]
    return store.find_partial_runs(imported) if imported else set()


def _find_page(store: Store, query: ListQuery) -> _Page:
    cost_terms = _cost_terms(query)
    if query.sort is not None:
        return _find_sorted_by_cost(store, query, query.sort)
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


@dataclass(frozen=True, slots=True)
class _PricedRuns:
    """All runs that match, newest first, with their costs."""

    runs: list[RunInfo]
    costs: dict[str, Cost]
    searched: int | None
    """The number of runs searched, if there are more."""


def _find_priced(store: Store, query: ListQuery) -> _PricedRuns:
    cost_terms = _cost_terms(query)
    terms = tuple(term for term in query.filter.terms if term.key != "cost")
    newest = replace(query.filter, terms=terms, after=None, sort="started", ascending=False)
    page = _find_by_filter(store, newest, run_order.PRICED_MAX)
    costs = run_order.price_runs(store, page.runs)
    runs = [
        run
        for run in page.runs
        if all(_matches_cost(term, costs.get(run.id)) for term in cost_terms)
    ]
    shown = {run.id: costs[run.id] for run in runs if run.id in costs}
    searched = page.searched if page.searched is not None else len(page.runs)
    return _PricedRuns(runs, shown, searched if page.next is not None else None)


def _find_sorted_by_cost(store: Store, query: ListQuery, sort: str) -> _Page:
    """Return a page of all matching runs, the most expensive first."""
    found = _find_priced(store, query)
    runs = run_order.sort_by_cost(found.runs, found.costs, sort, query.reverse)
    after = query.filter.after
    start = next((at for at, run in enumerate(runs, 1) if run.short_id == after), 0)
    page = runs[start : start + query.limit]
    more = start + len(page) < len(runs)
    return _Page(page, more, found.searched, page[-1].short_id if more else None)


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


def _missing(run: RunInfo) -> str:
    if not run.missing_count:
        return ""
    return f" ({formatting.pluralize(run.missing_count, 'record')} missing)"
