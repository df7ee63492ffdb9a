"""`files`: the files of a run, at its end or at a given time.

A file is a span of type `file` with a path attribute and the content as its output. The
latest span of a path up to that time is the file.

    files_answer(store, run, at_s=2.5)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from vestige.errors import VestigeError
from vestige.limits import PREVIEW_MAX
from vestige.query import formatting
from vestige.query.run_as_data import run_data
from vestige.query.text_layout import CommandAnswer, columns, fit, quoted
from vestige.record.run import BodyRef, Run, SpanInfo
from vestige.store.protocol import Store

FILES_MAX = 10_000
"""Files in one answer."""
PREVIEWS_MAX = 200
"""Files whose first bytes are read."""


@dataclass(frozen=True, slots=True)
class File:
    """A version of a file."""

    path: str
    span: SpanInfo
    versions: int
    binary: bool | None
    """None if the content was not read."""
    preview: str | None

    @property
    def size_bytes(self) -> int | None:
        recorded = self.span.attributes.get("size_bytes")
        if isinstance(recorded, int):
            return recorded
        return None if self.content is None else self.content.size_bytes

    @property
    def content(self) -> BodyRef | None:
        """Return the bytes: a recorded file's output, an imported file's input."""
        return self.span.output or self.span.input

    @property
    def side(self) -> str:
        """Return the side of the span that holds the bytes: `output` or `input`."""
        return "input" if self.span.output is None and self.span.input is not None else "output"

    @property
    def sha256(self) -> str | None:
        recorded = self.span.attributes.get("sha256")
        return recorded if isinstance(recorded, str) else None


@dataclass
class FilesAnswer(CommandAnswer):
    """The files of a run, by path."""

    verb: ClassVar[str] = "files"
    budget: ClassVar[int] = 800

    run: Run
    files: Sequence[File]
    at_s: float | None
    later: int
    """Files that were created after that time."""
    left_out: int

    def lines(self, budget: int) -> list[str]:
        info = self.run.info
        when = "at its end" if self.at_s is None else f"at +{self.at_s:g}s"
        count = formatting.pluralize(len(self.files), "file")
        head = [f"{info.short_id} {formatting.single_line(info.name, 60)}: {count} {when}"]
        if self.later:
            head[0] += f" ({self.later} created later)"
        if self.left_out:
            head[0] += f" ({self.left_out} more not listed)"
        if not self.files:
            return [*head, f"next: {self.command('show', info.short_id, '--type', 'file')}"]
        table = []
        for file in self.files:
            size = "?" if file.size_bytes is None else formatting.size(file.size_bytes)
            preview = quoted(file.preview, 60) if file.preview else ""
            if file.binary:
                preview = "(binary)"
            path = formatting.single_line(file.path, 120)
            table.append([size, file.span.short_id, path, preview])
        side = "--in" if self.files[0].side == "input" else "--out"
        end = [f"next: {self.command('body', self.files[0].span.short_id, side)}"]
        at = [] if self.at_s is None else ["--at", formatting.seconds(self.at_s)]
        full = self.command("files", info.short_id, *at, "--json")
        rows = columns(table, right=[0])
        return fit(head, rows, end, budget, lambda left: f"… {left} more: {full}")

    def data(self) -> dict[str, Any]:
        base = self.run.info.started_ns
        return {
            "version": self.version,
            "run": run_data(self.run.info),
            "at_us": None if self.at_s is None else round(self.at_s * 1e6),
            "files": [
                {
                    "path": file.path,
                    "span": file.span.short_id,
                    "at_us": (file.span.started_ns - base) // 1000,
                    "size_bytes": file.size_bytes,
                    "sha256": file.sha256,
                    "versions": file.versions,
                    "binary": file.binary,
                    "preview": file.preview,
                    "cut": None if file.content is None else file.content.cut,
                    "kept": file.content is not None and file.content.id is not None,
                    "body": file.side,
                }
                for file in self.files
            ],
            "later": self.later,
            "left_out": self.left_out,
        }


def files_answer(store: Store, run: Run, at_s: float | None = None) -> FilesAnswer:
    until_ns = None if at_s is None else run.info.started_ns + round(at_s * 1e9)
    latest: dict[str, SpanInfo] = {}
    versions: dict[str, int] = {}
    later: set[str] = set()
    for span in run.spans:
        if span.type != "file":
            continue
        recorded = span.attributes.get("path")
        path = recorded if isinstance(recorded, str) and recorded else span.name
        if until_ns is not None and span.started_ns > until_ns:
            later.add(path)
            continue
        latest[path] = span
        versions[path] = versions.get(path, 0) + 1
    paths = sorted(latest)
    shown = paths[:FILES_MAX]
    files = [
        _load_file(store, path, latest[path], versions[path], number < PREVIEWS_MAX)
        for number, path in enumerate(shown)
    ]
    return FilesAnswer(run, files, at_s, len(later - set(latest)), len(paths) - len(shown))


def _load_file(store: Store, path: str, span: SpanInfo, versions: int, preview: bool) -> File:
    first = _read_first_bytes(store, span.output or span.input) if preview else None
    if first is None:
        return File(path, span, versions, None, None)
    binary = b"\x00" in first
    text = None if binary else first.decode(errors="replace")[:PREVIEW_MAX]
    return File(path, span, versions, binary, text)


def _read_first_bytes(store: Store, body: BodyRef | None) -> bytes | None:
    if body is None or body.id is None:
        return None
    try:
        return store.read_body(body.id, 0, PREVIEW_MAX * 4)
    except VestigeError:
        return None  # retention has deleted it
