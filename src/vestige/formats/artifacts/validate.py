"""Validate a bundle: everything that is wrong with it, in one walk that hashes every file.

    check_bundle(DirectoryTree(path), "seed")       # problems, all of them

`bundle.json` is read first; then each file is met once: compared with its entry, hashed while it
streams by, and parsed where it ought to be JSON and is small enough.

Elsewhere: the rules are in validation_rules.py, and detect.py finds the bundles of a path.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from vestige.formats.artifacts import constants
from vestige.formats.artifacts.bundle_json import Inventory, InventoryEntry, read_inventory
from vestige.formats.artifacts.constants import Part
from vestige.formats.artifacts.finding_report import Report
from vestige.formats.artifacts.json_files.jsonl import Lines, ScenarioLines, TraceLines
from vestige.formats.artifacts.json_files.large_json import LargeJson
from vestige.formats.artifacts.json_files.schema_check import shown
from vestige.formats.artifacts.read import Item, Tree, UnreadablePartError
from vestige.formats.artifacts.typed_file_checks import check_typed, check_untyped, find_incomplete
from vestige.limits import ARTIFACT_JSON_MAX, MIB

if TYPE_CHECKING:
    from vestige.formats.artifacts.validation_rules import Profile
    from vestige.formats.protocol import Problem


def check_bundle(
    tree: Tree, profile: Profile = "seed", hashed: Mapping[str, tuple[int, str]] | None = None
) -> tuple[int, list[Problem]]:
    """Return the number of files, and all problems.

    `hashed`: size and sha256 of files that the caller has just read. They are not hashed again, and
    only those whose content is checked are read again.
    """
    report = Report(tree.name, profile)
    try:
        inventory = read_inventory(tree, report)
        if inventory is None:
            return 0, report.problems()
        walk = _Walk(inventory, report, hashed or {})
        for item in tree.items():
            walk.meet(item)
        walk.end()
        return walk.count, report.problems()
    except UnreadablePartError as error:
        report.add(error.rule, "", error.message)
        return 0, report.problems()


class _Reader(Protocol):
    """Something that wants a file's bytes while they stream by."""

    def feed(self, chunk: bytes) -> None: ...

    def end(self) -> None: ...


class _Walk:
    """The check of a bundle, file by file."""

    def __init__(
        self, inventory: Inventory, report: Report, hashed: Mapping[str, tuple[int, str]]
    ) -> None:
        self.inventory = inventory
        self.report = report
        self.hashed = hashed
        self.count = 0
        later = report.profile == "latest"
        self._parts = {part.path: part for part in constants.parts(later)}
        self._missing = dict(self._parts)
        self._unseen = dict(inventory.files)
        self._indexed: list[str] = []
        """Logs and screenshots."""
        self._values: dict[str, Any] = {}
        """The content of typed files, by path."""
        self._cases: dict[str, str] | None = {} if report.profile == "strict" else None
        self._scenarios: ScenarioLines | None = None

    def meet(self, item: Item) -> None:
        path = item.path
        self.count += 1
        listed = self._unseen.pop(path, None)
        self._missing.pop(path, None)
        if self._cases is not None:
            self._meet_strictly(item)
        if item.fault is not None:
            self.report.add(item.fault[0], path, item.fault[1])
            return
        if item.read is None:
            return
        if path == constants.BUNDLE:
            if listed is not None:  # a writer that lists it must know its size and hash
                self._compare(path, listed, *self._read(item, None))
            return
        if listed is None and path not in constants.UNLISTED and self.inventory.known:
            self.report.add("file-unlisted", path, "is not in bundle.json.")
        if constants.is_log(path) or constants.is_screenshot(path):
            self._indexed.append(path)
        reader = self._reader(path)
        try:
            if path not in self.hashed:
                size, sha256 = self._read(item, reader)
            else:
                size, sha256 = self.hashed[path]
                if reader is not None:
                    size = _feed(item, reader)
        except UnreadablePartError as error:
            self.report.add(error.rule, path, error.message)
            return
        if listed is not None:
            self._compare(path, listed, size, sha256)

    def _read(self, item: Item, reader: _Reader | None) -> tuple[int, str]:
        hasher = hashlib.sha256()
        size = 0
        for chunk in item.chunks():
            size += len(chunk)
            hasher.update(chunk)
            if reader is not None:
                reader.feed(chunk)
        if reader is not None:
            reader.end()
        return size, hasher.hexdigest()

    def _reader(self, path: str) -> _Reader | None:
        part = self._parts.get(path)
        if part is not None and part.type is not None:
            if path == constants.TRACE:
                return TraceLines(self.inventory, self.report)
            if path.endswith(".jsonl"):
                self._scenarios = ScenarioLines(path, self.inventory, self.report)
                return self._scenarios
            return _JsonFile(path, part, self)
        if path.endswith(".json"):
            return _JsonFile(path, None, self)
        if path.endswith((".jsonl", ".ndjson")):
            return Lines(path, self.report)
        return None

    def take_value(self, part: Part, data: bytes) -> None:
        self._values[part.path] = check_typed(part, data, self.inventory, self.report)

    def _compare(self, path: str, listed: InventoryEntry, size: int, sha256: str) -> None:
        add = self.report.add
        if listed.bytes is not None and listed.bytes != size:
            add("bytes-differ", path, f"has {size} bytes; bundle.json says {listed.bytes}.")
        if listed.sha256 is not None and listed.sha256 != sha256:
            add(
                "sha256-differs",
                path,
                f"has the sha256 {sha256}; bundle.json says {shown(listed.sha256)}.",
            )

    def _meet_strictly(self, item: Item) -> None:
        assert self._cases is not None
        if item.link:
            self.report.add("symlink", item.path, "is a symlink.")
        other = self._cases.setdefault(item.path.casefold(), item.path)
        if other != item.path:
            self.report.add("path-case", item.path, f"differs from {shown(other)} only in case.")

    def end(self) -> None:
        for path in self._missing:
            later = any(part.path == path for part in constants.LATER_PARTS)
            self.report.add(
                "later-file-missing" if later else "file-missing", path, "is not there."
            )
        for path, listed in self._unseen.items():
            if path != constants.BUNDLE:  # it was read
                self.report.add(
                    "entry-without-file",
                    constants.BUNDLE,
                    f"{shown(path)} is listed, and is not there.",
                    f"/files/{listed.at}/path",
                )
        find_incomplete(self._values, self._indexed, self.report)
        index = self._values.get("scenarios/index.json", {})
        count = index.get("scenario_count")
        if self._scenarios is not None and type(count) is int and count != self._scenarios.count:
            self.report.add(
                "scenario-count-differs",
                "scenarios/index.json",
                f"{count} should be {self._scenarios.count}.",
                "/scenario_count",
            )


def _feed(item: Item, reader: _Reader) -> int:
    """Check a file without hashing it. Return its size in bytes."""
    size = 0
    for chunk in item.chunks():
        size += len(chunk)
        reader.feed(chunk)
    reader.end()
    return size


class _JsonFile:
    """A JSON file, held until it has ended. A larger one is skimmed, or given up if it is typed."""

    def __init__(self, path: str, part: Part | None, walk: _Walk) -> None:
        self._path = path
        self._part = part
        self._walk = walk
        self._data: bytes | None = b""
        self._large: LargeJson | None = None

    def feed(self, chunk: bytes) -> None:
        if self._data is not None:
            if len(self._data) + len(chunk) <= ARTIFACT_JSON_MAX:
                self._data += chunk
                return
            if self._part is None:
                self._large = LargeJson()
                self._large.feed(self._data)
            else:
                self._walk.report.add(
                    "json-too-large",
                    self._path,
                    f"is larger than {ARTIFACT_JSON_MAX // MIB} MiB; it was not parsed.",
                )
            self._data = None
        if self._large is not None:
            self._large.feed(chunk)

    def end(self) -> None:
        if self._large is not None:
            fault = self._large.find_fault()
            if fault is not None:
                self._walk.report.add("json-invalid", self._path, fault)
            elif self._large.unchecked is not None:
                self._walk.report.add("json-unchecked", self._path, self._large.unchecked)
        elif self._data is None:
            return
        elif self._part is None:
            check_untyped(self._path, self._data, self._walk.report)
        else:
            self._walk.take_value(self._part, self._data)
