"""Kills by the kernel's OOM killer are recognized, and the peak memory is that of the command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.programs import ReadRuns
from vestige.collector.oom_kills import count_oom_kills, find_counters
from vestige.home import Home

MEMORY = Path("/sys/fs/cgroup/memory")
MB = 1 << 20


def make_tree(root: Path, cgroup: str, files: dict[str, str]) -> None:
    for name, text in {"proc/7/cgroup": cgroup, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


EVENTS = "low 0\nhigh 2\nmax 14\noom 3\noom_kill {}\noom_group_kill 0\n"


@pytest.mark.parametrize(
    ("cgroup", "files", "count"),
    [
        ("0::/user.slice/app\n", {"sys/fs/cgroup/user.slice/app/memory.events": EVENTS}, 5),
        ("0::/\n", {"sys/fs/cgroup/memory.events": EVENTS}, 5),  # a container
        (
            "4:cpu,memory:/job\n0::/\n",  # both versions are mounted, and version 1 has memory
            {"sys/fs/cgroup/memory/job/memory.oom_control": "under_oom 0\noom_kill {}\n"},
            5,
        ),
        ("0::/gone\n", {"proc/vmstat": "nr_free_pages 1\noom_kill {}\n"}, 5),
        ("0::/gone\n", {}, None),
        ("", {"proc/vmstat": "oom_kill\noom_kill x\n"}, None),
    ],
)
def test_the_counter_of_either_version_is_read(
    tmp_path: Path, cgroup: str, files: dict[str, str], count: int | None
) -> None:
    """`oom` and `oom_group_kill` count something else."""
    make_tree(tmp_path, cgroup, {name: text.format(5) for name, text in files.items()})
    assert count_oom_kills(find_counters(7, str(tmp_path))) == count


@pytest.fixture
def group() -> Iterator[Path]:
    """A real control group with 128 MB."""
    path = MEMORY / f"vestige-test-{os.getpid()}"
    try:
        path.mkdir()
        (path / "memory.limit_in_bytes").write_text(str(128 * MB))
    except OSError:
        pytest.skip("no control group can be made here")
    yield path
    path.rmdir()


def test_an_oom_kill_is_named_with_the_peak_memory(
    home: Home, group: Path, read_runs: ReadRuns
) -> None:
    eat = "eaten = []\nwhile True: eaten.append(bytearray(8 << 20))"
    command = [sys.executable, "-m", "vestige", "run", "--", sys.executable, "-c", eat]
    enter = f"import os, sys; open('{group}/cgroup.procs', 'w').write(str(os.getpid()))\n"
    program = enter + "os.execv(sys.argv[1], sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", program, *command], timeout=120)
    (run,) = [run for run in read_runs() if "command" in run.spans[0].attributes]
    root = run.spans[0]

    assert done.returncode == 128 + signal.SIGKILL
    assert root.attributes["signal"] == "SIGKILL"
    assert root.attributes["oom_kills"] >= 1
    assert 30 * MB < root.attributes["max_rss_bytes"] <= 128 * MB


SUPERVISE = """
import os, subprocess, sys
from pathlib import Path
from vestige.collector.run_supervisor import run_command
from vestige.home import Home
big = [sys.executable, "-c", "b = bytearray(300 << 20); b[::4096] = b'x' * len(b[::4096])"]
subprocess.run(big, check=True)
run_command(Home(Path(sys.argv[1])), [sys.executable, "-c", "pass"], os.environ)
"""


def test_the_peak_memory_is_not_that_of_another_child(home: Home, read_runs: ReadRuns) -> None:
    subprocess.run([sys.executable, "-c", SUPERVISE, str(home.root)], check=True, timeout=120)
    (run,) = [run for run in read_runs() if "command" in run.spans[0].attributes]

    assert 4 * MB < run.spans[0].attributes["max_rss_bytes"] < 200 * MB
