"""A run as one file, and back: 10,000 spans and the 50 requests of a growing conversation.

The floor is the plain way: one zip, the records as JSON lines and every body whole, deflated as
zipfile does it; read back, unpacked and decoded.
"""

from __future__ import annotations

import json
import statistics
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import place
from bench.figures import Figure, Goal
from bench.storage import Prose

SPANS = 10_000
CALLS = 50
ROUNDS = 7
MANIFESTS = 50


def measure() -> list[Figure]:
    import msgspec

    import vestige
    from vestige.collector.loop import catch_up
    from vestige.formats.protocol import RunToWrite
    from vestige.formats.wink import read_run, write_run
    from vestige.formats.wink.read import ZipContent
    from vestige.home import get_home
    from vestige.store.sqlite.sqlite_store import SqliteStore

    with place.folder() as folder:
        run_id = _record(vestige, folder / "home")
        home = get_home(folder / "home")
        catch_up(home)
        with SqliteStore.open(home.store, readonly=True) as store:
            source = RunToWrite(store.load_run(run_id), store.read_body)
            bodies = [
                store.read_body(span.input.id)
                for span in source.run.spans
                if span.input and span.input.id
            ]
            records = msgspec.json.Encoder().encode_lines([*source.run.spans, *source.run.logs])
            ours = folder / "ours.wink"
            plain = folder / "plain.zip"
            exported = _in_turns(
                lambda: write_run(source, ours), lambda: _zip(plain, records, bodies)
            )
        loaded = _in_turns(lambda: _count(read_run(ours).records), lambda: _unzip(plain))
        manifest = _time(lambda: [ZipContent(ours).manifest for _ in range(MANIFESTS)]) / MANIFESTS
        sizes = ours.stat().st_size / 1e6, plain.stat().st_size / 1e6
    return [
        Figure(
            "bundle of 10,000 spans and 50 bodies: export",
            "ms",
            exported[0],
            exported[1],
            goal=Goal("at most", 120),
        ),
        Figure(
            "the same: load, all records and bodies",
            "ms",
            loaded[0],
            loaded[1],
            goal=Goal("at most", 60),
        ),
        Figure("the same: its size", "MB", sizes[0], sizes[1]),
        Figure("the same: its manifest alone", "ms", manifest, goal=Goal("below", 10)),
    ]


def _record(vestige: Any, folder: Path) -> str:
    """Tool calls, and every two hundredth a model call that sends all messages so far."""
    prose = Prose(7)
    messages: list[dict[str, str]] = []
    with vestige.Recorder(folder, redact=False, crash_hooks=False) as recorder:
        run = recorder.run("bench")
        for number in range(SPANS - 1):
            attributes = {"tool_call_id": f"call_{number}", "attempt": 1, "cached": False}
            if number % (SPANS // CALLS):
                run.child("search", "tool", attributes).end()
            else:
                messages.append({"role": "user", "content": prose.text(2_000)})
                body = json.dumps({"model": "m", "messages": messages})
                run.child("ask", "llm", attributes, body).end()
        run.end()
    return str(run.run_id)


def _zip(path: Path, records: bytes, bodies: list[bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("records.jsonl", records)
        for number, body in enumerate(bodies):
            archive.writestr(f"bodies/{number}", body)


def _unzip(path: Path) -> None:
    import msgspec

    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            data = archive.read(name)
            if name == "records.jsonl":
                msgspec.json.Decoder().decode_lines(data)


def _count(records: Any) -> None:
    assert sum(1 for _ in records) >= 2 * SPANS - 1


def _in_turns(ours: Callable[[], object], floor: Callable[[], object]) -> tuple[float, float]:
    """Medians in milliseconds, measured one beside the other."""
    ours(), floor()
    times = [(_time(ours), _time(floor)) for _ in range(ROUNDS)]
    return statistics.median(a for a, _ in times), statistics.median(b for _, b in times)


def _time(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1e3
