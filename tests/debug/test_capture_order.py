"""Snapshots and log lines are returned in the order of their times."""

from __future__ import annotations

import json
import logging
import random
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from support.wink_samples import seed_members, write_zip  # shared with the format's tests
from vestige.debug import AgentInfo, DebugBundle, DebugBundleBuilder, Session, ToolInvoked
from vestige.formats.wink import sort_by_time, validate_run
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import export_run, import_path

AGENT = AgentInfo("a", "b", "c")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("VESTIGE_HOME", str(tmp_path / "home"))
    yield tmp_path / "home"


def stamp(second: int) -> str:
    return f"2024-01-15T10:30:{second:02}.000001+00:00"


class OvertakenSession:
    """Gives snapshots with times out of order, as threads that overtake each other do."""

    session_id = UUID(int=7)
    children = ()
    dispatcher = None

    def __init__(self, seconds: list[int]) -> None:
        self._seconds = iter(seconds)
        self._items: list[dict[str, Any]] = []

    def snapshot(self) -> OvertakenSession:
        return self

    def to_json(self) -> str:
        second = next(self._seconds)
        self._items.append({"second": second})
        return json.dumps(
            {
                "version": "1",
                "created_at": stamp(second),
                "slices": [{"slice_type": "m:S", "item_type": "m:S", "items": self._items}],
            }
        )


def test_snapshots_of_threads_that_overtake_each_other_are_in_order_and_whole(
    tmp_path: Path,
) -> None:
    seconds = [0, 3, 1, 2, 9, 8, 4, 10]
    builder = DebugBundleBuilder(session=OvertakenSession(seconds), agent=AGENT)
    with builder.capture():
        for _ in seconds[2:]:
            builder.add_snapshot()
    path = builder.finalize().export(tmp_path / "x.wink")

    with zipfile.ZipFile(path) as archive:
        (member,) = (name for name in archive.namelist() if name.endswith("snapshots.jsonl"))
        lines = archive.read(member).splitlines()
    assert [json.loads(line)["created_at"] for line in lines] == [
        stamp(second) for second in sorted(seconds)
    ], "the file is in order for every reader"
    found = list(DebugBundle.load(path).snapshots)

    assert [one.created_at for one in found] == [stamp(second) for second in sorted(seconds)]
    for one in found:
        written = [item["second"] for item in one.slices[0].items]
        own = int(one.created_at[17:19])
        assert written == seconds[: seconds.index(own) + 1], "each state is the one it was"


def test_log_lines_of_threads_that_overtake_each_other_are_in_order(tmp_path: Path) -> None:
    builder = DebugBundleBuilder(session=Session(), agent=AGENT)
    logger = logging.getLogger("overtaken")
    times = [5, 3, 4, 4, 1, 6]
    with builder.capture():
        for number, second in enumerate(times):
            fields = {"name": "overtaken", "msg": f"{number}", "levelno": 20, "levelname": "INFO"}
            record = logging.makeLogRecord(fields)
            record.created = 1_700_000_000.0 + second
            logger.handle(record)
    bundle = DebugBundle.load(builder.finalize().export(tmp_path / "x.wink"))

    assert [entry.message for entry in bundle.logs] == ["4", "1", "2", "3", "0", "5"]


def test_a_capture_with_four_threads_is_chronological(tmp_path: Path) -> None:
    session = Session()
    builder = DebugBundleBuilder(session=session, agent=AGENT)

    def tool(number: int) -> None:
        logging.getLogger("t").info("begin %d", number)
        session.dispatcher.dispatch(
            ToolInvoked(name=f"t{number}", result="x" * 200, session_id=session.session_id)
        )
        logging.getLogger("t").info("end %d", number)

    with builder.capture(), ThreadPoolExecutor(4) as pool:
        list(pool.map(tool, range(60)))
    path = builder.finalize().export(tmp_path / "x.wink")
    bundle = DebugBundle.load(path)

    snapshots = [one.created_at for one in bundle.snapshots]
    logs = [entry.timestamp for entry in bundle.logs]
    assert (len(snapshots), len(logs)) == (62, 120)
    assert snapshots == sorted(snapshots) and logs == sorted(logs)
    assert validate_run(path) == []


def disordered(tmp_path: Path, seconds: list[int]) -> Path:
    members = seed_members(
        components={"snapshots": {"path": "snapshots.jsonl"}, "logs": {"path": "logs.jsonl"}}
    )
    del members["files/workspace/x"]
    members["logs.jsonl"] = b"".join(
        b'{"timestamp":"%s","level":"INFO","logger":"a","event":"","message":"%d","context":{}}\n'
        % (stamp(second).encode(), number)
        for number, second in enumerate(seconds)
    )
    members["snapshots.jsonl"] = b"".join(
        b'{"version":"1","created_at":"%s","slices":[],"tags":{"n":"%d"}}\n'
        % (stamp(second).encode(), number)
        for number, second in enumerate(seconds)
    )
    return write_zip(tmp_path / "x.wink", members)


@pytest.mark.parametrize("lines", [3, 50_000])
def test_a_foreign_bundle_out_of_order_is_handed_out_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    """Also where it does not fit into memory: sorted in stretches and merged. Ties stay as they
    are.
    """
    monkeypatch.setattr(sort_by_time, "STRETCH_LINES", lines)
    chance = random.Random(7)
    seconds = [chance.randrange(20) for _ in range(40)]
    path = disordered(tmp_path, seconds)
    order = sorted(range(40), key=seconds.__getitem__)
    bundle = DebugBundle.load(path)

    assert [int(entry.message) for entry in bundle.logs] == order
    assert [int(one.tags["n"]) for one in bundle.snapshots] == order
    assert {problem.rule for problem in bundle.problems} == {"time-order"}
    with SqliteStore.open(tmp_path / "a.db") as store:
        (imported,) = import_path(store, path)
        assert imported.run_id is not None
        made = export_run(store, imported.run_id, "wink", tmp_path / "y.wink")
    again = DebugBundle.load(made)
    assert [int(entry.message) for entry in again.logs] == order
    assert again.problems == []


def test_a_line_without_a_time_stays_behind_the_one_before_it() -> None:
    lines = [
        '{"timestamp":"2024-01-15T10:30:02Z"}',
        "no entry",
        '{"timestamp":"2024-01-15T10:30:01Z"}',
    ]

    assert list(sort_by_time.TimeOrder(sort_by_time.log_time).sorted(lambda: iter(lines))) == [
        lines[2],
        lines[0],
        lines[1],
    ]
