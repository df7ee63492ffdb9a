"""Search the attributes, log messages and bodies of a store for a text.

The server reads the rows in steps of row ids, newest first in a store and oldest first in a run,
and returns those that contain a literal of the pattern. The pattern itself is matched here, so that
both engines find the same texts. A search stops at a limit of rows or bytes, with a cursor.

A text that several bodies repeat, such as a message of a conversation, is one hit of a page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from vestige.limits import MIB
from vestige.record.redaction.stream_redaction import spell
from vestige.store.clickhouse.client import Client
from vestige.store.clickhouse.read.bodies import read_bodies
from vestige.store.clickhouse.read.spans import SPAN_REF, to_span_ref
from vestige.store.clickhouse.read_snapshot import View
from vestige.store.protocol import Hit, SearchQuery, SearchResult, SpanRef
from vestige.store.text_search import collect_hits

AROUND: Final = 60
MATCH_MAX: Final = 80
SEARCH_ROWS_MAX: Final = 20_000_000
"""Row ids of a search whose literals the server compares."""

SEARCH_ROWS_MAX_BARE: Final = 400_000
"""Row ids of a search without literals, for which every row is transferred."""

SEARCH_BYTES_MAX: Final = 256 * MIB
"""Text that is transferred for a search."""

_ROWS_PER_STEP: Final = 1_000_000
_ROWS_PER_STEP_BARE: Final = 10_000
_BODIES_FIRST: Final = 5_000
"""Bodies of the first step. Each step is longer: a frequent text is found in the first ones."""
_STEP_GROWTH: Final = 8
_BODIES_PER_STEP: Final = 200_000
_BODIES_PER_STEP_INDEXED: Final = 5_000_000
"""A condition on tokens of the text index, which answers without the texts."""
_BODIES_PER_STEP_BARE: Final = 2_000
_CANDIDATES_MAX: Final = 5_000
"""Rows of one step that are transferred."""


class _Text(msgspec.Struct, frozen=True):
    """A body with a match."""

    body: int
    text: str
    start: int
    end: int
    at: int | None
    count: int


def search(
    client: Client, view: View, query: SearchQuery, after: str | None, limit: int
) -> SearchResult:
    """Return up to `limit` hits in a fixed order, and a cursor if the search is not complete."""
    run = None
    if query.run_id is not None:
        source = view.current("runs", "run_id = {run_id:String}")
        rows = client.query(f"SELECT id FROM {source}", **view.parameters(), run_id=query.run_id)
        if not rows:
            return SearchResult([], None, "")
        run = rows[0][0]
    scan = _Scan(client, view, query, run)
    return collect_hits(scan, query, after, limit)


class _Scan:
    """A running search. The iterators yield a cursor and a hit, or None between two steps."""

    def __init__(self, client: Client, view: View, query: SearchQuery, run: int | None) -> None:
        self._client = client
        self._view = view
        self._query = query
        self._run = run
        self._bytes = 0
        self._rows = 0
        self._reported: set[tuple[str, str, str]] = set()
        """The texts around matches that are already a hit."""

    def is_over(self) -> bool:
        bare = not self._query.literals
        rows_max = SEARCH_ROWS_MAX_BARE if bare else SEARCH_ROWS_MAX
        return self._bytes > SEARCH_BYTES_MAX or self._rows > rows_max

    def format_limit(self) -> str:
        if self._bytes > SEARCH_BYTES_MAX:
            return f"{SEARCH_BYTES_MAX // MIB} MiB searched"
        return "only the newest part of the store was searched"

    def _iter_steps(
        self, kind: str, last: int | None, step: int, step_max: int
    ) -> Iterator[tuple[int, int]]:
        """Yield ranges of row ids (above, up to), in the order of the search."""
        top = self._view.counters[kind]
        if self._run is not None:
            # The key of the tables leads to the rows of a run.
            if (last or 0) < top:
                yield last or 0, top
            return
        top = top if last is None else min(top, last - 1)
        while top > 0:
            yield max(0, top - step), top
            top -= step
            indexed = step_max > _BODIES_PER_STEP and kind == "bodies"
            step = step_max if indexed else min(step * _STEP_GROWTH, step_max)

    # --- attributes and logs --------------------------------------------------------------

    def iter_rows(self, part: str, last: int | None) -> Iterator[tuple[str, Hit | None]]:
        is_attrs = part == "attrs"
        table = "spans" if is_attrs else "logs"
        text = f"concat({'name' if is_attrs else 'message'}, ' ', coalesce(attributes, ''))"
        bare = not self._query.literals
        step = _ROWS_PER_STEP_BARE if bare else _ROWS_PER_STEP
        for low, top in self._iter_steps(table, last, step, step):
            direction = "DESC" if self._run is None else "ASC"
            while True:
                rows = self._read_rows(table, text, low, top, direction)
                for row in rows:
                    self._bytes += len(row[6])
                    match = self._query.pattern.search(row[6])
                    if match is not None:
                        cursor = f"{part}:{row[7]}"
                        name = "attrs" if is_attrs else "log"
                        hit = _make_hit(
                            cursor, to_span_ref(row), name, row[6], *match.span(), None, 1, 0
                        )
                        yield cursor, hit
                if len(rows) < _CANDIDATES_MAX:
                    break
                # The rest of this step.
                low, top = (low, rows[-1][7] - 1) if self._run is None else (rows[-1][7], top)
                yield f"{part}:{rows[-1][7]}", None
            self._rows += top - low
            yield f"{part}:{low + 1 if self._run is None else top}", None

    def _read_rows(
        self, table: str, text: str, low: int, top: int, direction: str
    ) -> Sequence[Sequence[Any]]:
        view = self._view
        where = "id > {low:Int64} AND id <= {top:Int64}"
        if self._run is not None:
            where += " AND run = {run:Int64}"
        found = f"{where} AND {self._prefilter(text)}"
        ids = f"SELECT id FROM {table} WHERE {view.visible(table)} AND {found}"
        source = (
            f"(SELECT *, {text} AS searched FROM"
            f" {view.current(table, f'{where} AND id IN ({ids})')})"
        )
        of_rows = f"SELECT run FROM {table} WHERE {view.visible(table)} AND {found}"
        runs = view.current("runs", f"id IN ({of_rows})")
        if table == "spans":
            sql = (
                f"SELECT {SPAN_REF}, s.searched, s.id FROM {source} s"
                f" JOIN {runs} r ON r.id = s.run ORDER BY s.id {direction}"
            )
        else:
            spans = view.current(
                "spans", f"run IN (SELECT run FROM {table} WHERE {view.visible(table)} AND {found})"
            )
            sql = (
                "SELECT r.run_id, t.span_id, r.id, s.number, s.type,"
                " if(s.number > 0, s.name, r.name), t.searched, t.id"
                f" FROM {source} t JOIN {runs} r ON r.id = t.run"
                f" LEFT JOIN {spans} s ON s.run = t.run AND s.span_id = t.span_id"
                f" ORDER BY t.id {direction}"
            )
        return self._client.query(
            f"{sql} LIMIT {_CANDIDATES_MAX}",
            **view.parameters(),
            **self._literals(),
            low=low,
            top=top,
            run=self._run or 0,
        )

    def _prefilter(self, text: str) -> str:
        """Return a condition that leaves out rows that cannot match the pattern."""
        if not self._query.literals:
            return "1"
        function = "multiSearchAnyCaseInsensitive" if self._query.ignore_case else "multiSearchAny"
        return f"{function}({text}, {{literals:Array(String)}})"

    def _literals(self) -> dict[str, Any]:
        return {"literals": list(self._query.literals)}

    # --- bodies ---------------------------------------------------------------------------

    def iter_bodies(self, part: str, last: int | None) -> Iterator[tuple[str, Hit | None]]:
        bare = not self._query.literals
        condition = None if bare else build_index_condition(self._query.literals)
        first = _BODIES_PER_STEP_BARE if bare else _BODIES_FIRST
        step_max = first if bare else _BODIES_PER_STEP
        if condition is not None:
            step_max = _BODIES_PER_STEP_INDEXED
        for low, top in self._iter_steps("bodies", last, first, step_max):
            for found in self._iter_texts(low, top, condition):
                owners = self._find_owners([each.body for each in found])
                for each in found:
                    owner = owners.get(each.body)
                    if owner is None:
                        continue
                    cursor = f"{part}:{each.body}"
                    hit = _make_hit(
                        cursor, *owner, each.text, each.start, each.end, each.at, each.count, 1
                    )
                    key = (hit.before, hit.match, hit.after)
                    if key not in self._reported:
                        self._reported.add(key)
                        yield cursor, hit
            self._rows += (top - low) * (1 if condition is not None else 20)
            yield f"{part}:{low + 1 if self._run is None else top}", None

    def _iter_texts(
        self, low: int, top: int, condition: IndexCondition | None
    ) -> Iterator[list[_Text]]:
        """Yield the bodies of a step that match, in groups."""
        view = self._view
        where = "id > {low:Int64} AND id <= {top:Int64}"
        values: dict[str, Any] = {**view.parameters(), **self._literals(), "run": self._run or 0}
        if self._run is not None:
            where += f" AND id IN ({self._bodies_of_run()})"
            condition = None
        elif top - low <= _BODIES_FIRST:
            condition = None  # the texts of so few bodies are in a few blocks
        if condition is not None:
            values |= condition.values
        direction = "DESC" if self._run is None else "ASC"
        alternatives = ["1"]
        if self._query.literals:
            alternatives = ["is_unread_stream = 1"]
            for column in ("data", "stream_text"):
                alternatives.append(
                    self._prefilter(column)
                    if condition is None
                    else condition.sql.format(column=column)
                )
        count = _BODIES_FIRST_READ
        while True:
            # Ids first: to find the newest versions of all texts would sort them. One query for
            # each alternative, because a text index is not used for one with OR.
            ids = " UNION ALL ".join(
                f"(SELECT id FROM bodies WHERE {view.visible('bodies')} AND {where} AND {each}"
                f" ORDER BY id {direction} LIMIT {count})"
                for each in alternatives
            )
            rows = self._client.query(
                f"SELECT DISTINCT id FROM ({ids}) ORDER BY id {direction} LIMIT {count}",
                **values,
                low=low,
                top=top,
            )
            texts = read_bodies(self._client, view, [row[0] for row in rows], {})
            found = []
            for body_id, data in sorted(texts, reverse=self._run is None):
                self._bytes += len(data)
                text = self._match(body_id, data)
                if text is not None:
                    found.append(text)
            if found:
                yield found
            if len(rows) < count or self._bytes > SEARCH_BYTES_MAX:
                return
            low, top = (low, rows[-1][0] - 1) if self._run is None else (rows[-1][0], top)
            count = _BODIES_PER_READ

    def _match(self, body_id: int, raw: bytes) -> _Text | None:
        text, is_assembled = raw.decode(errors="surrogateescape"), False
        matches = self._query.pattern.finditer(text)
        match = next(matches, None)
        if match is None and (assembled := spell(raw)):
            text, is_assembled = "\n".join(assembled), True
            matches = self._query.pattern.finditer(text)
            match = next(matches, None)
        if match is None:
            return None
        before = len(text[: match.start()].encode(errors="surrogateescape"))
        count = 1 + sum(1 for _ in matches)
        return _Text(body_id, text, *match.span(), None if is_assembled else before, count)

    def _bodies_of_run(self) -> str:
        view = self._view
        return " UNION ALL ".join(
            f"SELECT assumeNotNull({column}) FROM {table} WHERE {view.visible(table)}"
            f" AND run = {{run:Int64}} AND {column} IS NOT NULL"
            for table, column in (
                ("spans", "input_body"),
                ("spans", "output_body"),
                ("logs", "body"),
            )
        )

    def _find_owners(self, bodies: Sequence[int]) -> dict[int, tuple[SpanRef, str]]:
        """Return the first span or log record that refers to each body."""
        owners: dict[int, tuple[SpanRef, str]] = {}
        view = self._view
        parameters = {**view.parameters(), "run": self._run or 0}
        for at in range(0, len(bodies), 1_000):
            keys = list(bodies[at : at + 1_000])
            in_run = "" if self._run is None else " AND run = {run:Int64}"
            for table, column, part in (
                ("logs", "body", "log body"),
                ("spans", "output_body", "output"),
                ("spans", "input_body", "input"),
            ):
                ids = (
                    f"SELECT id FROM {table} WHERE {view.visible(table)}{in_run}"
                    f" AND {column} IN {{bodies:Array(Int64)}}"
                )
                rows = view.current(table, f"id IN ({ids})")
                of_rows = ids.replace("SELECT id", "SELECT run", 1)
                runs = view.current("runs", f"id IN ({of_rows})")
                if table == "spans":
                    sql = (
                        f"SELECT {SPAN_REF}, s.{column} FROM {rows} s"
                        f" JOIN {runs} r ON r.id = s.run ORDER BY s.id DESC"
                    )
                else:
                    spans = view.current("spans", f"run IN (SELECT run FROM {rows})")
                    sql = (
                        "SELECT r.run_id, t.span_id, r.id, s.number, s.type,"
                        f" if(s.number > 0, s.name, r.name), t.body FROM {rows} t"
                        f" JOIN {runs} r ON r.id = t.run LEFT JOIN {spans} s"
                        " ON s.run = t.run AND s.span_id = t.span_id ORDER BY t.id DESC"
                    )
                # The last one wins: inputs before outputs before logs, and the first record.
                for row in self._client.query(sql, **parameters, bodies=keys):
                    owners[row[6]] = (to_span_ref(row), part)
        return owners


_BODIES_FIRST_READ: Final = 250
_BODIES_PER_READ: Final = 1_000


class IndexCondition(msgspec.Struct, frozen=True):
    """A condition that the text index answers, with its parameters."""

    sql: str
    """A template with {column} for the name of the column."""
    values: dict[str, Any]


_LIKE_MIN: Final = 4
"""Shorter parts of words are in too many words."""


def build_index_condition(literals: Sequence[str]) -> IndexCondition | None:
    """Return a condition for texts that may contain one of the literals.

    The index has words (letters, digits and bytes above 127) in lower case. All words of a literal
    but the first and the last are complete; these two may be parts of words. The server answers one
    LIKE from the index, and reads all texts for two. None: a literal has no word for the index.
    """
    alternatives = []
    values: dict[str, Any] = {}
    for number, literal in enumerate(literals):
        lowered = "".join(each.lower() if each.isascii() else each for each in literal)
        words = list(_WORD.finditer(lowered))
        ends = (0, len(lowered))
        complete = [each[0] for each in words if each.start() > 0 and each.end() < len(lowered)]
        part = max(
            (each[0] for each in words if each.start() in ends or each.end() in ends),
            key=len,
            default="",
        )
        conditions = []
        if complete:
            values[f"words{number}"] = complete
            conditions.append(
                f"hasAllTokens(lower({{column}}), {{{{words{number}:Array(String)}}}})"
            )
        if len(part) >= _LIKE_MIN:
            values[f"part{number}"] = f"%{part}%"
            conditions.append(f"lower({{column}}) LIKE {{{{part{number}:String}}}}")
        if not conditions:
            return None
        if part != lowered:
            conditions.append("multiSearchAnyCaseInsensitive({column}, {{literals:Array(String)}})")
        alternatives.append(f"({' AND '.join(conditions)})")
    return IndexCondition(f"({' OR '.join(alternatives)})", values)


_WORD: Final = re.compile(r"[0-9a-z\x80-\U0010ffff]+")


def _make_hit(
    cursor: str,
    span_ref: SpanRef,
    part: str,
    text: str,
    start: int,
    end: int,
    at: int | None,
    count: int,
    bodies: int,
) -> Hit:
    return Hit(
        cursor,
        span_ref,
        part,
        text[max(0, start - AROUND) : start],
        text[start : min(end, start + MATCH_MAX)],
        text[end : end + AROUND],
        at,
        count,
        bodies,
    )


# --- patterns that users write --------------------------------------------------------------------


def search_isolated(
    client: Client, tenant: str | None, query: SearchQuery, after: str | None, limit: int
) -> SearchResult:
    """Search in a process that can be killed, because an expression may run forever."""
    from vestige.store.sqlite.read.isolated_query import make_search_request, search_in_child

    address = client.address
    request = make_search_request(str(address), tenant, query, after, limit)
    request = msgspec.structs.replace(request, user=address.user, password=address.password)
    return search_in_child(run_isolated_search, request)


def run_isolated_search() -> None:
    """Run a search in the child."""
    from vestige.store.clickhouse.address import parse_address
    from vestige.store.clickhouse.clickhouse_store import ClickHouseStore
    from vestige.store.sqlite.read.isolated_query import SearchRequest, answer_search

    def open_store(request: SearchRequest) -> ClickHouseStore:
        address = msgspec.structs.replace(
            parse_address(request.location), user=request.user, password=request.password
        )
        return ClickHouseStore.open(address, readonly=True, tenant=request.tenant)

    answer_search(open_store)
