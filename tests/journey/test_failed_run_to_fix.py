"""The guide docs/guides/fix.md, run as it is written: every file, command and line of output."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from support.programs import WAIT_S
from support.provider_server import Reply, Seen, Server
from support.refund_provider import answer
from vestige.home import Home

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "fix.md"
BLOCK = re.compile(r"(?ms)^```(\w+)([^\n]*)\n(.*?)^```$")
STATUSES = (1, 0, 0, 0, 0, 0, 1, 143)
"""Exit status of each command of the guide, in order."""


@pytest.mark.full
def test_the_guide_from_a_failed_run_to_a_fix_holds(home: Home, tmp_path: Path) -> None:
    statuses = iter(STATUSES)
    is_slow = False
    never = threading.Event()

    def reply(seen: Seen) -> Reply:
        """Answer; in the last step not after the refund, so the program is still there to stop."""
        if is_slow and len(json.loads(seen.body)["messages"]) == 6:
            return Reply(gate=never)
        return answer(seen)

    with Server(reply) as server:
        environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "VESTIGE_HOME": str(home.root),
            "OPENAI_BASE_URL": f"{server.url}/v1",
            "OPENAI_API_KEY": "CANARYkey4711",
        }
        for language, info, text in BLOCK.findall(GUIDE.read_text(encoding="utf-8")):
            name = info.replace("no-run", "").strip()
            if name:
                (tmp_path / name).write_text(text, encoding="utf-8")
            elif language == "sh":
                subprocess.run(text, shell=True, check=True, cwd=tmp_path)
            elif language == "console":
                before = len(server.seen)
                is_slow = "vestige run --policy" in text
                _check_block(text, environment, tmp_path, statuses)
                if "--trials 2" in text and "replay" in text:
                    sent = [json.loads(seen.body) for seen in server.seen[before:]]
                    assert [len(each["messages"]) for each in sent] == [4, 6] * 4

        never.set()

    assert list(statuses) == []


def _check_block(text: str, environment: dict[str, str], folder: Path, statuses: object) -> None:
    """Run the commands of a block. Its other lines must be printed, in this order.

    `...` is any text, alone on a line any lines.
    """
    for part in text.split("$ ")[1:]:
        command, *expected = part.rstrip("\n").split("\n")
        done = subprocess.run(
            command,
            shell=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WAIT_S * 3,
            cwd=folder,
            env=environment,
        )
        printed = done.stdout.splitlines()
        for line in expected:
            pattern = ".*".join(map(re.escape, line.split("...")))
            while line != "..." and printed and not re.fullmatch(pattern, printed[0]):
                printed.pop(0)
            assert printed or line == "...", f"{command}\n{line}\nnot in\n{done.stdout}"
        assert done.returncode == next(statuses), done.stdout  # type: ignore[call-overload]
