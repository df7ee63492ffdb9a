"""Recorded results of tools: `vestige replay --tools recorded`.

The parent writes one line for each recorded tool call. A call is answered by the first unused line
with the same name and arguments, compared as requests of models are. A tool that still ran at the
step of `--until`, and every tool after that step, runs. Any other call raises: running a tool that
was not recorded could have effects.
"""

from __future__ import annotations

import builtins
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from vestige._runtime.file_locks import locked
from vestige._runtime.structs import msgspec
from vestige.emit.replayed_tools import ReplayedResult
from vestige.errors import UnreadableError
from vestige.record.body_encoding import LongBody, body_form
from vestige.wire.replaying.player import LOCK_SUFFIX, Player, digest
from vestige.wire.replaying.rules import Rule, normalize

TOOLS_SUFFIX = ".tools"
USED_SUFFIX = ".tools-used"


class ToolLine(msgspec.Struct, frozen=True):
    """A recorded tool call."""

    span_id: str
    name: str
    sha256: str
    """Hash of the redacted arguments."""
    output: str | None = None
    is_text: bool | None = None
    """Whether the output is a text, not JSON. None: unknown."""
    error_type: str | None = None
    error_message: str = ""
    runs: bool = False
    """Whether the tool runs: it was running when the run is forked."""


class UnknownToolCallError(RuntimeError):
    """A tool was called that the recording does not have."""


def match_arguments(body: bytes, rules: list[Rule]) -> str:
    """Return the hash of arguments, without the values that `--ignore` names."""
    return digest(normalize(body, rules))


def write_tools(path: str, lines: Iterable[ToolLine]) -> None:
    """Write the recorded tool calls beside a script."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with os.fdopen(os.open(path + TOOLS_SUFFIX, flags, 0o600), "wb") as file:
        for line in lines:
            file.write(msgspec.json.encode(line) + b"\n")


def read_used(path: str) -> list[str]:
    """Return the used lines of all processes: span ids, or `? NAME` for an unknown call."""
    try:
        return Path(path + USED_SUFFIX).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []


class ToolPlayer:
    """Answers tool calls from their recording, using each line once."""

    def __init__(self, path: str, player: Player) -> None:
        self._path, self._player = path, player
        self._lock = threading.Lock()
        try:
            with open(path + TOOLS_SUFFIX, "rb") as file:
                self._lines = [msgspec.json.decode(line, type=ToolLine) for line in file]
        except (OSError, msgspec.DecodeError) as error:
            raise UnreadableError(f"{path}: not a replay script ({error}).") from None

    @staticmethod
    def exists(path: str) -> bool:
        return os.path.exists(path + TOOLS_SUFFIX)

    def find(
        self,
        name: str,
        arguments: Any,
        function: Callable[..., Any],
        redact: Callable[[str], str],
    ) -> ReplayedResult | None:
        """Return the recorded result. None: the tool runs. Raise if the call is unknown."""
        if self._player.is_live():
            return None
        key = match_arguments(redact(_render(arguments)).encode(), self._player.rules)
        with self._lock, locked(Path(self._path + LOCK_SUFFIX)):
            used = set(read_used(self._path))
            unused = (line for line in self._lines if line.span_id not in used)
            found = next((each for each in unused if (each.name, each.sha256) == (name, key)), None)
            self._report(f"? {' '.join(name.split())}" if found is None else found.span_id)
        if found is None:
            raise UnknownToolCallError(
                f"vestige replay: the recording has no call of {name} with these arguments."
            )
        if found.runs:
            return None
        if found.error_type is not None:
            return ReplayedResult(error=_make_error(found, function))
        return ReplayedResult(_decode(found, function))

    def _report(self, text: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        fd = os.open(self._path + USED_SUFFIX, flags, 0o600)
        try:
            os.write(fd, text.encode(errors="replace") + b"\n")
        finally:
            os.close(fd)


def _render(arguments: Any) -> str:
    body = body_form(arguments)
    if isinstance(body, LongBody):
        return "".join(body.texts)
    return body.decode(errors="replace") if isinstance(body, bytes) else body


def _decode(line: ToolLine, function: Callable[..., Any]) -> Any:
    """Return the value that the tool returned: a text, or decoded JSON."""
    returns = getattr(function, "__annotations__", {}).get("return")
    is_text = line.is_text if line.is_text is not None else returns in (str, "str")
    if line.output is None or is_text:
        return line.output
    try:
        return msgspec.json.decode(line.output.encode())
    except (msgspec.DecodeError, ValueError, RecursionError):
        return line.output


def _make_error(line: ToolLine, function: Callable[..., Any]) -> Exception:
    """Return the recorded exception: of its class if that is known, else a RuntimeError."""
    name = (line.error_type or "").rpartition(".")[2]
    known = getattr(function, "__globals__", {}).get(name) or getattr(builtins, name, None)
    if isinstance(known, type) and issubclass(known, Exception):
        try:
            return known(line.error_message)
        except TypeError:
            pass  # Its constructor takes other arguments.
    return RuntimeError(f"{name}: {line.error_message}")
