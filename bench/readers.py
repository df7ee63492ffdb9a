"""Many readers at once: wrk where it is installed, else a bounded asyncio client.

    read(port, key, paths, readers=200, seconds=60)

The paths take turns. Anything but a 200 is an error.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Load:
    """What readers saw."""

    requests: int
    errors: Mapping[str, int]
    """How many of each kind: `status 503`, `timeout`. Empty: none."""
    per_s: float
    p50_ms: float
    p99_ms: float


def read(port: int, key: str, paths: Sequence[str], readers: int, seconds: float) -> Load:
    if shutil.which("wrk"):
        return _by_wrk(port, key, paths, readers, seconds)
    return asyncio.run(_by_asyncio(port, key, paths, readers, seconds))


# --- wrk ------------------------------------------------------------------------------------

_SCRIPT = """
local paths = {{ {paths} }}
local n = 0
wrk.headers["Authorization"] = "Bearer {key}"
request = function()
  n = n + 1
  return wrk.format("GET", paths[n % #paths + 1])
end
response = function(status, headers, body)
  if status ~= 200 then io.write(string.format("ERROR status %d\\n", status)) end
end
done = function(summary, latency, requests)
  for _, kind in ipairs({{"connect", "read", "write", "timeout"}}) do
    for _ = 1, summary.errors[kind] do io.write(string.format("ERROR %s\\n", kind)) end
  end
  io.write(string.format("FIGURES %d %d %d %d\\n", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99)))
end
"""


def _by_wrk(port: int, key: str, paths: Sequence[str], readers: int, seconds: float) -> Load:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "readers.lua"
        listed = ", ".join(f'"{path}"' for path in paths)
        script.write_text(_SCRIPT.format(paths=listed, key=key))
        done = subprocess.run(
            [
                "wrk",
                "-t1",
                f"-c{readers}",
                f"-d{seconds:.0f}s",
                "--timeout",
                "30s",
                "-s",
                script,
                f"http://127.0.0.1:{port}",
            ],
            capture_output=True,
            text=True,
            check=True,
        )
    found = re.search(r"FIGURES (\d+) (\d+) (\d+) (\d+)", done.stdout)
    if found is None:
        raise RuntimeError(f"wrk said nothing of use: {done.stdout}{done.stderr}")
    requests, took_us, p50_us, p99_us = map(int, found.groups())
    errors = Counter(re.findall(r"^ERROR (.+)$", done.stdout, re.MULTILINE))
    return Load(requests, errors, requests / took_us * 1e6, p50_us / 1e3, p99_us / 1e3)


# --- asyncio ----------------------------------------------------------------------------------


async def _by_asyncio(
    port: int, key: str, paths: Sequence[str], readers: int, seconds: float
) -> Load:
    took: list[float] = []
    errors: Counter[str] = Counter()
    begun = time.monotonic()

    async def one(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            while time.monotonic() - begun < seconds:
                number += 1
                at = time.monotonic()
                status = await _get(reader, writer, paths[number % len(paths)], key)
                took.append(time.monotonic() - at)
                errors.update([f"status {status}"] if status != 200 else [])
        except (OSError, EOFError, ValueError) as error:
            errors[type(error).__name__] += 1
        finally:
            writer.close()

    await asyncio.gather(*(one(number) for number in range(readers)))
    took.sort()
    wall_s = time.monotonic() - begun
    p50, p99 = (took[int(len(took) * share)] * 1e3 if took else 0.0 for share in (0.5, 0.99))
    return Load(len(took), errors, len(took) / wall_s, p50, p99)


async def _get(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, key: str
) -> int:
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n\r\n"
    writer.write(head.encode())
    header = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    length = re.search(r"(?i)content-length: (\d+)", header)
    if length is None:
        raise ValueError(header)
    await reader.readexactly(int(length[1]))
    return int(header.split(" ", 2)[1])
