"""Run ids from outside: checked where they come in, and never a path where they go out."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

import vestige
from vestige.collector.loop import catch_up
from vestige.errors import UsageError
from vestige.fleet.server.receive import Delivery, Receipt, Receiver
from vestige.formats.atomic_file import resolve_target
from vestige.home import Home
from vestige.record.run_id import file_name_of, is_run_id
from vestige.record.types import VERSION, SpanClose, SpanOpen
from vestige.server.html_export import export_html
from vestige.server.viewer_assets import is_built
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import export_run, open_path

UNSAFE = (
    "./../PWNED",
    "..",
    ".",
    "",
    "/etc/x",
    "a/b",
    "a\\b",
    "a\nb",
    "\ud800",
    ".hidden",
    "x" * 5_000,
)
SAFE = ("3d1957bd-7105-4b04-b132-afe8fc31203e", "4bf92f3577b34da6a3ce929d0e0e4736", "run 7", "ä:7")


def test_an_id_is_a_plain_name() -> None:
    assert [text for text in UNSAFE if is_run_id(text)] == []
    assert [text for text in SAFE if not is_run_id(text)] == []
    assert [file_name_of(text) for text in SAFE] == list(SAFE)
    names = [file_name_of(text) for text in UNSAFE]
    assert len(set(names)) == len(names)
    assert all(is_run_id(name) and len(name) < 100 for name in names)


@pytest.mark.parametrize("run_id", ["./../PWNED", "..", "/abs", ".git"])
def test_a_record_with_a_path_as_its_run_is_malformed(home: Home, run_id: str) -> None:
    line = {
        "v": 1,
        "kind": "log",
        "writer": "00000000000000aa",
        "seq": 1,
        "time_ns": 1,
        "run_id": run_id,
        "span_id": None,
        "level": "info",
        "component": "x",
        "message": "x",
        "attributes": {},
    }
    with Receiver(home) as receiver:
        (outcome,) = receiver.ingest(
            [Delivery(json.dumps(line).encode() + b"\n", "identity", "one")]
        )
    assert isinstance(outcome, Receipt)
    assert (outcome.records, outcome.malformed) == (0, 1)


@pytest.mark.parametrize("format", ["agentdbg", "openwop", "otlp"])
def test_a_store_that_holds_such_an_id_exports_under_a_safe_name(
    home: Home, tmp_path: Path, format: str
) -> None:
    """A store of before ids were checked: it opens, and nothing is written outside the target."""
    run_id = "./../PWNED-outside"
    home.make()
    with SqliteStore.open(home.store) as store:
        writer, span = "00000000000000aa", "00000000000000bb"
        store.append(
            [
                SpanOpen(VERSION, writer, 1, 10**18, run_id, span, "x", "run", "x"),
                SpanClose(VERSION, writer, 2, 10**18 + 1, run_id, span, "ok", 1),
            ]
        )
        store.end_writer(writer, "exit 0")
        target = tmp_path / "deep" / "out"
        target.mkdir(parents=True)
        before = {*tmp_path.rglob("*")}
        made = export_run(store, run_id, format, target)
    assert made.parent == target
    assert made.name.startswith(file_name_of(run_id))
    assert all(target in path.parents for path in {*tmp_path.rglob("*")} - before)


@pytest.mark.parametrize("name", ["../x.json", "a/b.json", "..", ""])
def test_no_writer_joins_a_path_to_its_target(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        resolve_target(tmp_path, name)


@pytest.mark.parametrize("format", ["openwop", "otlp", "html"])
def test_an_export_is_for_its_owner(home: Home, tmp_path: Path, format: str) -> None:
    """Whatever the umask: as the store and its journals are."""
    if format == "html" and not is_built():
        pytest.skip("run `python hatch_build.py`")
    with vestige.Recorder(home) as recorder, recorder.run("triage") as run:
        pass
    catch_up(home)
    target = tmp_path / "export"
    before = os.umask(0)
    try:
        with open_path(home) as debugger:
            if format == "html":
                export_html(debugger, run.run_id, target)
            else:
                assert isinstance(debugger.store, SqliteStore)
                export_run(debugger.store, run.run_id, format, target)
    finally:
        os.umask(before)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
