"""`vestige export` without `-o`: a file named after the run, in the current folder."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from support.commands import vestige
from vestige.home import Home
from vestige.recorder import Recorder


def test_a_format_of_one_file_is_named_after_the_run(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Recorder(home) as recorder, recorder.run("triage") as run:
        run.log.info("started")
    monkeypatch.chdir(tmp_path)

    done = vestige("export", run.run_id, "--format", "wink")

    (made,) = tmp_path.glob("*.wink")
    assert (done.exit_code, done.stdout) == (0, f"{made.name}\n")
    assert zipfile.is_zipfile(made)


def test_a_format_of_a_folder_needs_a_path(home: Home) -> None:
    with Recorder(home) as recorder, recorder.run("triage") as run:
        run.log.info("started")

    done = vestige("export", run.run_id, "--format", "agentdbg")

    assert done.exit_code == 2
    assert "--format agentdbg: -o PATH is required." in done.stderr
