"""Run user-supplied regexes and SQL in a subprocess that can be killed on timeout.

A regex such as `(a+)+$` may run forever, and Python holds the GIL meanwhile: a server would
answer no other request. A single `LIKE` may also take hours, and SQLite checks no deadline
inside it.

    isolated_query.search(store.path, store.tenant, query, after, limit)
    isolated_query.query(store.path, store.tenant, "SELECT ... WHERE name LIKE '%x%'", 0, 200)
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from vestige.errors import StoreError, UsageError
from vestige.limits import EXPRESSION_S
from vestige.store.cancellation import check_cancelled, on_cancel
from vestige.store.protocol import QueryRows, SearchQuery, SearchResult, Store
from vestige.store.sqlite.read import sql_sandbox

START_S = 5.0
"""The time for a child to start, even on a busy machine."""

_START = "import sys; sys.path[:] = sys.argv[1:]; from {0} import {1}; {1}()"
"""Run with -I, which ignores the current folder, and with the `sys.path` of the parent."""


class SearchRequest(msgspec.Struct, frozen=True):
    """A search, as a child reads it."""

    location: str
    """The path or the address of the store."""
    tenant: str | None
    pattern: str
    flags: int
    run_id: str | None
    parts: tuple[str, ...]
    after: str | None
    limit: int
    seconds: float
    user: str = ""
    password: str = ""


def search(
    path: Path, tenant: str | None, query: SearchQuery, after: str | None, limit: int
) -> SearchResult:
    return search_in_child(
        run_isolated_search, make_search_request(str(path), tenant, query, after, limit)
    )


def make_search_request(
    location: str, tenant: str | None, query: SearchQuery, after: str | None, limit: int
) -> SearchRequest:
    return SearchRequest(
        location,
        tenant,
        query.pattern.pattern,
        int(query.pattern.flags & re.IGNORECASE),
        query.run_id,
        query.parts,
        after,
        limit,
        EXPRESSION_S,
    )


def search_in_child(work: Callable[[], None], request: SearchRequest) -> SearchResult:
    """Return the result of a search that `work` runs in a child. Raise the child's error."""
    output = run_child(work, _encode(request), EXPRESSION_S + START_S)
    if output is None:
        raise UsageError(
            f"grep: this expression takes longer than {EXPRESSION_S:g} s. Simplify it (no repeat"
            " inside a repeat), or search less: one run, one part."
        )
    if isinstance(output, int):
        raise StoreError(f"{request.location}: the search failed (exit code {output}).")
    result = json.loads(output)
    if "refused" in result:
        raise UsageError(result["refused"])
    if "failed" in result:
        raise StoreError(result["failed"])
    return msgspec.convert(result, SearchResult)


def run_isolated_search() -> None:
    """Run a search in the child."""
    from vestige.store.sqlite.sqlite_store import SqliteStore

    answer_search(
        lambda request: SqliteStore.open(
            Path(request.location), readonly=True, tenant=request.tenant
        )
    )


def answer_search(open_store: Callable[[SearchRequest], AbstractContextManager[Store]]) -> None:
    """Run a search in the child: read the request from stdin, write the result to stdout."""
    request = msgspec.convert(json.load(sys.stdin.buffer), SearchRequest)
    result: object
    try:
        with open_store(request) as store:
            end_after(request.seconds)
            pattern = re.compile(request.pattern, request.flags)
            query = SearchQuery(pattern, (), bool(request.flags), request.run_id, request.parts)
            result = store.search(query, request.after, request.limit)
    except UsageError as error:
        result = {"refused": str(error)}
    except StoreError as error:
        result = {"failed": str(error)}
    sys.stdout.buffer.write(_encode(result))


# --- queries --------------------------------------------------------------------------------------


class _QueryRequest(msgspec.Struct, frozen=True):
    path: str
    tenant: str | None
    sql: str
    skip: int
    limit: int
    seconds: float


class _QueryResult(msgspec.Struct, frozen=True):
    rows: QueryRows | None = None
    refused: str | None = None
    failed: str | None = None


def query(path: Path, tenant: str | None, sql: str, skip: int, limit: int) -> QueryRows:
    seconds = sql_sandbox.SECONDS_MAX
    request = _QueryRequest(str(path), tenant, sql, skip, limit, seconds)
    # MessagePack, because a value may be bytes.
    output = run_child(run_isolated_query, msgspec.msgpack.encode(request), seconds + START_S)
    if output is None:
        raise UsageError(sql_sandbox.TOO_LONG.format(seconds))
    if isinstance(output, int):
        raise StoreError(f"{path}: the query failed (exit code {output}).")
    result = msgspec.msgpack.decode(output, type=_QueryResult)
    if result.refused is not None:
        raise UsageError(result.refused)
    if result.rows is None:
        raise StoreError(str(result.failed))
    return result.rows


def run_isolated_query() -> None:
    """Run a query in the child: read the request from stdin, write the result to stdout."""
    from vestige.store.sqlite.sqlite_store import SqliteStore

    request = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=_QueryRequest)
    end_after(request.seconds + _GRACE_S)
    try:
        with SqliteStore.open(Path(request.path), readonly=True, tenant=request.tenant) as store:
            rows = store.query_in_process(request.sql, request.skip, request.limit, request.seconds)
            result = _QueryResult(rows)
    except UsageError as error:
        result = _QueryResult(refused=str(error))
    except StoreError as error:
        result = _QueryResult(failed=str(error))
    sys.stdout.buffer.write(msgspec.msgpack.encode(result))


# --- the process ----------------------------------------------------------------------------------


def run_child(work: Callable[[], None], request: bytes, seconds: float) -> bytes | int | None:
    """Return the output of a child, its exit code if it failed, or None if it took too long."""
    command = [sys.executable, "-I", "-c", _START.format(work.__module__, work.__name__), *sys.path]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as child:
        try:
            with on_cancel(child.kill):
                output, _ = child.communicate(request, seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            child.kill()  # also when this thread is interrupted; does nothing to one that ended
    check_cancelled()
    return None if child.returncode == -signal.SIGALRM else child.returncode or output


_GRACE_S = 0.5
"""A query checks its deadline between two steps. A single long step ends this much later."""


def end_after(seconds: float) -> None:
    """Let the kernel end this process after `seconds`, even inside one long call into C.

    The parent kills it too, but only later, since it cannot know when the child began; and a
    parent that was killed ends nothing.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGALRM,))
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _encode(value: object) -> bytes:
    """Encode as ASCII JSON. Invalid text contains surrogates, which msgspec does not encode."""
    return json.dumps(msgspec.to_builtins(value)).encode()
