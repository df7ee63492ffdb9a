"""What a reader and an importer wait for, and what a large body costs in memory.

python -m bench.read text 33554432 HOME     # emits one body; prints the extra MB at the peak
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench import place
from bench.figures import Figure, Goal

SPANS = 10_000
ROUNDS = 9
MEMORY_MAX = 1.3
"""Times the bound of a body, beyond the caller's own payload."""


def measure() -> list[Figure]:
    return [skeleton(), importing(), *starting(), *memory()]


def skeleton() -> Figure:
    """A run of 10,000 spans, read whole; the floor is its rows and their JSON."""
    import msgspec

    import vestige
    from vestige.collector.loop import catch_up
    from vestige.home import get_home
    from vestige.store.sqlite.sqlite_store import SqliteStore

    with place.folder() as folder:
        with vestige.Recorder(folder, redact=False, crash_hooks=False) as recorder:
            run = recorder.run("bench")
            for number in range(SPANS - 1):
                attributes = {"tool_call_id": f"call_{number}", "attempt": 1, "cached": False}
                run.child("search", "tool", attributes, f"q{number}").end(body=f"r{number}")
            run.end()
        home = get_home(folder)
        catch_up(home)
        decode = msgspec.json.Decoder(dict[str, Any]).decode
        with SqliteStore.open(home.store, readonly=True) as store:
            assert len(store.load_run(run.run_id).spans) == SPANS

            def rows() -> None:
                query = "SELECT s.* FROM spans s JOIN runs r ON r.id = s.run WHERE r.run_id = ?"
                cursor = store._connection.execute(query, (run.run_id,))
                place_of = [column[0] for column in cursor.description].index("attributes")
                for row in cursor:
                    decode(row[place_of] or "{}")

            ours, floor = _in_turns(lambda: store.load_run(run.run_id), rows)
    return Figure("skeleton of a 10,000-span run", "ms", ours, floor, goal=Goal("at most", 50))


def _in_turns(*acts: Callable[[], object]) -> list[float]:
    """The median milliseconds of each."""
    times: list[list[float]] = [[] for _ in acts]
    for _ in range(ROUNDS):
        for act, found in zip(acts, times, strict=True):
            begun = time.perf_counter()
            act()
            found.append((time.perf_counter() - begun) * 1000)
    return [statistics.median(found) for found in times]


_IMPORT = """
import time
begun = time.perf_counter(); import msgspec
between = time.perf_counter(); import vestige
print((between - begun) * 1000, (time.perf_counter() - between) * 1000)
"""


def importing() -> Figure:
    """What `import vestige` adds; the floor is msgspec's own import."""
    place.output(["-c", _IMPORT])  # from now on there is bytecode
    pairs = [place.output(["-c", _IMPORT]).split() for _ in range(ROUNDS)]
    floor, ours = (statistics.median(map(float, column)) for column in zip(*pairs, strict=True))
    return Figure(
        "`import vestige` beyond msgspec (its own: floor)",
        "ms",
        ours,
        floor,
        goal=Goal("below", 15),
    )


_START = """
import sys, time, vestige
begun = time.perf_counter(); recorder = vestige.Recorder(sys.argv[1])
print((time.perf_counter() - begun) * 1000)
"""


def starting() -> list[Figure]:
    """The first Recorder of a process: what looks for secrets is compiled once for a home."""
    new, known = [], []
    with place.folder() as folder:
        for number in range(ROUNDS):
            home = str(folder / str(number))
            new.append(float(place.output(["-c", _START, home])))
            known.append(float(place.output(["-c", _START, home])))
    return [
        Figure("the first Recorder of a process, in a new home", "ms", statistics.median(new)),
        Figure("the same, in a home that was used before", "ms", statistics.median(known)),
    ]


def memory() -> list[Figure]:
    """Extra memory at the peak, as a share of the bound of a body."""
    from vestige.limits import BODY_MAX

    cases = [(kind, times) for kind in MAKERS for times in (1, 3)]
    # Side by side: they are about memory, not time.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda case: _extra_mb(case[0], case[1] * BODY_MAX), cases)
        extra_mb = dict(zip(cases, found, strict=True))
    return [
        Figure(
            f"memory to emit {kind} of {times} x the body bound",
            "x bound",
            extra_mb[kind, times] * 1e6 / BODY_MAX,
            goal=Goal("below", MEMORY_MAX),
        )
        for kind, times in cases
    ]


def _extra_mb(kind: str, size_bytes: int) -> float:
    with place.folder() as folder:
        return float(place.output(["-m", "bench.read", kind, str(size_bytes), str(folder)]))


_LINE = "Fill in the form, then print the label and hand the parcel in. "

MAKERS: dict[str, Callable[[int], Any]] = {
    "text": lambda size: _LINE * (size // len(_LINE)),
    "an object": lambda size: {"lines": [_LINE + str(n) for n in range(size // (len(_LINE) + 9))]},
}


def emit_body(kind: str, size_bytes: int, home: Path) -> float:
    """Emit one body; the peak of memory beyond what was held before, the payload included there."""
    import vestige

    run = vestige.Recorder(home).run("bench")
    run.child("small", body="x" * 10_000).end()
    payload = MAKERS[kind](size_bytes)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts over from now
    before = place.memory_mb("VmRSS")
    run.child("large", body=payload).end()
    peak = place.memory_mb("VmHWM")
    assert before is not None
    assert peak is not None
    return peak - before


if __name__ == "__main__":
    print(json.dumps(emit_body(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))))
