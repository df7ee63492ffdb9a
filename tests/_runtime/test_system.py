"""Folders where the system refuses one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.programs import RunProgram
from vestige._runtime.syscalls import make_folder

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """/proc answers that there is no folder above, although there is."""
    make_folder(str(tmp_path / "a" / "b" / "c"), 0o700)
    with pytest.raises(FileNotFoundError):
        make_folder("/proc/nope/runs")

    assert (tmp_path / "a" / "b" / "c").is_dir()


@pytest.mark.parametrize("variable", ["AGENTDBG_DATA_DIR", "VESTIGE_HOME"])
def test_a_data_directory_that_cannot_be_written_does_not_stop_the_program(
    run_program: RunProgram, variable: str
) -> None:
    done = run_program(
        f"""
        import os
        os.environ[{variable!r}] = "/proc/nope"
        from vestige import agentdbg

        @agentdbg.trace
        def agent():
            agentdbg.record_tool_call("search", args={{}}, result="x")
            return "answer"

        print(agent())
        """
    )

    assert (done.returncode, done.stdout) == (0, "answer\n"), done.stderr
    assert "/proc/nope" in done.stderr
    assert "No such file or directory" in done.stderr
    assert "RecursionError" not in done.stderr
