"""Debugger: every query command as a method, shared by the CLI, MCP, HTTP and programs.

    with vestige.open() as debugger:
        print(debugger.overview("r7"))
        print(debugger.check("r7").data())

Each method takes any id (query/ids/resolve.py) and returns an `Answer`: text within a budget,
or data. It only reads. The findings of a finished run are passed to `keep`, if it is set.

A method imports the module of its query when it is called: a command needs one or two of them.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from vestige._runtime import clock
from vestige.errors import NotFoundError, UsageError
from vestige.limits import (
    FILTER_MAX,
    LIST_MAX,
    OUTLINE_ROWS_MAX,
    SECONDS_MAX,
    TRANSCRIPT_ITEMS,
)
from vestige.query import formatting
from vestige.query.answer import Answer
from vestige.query.evidence import Evidence, open_run
from vestige.query.ids.resolve import Target, Want, find_run, resolve, states_by_index
from vestige.query.text_layout import CommandAnswer
from vestige.record.run import NOT_FAILED, Run, RunInfo, SpanInfo
from vestige.settings import parse_duration
from vestige.store.protocol import RunFilter, Store, Term

if TYPE_CHECKING:
    from vestige.query.failures.check import CaseCause, CheckAnswer, CheckReport, SaveResults
    from vestige.query.failures.why import WhyAnswer
    from vestige.query.gate.measure_execution import Measurement
    from vestige.query.ids.lineage import Family
    from vestige.query.policy.policy import Policy
    from vestige.query.search.grep import GrepAnswer
    from vestige.query.search.run_list import ListAnswer
    from vestige.query.search.sql import SchemaAnswer, SqlAnswer
    from vestige.query.views.body import BodyAnswer, Which
    from vestige.query.views.doctor import DoctorAnswer
    from vestige.query.views.notes import NotesAnswer
    from vestige.query.views.overview import OverviewAnswer
    from vestige.query.views.show import ShowAnswer
    from vestige.query.views.span import SpanAnswer
    from vestige.record.health import Health

A = TypeVar("A", bound=CommandAnswer)
Range = tuple[int, int | None]


class Debugger:
    """Queries of one store. `at` holds the options for it in commands: `--home DIR`."""

    def __init__(
        self,
        store: Store,
        *,
        keep: SaveResults | None = None,
        health: Callable[[], Health] | None = None,
        at: str = "",
        close: Callable[[], None] | None = None,
        elsewhere: Callable[[str], Debugger] | None = None,
    ) -> None:
        self.store = store
        self.at = at
        self._keep = keep
        self._health = health
        self._close = close
        self._elsewhere = elsewhere
        self.notice = ""
        """A remark for the user about the source of the answers."""
        self.unread = 0
        """Approximate number of events not read, if a file was opened for its first page only."""

    def close(self) -> None:
        """Close the store and what was opened to read it."""
        self.store.close()
        if self._close is not None:
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.store.__exit__(kind, error, trace)
        finally:
            if self._close is not None:
                self._close()

    def _placed(self, answer: A) -> A:
        answer.at = self.at
        return answer

    # --- ids --------------------------------------------------------------------------------

    def resolve(self, id: str | None, want: Want = "any") -> Target:
        """Find the run or span of an id of any kind. None is the last run."""
        return resolve(self.store, id, want)

    def _open_run(self, run_id: str) -> Evidence:
        """Load a run for one query; server/cached_debugger.py overrides this with a cache."""
        return open_run(self.store, run_id)

    def _examine(self, run: Run) -> CheckReport:
        """Run the checks on a run."""
        from vestige.query.failures.check import examine

        return examine(self.store, run, self._keep)

    def _open(self, id: str | None) -> Evidence:
        return self._open_run(self.resolve(id, "run").run.id)

    def _run(self, id: str | None) -> Run:
        return self._open(id).run

    def _span(self, id: str | None) -> tuple[Evidence, SpanInfo]:
        """Return the span of an id; the root span for a run's id."""
        return self._span_of(self.resolve(id, "span"))

    def _span_of(self, target: Target) -> tuple[Evidence, SpanInfo]:
        opened = self._open_run(target.run.id)
        span_id = target.span_id
        if span_id is None:
            root = next((span for span in opened.run.spans if span.parent_id is None), None)
            if root is None:
                raise NotFoundError(f"{target.run.short_id}: has no root span.")
            span_id = root.id
        return opened, opened.spans[span_id]

    # --- the home ---------------------------------------------------------------------------

    def doctor(self) -> DoctorAnswer:
        """Return where the data is, and whether it is complete."""
        from vestige.query.views.doctor import DoctorAnswer

        if self._health is None:
            raise UsageError("doctor: not a data directory. Run it without a file.")
        return self._placed(DoctorAnswer(self._health()))

    # --- runs -------------------------------------------------------------------------------

    def list(
        self,
        filter: str | None = None,
        *,
        failed: bool = False,
        since: str | float | None = None,
        name: str | None = None,
        conversation: str | None = None,
        like: str | None = None,
        everything: bool = False,
        limit: int = LIST_MAX,
        after: str | None = None,
        cost: bool = False,
        group: str | None = None,
        examine: bool = False,
        sort: str | None = None,
        reverse: bool = False,
        totals: bool = False,
        buckets: bool = False,
    ) -> ListAnswer:
        """Return runs, newest first or sorted (query/search/run_order.py).

        `filter` is, for example, `is:failed tool:search cost>0.1` (query/search/filters.py).
        `since` is `2h`, or seconds. `after` is a run's id: only older runs. `group` is
        `conversation`: the newest run of each. `examine` checks small runs that have not been
        checked, for their top finding. `totals` adds up all runs that match, `buckets` also by hour
        or day.
        """
        from vestige.query.search.filters import describe_search, parse_filter
        from vestige.query.search.run_list import ListQuery, is_grouped, list_answer
        from vestige.query.search.run_order import BY_COST, apply_order
        from vestige.query.search.runs_with_text import add_runs_with_text

        since_s = _duration(since)
        _validate_lengths(name=name, conversation=conversation, like=like)
        now_ns = clock.SYSTEM.now_ns()
        terms = parse_filter(filter, now_ns) if filter else ()
        if like is not None:
            terms = (*terms, Term("text", ":", like))
        searched = add_runs_with_text(self.store, terms)
        terms = searched.terms
        run_filter = RunFilter(
            failed=failed,
            since_ns=None if since_s is None else max(0, now_ns - int(since_s * 1e9)),
            name=name,
            conversation_id=None
            if conversation is None
            else formatting.to_valid_utf8(conversation),
            # An id names a run that may have no content.
            with_implicit=everything or any(t.key == "run" and not t.negated for t in terms),
            after=None if after is None else find_run(self.store, after).short_id,
            terms=terms,
            newest_of_conversation=is_grouped(group),
        )
        run_filter = apply_order(run_filter, sort, reverse)
        texts = {"--name": name, "--conversation": conversation, "--like": like, "--group": group}
        options = [filter] if filter else []
        options += ["--failed"] if failed else []
        options += ["--since", f"{formatting.seconds(since_s)}s"] if since_s is not None else []
        options += [
            word for key, value in texts.items() if value is not None for word in (key, value)
        ]
        options += ["--all"] if everything else []
        options += ["--cost"] if cost else []
        options += ["--sort", sort] if sort is not None else []
        options += ["--reverse"] if reverse else []
        examine_run = self._examine if examine else None
        by_cost = sort if sort in BY_COST else None
        query = ListQuery(
            run_filter, limit, cost, options, examine_run, by_cost, reverse, totals, buckets
        )
        answer = list_answer(self.store, query, now_ns)
        answer.understood, answer.matches = describe_search(terms), searched.hits
        return self._placed(answer)

    def overview(self, id: str | None = None, *, ids: bool = False) -> OverviewAnswer:
        """Return the summary of a run; `ids` shows the recorded ids of spans."""
        from vestige.query.ids.lineage import find_lineage, find_same_program
        from vestige.query.search.last_good_run import find_last_good
        from vestige.query.stats.costs import run_costs
        from vestige.query.trajectory.first_and_last_steps import read_first_and_last_steps
        from vestige.query.views.overview import OverviewAnswer

        target = self.resolve(id, "run")
        opened = self._open_run(target.run.id)
        run, by_id = opened.run, opened.spans
        report = self._examine(run)
        suspects = {
            by_id[finding.cause].component for finding in report.findings if finding.cause in by_id
        }
        suspects |= {span.component for span in run.spans if span.status not in ("ok", None)}
        surfaces = _surface_lines(self.store, run.info, sorted(suspects))
        direct = target.how in ("run id", "latest run", "prefix of a run id")
        found_as = "" if direct else target.how
        cost = run_costs(self.store, [run.info.id]).get(run.info.id)
        notes = self.store.notes(run.info.id)
        ends = opened.once(read_first_and_last_steps)
        last_good = find_last_good(self.store, opened, self._open_run)
        answer = OverviewAnswer(run, ends, report, last_good, surfaces, cost, found_as, notes)
        answer.ids, answer.unread = ids, self.unread
        answer.lineage = find_lineage(self.store, run)
        answer.same_program = find_same_program(self.store, run.info)
        return self._placed(answer)

    def notes(self, id: str | None = None) -> NotesAnswer:
        """Return the notes about a run or a span."""
        from vestige.query.views.notes import NotesAnswer

        target = self.resolve(id)
        run = self._open_run(target.run.id).run
        notes = self.store.notes(run.info.id)
        if target.span_id is not None:
            notes = [note for note in notes if note.span_id == target.span_id]
        return self._placed(NotesAnswer(run, notes))

    def show(
        self,
        id: str | None = None,
        *,
        errors: bool = False,
        fold: bool = True,
        type: str | None = None,
        from_: str | float | None = None,
        to: str | float | None = None,
        depth: int | None = None,
        limit: int | None = None,
        after: int | None = None,
        ids: bool = False,
        tree: bool = False,
    ) -> ShowAnswer:
        """Return the timeline of a run; on a terminal, its steps, if it has any.

        `from_` and `to` are seconds into the run, or spans of it. `after` is the number of lines
        to skip. As data, `limit` and `after` count spans and log lines. `ids` adds full ids, and
        `tree` shows the spans on a terminal, too.
        """
        from vestige.query.views.show import ShowAnswer, ShowOptions

        opened = self._open(id)
        run = opened.run
        low, high = (self._seconds(run, edge) for edge in (from_, to))
        options = ShowOptions(errors, fold, type, low, high, depth, limit, after, ids, tree)
        answer = self._placed(ShowAnswer(run, options, id, self.unread))
        answer.describe = partial(_describe_arguments, opened)
        if not self.unread:
            answer.steps = partial(self._step_rows, opened, answer)
        return answer

    def _step_rows(self, opened: Evidence, answer: ShowAnswer) -> Sequence[tuple[str, str]]:
        from vestige.query.stats.costs import run_costs
        from vestige.query.trajectory.costs import price_steps
        from vestige.query.views.lines.step_lines import step_rows
        from vestige.query.views.show import PIPE_COLUMNS

        trajectory, report = opened.once(price_steps), self._examine(opened.run)
        columns = answer.columns or PIPE_COLUMNS
        limit = answer.options.limit
        run_id = opened.run.info.id
        cost = run_costs(self.store, [run_id]).get(run_id)
        return step_rows(opened.run, trajectory, report, answer.command, columns, limit, cost)

    def _seconds(self, run: Run, edge: str | float | None) -> float | None:
        if edge is None:
            return None
        try:
            seconds = float(edge.strip().removesuffix("s") if isinstance(edge, str) else edge)
        except ValueError:
            target = self.resolve(str(edge), "span")
        else:
            if seconds != seconds:  # NaN
                raise UsageError(f"{edge}: not a time (expected seconds, or a span of the run).")
            return max(-SECONDS_MAX, min(seconds, SECONDS_MAX))
        for span in run.spans:
            if span.id == target.span_id:
                return (span.started_ns - run.info.started_ns) / 1e9
        raise UsageError(
            f"{target.run.short_id}: not a span of {run.info.short_id}"
            " (expected seconds, or a span of the run)."
        )

    def check(
        self,
        id: str | None = None,
        *,
        after: int = 0,
        verbose: bool = False,
        policy: Policy | None = None,
        ids: bool = False,
    ) -> CheckAnswer:
        """Return the findings of a run; `verbose` also names the checks that passed.

        `policy`: also the rules of a policy that the run broke. `ids` shows recorded span ids.
        """
        from vestige.query.failures.check import CheckAnswer
        from vestige.query.ids.lineage import find_same_program

        opened = self._open(id)
        report = self._examine(opened.run)
        if policy is not None:
            report = self._add_violations(opened, report, policy)
        causes = self._case_causes(opened, report)
        related = find_same_program(self.store, opened.run.info)
        failed = [run for run in related if run.outcome not in NOT_FAILED]
        return self._placed(CheckAnswer(opened.run, report, after, verbose, causes, ids, failed))

    def _add_violations(self, opened: Evidence, report: CheckReport, policy: Policy) -> CheckReport:
        from vestige.query.policy.run_activity import read_activity
        from vestige.query.policy.violations import find_violations, to_findings

        ended = opened.run.info.outcome != "running"
        violations = find_violations(policy, opened.once(read_activity), ended=ended)
        return replace(report, findings=[*report.findings, *to_findings(opened.run, violations)])

    def measure(
        self, id: str | None = None, *, policy: Policy | None = None, exit_code: int = 0
    ) -> Measurement:
        """Measure an execution for `gate`: a run and the runs that its process opened."""
        from vestige.query.failures.check import find_all_findings
        from vestige.query.gate.measure_execution import measure

        run_id = self.resolve(id, "run").run.id
        examine_alone = partial(find_all_findings, self.store, save=self._keep)
        return measure(self.store, run_id, self._open_run, examine_alone, policy, exit_code)

    def _case_causes(self, opened: Evidence, report: CheckReport) -> Mapping[str, CaseCause]:
        """Find the causes of failed test cases, also in runs that the cases started."""
        from vestige.query.failures.check import CASE

        if not any(finding.check == CASE for finding in report.findings):
            return {}
        from vestige.query.failures.case_causes import find_case_causes

        links_to = self.store.links_to
        return find_case_causes(opened, report, links_to, self._open_run, self._examine)

    def outline(
        self, id: str | None = None, *, after: str | None = None, limit: int = OUTLINE_ROWS_MAX
    ) -> Answer:
        """Return a run as columns; with the cursor `after`, only new and changed rows.

        `limit` is the number of spans, and of log records; `next` of the answer continues.
        """
        return self._lazy(
            "vestige.query.views.outline",
            "outline_answer",
            self.store,
            self.resolve(id, "run").run,
            after,
            limit,
        )

    def transcript(
        self,
        id: str | None = None,
        *,
        after: str | None = None,
        limit: int = TRANSCRIPT_ITEMS,
        step: str | int | None = None,
        agent: str | None = None,
        full: bool = False,
        ids: bool = False,
    ) -> Answer:
        """Return a run step by step; `after` is a cursor, or a span of the run.

        `step` is `3` or `3:7`. `agent` selects the steps of one agent. `full` folds no text.
        `ids` shows the recorded ids of spans.
        """
        from vestige.query.views.transcript import TranscriptOptions

        chosen = None if step is None else str(step)
        options = TranscriptOptions(after, limit, chosen, agent, full, ids, self.unread)
        opened = self._open(id)
        return self._lazy("vestige.query.views.transcript", "transcript_answer", opened, options)

    def state(
        self, id: str | None = None, *, than: int | None = None, after: int | None = None
    ) -> Answer:
        """Return the snapshots of a run, or one (`r7#3`), also compared with the one at `than`.

        `after` is the index of the last snapshot on the previous page.
        """
        target = self.resolve(id)
        opened = self._open_run(target.run.id)
        index = None
        if target.span_id is not None:
            indexes = {span.id: number for number, span in states_by_index(opened.run).items()}
            if target.span_id not in indexes:
                raise UsageError(
                    f"state: {(id or '')[:40]!r} is not a snapshot (expected a run, or r7#3)."
                )
            index = indexes[target.span_id]
        elif than is not None:
            raise UsageError("state: no snapshot to compare (expected an id such as r7#3).")
        return self._lazy("vestige.query.views.state", "state_answer", opened, index, than, after)

    def files(self, id: str | None = None, *, at: str | float | None = None) -> Answer:
        """Return the files of a run, at its end or `at` seconds into it or at a span."""
        run = self._run(id)
        return self._lazy(
            "vestige.query.views.files", "files_answer", self.store, run, self._seconds(run, at)
        )

    # --- spans ------------------------------------------------------------------------------

    def span(self, id: str, *, ids: bool = False) -> SpanAnswer:
        """Return one span; `ids` adds its full id."""
        from vestige.query.views.span import span_answer

        opened, span = self._span(id)
        answer = self._placed(span_answer(self.store, opened, span.id))
        answer.ids = ids
        return answer

    def body(
        self,
        id: str,
        *,
        part: Which | None = None,
        head: bool = False,
        lines: str | Range | None = None,
        bytes: str | Range | None = None,
        path: str | None = None,
        text: bool = False,
    ) -> BodyAnswer:
        """Return a slice of a body; `text`: its messages as text, strings without escapes.

        `lines` is `1:40`, both ends included; `bytes` is `0:4000`, the end excluded.
        """
        from vestige.query.views.body import Slice, body_answer

        ranges = _range("lines", lines, 1), _range("bytes", bytes, 0)
        selection = Slice(head, *ranges, path, text)
        _, span = self._span(id)
        return self._placed(body_answer(self.store, span, part, selection))

    def segments(self, id: str) -> Answer:
        """Return the parts of a model call's prompt, by contributor."""
        opened, span = self._span(id)
        return self._lazy("vestige.query.views.segments", "segments_answer", opened, span.id)

    def messages(self, id: str) -> Answer:
        """Return a model call as a chat: the messages of its request and its answer."""
        opened, span = self._span(id)
        return self._lazy(
            "vestige.query.trajectory.call_messages", "messages_answer", opened, span.id
        )

    def family(self, id: str) -> Family:
        """Return the origin and the forks of a run."""
        from vestige.query.ids.lineage import find_family

        return find_family(self.store, self._open_run(self.resolve(id, "run").run.id).run)

    def same_task(self, id: str) -> ListAnswer:
        """Return the other runs of a run's task, newest first, to compare it with."""
        from vestige.query.search.same_task import find_same_task, same_task_answer

        opened = self._open_run(self.resolve(id, "run").run.id)
        runs = find_same_task(self.store, opened, self._open_run)
        return self._placed(same_task_answer(self.store, runs, clock.SYSTEM.now_ns()))

    def reproduce(self, id: str, format: str) -> str:
        """Return a program that sends a recorded request again: `curl` or `python`."""
        from vestige.query.reproduce.request import reproduce
        from vestige.record.redaction.output_redaction import redact_body, redact_span

        opened, span = self._span(id)
        read = self.store.read_body
        return reproduce(
            opened.run, redact_span(span), lambda *args: redact_body(read(*args)), format
        )

    def why(self, id: str | None = None) -> WhyAnswer:
        """Return the causal chain of a span.

        For a run, it starts at the most severe finding, else at the last failure. Without an id,
        it is about the latest run.
        """
        from vestige.query.failures.check import CASE
        from vestige.query.failures.why import find_start_span, why_answer

        target = self.resolve(id, "span")
        opened, span = self._span_of(target)
        if target.span_id is None:
            span = find_start_span(opened, self._examine(opened.run), span)
        answer = why_answer(opened, span.id, self._open_run, self._examine)
        if (
            (last := answer.last) is not None
            and last.finding is not None
            and last.finding.check == CASE
        ):
            answer.case_causes = self._case_causes(last.evidence, self._examine(last.run))
        return self._placed(answer)

    # --- text and tables --------------------------------------------------------------------

    def grep(
        self,
        pattern: str,
        id: str | None = None,
        *,
        where: str | Sequence[str] = "attrs,logs,bodies",
        regex: bool = False,
        ignore_case: bool = False,
        after: str | None = None,
        words: bool = False,
    ) -> GrepAnswer:
        """Search one run, or all runs without an id. `where` is `bodies,attrs,logs`.

        `words` searches the words of the pattern near each other, in any order.
        """
        from vestige.query.search.grep import GrepOptions, grep_answer, parse_parts

        parts = parse_parts(where if isinstance(where, str) else ",".join(where))
        run = self.resolve(id, "run").run if id is not None else None
        if regex and words:
            raise UsageError("grep: --regex and --words exclude each other.")
        options = GrepOptions(regex, ignore_case, parts, after, words)
        scope = (run.id, run.short_id) if run else None
        return self._placed(grep_answer(self.store, pattern, scope, options))

    def sql(self, query: str, *, after: int = 0, on: str | None = None) -> SqlAnswer:
        """Run a read-only query; `on` is the path of a bundle or run to query instead."""
        if on is not None:
            if self._elsewhere is None:
                raise UsageError("sql: on is not supported here.")
            with self._elsewhere(on) as debugger:
                answer = debugger.sql(query, after=after)
            answer.at = f"--on {shlex.quote(on)}"
            return answer
        from vestige.query.search.sql import sql_answer

        return self._placed(sql_answer(self.store, query, after))

    def schema(self, table: str | None = None) -> SchemaAnswer:
        """Return the tables that `sql` can read, or the columns of one."""
        from vestige.query.search.sql import schema_answer

        return self._placed(schema_answer(table))

    # --- between runs -----------------------------------------------------------------------

    def diff(self, a: str, b: str | None = None, **options: Any) -> Answer:
        """Compare two runs or spans; the options are those of query/diff/diff_targets.py."""
        target_a = self.resolve(a)
        target_b = None if b is None else self.resolve(b)
        return self._lazy(
            "vestige.query.diff.diff_targets",
            "diff_answer",
            self.store,
            target_a,
            target_b,
            load=self._open_run,
            **options,
        )

    def stats(self, *, by: str = "name", since: str | float | None = None) -> Answer:
        """Return counts, durations, tokens and error rates. `since` is `7d`, or seconds."""
        since_s = _duration(since)
        now_ns = clock.SYSTEM.now_ns()
        since_ns = None if since_s is None else max(0, now_ns - int(since_s * 1e9))
        return self._lazy(
            "vestige.query.stats.stats_answer", "stats_answer", self.store, by=by, since=since_ns
        )

    def trends(self, *, since: str | float | None = None, by: str | None = None) -> Answer:
        """Return runs, failures, tokens, cost and durations over time.

        `since` is `30d`, or seconds; `by` is `day` or `hour`.
        """
        from vestige.query.stats.trends import SINCE_S

        since_s = _duration(since)
        now_ns = clock.SYSTEM.now_ns()
        return self._lazy(
            "vestige.query.stats.trends",
            "trends_answer",
            self.store,
            now_ns,
            SINCE_S if since_s is None else since_s,
            by,
        )

    def compare(self, a: Sequence[str], b: Sequence[str]) -> Answer:
        """Compare two groups of runs. A group is a list of ids, or a filter as for `list`."""
        from vestige.query.search.run_groups import find_group

        (a_ids, a_more), (b_ids, b_more) = find_group(self.store, a), find_group(self.store, b)
        return self._lazy(
            "vestige.query.diff.compare_groups",
            "compare_answer",
            self.store,
            a_ids,
            b_ids,
            a_more=a_more,
            b_more=b_more,
        )

    def groups(
        self,
        filter: str | None = None,
        *,
        like: str | None = None,
        since: str | float | None = None,
        after: int = 0,
        seconds: float = float("inf"),
    ) -> Answer:
        """Return failed runs grouped by cause, the most frequent first.

        `like` is a run: only its group. `filter` and `since` select runs, as for `list`.
        After `seconds`, the answer has the runs that were examined and the number of the others.
        """
        from vestige.query.failures.check import find_all_findings
        from vestige.query.groups.groups_answer import GroupsQuery, groups_answer
        from vestige.query.search.filters import parse_filter

        now_ns = clock.SYSTEM.now_ns()
        since_s = _duration(since)
        text = " ".join(term for term in (filter, _since_term(since_s)) if term)
        options = [text] if text else []
        run_id = None
        if like is not None:
            run = self.resolve(like, "run").run
            run_id = run.id
            options += ["--like", run.short_id]
        terms = parse_filter(text, now_ns) if text else ()
        query = GroupsQuery(terms, run_id, options, after, seconds)
        examine_alone = partial(find_all_findings, self.store, save=self._keep)
        return self._placed(groups_answer(self.store, query, examine_alone, now_ns))

    def _lazy(self, module: str, function: str, *args: Any, **options: Any) -> Answer:
        """Import a module on first use, and return the answer of its function."""
        from importlib import import_module

        answer: Answer = getattr(import_module(module), function)(*args, **options)
        if isinstance(answer, CommandAnswer):
            answer.at = self.at
        return answer


def _since_term(seconds: float | None) -> str:
    return "" if seconds is None else f"since:{formatting.seconds(seconds)}s"


def _duration(value: str | float | None) -> float | None:
    """Return an age in seconds, at most SECONDS_MAX."""
    try:
        seconds = parse_duration(value) if isinstance(value, str) else value
    except ValueError as error:
        raise UsageError(f"since {str(value)[:40]!r}: {error}.") from error
    if seconds is not None and not seconds >= 0:
        raise UsageError(f"since {seconds}: out of range (expected an age, such as 2h).")
    return None if seconds is None else min(seconds, SECONDS_MAX)


def _validate_lengths(**texts: str | None) -> None:
    for name, text in texts.items():
        if text is not None and len(text) > FILTER_MAX:
            raise UsageError(f"{name}: {len(text)} characters (expected at most {FILTER_MAX}).")


def _range(name: str, value: str | Range | None, least: int) -> Range | None:
    if not isinstance(value, str):
        return value
    from vestige.query.views.body import parse_range

    try:
        return parse_range(value, least)
    except ValueError as error:
        raise UsageError(f"{name} {value[:40]!r}: {error}.") from error


def _describe_arguments(opened: Evidence, span: SpanInfo) -> str:
    from vestige.query.views.lines.tool_arguments import describe_arguments

    return describe_arguments(opened, span)


def _surface_lines(store: Store, run: RunInfo, components: Sequence[str]) -> Sequence[str]:
    from vestige.query.views.debugging_hints import surface_lines

    return surface_lines(store, run, components)
