"""Replay: recorded answers instead of the network.

The parent (`vestige replay`) writes a script with one line per recorded call, in order. The child's
player answers a request with the first unused line that has the same method, target and body. The
request is redacted as the recording was before they are compared; headers are not compared. A model
call that is not in the script never reaches the network: it is answered with 400, and reported.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from hashlib import sha256

import msgspec

from vestige.errors import UnreadableError
from vestige.wire.headers import masked_url
from vestige.wire.outgoing_request import OutgoingRequest

SCRIPT_VARIABLE = "VESTIGE_REPLAY"
"""The path of the script, in the environment of a child of `vestige replay`."""

REPORT_SUFFIX = ".report"

_FRAMING = frozenset({"content-length", "content-encoding", "transfer-encoding", "connection"})
"""Headers that describe the bytes on the wire. Bodies are recorded decoded."""


class Answer(msgspec.Struct, frozen=True):
    """A recorded answer."""

    status: int | None
    """The status code. None: there was no response."""
    headers: dict[str, str] = {}
    body: bytes = b""
    error: str | None = None
    """Name of the client's exception that ended the call, if any."""

    def chunks(self) -> list[bytes]:
        """Return the body: an event stream event by event, anything else as one chunk."""
        if "event-stream" not in self.headers.get("content-type", ""):
            return [self.body] if self.body else []
        parts = self.body.split(b"\n\n")
        chunks = [part + b"\n\n" for part in parts[:-1]]
        return [*chunks, parts[-1]] if parts[-1] else chunks

    def replay_headers(self) -> list[tuple[str, str]]:
        """Return the recorded headers that fit the decoded body."""
        headers = [(name, value) for name, value in self.headers.items() if name not in _FRAMING]
        return [*headers, ("content-length", str(len(self.body)))]


class Line(msgspec.Struct, frozen=True):
    """A recorded call."""

    span_id: str
    method: str
    target: str
    """Path and query, redacted."""
    sha256: str
    """Hash of the redacted request body."""
    answer: Answer


class _Key(msgspec.Struct):
    """A line without its answer, as it is stored in memory."""

    span_id: str
    method: str
    target: str
    sha256: str


class Entry(msgspec.Struct, frozen=True):
    """A player's report about one request."""

    span_id: str | None
    """The recorded call that was replayed or expected."""
    differs: bool = False
    method: str = ""
    target: str = ""
    body: str = ""


def target_of(url: str) -> str:
    """Return the redacted path and query of a URL. The host may differ in a replay."""
    rest = masked_url(url).partition("://")[2] or url
    slash = rest.find("/")
    return rest[slash:] if slash >= 0 else "/"


def digest(body: bytes) -> str:
    return sha256(body).hexdigest()


def write_script(path: str, lines: Iterable[Line]) -> int:
    """Write a script that only its owner can read. Return the number of lines."""
    count = 0
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        for line in lines:
            file.write(msgspec.json.encode(line) + b"\n")
            count += 1
    return count


def read_report(path: str) -> list[Entry]:
    """Read the reports of the players of all processes, in order."""
    try:
        with open(path + REPORT_SUFFIX, "rb") as file:
            return [msgspec.json.decode(line, type=Entry) for line in file if line.endswith(b"\n")]
    except FileNotFoundError:
        return []


class Player:
    """Answers requests from a script, using each line once."""

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
            raise UnreadableError(f"{path}: not a replay script ({error}).") from None

    def answer(self, request: OutgoingRequest, redact: Callable[[str], str]) -> Answer:
        """Return the recorded answer, or an error if the request was not recorded."""
        body = _redact(request.body or b"", redact)
        key = (request.method, target_of(request.url), digest(body))
        with self._lock:
            for index, (line, at) in enumerate(self._unused):
                if (line.method, line.target, line.sha256) == key:
                    del self._unused[index]
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


def _redact(body: bytes, redact: Callable[[str], str]) -> bytes:
    text = body.decode(errors="surrogateescape")
    return redact(text).encode(errors="surrogateescape")


def _refusal(expected: str | None, target: str) -> Answer:
    """Return a 400, which providers' SDKs do not retry."""
    if expected is None:
        message = f"vestige replay: {target}: the recording has no further call."
    else:
        message = f"vestige replay: {target}: this request differs from span {expected}."
    error = {"error": {"type": "replay", "message": message}}
    headers = {"content-type": "application/json", "x-should-retry": "false"}
    return Answer(400, headers, msgspec.json.encode(error))
