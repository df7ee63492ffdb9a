"""The methods of a ClickHouse store that read. They are documented in store/interface/."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from vestige.errors import NotFoundError
from vestige.limits import LIVE_BATCH
from vestige.record.finding import Finding
from vestige.record.note import Note
from vestige.record.otlp_sequence_numbers import is_external_writer
from vestige.record.run import LogInfo, Run, RunInfo
from vestige.store.clickhouse.connection import StoreConnection
from vestige.store.clickhouse.ingest.merge_in_memory import open_memory
from vestige.store.clickhouse.read import (
    bodies,
    change_feed,
    run_list,
    search,
    spans,
    stats,
    user_sql,
)
from vestige.store.clickhouse.read.run_in_sqlite import RunImage, load_image, make_reader
from vestige.store.clickhouse.read_snapshot import View, read_view
from vestige.store.protocol import (
    Ancestor,
    Changes,
    CheckResult,
    ConversationInfo,
    LatestCall,
    Losses,
    ModelSum,
    NoteSummary,
    OpenSpan,
    OutlineRows,
    QueryRows,
    RecordedSum,
    RootlessTrace,
    RunFilter,
    RunInputsOutputs,
    RunPage,
    SearchQuery,
    SearchResult,
    SpanFacts,
    SpanRef,
    StoreSizes,
    Sum,
    SupervisedEnd,
    WriterInfo,
)
from vestige.store.sqlite.ingest.seq_ranges import SeqRanges
from vestige.store.sqlite.read.change_feed import is_cursor
from vestige.store.sqlite.reader import SqliteReader

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_decode_finding = msgspec.json.Decoder(Finding).decode
BODIES_AHEAD_MAX = 500
"""Bodies in memory that were read ahead, of at most 16 kB each."""


class ClickHouseReader(StoreConnection):
    """The reading half of a store."""

    _image: RunImage | None = None
    """The run that was read last."""
    _bodies: tuple[int, dict[int, bytes]] = (-1, {})
    """Bodies that were read ahead, and the commit at which they were."""

    # --- writers and journals -------------------------------------------------------------------

    def positions(self) -> Mapping[tuple[str, int], int]:
        view = self._view()
        rows = self._query(
            view,
            f"SELECT writer, generation, offset FROM {view.current('journals')}"
            " WHERE home IN ('', {home:String}) OR {home:String} = ''",
            home=self._home_id,
        )
        return {(writer, generation): offset for writer, generation, offset in rows}

    def writers(self, unfinished: bool = False) -> Sequence[WriterInfo]:
        view = self._view()
        where = ""
        if unfinished:
            # An import is not a process that can crash. Its open spans are open in the source.
            where = (
                " WHERE ended IS NULL OR ended <> 'imported' AND id IN"
                f" (SELECT writer FROM {_open_spans(view)})"
            )
        rows = self._query(
            view,
            "SELECT writer, pid, supervisor, first_ns, last_ns, seen, malformed, dropped, ended,"
            f" tenant FROM {view.current('writers')}{where} ORDER BY id",
        )
        found = []
        for writer, pid, supervisor, first_ns, last_ns, text, malformed, *rest in rows:
            seen = SeqRanges.parse(text)
            found.append(
                WriterInfo(
                    writer,
                    pid,
                    supervisor,
                    first_ns,
                    last_ns,
                    seen.last,
                    seen.missing,
                    malformed,
                    *rest,
                )
            )
        return found

    def has_writer(self, writer: str) -> bool:
        return self._find_seen(writer) is not None

    def has_seen(self, writer: str, seq: int) -> bool:
        seen = self._find_seen(writer)
        return seen is not None and seq in SeqRanges.parse(seen)

    def _find_seen(self, writer: str) -> str | None:
        view = self._view()
        source = view.current("writers", "writer = {writer:String}")
        rows = self._query(view, f"SELECT seen FROM {source}", writer=writer)
        return rows[0][0] if rows else None

    def find_foreign_ids(
        self, run_ids: Iterable[str], writers: Iterable[str], tenant: str
    ) -> tuple[set[str], set[str]]:
        view = read_view(self._client, self.tenant)  # which decides what is accepted
        found = []
        for table, column, ids in (("runs", "run_id", run_ids), ("writers", "writer", writers)):
            foreign: set[str] = set()
            keys = list(ids)
            for at in range(0, len(keys), 1_000):
                source = view.current(table, f"{column} IN {{ids:Array(String)}}")
                rows = self._query(
                    view,
                    f"SELECT {column} FROM {source} WHERE tenant <> {{owner:String}}",
                    ids=keys[at : at + 1_000],
                    owner=tenant,
                )
                foreign.update(row[0] for row in rows)
            found.append(foreign)
        return found[0], found[1]

    def open_spans(self, writer: str) -> Sequence[OpenSpan]:
        view = self._view()
        writers = view.current("writers", "writer = {writer:String}")
        found = _open_spans(view, f"writer IN (SELECT id FROM {writers})")
        parents = view.current("spans", f"span_id IN (SELECT parent_id FROM {found})")
        rows = self._query(
            view,
            "SELECT r.run_id, s.span_id, s.type, s.name, s.seq, s.started_ns, p.type"
            f" FROM {found} s JOIN {view.current('runs')} r ON r.id = s.run"
            f" LEFT JOIN {parents} p ON p.run = s.run AND p.span_id = s.parent_id ORDER BY s.seq",
            writer=writer,
        )
        return [OpenSpan(*row) for row in rows]

    def find_supervised_end(self, writer: str) -> SupervisedEnd | None:
        view = self._view()
        writers = view.current("writers", "writer = {writer:String}")
        process = f"span_id IN (SELECT process_span FROM {writers})"
        runs = f"SELECT run FROM {view.current('spans', process)}"
        rows = self._query(
            view,
            "SELECT root.attributes, r.ended_ns FROM"
            f" (SELECT * FROM {view.current('runs')} WHERE id IN ({runs})) r"
            f" JOIN {view.current('spans', f'run IN ({runs})')} root"
            " ON root.run = r.id AND root.span_id = r.root_span"
            " WHERE r.ended_ns IS NOT NULL AND root.attributes IS NOT NULL LIMIT 1",
            writer=writer,
        )
        return SupervisedEnd(_decode(rows[0][0]), rows[0][1]) if rows else None

    def find_running_remote_writers(self) -> set[str]:
        view = self._view()
        rows = self._query(
            view,
            f"SELECT writer FROM {view.current('remote_writers')} WHERE over = 0"
            f" UNION ALL SELECT writer FROM ({_other_homes(view)})",
            home=self._home_id,
        )
        return {row[0] for row in rows}

    def find_silent_remote_writers(self, before_ns: int) -> set[str]:
        view = self._view()
        if not self.find_running_remote_writers():
            return set()
        rows = self._query(
            view,
            "SELECT r.writer FROM"
            f" (SELECT writer, heard_ns FROM {view.current('remote_writers')} WHERE over = 0"
            f" UNION ALL SELECT writer, NULL FROM ({_other_homes(view)})) r"
            f" JOIN {view.current('writers')} w ON w.writer = r.writer"
            " WHERE coalesce(r.heard_ns, w.last_ns) < {before:Int64}"
            f" AND w.id IN (SELECT writer FROM {_open_spans(view)})",
            before=before_ns,
            home=self._home_id,
        )
        return {row[0] for row in rows}

    def find_rootless_traces(self, before_ns: int) -> Sequence[RootlessTrace]:
        view = self._view()
        rootless = "root_span IS NULL AND imported_ns < {before:Int64}"
        ids = f"SELECT id FROM runs WHERE {view.visible('runs')} AND {rootless}"
        runs = self._query(
            view,
            "SELECT id, run_id, tenant, started_ns, last_ns"
            f" FROM {view.current('runs', f'id IN ({ids})')} WHERE {rootless}",
            before=before_ns,
        )
        found = []
        for row, run_id, tenant, started_ns, last_ns in runs:
            earliest = self._query(
                view,
                "SELECT s.name, s.component, s.started_ns, w.writer"
                f" FROM {view.current('spans', 'run = {run:Int64}')} s"
                f" JOIN {view.current('writers')} w ON w.id = s.writer"
                " ORDER BY s.started_ns LIMIT 1",
                run=row,
            )
            if not earliest:
                logged = self._query(
                    view,
                    f"SELECT w.writer FROM {view.current('logs', 'run = {run:Int64}')} l"
                    f" JOIN {view.current('writers')} w ON w.id = l.writer LIMIT 1",
                    run=row,
                )
                earliest = [(None, None, started_ns, logged[0][0])] if logged else []
            if earliest and is_external_writer(earliest[0][3]):
                name, component, began_ns, writer = earliest[0]
                found.append(
                    RootlessTrace(run_id, writer, tenant, name, component, began_ns, last_ns)
                )
        return found

    def find_remote_fault(self, writer: str) -> str | None:
        view = self._view()
        source = view.current("remote_writers", "writer = {writer:String}")
        rows = self._query(view, f"SELECT fault FROM {source}", writer=writer)
        return rows[0][0] if rows else None

    # --- runs and spans -------------------------------------------------------------------------

    def list_runs(self, run_filter: RunFilter) -> Sequence[RunInfo]:
        return self.search_runs(run_filter).runs

    def search_runs(self, run_filter: RunFilter) -> RunPage:
        return run_list.search_runs(self._client, self._view(), run_filter)

    def conversations(self, run_ids: Sequence[str]) -> Mapping[str, ConversationInfo]:
        return run_list.conversations(self._client, self._view(), run_ids)

    def find_runs(self, id_or_prefix: str) -> Sequence[RunInfo]:
        return run_list.find_runs(self._client, self._view(), id_or_prefix)

    def has_run(self, run_id: str) -> bool:
        return run_list.find_row(self._client, self._view(), run_id) is not None

    def run_ids(self) -> Sequence[str]:
        view = self._view()
        return [
            row[0]
            for row in self._query(view, f"SELECT run_id FROM {view.current('runs')} ORDER BY id")
        ]

    def _load_image(self, run_id: str) -> RunImage | None:
        """Return the rows of a run, from memory if it has not changed since it was read."""
        view = self._view()
        row = run_list.find_row(self._client, view, run_id)
        if row is None:
            return None
        image = self._image
        if image is not None and (image.row, image.changed, image.pinned) == row:
            return image
        if image is not None:
            image.connection.close()
            self._image = None
        self._image = load_image(self._client, view, *row)
        return self._image

    def load_run(self, run_id: str, *, with_logs: bool = True) -> Run:
        image = self._load_image(run_id)
        if image is None:
            # Tenants must not see addresses of the server.
            where = f" in {self._client.address}" if self.tenant is None else ""
            raise NotFoundError(f"{run_id}: no such run{where}. See `vestige list`.")
        return image.reader.load_run(run_id, with_logs=with_logs)

    def read_log(self, row: int) -> LogInfo:
        return spans.read_log(self._client, self._view(), row)

    def find_last_good_run(self, run_id: str) -> str | None:
        return spans.find_last_good_run(self._client, self._view(), run_id)

    def find_previous_run(self, run_id: str) -> str | None:
        return spans.find_previous_run(self._client, self._view(), run_id)

    def read_run_inputs_outputs(self, run_ids: Sequence[str]) -> Mapping[str, RunInputsOutputs]:
        return spans.read_run_inputs_outputs(self._client, self._view(), run_ids)

    def find_partial_runs(self, run_ids: Sequence[str]) -> set[str]:
        return spans.find_partial_runs(self._client, self._view(), run_ids)

    def sum_body_bytes(self, run_id: str) -> int:
        view = self._view()
        row = run_list.find_row(self._client, view, run_id)
        if row is None:
            return 0
        rows = self._query(
            view,
            "SELECT sum(coalesce(input_bytes, 0)) + sum(coalesce(output_bytes, 0))"
            f" FROM {view.current('spans', 'run = {run:Int64}')}",
            run=row[0],
        )
        return int(rows[0][0])

    def read_debugging_hints(self, run_ids: Sequence[str] | None, limit: int) -> Sequence[object]:
        return spans.read_debugging_hints(self._client, self._view(), run_ids, limit)

    def find_spans(self, id_or_prefix: str) -> Sequence[SpanRef]:
        return spans.find_spans(self._client, self._view(), id_or_prefix)

    def find_attribute(self, value: str, limit: int = 20) -> Sequence[SpanRef]:
        return spans.find_attribute(self._client, self._view(), value, limit)

    def links_to(self, run_id: str, span_id: str) -> Sequence[tuple[SpanRef, str | None]]:
        return spans.links_to(self._client, self._view(), run_id, span_id)

    def find_previous_span(self, run_id: str, type: str, name: str) -> tuple[str, str] | None:
        return spans.find_previous_span(self._client, self._view(), run_id, type, name)

    def read_span_facts(self, run_ids: Sequence[str], spans_max: int) -> Iterator[SpanFacts]:
        yield from spans.read_span_facts(self._client, self._view(), run_ids, spans_max)

    def read_ancestry(self, run_id: str, span_ids: Sequence[str]) -> Sequence[Ancestor]:
        image = self._load_image(run_id)
        return [] if image is None else image.reader.read_ancestry(run_id, span_ids)

    def read_outline(
        self, short_id: str, after: str | None, limit: int, message_max: int
    ) -> OutlineRows:
        reader = self._load_image_of(short_id)
        return reader.read_outline(short_id, after, limit, message_max)

    def read_losses(self, short_id: str) -> Losses:
        return self._load_image_of(short_id).read_losses(short_id)

    def _load_image_of(self, short_id: str) -> SqliteReader:
        """Return a reader of a run, which has no rows if the run does not exist."""
        found = self.find_runs(short_id)
        image = self._load_image(found[0].id) if found else None
        return make_reader(open_memory()) if image is None else image.reader

    # --- bodies, text and SQL -------------------------------------------------------------------

    def read_body(self, body_id: int, start: int = 0, end: int | None = None) -> bytes:
        view = self._view()
        cached = self._get_cached_bodies(view)
        text = cached.get(body_id)
        if text is not None:
            return text[max(0, start) : end if end is None else max(0, end)]
        return bodies.read_body(self._client, view, body_id, start, end, cached)

    def read_bodies(self, body_ids: Sequence[int]) -> Iterable[tuple[int, bytes]]:
        view = self._view()
        yield from bodies.read_bodies(self._client, view, body_ids, self._get_cached_bodies(view))

    def _get_cached_bodies(self, view: View) -> dict[int, bytes]:
        number, cached = self._bodies
        if number != view.number or len(cached) > BODIES_AHEAD_MAX:
            cached = {}
            self._bodies = view.number, cached
        return cached

    def search(
        self, query: SearchQuery, after: str | None = None, limit: int = 100
    ) -> SearchResult:
        if query.expression:
            return search.search_isolated(self._client, self.tenant, query, after, limit)
        return search.search(self._client, self._view(), query, after, limit)

    def query(self, sql: str, skip: int, limit: int) -> QueryRows:
        return user_sql.query(self._client, self._view(), sql, skip, limit)

    # --- sums -----------------------------------------------------------------------------------

    def sum_rollups(self, by: str, since_day: str | None) -> Sequence[Sum]:
        return stats.sum_rollups(self._client, self._view(), by, since_day)

    def sum_models(self, by: str, since_day: str | None) -> Sequence[ModelSum]:
        return stats.sum_models(self._client, self._view(), by, since_day)

    def find_first_day(self) -> str | None:
        return stats.find_first_day(self._client, self._view())

    def sum_hours(self, since_ns: int) -> Mapping[int, Sum]:
        return stats.sum_hours(self._client, self._view(), since_ns)

    def sum_hour_models(self, since_ns: int) -> Sequence[ModelSum] | None:
        return stats.sum_hour_models(self._client, self._view(), since_ns)

    def sum_model_calls(self, run_ids: Sequence[str]) -> Sequence[RecordedSum]:
        return stats.sum_model_calls(self._client, self._view(), run_ids)

    def read_latest_calls(self, since_ns: int | None, runs_max: int) -> Sequence[LatestCall]:
        return stats.read_latest_calls(self._client, self._view(), since_ns, runs_max)

    def count_tool_calls(self, run_ids: Iterable[str]) -> Mapping[str, tuple[int, int]]:
        return stats.count_tool_calls(self._client, self._view(), run_ids)

    def read_prompt_assemblies(self, run_ids: Iterable[str], limit: int) -> Sequence[int]:
        return stats.read_prompt_assemblies(self._client, self._view(), run_ids, limit)

    def read_responses(self, run_ids: Iterable[str], limit: int, size_max: int) -> Sequence[int]:
        return stats.read_responses(self._client, self._view(), run_ids, limit, size_max)

    # --- notes, findings, sizes, changes --------------------------------------------------------

    def notes(self, run_id: str) -> Sequence[Note]:
        view = self._view()
        row = run_list.find_row(self._client, view, run_id)
        if row is None:
            return []
        rows = self._query(
            view,
            "SELECT id, text, created_ns, span_id, event_id, author"
            f" FROM {view.current('notes', 'run = {run:Int64}')} ORDER BY created_ns, id",
            run=row[0],
        )
        return [
            Note(
                id=row[0],
                run_id=run_id,
                text=row[1],
                created_ns=row[2],
                span_id=row[3],
                event_id=row[4],
                author=row[5],
            )
            for row in rows
        ]

    def summarize_notes(self, run_ids: Sequence[str]) -> Mapping[str, NoteSummary]:
        view = self._view()
        known = run_list.find_rows(self._client, view, run_ids)
        names = {row: run_id for run_id, (row, _, _) in known.items()}
        rows = self._query(
            view,
            "SELECT run, count(), argMax(text, (created_ns, id))"
            f" FROM {view.current('notes', 'run IN {rows:Array(Int64)}')} GROUP BY run",
            rows=list(names),
        )
        return {names[row]: NoteSummary(count, text) for row, count, text in rows}

    def check_results(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[CheckResult]]:
        view = self._view()
        known = run_list.find_rows(self._client, view, run_ids)
        names = {(row, changed): run_id for run_id, (row, changed, _) in known.items()}
        where = f"{view.visible('findings')} AND run IN {{keys:Array(Int64)}}"
        rows = self._query(
            view,
            "SELECT run, changed, check_name, check_version, finding FROM findings"
            f" WHERE {where} AND (run, commit) IN"
            f" (SELECT run, max(commit) FROM findings WHERE {where} GROUP BY run)"
            " ORDER BY run, position",
            keys=[row for row, _ in names],
        )
        results_of_runs: dict[str, dict[str, CheckResult]] = {}
        for row, changed, name, version, text in rows:
            run_id = names.get((row, changed))
            if run_id is None:
                continue  # stale: the run has changed since
            results = results_of_runs.setdefault(run_id, {})
            result = results.setdefault(name, CheckResult(name, version, []))
            if text is not None:
                result.findings.append(_decode_finding(text))  # type: ignore[attr-defined]
        return {run_id: list(results.values()) for run_id, results in results_of_runs.items()}

    def sizes(self) -> StoreSizes:
        view = self._view()
        runs = self._query(
            view,
            "SELECT count(), sum(span_count), sum(log_count) FROM " + view.current("runs"),
        )[0]
        stored = self._query(
            view,
            "SELECT count(), sumIf(size_bytes, evicted_ns IS NULL) FROM " + view.current("bodies"),
        )[0]
        file_bytes = 0
        if self.tenant is None:
            file_bytes = self._client.value(
                "SELECT sum(bytes_on_disk) FROM system.parts WHERE database = {database:String}"
                " AND active",
                database=self._client.address.database,
            )
        return StoreSizes(runs[0], runs[1], runs[2], stored[0], file_bytes, stored[1])

    def cursor(self) -> str:
        return change_feed.read_cursor(self._view())

    def is_cursor(self, text: str) -> bool:
        return is_cursor(text)

    def changes(self, after: str, run_id: str | None = None, limit: int = LIVE_BATCH) -> Changes:
        return change_feed.read_changes(self._client, self._view(), after, run_id, limit)


def _other_homes(view: View) -> str:
    """Return a query for running writers whose journals another home collects."""
    running = f"SELECT writer FROM {view.current('writers')} WHERE ended IS NULL"
    return (
        f"SELECT DISTINCT writer FROM journals WHERE {view.visible('journals')}"
        f" AND home NOT IN ('', {{home:String}}) AND writer IN ({running})"
    )


def _open_spans(view: View, where: str = "1") -> str:
    """Return a subquery with the spans without an end, of runs that exist."""
    # An open span has an open version, and few spans have more than one.
    ids = f"SELECT id FROM spans WHERE {view.visible('spans')} AND status IS NULL AND ({where})"
    rows = view.current("spans", f"id IN ({ids})")
    return (
        f"(SELECT * FROM {rows} WHERE status IS NULL"
        f" AND run IN (SELECT id FROM {view.current('runs')}))"
    )
