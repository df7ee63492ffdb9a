"""Debugger: every verb as a method, over one store. What the CLI, MCP and programs share.

    with vestige.open() as debugger:
        print(debugger.overview("r7"))
        print(debugger.check("r7").data())

Each method takes any id (query/ids/resolve.py) and returns an `Answer`: text within a budget, or data.
It only reads. What checks find in a finished run is handed to `keep`, if there is one.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

from vestige._runtime import clock
from vestige.errors import NotFoundError, UsageError
from vestige.limits import FILTER_MAX, LIST_MAX, SECONDS_MAX, TRANSCRIPT_ITEMS
from vestige.query import formatting
from vestige.query.answer import Answer
from vestige.query.evidence import Evidence, open_run
from vestige.query.failures.check import (
    CASE,
    CaseCause,
    CheckAnswer,
    CheckReport,
    SaveResults,
    examine,
)
from vestige.query.failures.why import WhyAnswer, find_start_span, why_answer
from vestige.query.ids.resolve import Target, Want, find_run, resolve, states_by_index
from vestige.query.search.filters import parse_filter
from vestige.query.search.grep import (
    PARTS,
    GrepAnswer,
    GrepOptions,
    find_runs_with,
    grep_answer,
    parse_parts,
)
from vestige.query.search.run_list import ListAnswer, ListQuery, is_grouped, list_answer
from vestige.query.search.sql_view import SchemaAnswer, SqlAnswer, schema_answer, sql_answer
from vestige.query.stats.costs import run_costs
from vestige.query.text_layout import CommandAnswer
from vestige.query.views.body_view import BodyAnswer, Slice, Which, body_answer, parse_range
from vestige.query.views.doctor import DoctorAnswer
from vestige.query.views.notes import NotesAnswer
from vestige.query.views.overview import OverviewAnswer
from vestige.query.views.show import ShowAnswer, ShowOptions
from vestige.query.views.span_view import SpanAnswer, span_answer
from vestige.record.health import Health
from vestige.record.run import Run, RunInfo, SpanInfo
from vestige.settings import parse_duration
from vestige.store.protocol import RunFilter, Store, Term

A = TypeVar("A", bound=CommandAnswer)
Range = tuple[int, int | None]


class Debugger:
    """The verbs. `at` is what a command needs to ask the same store: `--home DIR`."""

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
        """What a person should know of where the answers come from."""
        self.unread = 0
        """About so many events of the only run were not read: it was opened for a first look."""

    def close(self) -> None:
        """Let go of the store, and of what was made to read it."""
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

    # --- what an id means -------------------------------------------------------------------

    def resolve(self, id: str | None, want: Want = "any") -> Target:
        return resolve(self.store, id, want)

    def _open_run(self, run_id: str) -> Evidence:
        """A run, for one question. Who has many of one run keeps it open (server/cached_debugger.py)."""
        return open_run(self.store, run_id)

    def _examine(self, run: Run) -> CheckReport:
        """What the checks say of a run."""
        return examine(self.store, run, self._keep)

    def _open(self, id: str | None) -> Evidence:
        return self._open_run(self.resolve(id, "run").run.id)

    def _run(self, id: str | None) -> Run:
        return self._open(id).run

    def _span(self, id: str | None) -> tuple[Evidence, SpanInfo]:
        """A span; of a run, its root."""
        return self._span_of(self.resolve(id, "span"))

    def _span_of(self, target: Target) -> tuple[Evidence, SpanInfo]:
        opened = self._open_run(target.run.id)
        span_id = target.span_id
        if span_id is None:
            root = next((span for span in opened.run.spans if span.parent_id is None), None)
            if root is None:
                raise NotFoundError(f"{target.run.short_id}: no span of it was recorded.")
            span_id = root.id
        return opened, opened.spans[span_id]

    # --- the home ---------------------------------------------------------------------------

    def doctor(self) -> DoctorAnswer:
        """Where evidence lives, and whether it is healthy."""
        if self._health is None:
            raise UsageError("doctor: this is not a whole home. Ask for a home.")
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
    ) -> ListAnswer:
        """Runs, newest first. `filter`: `is:failed tool:search cost>0.1` (query/search/filters.py). `since`:
        `2h`, or seconds. `after`: a run's id; those older than it. `group`: `conversation`, for the
        newest run of each. `examine`: small runs that nobody has examined are, for their top finding."""
        since_s = _duration(since)
        _bounded(name=name, conversation=conversation, like=like)
        now_ns = clock.SYSTEM.now_ns()
        terms = parse_filter(filter, now_ns) if filter else ()
        if like is not None:
            terms = (*terms, Term("text", ":", like, also=find_runs_with(self.store, like)))
        wanted = RunFilter(
            failed=failed,
            since_ns=None if since_s is None else max(0, now_ns - int(since_s * 1e9)),
            name=name,
            conversation_id=None
            if conversation is None
            else formatting.to_valid_utf8(conversation),
            with_implicit=everything,
            after=None if after is None else find_run(self.store, after).short_id,
            terms=terms,
            newest_of_conversation=is_grouped(group),
        )
        told = {"--name": name, "--conversation": conversation, "--like": like, "--group": group}
        options = [filter] if filter else []
        options += ["--failed"] if failed else []
        options += ["--since", f"{formatting.seconds(since_s)}s"] if since_s is not None else []
        options += [
            word for key, value in told.items() if value is not None for word in (key, value)
        ]
        options += ["--all"] if everything else []
        options += ["--cost"] if cost else []
        look = self._examine if examine else None
        query = ListQuery(wanted, limit, cost, options, look)
        return self._placed(list_answer(self.store, query, now_ns))

    def overview(self, id: str | None = None) -> OverviewAnswer:
        target = self.resolve(id, "run")
        opened = self._open_run(target.run.id)
        run, by_id = opened.run, opened.spans
        examined = self._examine(run)
        suspects = {
            by_id[finding.cause].component
            for finding in examined.findings
            if finding.cause in by_id
        }
        suspects |= {span.component for span in run.spans if span.status not in ("ok", None)}
        surfaces = _surface_lines(self.store, run.info, sorted(suspects), self.at)
        plain = target.how in ("run id", "latest run", "prefix of a run id")
        how = "" if plain else target.how
        cost = run_costs(self.store, [run.info.id]).get(run.info.id)
        notes = self.store.notes(run.info.id)
        answer = OverviewAnswer(
            run, examined, self._last_good(run.info), surfaces, cost, how, notes
        )
        return self._placed(answer)

    def notes(self, id: str | None = None) -> NotesAnswer:
        """What was said about a run, or a run's span, afterwards."""
        target = self.resolve(id)
        run = self._open_run(target.run.id).run
        notes = self.store.notes(run.info.id)
        if target.span_id is not None:
            notes = [note for note in notes if note.span_id == target.span_id]
        return self._placed(NotesAnswer(run, notes))

    def _last_good(self, run: RunInfo) -> RunInfo | None:
        for before_ns in (run.started_ns, None):
            wanted = RunFilter(
                name_is=run.name,
                outcome="ok",
                before_ns=before_ns,
                with_implicit=True,
                limit=2,
                tenant_of=run.id,
            )
            for found in self.store.list_runs(wanted):
                if found.id != run.id:
                    return found
        return None

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
    ) -> ShowAnswer:
        """`from_`, `to`: seconds into the run, or a span of it. `after`: lines to pass over.

        As data, `limit` and `after` count spans and log lines; without both, all of them.
        """
        run = self._run(id)
        low, high = (self._seconds(run, edge) for edge in (from_, to))
        options = ShowOptions(errors, fold, type, low, high, depth, limit, after)
        return self._placed(ShowAnswer(run, options, id, self.unread))

    def _seconds(self, run: Run, edge: str | float | None) -> float | None:
        if edge is None:
            return None
        try:
            seconds = float(edge.strip().removesuffix("s") if isinstance(edge, str) else edge)
        except ValueError:
            target = self.resolve(str(edge), "span")
        else:
            if seconds != seconds:  # not a number, and it says so
                raise UsageError(f"{edge}: no moment of a run. Give seconds, or a span of it.")
            return max(-SECONDS_MAX, min(seconds, SECONDS_MAX))
        for span in run.spans:
            if span.id == target.span_id:
                return (span.started_ns - run.info.started_ns) / 1e9
        raise UsageError(
            f"{target.run.short_id}: no span of {run.info.short_id}. Give seconds, or a span of it."
        )

    def check(self, id: str | None = None, *, after: int = 0, verbose: bool = False) -> CheckAnswer:
        """`verbose`: also the names of the checks that passed; as data they always are."""
        opened = self._open(id)
        examined = self._examine(opened.run)
        inside = self._inside(opened, examined)
        return self._placed(CheckAnswer(opened.run, examined, after, verbose, inside))

    def _inside(self, opened: Evidence, examined: CheckReport) -> Mapping[str, CaseCause]:
        """Of a suite's cases that failed: what went wrong inside of them, in runs that they started too."""
        if not any(finding.check == CASE for finding in examined.findings):
            return {}
        from vestige.query.failures.case_causes import find_case_causes

        links_to = self.store.links_to
        return find_case_causes(opened, examined, links_to, self._open_run, self._examine)

    def outline(self, id: str | None = None, *, after: str | None = None) -> Answer:
        """A whole run as columns; `after`: a cursor, for what is new since."""
        return self._lazy(
            "vestige.query.views.outline",
            "outline_answer",
            self.store,
            self.resolve(id, "run").run,
            after,
        )

    def transcript(
        self, id: str | None = None, *, after: str | None = None, limit: int = TRANSCRIPT_ITEMS
    ) -> Answer:
        """A run read like a chat; `after`: a cursor, or a span of it."""
        return self._lazy(
            "vestige.query.views.transcript", "transcript_answer", self._open(id), after, limit
        )

    def state(
        self, id: str | None = None, *, than: int | None = None, after: int | None = None
    ) -> Answer:
        """Snapshots of a run, or one (`r7#3`), also against another. `after`: an index to go on from."""
        target = self.resolve(id)
        opened = self._open_run(target.run.id)
        index = None
        if target.span_id is not None:
            named = {span.id: number for number, span in states_by_index(opened.run).items()}
            if target.span_id not in named:
                raise UsageError(f"state: {(id or '')[:40]!r} is no snapshot. Give a run, or r7#3.")
            index = named[target.span_id]
        elif than is not None:
            raise UsageError("state: which one is to be compared? Give it as r7#3.")
        return self._lazy("vestige.query.views.state", "state_answer", opened, index, than, after)

    def files(self, id: str | None = None, *, at: str | float | None = None) -> Answer:
        """Files of a run. `at`: seconds into it, or a span of it; as they were then."""
        run = self._run(id)
        return self._lazy(
            "vestige.query.views.files", "files_answer", self.store, run, self._seconds(run, at)
        )

    # --- spans ------------------------------------------------------------------------------

    def span(self, id: str) -> SpanAnswer:
        opened, span = self._span(id)
        return self._placed(span_answer(self.store, opened, span.id))

    def body(
        self,
        id: str,
        *,
        part: Which | None = None,
        head: bool = False,
        lines: str | Range | None = None,
        bytes: str | Range | None = None,
        path: str | None = None,
    ) -> BodyAnswer:
        """`lines`: `1:40`, the first and the last. `bytes`: `0:4000`, the last one not included."""
        wanted = Slice(head, _range("lines", lines, 1), _range("bytes", bytes, 0), path)
        _, span = self._span(id)
        return self._placed(body_answer(self.store, span, part, wanted))

    def segments(self, id: str) -> Answer:
        """Who put what into the prompt of a model call."""
        opened, span = self._span(id)
        return self._lazy("vestige.query.views.segments", "segments_answer", opened, span.id)

    def reproduce(self, id: str, format: str) -> str:
        """A recorded request as a program that sends it again: `curl` or `python`."""
        from vestige.query.reproduce.request import reproduce
        from vestige.record.redaction.output_redaction import redact_body

        opened, span = self._span(id)
        read = self.store.read_body
        return reproduce(opened.run, span, lambda *args: redact_body(read(*args)), format)

    def why(self, id: str | None = None) -> WhyAnswer:
        """Of a span; of a run, of its gravest finding, else of what failed last; the latest one's
        by default."""
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
            answer.case_causes = self._inside(last.evidence, self._examine(last.run))
        return self._placed(answer)

    # --- text and tables --------------------------------------------------------------------

    def grep(
        self,
        pattern: str,
        id: str | None = None,
        *,
        where: str | Sequence[str] = PARTS,
        regex: bool = False,
        ignore_case: bool = False,
        after: str | None = None,
    ) -> GrepAnswer:
        """In one run, or, without an id, in all there are. `where`: `bodies,attrs,logs`."""
        parts = parse_parts(where if isinstance(where, str) else ",".join(where))
        run = self.resolve(id, "run").run if id is not None else None
        options = GrepOptions(regex, ignore_case, parts, after)
        scope = (run.id, run.short_id) if run else None
        return self._placed(grep_answer(self.store, pattern, scope, options))

    def sql(self, query: str, *, after: int = 0, on: str | None = None) -> SqlAnswer:
        """`on`: the path of a bundle or another run, to ask that one instead."""
        if on is not None:
            if self._elsewhere is None:
                raise UsageError("sql: no other place can be opened from here.")
            with self._elsewhere(on) as other:
                answer = other.sql(query, after=after)
            answer.at = f"--on {shlex.quote(on)}"
            return answer
        return self._placed(sql_answer(self.store, query, after))

    def schema(self, table: str | None = None) -> SchemaAnswer:
        return self._placed(schema_answer(table))

    # --- between runs -----------------------------------------------------------------------

    def diff(self, a: str, b: str | None = None, **options: Any) -> Answer:
        """Two runs or two spans; see `vestige.query.diff.diff_answer.diff_answer` for the options."""
        target_a = self.resolve(a)
        target_b = None if b is None else self.resolve(b)
        return self._lazy(
            "vestige.query.diff.diff_answer",
            "diff_answer",
            self.store,
            target_a,
            target_b,
            load=self._open_run,
            **options,
        )

    def stats(self, *, by: str = "name", since: str | float | None = None) -> Answer:
        """Counts, durations, tokens, error rates. `since`: `7d`, or seconds."""
        since_s = _duration(since)
        now_ns = clock.SYSTEM.now_ns()
        since_ns = None if since_s is None else max(0, now_ns - int(since_s * 1e9))
        return self._lazy(
            "vestige.query.stats.stats_answer", "stats_answer", self.store, by=by, since=since_ns
        )

    def trends(self, *, since: str | float | None = None, by: str | None = None) -> Answer:
        """Runs, failures, tokens, cost and durations over time. `since`: `30d`; `by`: day or hour."""
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
        """What differs between two groups of runs. A group is ids, or a filter as of `list`."""
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

    def _lazy(self, module: str, function: str, *args: Any, **options: Any) -> Answer:
        """Import a larger verb on first use, and return its answer."""
        from importlib import import_module

        answer: Answer = getattr(import_module(module), function)(*args, **options)
        if isinstance(answer, CommandAnswer):
            answer.at = self.at
        return answer


def _duration(value: str | float | None) -> float | None:
    """In seconds; whatever is longer than all that was ever recorded is as good as that."""
    try:
        seconds = parse_duration(value) if isinstance(value, str) else value
    except ValueError as error:
        raise UsageError(f"since {str(value)[:40]!r}: {error}.") from error
    if seconds is not None and not seconds >= 0:
        raise UsageError(f"since {seconds}: out of range (expected an age, such as 2h).")
    return None if seconds is None else min(seconds, SECONDS_MAX)


def _bounded(**texts: str | None) -> None:
    for name, text in texts.items():
        if text is not None and len(text) > FILTER_MAX:
            raise UsageError(f"{name}: {len(text)} characters (expected at most {FILTER_MAX}).")


def _range(name: str, value: str | Range | None, least: int) -> Range | None:
    if not isinstance(value, str):
        return value
    try:
        return parse_range(value, least)
    except ValueError as error:
        raise UsageError(f"{name} {value[:40]!r}: {error}.") from error


def _surface_lines(store: Store, run: RunInfo, components: Sequence[str], at: str) -> Sequence[str]:
    """What components under investigation offer (query/views/debug_surfaces.py)."""
    from vestige.query.views.debug_surfaces import surface_lines

    return surface_lines(store, run, components, at)
