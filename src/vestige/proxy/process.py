"""The process of the proxy: `python -m vestige.proxy.process FOLDER`, started by `vestige run`.

It is not a thread of `vestige run`, so that the command goes on if that is killed. The parent
writes `pid N` to its standard input when the command has started, and `end STATUS` when it has
ended. Tools that have no result end with this status. Without an `end`, the recording stops when
the command no longer exists.

Programs that the command has left behind still call their hosts through the proxy. It relays their
connections, unrecorded, as long as one of them lives.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import sys
import threading
from pathlib import Path

from vestige._runtime.clock import SYSTEM, sleep
from vestige._runtime.proxy_folder import VARIABLES
from vestige.home import get_home
from vestige.process_writer import PARENT_VARIABLE
from vestige.proxy.certificates import RunAuthority
from vestige.proxy.environment_variables import find_bases, find_hosts, make_variables
from vestige.proxy.intercepted_hosts import HostRules
from vestige.proxy.program_output import OutputReader, read_outputs
from vestige.proxy.recording_thread import RecordingThread
from vestige.proxy.server import ProxyServer
from vestige.proxy.upstream import Upstream
from vestige.recorder import Recorder
from vestige.settings import read_settings
from vestige.wire.capture import capture_http
from vestige.wire.outgoing_request import SpanContext
from vestige.wire.replaying.response_player import SCRIPT_VARIABLE, Player

_POLL_S = 0.5
_DRAIN_S = 1.0
"""Seconds for the rest of the output, after the command has ended."""
_USED_POLL_S = 2.0


def main() -> None:
    folder, outputs = Path(sys.argv[1]), sys.argv[2:]
    sys.argv[:] = ["vestige-proxy"]  # The name of its process span.
    parent = os.environ.get(PARENT_VARIABLE, "")  # The recorder replaces it.
    readers: list[OutputReader] = []
    sys.setswitchinterval(0.0005)  # Relaying never waits long for the recording thread.
    _raise_file_limit()
    home = get_home(None)
    try:
        with Recorder(home, crash_hooks=False, silence_s=0) as recorder:
            if recorder.enabled:
                capture_http(recorder=recorder)
                command = _find_command(recorder, parent)
                recording = RecordingThread()
                readers += read_outputs(outputs, command, recording)
                asyncio.run(_serve(recorder, folder, recording, readers))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _report_end()
        for reader in readers:
            reader.wait()


def _report_end() -> None:
    """Close the standard output: `vestige run` waits for it."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


async def _serve(
    recorder: Recorder, folder: Path, recording: RecordingThread, readers: list[OutputReader]
) -> None:
    env = dict(os.environ)
    hosts = [*read_settings(recorder.home).proxy_hosts, *find_hosts(env)]
    token = SYSTEM.writer_id()
    authority = RunAuthority()
    rules, bases = HostRules(hosts), find_bases(env)
    upstream = Upstream(env)
    script = env.get(SCRIPT_VARIABLE)
    if script:
        from vestige.proxy.replay import ReplayUpstream

        upstream = ReplayUpstream(env, rules, bases, Player(script), recorder._emitter)
    server = ProxyServer(recorder._emitter, authority, rules, upstream, token, bases, recording)
    listener = await server.start()
    variables = make_variables(env, folder, authority.pem, server.port, token)
    partial = folder / "partial.json"
    partial.write_text(json.dumps(variables))
    partial.rename(folder / VARIABLES)
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[str] = loop.create_future()

    def wait() -> None:
        status = _wait_for_end()
        loop.call_soon_threadsafe(ended.set_result, status)

    threading.Thread(target=wait, daemon=True).start()
    status = await ended
    for reader in readers:
        reader.end(_DRAIN_S)
    server.close(status)
    recorder.close()
    if not script:  # Nothing of a replay reaches the network.
        await _relay_for_others(token)
    listener.close()


async def _relay_for_others(token: str) -> None:
    """Relay connections until no program is left that was led to the proxy."""
    is_used = _is_used(token)
    if is_used:
        _report_end()  # `vestige run` ends now.
    while is_used:
        await asyncio.sleep(_USED_POLL_S)
        is_used = await asyncio.to_thread(_is_used, token)


def _is_used(token: str) -> bool:
    """Return whether a process was started with the proxy's address in its environment."""
    needle = token.encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if needle in path.read_bytes():
                return True
        except OSError:
            pass  # It has ended, or belongs to another user.
    return False


def _find_command(recorder: Recorder, parent: str) -> SpanContext:
    """Return the span of the command: what it prints belongs to it."""
    run_id, _, span_id = parent.partition("/")
    return SpanContext(recorder._emitter, run_id, span_id or None, "stdout")


def _wait_for_end() -> str:
    """Wait until the command has ended. Return the status of tools that have no result."""
    pid = 0
    for line in sys.stdin:
        word, _, value = line.strip().partition(" ")
        if word == "pid" and value.isdecimal():
            pid = int(value)
        elif word == "end":
            return value
    while pid and _is_alive(pid):  # `vestige run` was killed, and the command goes on.
        sleep(_POLL_S)
    return "interrupted"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _raise_file_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384), hard))
    except (OSError, ValueError):
        pass


if __name__ == "__main__":
    main()
