"""`files`: what a run's files were, at its end or at some moment of it.

A file is a span of type `file` with a path, and its content as output; the latest of a path
up to that moment counts.

    files_answer(store, run, at_s=2.5)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from vestige.errors import VestigeError
from vestige.limits import PREVIEW_MAX
from vestige.query import formatting
from vestige.query.text_layout import CommandAnswer, columns, fit, quoted
from vestige.query.views.show import run_data
from vestige.record.run import BodyRef, Run, SpanInfo
from vestige.store.protocol import Store

FILES_MAX = 10_000
"""Of one answer: a tree that a page can show."""
PREVIEWS_MAX = 200
"""Files whose beginnings are read."""


@dataclass(frozen=True, slots=True)
class File:
    """One file as it was."""

    path: str
    span: SpanInfo
    versions: int
    binary: bool | None
    """None: not looked at."""
    preview: str | None

    @property
    def size_bytes(self) -> int | None:
        told = self.span.attributes.get("size_bytes")
        if isinstance(told, int):
            return told
        return None if self.span.output is None else self.span.output.size_bytes

    @property
    def sha256(self) -> str | None:
        told = self.span.attributes.get("sha256")
        return told if isinstance(told, str) else None


@dataclass
class FilesAnswer(CommandAnswer):
    """Files by path."""

    verb: ClassVar[str] = "files"
    budget: ClassVar[int] = 800

    run: Run
    files: Sequence[File]
    at_s: float | None
    later: int
    """Files that came only after that moment."""
    left_out: int

    def lines(self, budget: int) -> list[str]:
        info = self.run.info
        when = "at its end" if self.at_s is None else f"at +{self.at_s:g}s"
        head = [
            f"{info.short_id} {formatting.single_line(info.name, 60)}: {formatting.pluralize(len(self.files), 'file')} {when}"
        ]
        if self.later:
            head[0] += f" ({self.later} came later)"
        if self.left_out:
            head[0] += f" ({self.left_out} more are not listed)"
        if not self.files:
            return [*head, f"next: {self.command('show', info.short_id, '--type', 'file')}"]
        table = []
        for file in self.files:
            size = "?" if file.size_bytes is None else formatting.size(file.size_bytes)
            told = (
                "(binary)"
                if file.binary
                else quoted(file.preview or "", 60)
                if file.preview
                else ""
            )
            table.append([size, file.span.short_id, formatting.single_line(file.path, 120), told])
        end = [f"next: {self.command('body', self.files[0].span.short_id, '--out')}"]
        at = [] if self.at_s is None else ["--at", formatting.seconds(self.at_s)]
        whole = self.command("files", info.short_id, *at, "--json")
        return fit(
            head, columns(table, right=[0]), end, budget, lambda left: f"… {left} more: {whole}"
        )

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
                    "cut": None if file.span.output is None else file.span.output.cut,
                    "kept": file.span.output is not None and file.span.output.id is not None,
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
        told = span.attributes.get("path")
        path = told if isinstance(told, str) and told else span.name
        if until_ns is not None and span.started_ns > until_ns:
            later.add(path)
            continue
        latest[path] = span
        versions[path] = versions.get(path, 0) + 1
    paths = sorted(latest)
    shown = paths[:FILES_MAX]
    files = [
        _file(store, path, latest[path], versions[path], number < PREVIEWS_MAX)
        for number, path in enumerate(shown)
    ]
    return FilesAnswer(run, files, at_s, len(later - set(latest)), len(paths) - len(shown))


def _file(store: Store, path: str, span: SpanInfo, versions: int, look: bool) -> File:
    begin = _begin(store, span.output) if look else None
    if begin is None:
        return File(path, span, versions, None, None)
    binary = b"\x00" in begin
    preview = None if binary else begin.decode(errors="replace")[:PREVIEW_MAX]
    return File(path, span, versions, binary, preview)


def _begin(store: Store, body: BodyRef | None) -> bytes | None:
    if body is None or body.id is None:
        return None
    try:
        return store.read_body(body.id, 0, PREVIEW_MAX * 4)
    except VestigeError:
        return None  # no longer there
