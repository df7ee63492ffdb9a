"""`vestige mcp` with version 1 of the package `mcp`, and without the package."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.programs import WAIT_S, free_port
from vestige.home import Home
from vestige.recorder import Recorder

CLIENT = """
import json, os, signal, subprocess, sys
import anyio
from importlib.metadata import version
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

async def ask(streams):
    async with ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        tools = (await session.list_tools()).tools
        good = await session.call_tool("list", {})
        bad = await session.call_tool("list", {"since": 7})
        prompt = (await session.get_prompt("debug", {"id": "r1"})).messages[0].content.text
        try:
            await session.get_prompt("nope")
            refused = ""
        except Exception as error:
            refused = str(error)
        return {
            "read_only": all(tool.annotations.readOnlyHint for tool in tools),
            "tools": sorted(tool.name for tool in tools),
            "good": [good.isError, good.content[0].text],
            "bad": [bad.isError, bad.content[0].text],
            "prompt": prompt,
            "refused": refused,
        }

async def main():
    home, port = sys.argv[1:]
    command = [sys.executable, "-m", "vestige", "mcp", "--home", home]
    server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    async with stdio_client(server) as streams:
        stdio = await ask(streams)
    serving = subprocess.Popen([*command, "--http", f"127.0.0.1:{port}"], stderr=subprocess.PIPE)
    try:
        serving.stderr.readline()
        async with streamablehttp_client(f"http://127.0.0.1:{port}/mcp") as streams:
            http = await ask(streams)
    finally:
        serving.send_signal(signal.SIGINT)
        serving.wait()
    print(json.dumps([version("mcp"), stdio, http]))

anyio.run(main)
"""


@pytest.fixture(scope="module")
def version_one() -> Path:
    """A folder with `mcp` 1.x and what it needs, under build/, made once."""
    folder = Path(__file__).parents[2] / "build" / "mcp-1"
    folder.parent.mkdir(exist_ok=True)
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several workers may want it at once
        if not (folder / "made").exists():
            install = [sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--upgrade"]
            done = subprocess.run([*install, "--target", str(folder), "mcp<2"], capture_output=True)
            if done.returncode:
                pytest.skip(f"mcp 1.x cannot be installed here: {done.stderr[-200:]!r}")
            (folder / "made").touch()
    return folder


@pytest.mark.full  # installs mcp 1.x
def test_version_one_serves_the_same_tools_and_prompts(version_one: Path, home: Home) -> None:
    from vestige.mcp.tools import LISTED

    with Recorder(home) as recorder:
        recorder.run("triage").end()
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, str(home.root), str(free_port())],
        env={**os.environ, "PYTHONPATH": str(version_one)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )

    assert done.returncode == 0, done.stderr
    version, stdio, http = json.loads(done.stdout)
    assert version.startswith("1.")
    assert {**stdio, "good": ""} == {**http, "good": ""}  # it includes the age of a run
    assert http["good"][0] is False
    assert stdio["tools"] == sorted(tool.name for tool in LISTED)
    assert stdio["read_only"]
    assert not stdio["good"][0]
    assert "triage" in stdio["good"][1]
    assert stdio["bad"][0]
    assert "since" in stdio["bad"][1]
    assert stdio["prompt"].rstrip().endswith("Debug: r1")
    assert "unknown prompt" in stdio["refused"]


@pytest.mark.parametrize("how", [[], ["--http", "127.0.0.1:0"]])
def test_without_the_package_the_command_says_what_to_install(
    home: Home, tmp_path: Path, how: list[str]
) -> None:
    (tmp_path / "mcp.py").write_text("raise ModuleNotFoundError(\"No module named 'mcp'\")")
    done = subprocess.run(
        [sys.executable, "-m", "vestige", "mcp", "--home", str(home.root), *how],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        stdin=subprocess.DEVNULL,
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'vestige[mcp]'" in done.stderr
    assert "Traceback" not in done.stderr
