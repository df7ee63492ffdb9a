"""Capturing a debug bundle: a long execution with a snapshot per tool call, and a log line's cost.

    python -m bench.capture tools|ours|json|weakincentives  in a process of its own

The cost of a log line is what the program spends beyond logging itself, CPU of all threads.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import place
from bench.figures import Figure, Goal, less_than_peer

ROUNDS = 5
LINES = 100_000
QUOTED_US = 17.0
"""Of weakincentives' own capture, where no Python is there that could run it."""


def measure() -> list[Figure]:
    tools = _child("tools")
    pythons = {"ours": sys.executable, "json": sys.executable}
    theirs = _weakincentives_python()
    if theirs is not None:
        # In the same Python, so that the interpreter is not what is compared.
        pythons = {"ours": theirs, "json": theirs, "weakincentives": theirs}
    costs = _lowest(pythons)
    peer, suffix = costs.get("weakincentives"), ""
    if peer is None:
        peer, suffix = QUOTED_US, " (quoted)"
    return [
        Figure("300 tool calls, memory", "MB", tools["memory_mb"], goal=Goal("below", 50)),
        Figure("300 tool calls, spool", "MB", tools["spool_mb"], goal=Goal("below", 5)),
        Figure("300 tool calls, export", "s", tools["export_s"], goal=Goal("below", 3)),
        Figure("300 tool calls, CPU of a call", "ms", tools["call_ms"]),
        Figure("loading the manifest", "ms", tools["load_ms"], goal=Goal("below", 10)),
        Figure(
            f"CPU of a log line, beside weakincentives{suffix}",
            "µs",
            costs["ours"],
            peer=peer,
            goal=less_than_peer(2),
        ),
        Figure("CPU of a log line, beside a JSON handler", "µs", costs["ours"], peer=costs["json"]),
    ]


def _weakincentives_python() -> str | None:
    sys.path.insert(0, str(place.ROOT / "tests"))
    try:
        from support.weakincentives_env import find_python

        return find_python()
    except Exception as error:
        print(f"weakincentives: not measured: {error}")
        return None
    finally:
        sys.path.pop(0)


def _lowest(pythons: dict[str, str]) -> dict[str, float]:
    """In turns, so that what else the machine does meets all of them alike."""
    rounds = [
        {name: _child(name, python)["us"] for name, python in pythons.items()}
        for _ in range(ROUNDS)
    ]
    return {name: min(costs[name] for costs in rounds) for name in pythons}


def _child(name: str, python: str = sys.executable) -> dict[str, float]:
    found: dict[str, float] = json.loads(place.output(["-m", "bench.capture", name], python))
    return found


# --- in the child -----------------------------------------------------------------------------


def tools(folder: Path) -> dict[str, float]:
    from vestige.debug import AgentInfo, DebugBundleBuilder, Session, ToolInvoked
    from vestige.formats.wink.to_records import open_content

    session = Session()
    builder = DebugBundleBuilder(session=session, agent=AgentInfo("a", "b", "c"))
    before = place.memory_mb("VmRSS") or 0.0
    begun = time.process_time()
    with builder.capture():
        for number in range(300):
            result = (f"result {number} " * 300)[:2048]
            session.dispatcher.dispatch(ToolInvoked(name="t", params={"q": number}, result=result))
    call_ms = (time.process_time() - begun) / 300 * 1e3
    bundle = builder.finalize()
    spool = sum(path.stat().st_size for path in (folder / "home").rglob("*") if path.is_file())
    begun = time.perf_counter()
    path = bundle.export(folder / "out.wink")
    export_s = time.perf_counter() - begun
    memory = (place.memory_mb("VmHWM") or 0.0) - before
    begun = time.perf_counter()
    open_content(path).manifest  # noqa: B018  # reading it is what is timed
    load_ms = (time.perf_counter() - begun) * 1e3
    return {
        "memory_mb": memory,
        "spool_mb": spool / 1e6,
        "export_s": export_s,
        "call_ms": call_ms,
        "load_ms": load_ms,
    }


def lines(capturing: Callable[[], Any]) -> dict[str, float]:
    log = logging.getLogger("app")
    log.setLevel(logging.DEBUG)
    log.addHandler(logging.NullHandler())

    def loop(count: int) -> float:
        begun = time.process_time()
        for number in range(count):
            fields = {"event": "call.done", "context": {"call": number, "who": "agent"}}
            log.info("message %d", number, extra=fields)
        return (time.process_time() - begun) / count * 1e6

    loop(1_000)
    bare = min(loop(LINES // 4) for _ in range(3))
    with capturing():
        loop(1_000)
        cost = loop(LINES)
    return {"us": cost - bare}


@contextmanager
def ours() -> Any:
    from vestige.debug import AgentInfo, DebugBundleBuilder, Session

    builder = DebugBundleBuilder(session=Session(), agent=AgentInfo("a", "b", "c"))
    with builder.capture():
        yield
    builder.finalize()


@contextmanager
def weakincentives(folder: Path) -> Any:
    from weakincentives.debug.bundle import collect_all_logs  # type: ignore[import-not-found]

    with collect_all_logs(folder / "log.jsonl"):
        yield


class _JsonHandler(logging.FileHandler):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(
            {
                "timestamp": record.created,
                "level": record.levelname,
                "logger": record.name,
                "event": record.__dict__.get("event"),
                "message": record.getMessage(),
                "context": record.__dict__.get("context"),
            }
        )


@contextmanager
def json_handler(folder: Path) -> Any:
    handler = _JsonHandler(folder / "log.jsonl")
    logging.getLogger().addHandler(handler)
    yield
    logging.getLogger().removeHandler(handler)


def main() -> None:
    with tempfile.TemporaryDirectory(dir=place.DISK) as name:
        folder = Path(name)
        os.environ["VESTIGE_HOME"] = str(folder / "home")
        found = {
            "tools": lambda: tools(folder),
            "ours": lambda: lines(ours),
            "json": lambda: lines(lambda: json_handler(folder)),
            "weakincentives": lambda: lines(lambda: weakincentives(folder)),
        }[sys.argv[1]]()
        print(json.dumps(found))


if __name__ == "__main__":
    main()
