"""Facts known when a suite starts, stored in its folder for the process that finishes it.

The live files are the spool. `meta.json`, `repro.json`, `repro.env` and the environment are
written first, with the end left open, so that `recover` needs nothing but the folder.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from vestige.artifacts.replay_command import Replay, read_environment, render_command
from vestige.artifacts.text_sanitizer import single_line
from vestige.errors import UnreadableError
from vestige.formats.artifacts import file_structs
from vestige.formats.artifacts.write import NO_GIT, SuiteFacts
from vestige.formats.times_and_outcomes import parse_time_ns, render_time

ENVIRONMENT = "diagnostics/env_redacted.txt"
META = "meta.json"
REPRO = "repro.json"


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """A suite as it starts. Texts are clean."""

    suite: str
    timestamp: str
    started_ns: int
    replay: Replay
    git: file_structs.Git = NO_GIT
    seed: int = 0
    clock_mode: str = "wall"
    runner: dict[str, Any]
    paths: dict[str, Any]
    environment: dict[str, str]
    replay_environment: dict[str, str]


def describe_runner() -> dict[str, Any]:
    """Return a description of the machine, for meta.json."""
    system = os.uname()
    return {
        "user": os.environ.get("USER") or os.environ.get("LOGNAME") or str(os.getuid()),
        "hostname": system.nodename,
        "os": system.sysname,
        "arch": system.machine,
        "python": f"Python {sys.version.split()[0]}",
    }


def write_start(folder: Path, start: Start) -> None:
    """Write the files of a suite that has not ended."""
    for place in ("trace", "diagnostics", "transcript", "logs", "screenshots", "scenarios"):
        (folder / place).mkdir(parents=True, exist_ok=True)
    name = (1, start.suite, start.timestamp)
    begun = render_time(start.started_ns)
    determinism = {"clock_mode": start.clock_mode, "seed": start.seed}
    meta = file_structs.MetaFile(
        *name, begun, begun, start.git, start.runner, start.paths, determinism
    )
    _write(folder / META, msgspec.json.encode(meta))
    command = render_command(start.replay, start.replay_environment, ())
    repro = file_structs.Repro(
        *name, start.clock_mode, start.seed, begun, start.started_ns // 10**9, command
    )
    values = {**msgspec.to_builtins(repro), **replay_keys(start.replay)}
    _write(folder / REPRO, msgspec.json.encode(values))
    lines = [f"{key}={shlex.quote(value)}\n" for key, value in start.replay_environment.items()]
    _write(folder / "repro.env", "".join(lines).encode(errors="backslashreplace"))
    environment = "".join(
        f"  {single_line(key)}={single_line(value)}\n" for key, value in start.environment.items()
    )
    _write(folder / ENVIRONMENT, f"Environment (redacted):\n{environment}".encode())


def replay_keys(replay: Replay) -> dict[str, Any]:
    """Return the keys of `repro.json` beyond the contract."""
    return {"vestige": msgspec.to_builtins(replay)}


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data + (b"" if data.endswith(b"\n") or not data else b"\n"))


class StartFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `read_start`: facts of a suite, and the command that starts it again."""

    facts: dict[str, Any]
    command: str
    """The recorded command; empty if none was recorded."""
    replay: Replay | None
    replay_environment: Mapping[str, str]

    def to_facts(self, command: str, ended_ns: int, **more: Any) -> SuiteFacts:
        facts = {**self.facts, "command": command, "ended_ns": ended_ns, "generated_ns": ended_ns}
        return SuiteFacts(**facts, replay_environment=self.replay_environment, **more)


class _Meta(msgspec.Struct):
    """Lenient: a killed suite may have left any part of it."""

    started_at: str = ""
    git: file_structs.Git = NO_GIT
    runner: dict[str, Any] = msgspec.field(default_factory=dict)
    paths: dict[str, Any] = msgspec.field(default_factory=dict)
    determinism: dict[str, Any] = msgspec.field(default_factory=dict)


class _Repro(msgspec.Struct):
    command: str = ""
    vestige: Replay | None = None


def read_start(folder: Path, suite: str, timestamp: str, started_ns: int) -> StartFacts:
    """Read the facts from the files of a folder, as far as they are there."""
    meta = _decode(folder / META, _Meta) or _Meta()
    repro = _decode(folder / REPRO, _Repro) or _Repro()
    seed = meta.determinism.get("seed", 0)
    return StartFacts(
        facts={
            "suite": suite,
            "timestamp": timestamp,
            "started_ns": parse_time_ns(meta.started_at) or started_ns,
            "git": meta.git,
            "seed": seed if type(seed) is int else 0,
            "clock_mode": str(meta.determinism.get("clock_mode", "wall")),
            "runner": meta.runner,
            "paths": meta.paths,
            "environment": _read_variables(folder / ENVIRONMENT),
        },
        command=repro.command,
        replay=repro.vestige,
        replay_environment=read_environment(folder),
    )


def _decode(path: Path, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read ({error.strerror}).") from None


def _read_variables(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[1:]
    except OSError:
        return {}
    pairs = (line.removeprefix("  ").partition("=") for line in lines)
    return {name: value for name, equals, value in pairs if equals}
