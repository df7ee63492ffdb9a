"""Read other layouts as a bundle: the later real format, and a bare file of snapshots.

`LaterContent` is a zip with everything under `debug_bundle/`: a manifest with a list of files
and their checksums, `session/before.jsonl` and `session/after.jsonl`, `logs/app.jsonl`, and
single JSON files. `JsonlContent` is the file of `dump_session`. Both get a manifest of the
documented wink layout, made from their content.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from vestige.errors import BundleCorruptedError, BundleNotFoundError, BundleVersionError
from vestige.formats.protocol import Problem, derived_uuid
from vestige.formats.wink.archive.zip_members import Members, split_lines
from vestige.formats.wink.bundle_content import ContentFile, Extra
from vestige.formats.wink.detect import LATER_MANIFEST, LATER_ROOT
from vestige.formats.wink.jsonl_entries import parse_object, parse_snapshot
from vestige.formats.wink.manifest import (
    UNKNOWN,
    VERSION,
    Agent,
    Component,
    Execution,
    Manifest,
    parse_time,
)
from vestige.formats.wink.sort_by_time import TimeOrder, log_time, snapshot_time
from vestige.limits import BUNDLE_ENTRY_MAX, BUNDLE_MANIFEST_MAX, BUNDLE_PROBLEMS_MAX, KIB

_SESSIONS: Final = ("session/before.jsonl", "session/after.jsonl")
_LOG: Final = "logs/app.jsonl"
_FILESYSTEM: Final = "filesystem/"
_OUTCOMES: Final = {"success": "success", "ok": "success", "error": "failure", "failure": "failure"}


class LaterContent(Members):
    """A bundle of the later format."""

    def __init__(self, source: Path | Members) -> None:
        super().__init__(source)
        path = self.path
        found = self._json("manifest.json", BUNDLE_MANIFEST_MAX)
        if not isinstance(found, dict):
            raise BundleCorruptedError(f"{path}: {LATER_MANIFEST} is not a JSON object.")
        version = str(found.get("format_version", ""))
        if version.partition(".")[0] != "1":
            raise BundleVersionError(
                f"{path}: bundle format {version[:40]!r} is not known (this reader knows 1.x)."
                " Upgrade vestige."
            )
        self._found = found
        self._damaged: dict[str, str] | None = None
        self._orders = {"snapshots": TimeOrder(snapshot_time), "logs": TimeOrder(log_time)}
        self._check_listed()
        self._manifest = self._make_manifest()

    @property
    def manifest(self) -> Manifest:
        return self._manifest

    def snapshots(self) -> Iterator[str]:
        return self._orders["snapshots"].sorted(lambda: self._lines_of(*_SESSIONS))

    def logs(self) -> Iterator[str]:
        return self._orders["logs"].sorted(lambda: self._lines_of(_LOG))

    def numbered(self, name: str) -> Iterator[tuple[str, int, str]]:
        """Yield the member, number and text of each line of a component, as they are in the
        file."""
        for path in _SESSIONS if name == "snapshots" else (_LOG,):
            if self.has(LATER_ROOT + path):
                for number, line in self.lines(LATER_ROOT + path):
                    yield LATER_ROOT + path, number, line.decode(errors="surrogateescape")

    def files(self) -> Iterator[ContentFile]:
        """Return the files: the workspace, and each document that the bundle has as an artifact."""
        for name in self.names():
            path = name.removeprefix(LATER_ROOT)
            if path in (*_SESSIONS, _LOG, "manifest.json") or path == name:
                continue
            yield ContentFile(_shown(name), self.size(name), self.opener(name))

    def extras(self) -> Iterator[Extra]:
        return iter(())

    def verify(self, keep: int = 0) -> None:
        """Read all of it, and compare every checksum that the manifest has."""
        if self._damaged is not None:
            return
        self._damaged = {}
        for name in self.names():
            reason = self.find_damage(name)
            if reason is not None:
                self._damaged[_shown(name)] = reason
                self.report(name, "", "file-damaged", reason)

    @property
    def damaged_files(self) -> dict[str, str]:
        """Paths of files that are not what the bundle says, each with what is wrong."""
        self.verify()
        assert self._damaged is not None
        return self._damaged

    def _checksum(self, name: str) -> Any:
        checksums = _mapping(_mapping(self._found.get("integrity")).get("checksums"))
        return checksums.get(name.removeprefix(LATER_ROOT))

    def expected(self, name: str) -> str | None:
        digest = self._checksum(name)
        return digest if isinstance(digest, str) else None

    def _check_listed(self) -> None:
        listed = self._found.get("files")
        listed = listed if isinstance(listed, list) else []
        known = {path for path in listed if isinstance(path, str)}
        known |= set(_mapping(_mapping(self._found.get("integrity")).get("checksums")))
        for name in self.names():
            path = name.removeprefix(LATER_ROOT)
            if path != "manifest.json" and (path not in known or path == name):
                self.warn(name[:200], "", "member-unlisted", "is not in the manifest.")
        for path in sorted(known):
            if path != "manifest.json" and not self.has(LATER_ROOT + path):
                self.report(
                    LATER_ROOT + path[:200], "", "file-missing", "is missing from the bundle."
                )

    def _lines_of(self, *paths: str) -> Iterator[str]:
        for path in paths:
            if self.has(LATER_ROOT + path):
                for _, line in self.lines(LATER_ROOT + path):
                    yield line.decode(errors="surrogateescape")

    def _json(self, path: str, most: int = BUNDLE_ENTRY_MAX) -> Any:
        if not self.has(LATER_ROOT + path):
            return None
        try:
            raw = self.read(LATER_ROOT + path, most)
        except BundleCorruptedError:
            if path == "manifest.json":
                raise
            return None  # `verify` reports it
        found = parse_object(raw.decode(errors="surrogateescape"))
        if not isinstance(found, str):
            return found
        if path == "manifest.json":
            raise BundleCorruptedError(f"{self.path}: {LATER_ROOT}{path}: {found}.")
        self.warn(LATER_ROOT + path, "", "document-unreadable", f"{found}.")
        return None

    def _make_manifest(self) -> Manifest:
        found = self._found
        request, prompt = _mapping(found.get("request")), _mapping(found.get("prompt"))
        created_at = _time(found.get("created_at")) or "1970-01-01T00:00:00+00:00"
        started_at = _time(request.get("started_at")) or created_at
        ended_at = _time(request.get("ended_at"))
        error = self._json("error.json")
        name = ":".join(_text(prompt.get(key)) for key in ("ns", "key") if prompt.get(key))
        python = _mapping(self._json("environment/python.json"))
        system = _mapping(self._json("environment/system.json"))
        environment = {
            "platform": _text(system.get("os_name") or system.get("platform")),
            "python_version": _text(python.get("version")),
            "weakincentives_version": _text(_mapping(found.get("build")).get("version")),
        }
        bundle_id = _text(found.get("bundle_id")) or derived_uuid("wink", created_at, started_at)
        tags = {"request_id": _text(request.get("request_id"))}
        return Manifest(
            VERSION,
            bundle_id,
            created_at,
            _text(request.get("session_id")) or bundle_id,
            Agent(name or "agent", None, _text(prompt.get("adapter")), self._model()),
            Execution(
                started_at,
                ended_at,
                _seconds(started_at, ended_at),
                _OUTCOMES.get(_text(request.get("status")), _text(request.get("status"))),
                error if isinstance(error, dict) else None,
            ),
            {key: value.split("\n")[0] for key, value in environment.items() if value},
            {
                "snapshots": Component(LATER_ROOT + "session/"),
                "logs": Component(LATER_ROOT + _LOG),
                "files": Component(LATER_ROOT),
            },
            {key: value for key, value in tags.items() if value},
        )

    def _model(self) -> str:
        config = _mapping(self._json("config.json"))
        return _text(config.get("model") or _mapping(config.get("adapter")).get("model"))


def _shown(name: str) -> str:
    """Return the path of a member as a file of the bundle."""
    path = name.removeprefix(LATER_ROOT)
    inside = path.removeprefix(_FILESYSTEM)
    return f"artifacts/{path}" if inside == path else f"workspace/{inside}"


class JsonlContent:
    """A bare file of snapshots."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[Problem] = []
        self._manifest = self._make_manifest()

    @property
    def manifest(self) -> Manifest:
        return self._manifest

    def snapshots(self) -> Iterator[str]:
        try:
            with self.path.open("rb") as file:
                chunks = _Chunks(file)
                for number, line in split_lines(chunks):
                    if line is None:
                        message = f"longer than {BUNDLE_ENTRY_MAX} bytes; passed over."
                        self._warn(number, "entry-too-long", message)
                        continue
                    text = line.decode(errors="surrogateescape")
                    # Taken as it is, it would stand for the whole one ever after.
                    if chunks.torn and isinstance(parse_object(text), str):
                        message = "cut off, or still being written; passed over."
                        self._warn(number, "entry-torn", message)
                        continue
                    yield text
        except OSError as error:
            raise BundleCorruptedError(f"{self.path}: {error.strerror}.") from error

    def _warn(self, number: int, rule: str, message: str) -> None:
        problem = Problem(str(self.path), f"line {number}", rule, message, severity="warning")
        if len(self.problems) < BUNDLE_PROBLEMS_MAX and problem not in self.problems:
            self.problems.append(problem)

    def logs(self) -> Iterator[str]:
        return iter(())

    def files(self) -> Iterator[ContentFile]:
        return iter(())

    def extras(self) -> Iterator[Extra]:
        return iter(())

    damaged_files: Final[Mapping[str, str]] = {}

    def numbered(self, name: str) -> Iterator[tuple[str, int, str]]:
        """Yield the file, number and text of each line of a component, as they are in the file."""
        lines = self.snapshots() if name == "snapshots" else self.logs()
        for number, line in enumerate(lines, 1):
            yield str(self.path), number, line

    def verify(self, keep: int = 0) -> None:
        """Accept everything: the manifest has no checksums."""

    def _make_manifest(self) -> Manifest:
        if not self.path.is_file():
            raise BundleNotFoundError(f"{self.path}: no such file.")
        first = last = session = name = None
        for index, line in enumerate(self.snapshots()):
            snapshot = parse_snapshot(line, index)
            if not snapshot.created_at or parse_time(snapshot.created_at) is None:
                continue
            if first is None:
                first, session = snapshot.created_at, snapshot.session_id
                name = snapshot.tags.get("agent") or snapshot.tags.get("suite")
            last = snapshot.created_at
        if first is None or last is None:
            raise BundleCorruptedError(
                f"{self.path}: no snapshot in it (expected JSON lines with version and created_at)."
            )
        # Of the beginning only: when it grows, it is still the same.
        bundle_id = derived_uuid("wink", session or str(self.path.name), first)
        return Manifest(
            VERSION,
            bundle_id,
            last,
            session or bundle_id,
            Agent(name or self.path.stem),
            Execution(first, last, _seconds(first, last), UNKNOWN),
            components={"snapshots": Component(self.path.name), "logs": Component("logs.jsonl")},
        )


class _Chunks:
    """A file in stretches; `torn` once it has been read, and its last line has no end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.torn = False

    def __iter__(self) -> Iterator[bytes]:
        last = b"\n"
        while chunk := self._file.read(256 * KIB):
            yield chunk
            last = chunk[-1:]
        self.torn = last != b"\n"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()


def _time(value: Any) -> str | None:
    return value if isinstance(value, str) and parse_time(value) is not None else None


def _seconds(started_at: str, ended_at: str | None) -> float | None:
    start, end = parse_time(started_at), parse_time(ended_at or "")
    return (end - start).total_seconds() if start and end else None
