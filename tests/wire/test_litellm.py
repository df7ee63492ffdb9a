"""litellm, in an environment of its own: it is large, and pins what others need otherwise.

Made once under build/, which is not part of the repository. On a fresh machine that takes a
minute or two.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.programs import run_in
from support.provider_answers import chat, chat_stream, claude
from support.provider_calls import calls_in
from support.provider_server import Reply, Seen, Server
from vestige.home import Home

PLACE = Path(__file__).parents[2] / "build" / "litellm"

INSTALL_S = 240
"""A mirror that hangs must not take the whole suite's time."""

PROGRAM = """
import asyncio, sys
import vestige
vestige.capture_http()
import litellm
litellm.suppress_debug_info = True
url = sys.argv[1]
hello = [{"role": "user", "content": "Grüße"}]
openai_key, claude_key = "sk-test-47114711471147", "sk-ant-47114711471147"
openai = dict(model="openai/m", api_base=url + "/v1", api_key=openai_key, messages=hello)
claude = dict(model="anthropic/claude-x", api_base=url, api_key=claude_key, messages=hello)

with vestige.default_recorder().run("sync"):
    print(litellm.completion(**openai).choices[0].message.content)
    parts = litellm.completion(stream=True, **openai)
    print("".join(part.choices[0].delta.content or "" for part in parts))
    print(litellm.completion(**claude).choices[0].message.content)

async def main():
    print((await litellm.acompletion(**openai)).choices[0].message.content)
    print((await litellm.acompletion(**claude)).choices[0].message.content)

with vestige.default_recorder().run("async"):
    asyncio.run(main())
print(vestige.default_recorder().faults)
"""


def environment() -> str:
    """Where litellm is; made now if it is not."""
    made = PLACE / ".made"
    if not made.exists():
        # What is never imported is never compiled, and that is most of it.
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-compile"]
        command = [*pip, "--target", str(PLACE), "litellm"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S)
        except subprocess.TimeoutExpired:
            pytest.skip(f"litellm could not be installed within {INSTALL_S} s")
        if done.returncode:
            pytest.skip(f"litellm could not be installed: {done.stderr.strip()[-200:]}")
        made.touch()
    return str(PLACE)


def provider(seen: Seen) -> Reply:
    if seen.path.endswith("/messages"):
        return claude()
    return chat_stream(["Hel", "lo"]) if b'"stream":true' in seen.body else chat()


@pytest.mark.full  # installs litellm
def test_calls_of_litellm_are_captured_byte_for_byte(home: Home) -> None:
    """It speaks through three clients (the OpenAI SDK, httpx, aiohttp): each call once."""
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), environment()])
    env = {"PYTHONPATH": path, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    with Server(provider) as server:
        done = run_in(home, PROGRAM, server.url, env=env, timeout_s=120)
    calls = calls_in(home)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "Hello there",
        "Hello",
        "Hello there",
        "Hello there",
        "Hello there",
        "{}",
    ]
    assert [call.request for call in calls] == [seen.body for seen in server.seen]
    assert [call.response for call in calls] == [seen.sent for seen in server.seen]
    assert [call["provider"] for call in calls] == [
        "openai",
        "openai",
        "anthropic",
        "openai",
        "anthropic",
    ]
