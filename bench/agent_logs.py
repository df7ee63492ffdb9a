"""Import generated sessions of coding agents: `python -m bench.agent_logs [MB] [SESSIONS]`.

Prints the bytes per CPU second, the peak memory, and the time until `list` answers. Texts are
plain words: redaction of source code takes longer.
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORDS = [
    "the",
    "of",
    "and",
    "file",
    "line",
    "test",
    "passed",
    "failed",
    "expected",
    "value",
    "returned",
    "module",
    "import",
    "function",
    "class",
    "result",
    "warning",
    "in",
    "is",
    "not",
    "found",
    "build",
    "step",
    "run",
    "time",
    "second",
    "node",
    "page",
    "list",
    "item",
    "request",
    "row",
]


def write_session(path: Path, size: int, seed: int) -> None:
    """Write a session of Claude Code of about `size` bytes."""
    pick = random.Random(seed)
    text = " ".join(pick.choices(WORDS, k=20_000))
    session = path.stem
    written = number = 0
    with open(path, "w") as file:
        while written < size:
            number += 1
            for line in _turn(session, number, text, pick):
                written += file.write(json.dumps(line) + "\n")


def _turn(session: str, number: int, text: str, pick: random.Random) -> list[dict[str, object]]:
    minute, second = divmod(number % 3600, 60)
    hour = number // 3600 % 24
    base = {"sessionId": session, "timestamp": f"2026-11-01T{hour:02}:{minute:02}:{second:02}Z"}
    begin = pick.randrange(len(text) // 2)
    result = text[begin : begin + 4_000]
    call = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": "ls"}}
    usage = {"input_tokens": 10, "output_tokens": 20, "cache_read_input_tokens": 1_000}
    answer = {"id": f"m{number}", "role": "assistant", "model": "claude-sonnet-4-5"}
    blocks = [{"type": "tool_result", "tool_use_id": f"t{number}", "content": result}]
    lines: list[dict[str, object]] = []
    if number % 10 == 1:
        prompt = {"role": "user", "content": f"Task {number}"}
        lines.append({**base, "type": "user", "uuid": f"p{number}", "message": prompt})
    message = {**answer, "content": [call], "usage": usage, "stop_reason": "tool_use"}
    lines.append({**base, "type": "assistant", "uuid": f"a{number}", "message": message})
    reply = {"role": "user", "content": blocks}
    beside = {"stdout": result, "stderr": ""}
    lines.append(
        {**base, "type": "user", "uuid": f"r{number}", "message": reply, "toolUseResult": beside}
    )
    return lines


def main() -> None:
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "projects" / "-bench"
        project.mkdir(parents=True)
        for number in range(count):
            name = f"00000000-0000-4000-8000-{number:012}.jsonl"
            write_session(project / name, megabytes * 1_000_000 // count, number)
        home = str(Path(folder) / "home")
        base = [sys.executable, "-m", "vestige"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*base, "import", folder, "--home", home], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        started = time.perf_counter()
        subprocess.run([*base, "list", "--home", home], check=True, stdout=subprocess.DEVNULL)
        print(
            f"{megabytes} MB in {count} sessions: {megabytes / cpu_s:.1f} MB per CPU second,"
            f" peak {after.ru_maxrss / 1000:.0f} MB, list {time.perf_counter() - started:.2f} s"
        )


if __name__ == "__main__":
    main()
