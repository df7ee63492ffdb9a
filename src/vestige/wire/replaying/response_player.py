"""Answer model calls with recorded responses, instead of the network.

The parent (`vestige replay`) writes a script with one line per recorded call, in order. The child's
player answers a request with the first unused line that has the same method, target and body. The
request is redacted as the recording was before they are compared; headers are not compared, nor are
values that `--ignore` names (wire/replaying/matching_rules.py). A model call that is not in the
script never reaches the network: it is answered with 400, and reported.

A fork (`--until`) answers the calls before a step. The call of that step is changed
(wire/replaying/request_edits.py) and sent, and so are all later ones. All processes of the
command share the report, from which each knows the lines that are used and whether the fork was
reached.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from vestige._runtime.file_locks import locked
from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.errors import UnreadableError
from vestige.wire.header_redaction import masked_url
from vestige.wire.outgoing_request import OutgoingRequest
from vestige.wire.replaying.matching_rules import Rule, normalize, normalize_text, parse_rules
from vestige.wire.replaying.request_edits import Change, apply_changes

SCRIPT_VARIABLE = "VESTIGE_REPLAY"
"""The path of the script, in the environment of a child of `vestige replay`."""

REPORT_SUFFIX = ".report"
SETTINGS_SUFFIX = ".settings"
LOCK_SUFFIX = ".lock"

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


class Settings(msgspec.Struct, frozen=True):
    """Options that apply to all requests of a replay."""

    ignore: tuple[str, ...] = ()
    """The rules with which the keys of the lines were made."""
    inherited: tuple[tuple[Change, ...], ...] = ()
    """The changes of the forks that the replayed run descends from, oldest first."""
    until: str | None = None
    """The first call that is sent. The lines before it are answered from the recording."""
    parallel: tuple[str, ...] = ()
    """Calls that began while the call of `until` was in flight. They may be sent before it."""
    changes: tuple[Change, ...] = ()


class Entry(msgspec.Struct, frozen=True):
    """A player's report about one request."""

    span_id: str | None
    """The recorded call that was replayed or expected."""
    differs: bool = False
    method: str = ""
    target: str = ""
    body: str = ""
    sent: bool = False
    """True if the request was sent, by a fork."""
    reason: str = ""
    """The reason why a request of a fork could not be sent."""


def target_of(url: str) -> str:
    """Return the redacted path and query of a URL. The host may differ in a replay."""
    rest = masked_url(url).partition("://")[2] or url
    slash = rest.find("/")
    return rest[slash:] if slash >= 0 else "/"


def digest(body: bytes) -> str:
    return sha256(body).hexdigest()


def match_key(method: str, url: str, body: bytes, rules: list[Rule]) -> tuple[str, str, str]:
    """Return what has to be equal for two requests to match: method, target, hash of the body."""
    return method, normalize_text(target_of(url), rules), digest(normalize(body, rules))


def write_script(path: str, lines: Iterable[Line], settings: Settings | None = None) -> int:
    """Write a script that only its owner can read. Return the number of lines."""
    count = 0
    with _create(path + SETTINGS_SUFFIX) as file:
        file.write(msgspec.json.encode(settings or Settings()))
    with _create(path) as file:
        for line in lines:
            file.write(msgspec.json.encode(line) + b"\n")
            count += 1
    return count


def _create(path: str) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")


def read_report(path: str) -> list[Entry]:
    """Read the reports of the players of all processes, in order."""
    try:
        with open(path + REPORT_SUFFIX, "rb") as file:
            return [msgspec.json.decode(line, type=Entry) for line in file if line.endswith(b"\n")]
    except FileNotFoundError:
        return []


class Player:
    """Answers requests from a script, using each line once."""

    obstacle = "its body is streamed or compressed, and a fork cannot send it"
    """The reason why `answer` cannot send a request if `can_send` is False."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._unused: dict[str, tuple[_Key, int]] = {}
        self._report_at = 0
        self._is_live = False
        try:
            with open(path, "rb") as file:
                at = 0
                for line in file:
                    key = msgspec.json.decode(line, type=_Key)
                    self._unused[key.span_id] = (key, at)
                    at += len(line)
            with open(path + SETTINGS_SUFFIX, "rb") as file:
                self._settings = msgspec.json.decode(file.read(), type=Settings)
        except (OSError, msgspec.DecodeError) as error:
            raise UnreadableError(f"{path}: not a replay script ({error}).") from None
        self.rules = parse_rules(self._settings.ignore)
        order = list(self._unused)
        until = self._settings.until
        self._before = set(order[: order.index(until)] if until in self._unused else order)

    def answer(
        self, request: OutgoingRequest, redact: Callable[[str], str], *, can_send: bool = False
    ) -> Answer | None:
        """Return the recorded answer, or an error if the request was not recorded.

        None: a fork sends the request, with the body that it has now. `can_send`: whether the
        body of the request can still be changed.
        """
        versions = self._versions(request.body or b"", redact)
        keys = [
            match_key(request.method, request.url, _redact(body, redact), self.rules)
            for body in versions
        ]
        with self._lock, locked(Path(self._path + LOCK_SUFFIX)):
            self._read_report()
            found = self._find(keys)
            if found is not None:
                line, at, level = found
                request.level = level
                if line.span_id in self._before:
                    self._report(Entry(line.span_id))
                    request.body = versions[level] if can_send else request.body
                    return self._read(at)
                return self._send(line.span_id, request, versions[level], redact, can_send)
            if self._is_live:
                return self._send(None, request, versions[-1], redact, can_send)
            expected = self._expected(*keys[0][:2])
            text = _redact(versions[0], redact).decode(errors="replace")
            self._report(Entry(expected, True, *keys[0][:2], text))
        return _refusal(expected, keys[0][1])

    def is_live(self) -> bool:
        """Return whether the step of a fork was reached, so that everything runs as usual."""
        with self._lock, locked(Path(self._path + LOCK_SUFFIX)):
            self._read_report()
            return self._is_live

    def fail(self, error: Exception) -> Answer:
        """Return an error response for a request that could not be compared."""
        return _error(f"vestige replay: the request could not be compared ({error!r}).")

    def _versions(self, body: bytes, redact: Callable[[str], str]) -> list[bytes]:
        """Return the body as the program made it, and with the changes of each earlier fork."""
        versions = [body]
        for changes in self._settings.inherited:
            versions.append(self._change(versions[-1], list(changes), redact))
        return versions

    def _change(self, body: bytes, changes: list[Change], redact: Callable[[str], str]) -> bytes:
        def is_same(actual: str, recorded: str) -> bool:
            return normalize_text(redact(actual), self.rules) == normalize_text(
                recorded, self.rules
            )

        return apply_changes(body, changes, is_same)

    def _find(self, keys: list[tuple[str, str, str]]) -> tuple[_Key, int, int] | None:
        """Return the first unused line that matches, its offset, and the version it matches."""
        sent = () if self._settings.until is None else self._may_be_sent()
        for line, at in self._unused.values():
            if line.span_id not in self._before and line.span_id not in sent:
                continue
            key = (line.method, line.target, line.sha256)
            if key in keys:
                return line, at, keys.index(key)
        return None

    def _may_be_sent(self) -> tuple[str, ...]:
        if self._is_live or self._settings.until is None:
            return ()
        return (self._settings.until, *self._settings.parallel)

    def _send(
        self,
        span_id: str | None,
        request: OutgoingRequest,
        body: bytes,
        redact: Callable[[str], str],
        can_send: bool,
    ) -> Answer | None:
        """Let a request of the fork go to the network, changed."""
        settings = self._settings
        if span_id == settings.until:
            changed = apply_changes(body, list(settings.changes))
        elif span_id is None:
            changed = self._change(body, list(settings.changes), redact)
        else:  # It runs beside the call at which the run is forked.
            changed = body
        if not can_send:
            reason = self.obstacle
            self._report(
                Entry(span_id, True, request.method, target_of(request.url), "", True, reason)
            )
            return _error(f"vestige replay: {target_of(request.url)}: {reason}.")
        self._report(Entry(span_id, sent=True))
        request.level = len(settings.inherited) + (span_id in (None, settings.until))
        request.is_changed = changed != request.body
        request.body = changed
        return None

    def _expected(self, method: str, target: str) -> str | None:
        lines = [line for line, _ in self._unused.values()]
        same = [line for line in lines if (line.method, line.target) == (method, target)]
        return next((line.span_id for line in [*same, *lines]), None)

    def _read(self, at: int) -> Answer:
        with open(self._path, "rb") as file:
            file.seek(at)
            return msgspec.json.decode(file.readline(), type=Line).answer

    def _read_report(self) -> None:
        """Remove the lines that any process has used since the last request."""
        try:
            with open(self._path + REPORT_SUFFIX, "rb") as file:
                file.seek(self._report_at)
                for line in file:
                    self._report_at += len(line)
                    entry = msgspec.json.decode(line, type=Entry)
                    if not entry.differs and entry.span_id is not None:
                        self._unused.pop(entry.span_id, None)
                    if entry.sent and entry.span_id == self._settings.until:
                        self._is_live = True
        except FileNotFoundError:
            pass

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
    return _error(message)


def _error(message: str) -> Answer:
    error = {"error": {"type": "replay", "message": message}}
    headers = {"content-type": "application/json", "x-should-retry": "false"}
    return Answer(400, headers, msgspec.json.encode(error))
