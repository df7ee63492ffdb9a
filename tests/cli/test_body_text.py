"""`body --text`, `--raw` and `-o`: messages as text, and the exact bytes."""

from __future__ import annotations

import json
from pathlib import Path

import vestige
from support import commands
from support.trajectories import assistant, reply, request, user
from vestige._runtime.clock import FakeClock
from vestige.collector.loop import catch_up
from vestige.home import Home
from vestige.recorder import Recorder

CALL = ("c1", "write", json.dumps({"code": "def f():\n    return 1"}))


def body(home: Home, *options: str) -> bytes:
    arguments = ["body", *options, "--home", str(home.root)]
    found = commands.vestige(*arguments)
    assert found.exit_code == 0, found.output
    return found.stdout_bytes


def test_messages_are_text_and_raw_bytes_are_exact(home: Home, tmp_path: Path) -> None:
    sent = request([user("line one\nline two"), assistant("ok", [CALL])])
    with (
        Recorder(home, last_words=False, clock=FakeClock()) as recorder,
        recorder.run("agent") as run,
    ):
        run.child("chat", "llm", body=sent).end(body=reply("Done."))
    catch_up(home)
    with vestige.open(home.root) as debugger:
        span = f"{debugger.resolve(None).run.short_id}.s2"

    text = body(home, span, "--in", "--text").decode()
    assert "| line one\n" in text and "| line two\n" in text
    assert "|   def f():\n|       return 1" in text.replace("  |", "|")
    assert body(home, span, "--in", "--raw") == sent.encode()

    file = tmp_path / "request.json"
    body(home, span, "--in", "-o", str(file))
    assert file.read_bytes() == sent.encode()
