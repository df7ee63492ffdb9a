"""Count the OOM kills in the control group of a process (Linux).

    counters = find_counters(pid)           # while it lives
    before = count_oom_kills(counters)

The counters of a control group are in memory.events (version 2) or memory.oom_control (version 1).
The count of the whole machine is in /proc/vmstat.
"""

from __future__ import annotations

_FILE_MAX = 64 * 1024


def find_counters(pid: int, root: str = "") -> list[str]:
    """Return the files that count OOM kills around a process, the nearest first.

    `root` is the folder of `proc` and `sys`, which differs in tests.
    """
    found = []
    for line in _read(f"{root}/proc/{pid}/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        path = path.rstrip("/")
        if number == "0":
            found.append(f"{root}/sys/fs/cgroup{path}/memory.events")
        elif "memory" in controllers.split(",") and path:
            found.append(f"{root}/sys/fs/cgroup/memory{path}/memory.oom_control")
    return [*found, f"{root}/proc/vmstat"]


def count_oom_kills(counters: list[str]) -> int | None:
    """Return the count of the first file that has one, or None."""
    for path in counters:
        for line in _read(path).splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill" and value.isdecimal():
                return int(value)
    return None


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_FILE_MAX)
    except OSError:
        return ""
