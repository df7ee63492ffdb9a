"""Search with an expression of the user's, in a process of its own that can be ended.

An expression such as `(a+)+$` may take for ever, and Python looks for nothing else meanwhile: in a
server, no other question would be answered. So whoever asks waits for a child, and not for long.

    apart.search(store.path, store.tenant, wanted, after, limit)
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import msgspec

from vestige.errors import StoreError, UsageError
from vestige.limits import EXPRESSION_S
from vestige.store.base import Searched, Wanted

_START = "import sys; sys.path[:] = sys.argv[1:]; from vestige.store.apart import answer; answer()"
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


def search(
    path: Path, tenant: str | None, wanted: Wanted, after: str | None, limit: int
) -> Searched:
    asked = _Asked(
        str(path), tenant, wanted.pattern.pattern, int(wanted.pattern.flags & re.IGNORECASE),
        wanted.run_id, wanted.parts, after, limit,
    )  # fmt: skip
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _START, *sys.path], input=_encode(asked),
            capture_output=True, timeout=EXPRESSION_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"grep: this expression takes longer than {EXPRESSION_S:g} s. Make it simpler (no repeat"
            " inside a repeat), or search less: one run, one part."
        ) from None
    if done.returncode:
        raise StoreError(f"{path}: the search in it broke off (exit code {done.returncode}).")
    found = json.loads(done.stdout)
    if "refused" in found:
        raise UsageError(found["refused"])
    if "failed" in found:
        raise StoreError(found["failed"])
    return msgspec.convert(found, Searched)


def answer() -> None:
    """The child: a question from stdin, its answer to stdout."""
    from vestige.store.sqlite import SqliteStore

    # Should whoever asked be gone: nobody else would end us.
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    seconds = int(EXPRESSION_S) + 5
    if most == resource.RLIM_INFINITY or most > seconds:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, most))
    asked = msgspec.convert(json.load(sys.stdin.buffer), _Asked)
    pattern = re.compile(asked.pattern, asked.flags)
    wanted = Wanted(pattern, (), bool(asked.flags), asked.run_id, asked.parts)
    found: object
    try:
        with SqliteStore.open(Path(asked.path), readonly=True, tenant=asked.tenant) as store:
            found = store.search(wanted, asked.after, asked.limit)
    except UsageError as error:
        found = {"refused": str(error)}
    except StoreError as error:
        found = {"failed": str(error)}
    sys.stdout.buffer.write(_encode(found))


def _encode(value: object) -> bytes:
    """As ASCII: bytes that are no text are surrogates, which no other encoder takes."""
    return json.dumps(msgspec.to_builtins(value)).encode()
