"""A question with an expression or a function of the user's, in a process of its own that can be ended.

An expression such as `(a+)+$` may take for ever, and Python looks for nothing else meanwhile: in a
server, no other question would be answered. So may one `LIKE` in a query: SQLite looks at no clock
inside it. So whoever asks waits for a child, and not for long.

    apart.search(store.path, store.tenant, wanted, after, limit)
    apart.query(store.path, store.tenant, "SELECT name FROM runs WHERE name LIKE '%x%'", 0, 200)
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from vestige.errors import StoreError, UsageError
from vestige.limits import EXPRESSION_S
from vestige.store.cancellation import check_cancelled, on_cancel
from vestige.store.protocol import Rows, Searched, SearchQuery
from vestige.store.sqlite.read import sql_sandbox

START_S = 5.0
"""Until a child has begun, on a machine that has much else to do."""

_START = "import sys; sys.path[:] = sys.argv[1:]; from vestige.store.sqlite.read.isolated_query import {0}; {0}()"
"""With the modules that we have, and none of the folder that we happen to be in (-I)."""


class _Asked(msgspec.Struct, frozen=True):
    path: str
    tenant: str | None
    pattern: str
    flags: int
    run_id: str | None
    parts: tuple[str, ...]
    after: str | None
    limit: int
    seconds: float


def search(
    path: Path, tenant: str | None, wanted: SearchQuery, after: str | None, limit: int
) -> Searched:
    asked = _Asked(
        str(path),
        tenant,
        wanted.pattern.pattern,
        int(wanted.pattern.flags & re.IGNORECASE),
        wanted.run_id,
        wanted.parts,
        after,
        limit,
        EXPRESSION_S,
    )
    told = _run(run_isolated_search, _encode(asked), EXPRESSION_S + START_S)
    if told is None:
        raise UsageError(
            f"grep: this expression takes longer than {EXPRESSION_S:g} s. Make it simpler (no repeat"
            " inside a repeat), or search less: one run, one part."
        )
    if isinstance(told, int):
        raise StoreError(f"{path}: the search in it broke off (exit code {told}).")
    found = json.loads(told)
    if "refused" in found:
        raise UsageError(found["refused"])
    if "failed" in found:
        raise StoreError(found["failed"])
    return msgspec.convert(found, Searched)


def run_isolated_search() -> None:
    """The child: a question from stdin, its answer to stdout."""
    from vestige.store.sqlite.sqlite_store import SqliteStore

    asked = msgspec.convert(json.load(sys.stdin.buffer), _Asked)
    _end_after(asked.seconds)
    pattern = re.compile(asked.pattern, asked.flags)
    wanted = SearchQuery(pattern, (), bool(asked.flags), asked.run_id, asked.parts)
    found: object
    try:
        with SqliteStore.open(Path(asked.path), readonly=True, tenant=asked.tenant) as store:
            found = store.search(wanted, asked.after, asked.limit)
    except UsageError as error:
        found = {"refused": str(error)}
    except StoreError as error:
        found = {"failed": str(error)}
    sys.stdout.buffer.write(_encode(found))


# --- queries --------------------------------------------------------------------------------------


class _Query(msgspec.Struct, frozen=True):
    path: str
    tenant: str | None
    sql: str
    skip: int
    limit: int
    seconds: float


class _Told(msgspec.Struct, frozen=True):
    rows: Rows | None = None
    refused: str | None = None
    failed: str | None = None


def query(path: Path, tenant: str | None, sql: str, skip: int, limit: int) -> Rows:
    seconds = sql_sandbox.SECONDS_MAX
    asked = _Query(str(path), tenant, sql, skip, limit, seconds)
    # In MessagePack: a value may be bytes.
    told = _run(answer_query, msgspec.msgpack.encode(asked), seconds + START_S)
    if told is None:
        raise UsageError(sql_sandbox.TOO_LONG.format(seconds))
    if isinstance(told, int):
        raise StoreError(f"{path}: the query of it broke off (exit code {told}).")
    found = msgspec.msgpack.decode(told, type=_Told)
    if found.refused is not None:
        raise UsageError(found.refused)
    if found.rows is None:
        raise StoreError(str(found.failed))
    return found.rows


def answer_query() -> None:
    """The child: as `answer`."""
    from vestige.store.sqlite.sqlite_store import SqliteStore

    asked = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=_Query)
    _end_after(asked.seconds + _GRACE_S)
    try:
        with SqliteStore.open(Path(asked.path), readonly=True, tenant=asked.tenant) as store:
            told = _Told(store.query_here(asked.sql, asked.skip, asked.limit, asked.seconds))
    except UsageError as error:
        told = _Told(refused=str(error))
    except StoreError as error:
        told = _Told(failed=str(error))
    sys.stdout.buffer.write(msgspec.msgpack.encode(told))


# --- the process ----------------------------------------------------------------------------------


def _run(work: Callable[[], None], question: bytes, seconds: float) -> bytes | int | None:
    """What the child said; a number: how it broke off; None: it took too long."""
    command = [sys.executable, "-I", "-c", _START.format(work.__name__), *sys.path]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as child:
        try:
            with on_cancel(child.kill):
                said, _ = child.communicate(question, seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            child.kill()  # also when this thread is interrupted; does nothing to one that ended
    check_cancelled()
    return None if child.returncode == -signal.SIGALRM else child.returncode or said


_GRACE_S = 0.5
"""A query notices its own deadline between two steps; a single long step is ended this much later."""


def _end_after(seconds: float) -> None:
    """Let the kernel end this process after `seconds`, even inside one long call into C.

    The parent kills it too, but only later, since it cannot know when the child began; and a
    parent that was killed ends nothing.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGALRM,))
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _encode(value: object) -> bytes:
    """As ASCII: bytes that are no text are surrogates, which no other encoder takes."""
    return json.dumps(msgspec.to_builtins(value)).encode()
