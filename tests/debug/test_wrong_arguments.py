"""Arguments of the capturing API: the commonest slips work, or are an error, never a silent
loss.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from uuid import UUID

import pytest

from vestige.debug import (
    AgentInfo,
    DebugBundle,
    DebugBundleBuilder,
    MemoryFilesystem,
    Session,
    archive_filesystem,
    collect_all_logs,
    dump_session,
)

AGENT = AgentInfo("a", "b", "c")


def builder(tmp_path: Path) -> DebugBundleBuilder:
    return DebugBundleBuilder(session=Session(), agent=AGENT, spool=tmp_path / "spool")


def test_an_artifact_may_be_a_text(tmp_path: Path) -> None:
    made = builder(tmp_path)
    made.add_artifact("report.md", "# naïve ✓")
    made.add_artifact("raw.bin", bytearray(b"\0\1"))
    bundle = DebugBundle.load(made.finalize().export(tmp_path / "x.wink"))

    assert bundle.read_file("artifacts/report.md").decode() == "# naïve ✓"
    assert bundle.read_file("artifacts/raw.bin") == b"\0\1"


@pytest.mark.parametrize("content", [None, 5, {"a": 1}])
def test_an_artifact_of_another_type_raises(tmp_path: Path, content: object) -> None:
    with pytest.raises(TypeError, match="expected bytes, or text"):
        builder(tmp_path).add_artifact("x", content)  # type: ignore[arg-type]


def test_a_filesystem_may_be_the_path_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "w" / "deep").mkdir(parents=True)
    (tmp_path / "w" / "deep" / "x.txt").write_text("hi")
    made = builder(tmp_path)
    made.add_filesystem(str(tmp_path / "w"))
    made.add_filesystem(tmp_path / "w", prefix="inputs")
    bundle = DebugBundle.load(made.finalize().export(tmp_path / "x.wink"))

    assert bundle.list_files() == ["inputs/deep/x.txt", "workspace/deep/x.txt"]


def test_what_is_no_filesystem_raises(tmp_path: Path) -> None:
    made = builder(tmp_path)

    with pytest.raises(NotADirectoryError, match="no such directory"):
        made.add_filesystem("./absent")
    for wrong in (None, 5, {"a": b"b"}):
        with pytest.raises(TypeError, match="expected a filesystem"):
            made.add_filesystem(wrong)


def test_an_agent_that_is_only_a_name_raises_at_once() -> None:
    with pytest.raises(TypeError, match="expected AgentInfo"):
        DebugBundleBuilder(session=Session(), agent="me")  # type: ignore[arg-type]


def test_archives_into_one_folder_stay_apart(tmp_path: Path) -> None:
    fs = MemoryFilesystem({"a": "1"})
    chosen = UUID(int=7)

    first, second = (archive_filesystem(fs, tmp_path) for _ in range(2))
    third = archive_filesystem(fs, tmp_path, archive_id=chosen)

    assert third.name == f"{chosen}.zip"
    assert len({first, second, third}) == 3
    assert UUID(first.stem).version == 4
    for path in (first, second, third):
        assert zipfile.ZipFile(path).namelist() == ["a"]


def test_collected_logs_have_a_path(tmp_path: Path) -> None:
    with collect_all_logs(tmp_path / "p.log") as collected:
        logging.getLogger("x").info("said")

    assert collected.path == tmp_path / "p.log"
    assert json.loads(collected.read_text())["message"] == "said"
    assert Path(collected) == collected.path


def test_a_session_without_state_is_not_dumped(tmp_path: Path) -> None:
    assert dump_session(Session(), tmp_path / "d") is None
    assert not (tmp_path / "d").exists()


EXPORT = """
import sys
from pathlib import Path
from vestige.debug import *
class Slow(MemoryFilesystem):
    pass
spool = sys.argv[1] + "/spool"
b = DebugBundleBuilder(session=Session(), agent=AgentInfo("a", "b", "c"), spool=spool)
import os
for n in range(60):
    b.add_artifact(f"{n}.bin", os.urandom(200_000))
bundle = b.finalize()
print("go", flush=True)
bundle.export(sys.argv[1] + "/out/x.wink")
print("done", flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="needs files without a name")
def test_a_killed_export_leaves_no_part_behind(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    child = subprocess.Popen(
        [sys.executable, "-c", EXPORT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "go\n"
    time.sleep(0.1)  # the export takes several times as long
    child.send_signal(signal.SIGKILL)
    child.wait()

    assert [path.name for path in (tmp_path / "out").iterdir() if path.name != "x.wink"] == []
    assert child.stdout.read() == "", "it was killed on the way"
