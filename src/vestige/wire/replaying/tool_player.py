"""Recorded results of tools: `vestige replay --tools recorded`.

The parent writes one line for each recorded tool call. A call is answered by an unused line with
the same name and arguments, compared as requests of models are: that with the same call id, or else
the first. A tool that still ran at the step of `--until`, and every tool after that step, runs. Any
other call raises: running a tool that was not recorded could have effects.
"""

from __future__ import annotations

import builtins
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from vestige._runtime.file_locks import locked
from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.emit.replayed_tools import NotedCall, ReplayedResult
from vestige.errors import UnreadableError
from vestige.record.inline_or_chunked_body import LongBody, body_form
from vestige.wire.replaying.matching_rules import Rule, normalize
from vestige.wire.replaying.response_player import LOCK_SUFFIX, Player, digest

TOOLS_SUFFIX = ".tools"
USED_SUFFIX = ".tools-used"

_BEGAN, _NAMED, _ANSWERED, _UNKNOWN = "+", "=", "!", "?"
"""Kinds of reports: the name of a call that began, the name and the span id of one that was
answered, the name of an unknown one."""


class ToolLine(msgspec.Struct, frozen=True):
    """A recorded tool call."""

    span_id: str
    name: str
    sha256: str
    """Hash of the redacted arguments. Empty: they were not recorded."""
    output: str | None = None
    is_text: bool | None = None
    """True if the output is a text, not JSON. None: unknown."""
    error_type: str | None = None
    error_message: str = ""
    runs: bool = False
    """True if the tool runs: it was running when the run is forked, or has no recorded result."""
    call_id: str | None = None
    text: str | None = None
    """The text that the model was given as the result. None: unknown."""


class ToolUse(NamedTuple):
    """Tool calls of all processes before the step of `--until`."""

    answered: tuple[str, ...]
    """Span ids of the recorded calls that were used."""
    unknown: tuple[str, ...]
    """Names of calls that the recording does not have."""
    ran: tuple[str, ...]
    """Names of the other calls: their tools ran."""


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


def read_use(path: str) -> ToolUse:
    """Return the tool calls that the players of all processes have reported."""
    lines = _read_reports(path)
    answered = [text for kind, text in lines if kind == _ANSWERED]
    unknown = [text for kind, text in lines if kind == _UNKNOWN]
    settled = Counter(text for kind, text in lines if kind in (_NAMED, _UNKNOWN))
    ran = Counter(text for kind, text in lines if kind == _BEGAN) - settled
    return ToolUse(tuple(answered), tuple(unknown), tuple(ran.elements()))


def _read_reports(path: str) -> list[tuple[str, str]]:
    try:
        lines = Path(path + USED_SUFFIX).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [(line[:1], line[2:]) for line in lines]


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

    def note(self, call: NotedCall) -> None:
        """Report a call that begins before the step of the fork."""
        if not self._player.is_live():
            self._report(_BEGAN, call.name)

    def find(
        self, call: NotedCall, function: Any, redact: Callable[[str], str]
    ) -> ReplayedResult | None:
        """Return the recorded result. None: the tool runs. Raise if the call is unknown."""
        if self._player.is_live():
            return None
        key = None
        if call.arguments is not None:
            key = match_arguments(redact(_render(call.arguments)).encode(), self._player.rules)
        with self._lock, locked(Path(self._path + LOCK_SUFFIX)):
            used = {text for kind, text in _read_reports(self._path) if kind == _ANSWERED}
            unused = [line for line in self._lines if line.span_id not in used]
            found = _find_line(call, key, unused)
            if found is None:
                self._report(_UNKNOWN, call.name)
            else:
                self._report(_ANSWERED, found.span_id)
                if not found.runs:
                    self._report(_NAMED, call.name)
        if found is None:
            raise UnknownToolCallError(
                f"vestige replay: the recording has no call of {call.name} with these arguments."
            )
        if found.runs:
            return None
        if found.error_type is not None:
            return ReplayedResult(error=_make_error(found, function), text=found.text)
        return ReplayedResult(_decode(found, function), text=found.text)

    def _report(self, kind: str, text: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        fd = os.open(self._path + USED_SUFFIX, flags, 0o600)
        try:
            line = f"{kind} {' '.join(text.split())}\n"
            os.write(fd, line.encode(errors="replace"))
        finally:
            os.close(fd)


def _find_line(call: NotedCall, key: str | None, unused: list[ToolLine]) -> ToolLine | None:
    """Return the line of a call: that with its id, or else the first with its arguments.

    `key` is None if the arguments are not known before the tool runs.
    """
    same = [line for line in unused if line.name == call.name]
    if key is not None:
        same = [line for line in same if line.sha256 in (key, "")]
    ids = (line for line in same if call.call_id is not None and line.call_id == call.call_id)
    return next(ids, next(iter(same), None))


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


def _make_error(line: ToolLine, function: Any) -> Exception:
    """Return the recorded exception: of its class if that is known, else of a new one."""
    module, _, name = (line.error_type or "").rpartition(".")
    known = getattr(function, "__globals__", {}).get(name) or getattr(builtins, name, None)
    known = known or getattr(sys.modules.get(module), name, None)
    if isinstance(known, type) and issubclass(known, Exception):
        try:
            return known(line.error_message)
        except Exception:  # noqa: BLE001  # the program's code
            pass  # Its constructor takes other arguments.
    error_class: type[Exception] = type(name or "RuntimeError", (RuntimeError,), {})
    return error_class(line.error_message)
