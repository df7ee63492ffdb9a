"""Replay: recorded answers served at the edge, in the place of the network.

The parent (`vestige replay`) writes a script: one line for each recorded call, in order. The child's player
serves a request with the first unused line that has the same method, target and body. What was masked in
the recording is masked in the request before they are compared; headers are not compared. A model call that is
not in the script never reaches the network: it is answered with status 400 and words, and reported.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

import msgspec

from vestige.errors import UnreadableError
from vestige.wire.headers import masked_url
from vestige.wire.outgoing_request import OutgoingRequest

SCRIPT_VARIABLE = "VESTIGE_REPLAY"
"""The path of the script, in the environment of a child of `vestige replay`."""

REPORT_SUFFIX = ".report"

_FRAMING = frozenset({"content-length", "content-encoding", "transfer-encoding", "connection"})
"""Headers that speak about the wire's bytes; bodies are recorded without their codings."""


class Answer(msgspec.Struct, frozen=True):
    """A recorded answer."""

    status: int | None
    """None: none came."""
    headers: dict[str, str] = {}
    body: bytes = b""
    error: str | None = None
    """The name of the client's exception that ended it, if one did."""

    def chunks(self) -> list[bytes]:
        """A stream as a stream, event by event; anything else in one piece."""
        if "event-stream" not in self.headers.get("content-type", ""):
            return [self.body] if self.body else []
        parts = self.body.split(b"\n\n")
        chunks = [part + b"\n\n" for part in parts[:-1]]
        return [*chunks, parts[-1]] if parts[-1] else chunks

    def told_headers(self) -> list[tuple[str, str]]:
        """As they came, without what no longer holds."""
        kept = [(name, value) for name, value in self.headers.items() if name not in _FRAMING]
        return [*kept, ("content-length", str(len(self.body)))]


class Line(msgspec.Struct, frozen=True):
    """One call of the recording."""

    span_id: str
    method: str
    target: str
    """Path and query, masked."""
    sha256: str
    """Of the request's body, masked."""
    answer: Answer


class _Key(msgspec.Struct):
    """A line without its answer: what is kept in memory."""

    span_id: str
    method: str
    target: str
    sha256: str


class Entry(msgspec.Struct, frozen=True):
    """What a player reports."""

    span_id: str | None
    """The recorded call that was served, or that was expected."""
    differs: bool = False
    method: str = ""
    target: str = ""
    body: str = ""


def target_of(url: str) -> str:
    """Path and query of a URL, masked; the host may be another today."""
    rest = masked_url(url).partition("://")[2] or url
    slash = rest.find("/")
    return rest[slash:] if slash >= 0 else "/"


def digest(body: bytes) -> str:
    return sha256(body).hexdigest()


def write_script(path: str, lines: Iterable[Line]) -> int:
    """For the owner's eyes only; how many lines there are."""
    count = 0
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        for line in lines:
            file.write(msgspec.json.encode(line) + b"\n")
            count += 1
    return count


def read_report(path: str) -> list[Entry]:
    """What the players of all processes reported, in order."""
    try:
        with open(path + REPORT_SUFFIX, "rb") as file:
            return [msgspec.json.decode(line, type=Entry) for line in file if line.endswith(b"\n")]
    except FileNotFoundError:
        return []


class Player:
    """Serves the script, each line once."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._unused: list[tuple[_Key, int]] = []
        try:
            with open(path, "rb") as file:
                at = 0
                for line in file:
                    self._unused.append((msgspec.json.decode(line, type=_Key), at))
                    at += len(line)
        except (OSError, msgspec.DecodeError) as error:
            raise UnreadableError(f"{path}: no script of a replay ({error}).") from None

    def answer(self, ask: OutgoingRequest, redact: Callable[[str], str]) -> Answer:
        """The recorded answer; or words, where the request is not the recorded one."""
        body = _masked(ask.body or b"", redact)
        key = (ask.method, target_of(ask.url), digest(body))
        with self._lock:
            for place, (line, at) in enumerate(self._unused):
                if (line.method, line.target, line.sha256) == key:
                    del self._unused[place]
                    self._report(Entry(line.span_id))
                    return self._read(at)
            expected = self._expected(key[0], key[1])
        text = body.decode(errors="replace")
        self._report(Entry(expected, True, key[0], key[1], text))
        return _refusal(expected, key[1])

    def _expected(self, method: str, target: str) -> str | None:
        lines = [line for line, _ in self._unused]
        same = [line for line in lines if (line.method, line.target) == (method, target)]
        return next((line.span_id for line in [*same, *lines]), None)

    def _read(self, at: int) -> Answer:
        with open(self._path, "rb") as file:
            file.seek(at)
            return msgspec.json.decode(file.readline(), type=Line).answer

    def _report(self, entry: Entry) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        fd = os.open(self._path + REPORT_SUFFIX, flags, 0o600)
        try:
            os.write(fd, msgspec.json.encode(entry) + b"\n")
        finally:
            os.close(fd)


def _masked(body: bytes, redact: Callable[[str], str]) -> bytes:
    text = body.decode(errors="surrogateescape")
    return redact(text).encode(errors="surrogateescape")


def _refusal(expected: str | None, target: str) -> Answer:
    """Providers' SDKs do not repeat a 400."""
    if expected is None:
        said = f"vestige replay: {target}: the recording has no further call."
    else:
        said = f"vestige replay: {target}: this request is not the recorded one (span {expected})."
    words: Any = {"error": {"type": "replay", "message": said}}
    headers = {"content-type": "application/json", "x-should-retry": "false"}
    return Answer(400, headers, msgspec.json.encode(words))
