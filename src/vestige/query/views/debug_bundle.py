"""`debug`: the contents of a bundle: overview, snapshots, logs, files, metadata.

    BundleAnswer(content, "snapshots", source="x.wink")

Pure: content in, lines out. The other commands read the same bundle as a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, get_args

import msgspec

from vestige.formats.wink.jsonl_entries import LogEntry, SnapshotPayload, count_items, parse_log
from vestige.formats.wink.jsonl_entries import parse_snapshot as parse
from vestige.formats.wink.log_records import our_level, to_ns
from vestige.formats.wink.manifest import UNKNOWN, Manifest, manifest_data
from vestige.formats.wink.to_records import STATUSES, ReadContent
from vestige.query import formatting
from vestige.query.text_layout import CommandAnswer, columns, fit, fit_page
from vestige.query.views.state_diff import SliceChange, diff_states

View = Literal["overview", "snapshots", "logs", "files", "metadata"]
VIEWS: Final[tuple[View, ...]] = get_args(View)
Line = tuple[str, str]
"""Text and style."""

_LEVEL_STYLES: Final = {"error": "error", "warn": "warn", "debug": "log"}
ERRORS_SHOWN: Final = 5
CONTEXT_SHOWN: Final = 40
"""Keys of a log line's context; structured loggers write about ten."""


@dataclass
class BundleAnswer(CommandAnswer):
    """A view of a bundle."""

    verb: ClassVar[str] = "debug"
    budget: ClassVar[int] = 2_000

    content: ReadContent
    view: View
    source: str
    """The path as the user wrote it."""
    after: int = 0
    """Rows to skip."""

    @property
    def manifest(self) -> Manifest:
        return self.content.manifest

    def lines(self, budget: int) -> list[str]:
        return [text for text, _ in self.styled(budget)]

    def styled(self, budget: int) -> list[Line]:
        """Return styled lines within a budget, with the command for the lines left out."""
        head, rows = self.parts()
        styles = dict([*head, *rows])
        overview = self.view == "overview"
        shown = (fit if overview else fit_page)(
            [text for text, _ in head],
            [text for text, _ in rows[self.after :]],
            self.next_steps() if overview else [],
            budget,
            lambda left: self._more(len(rows) - left, left),
        )
        return [(text, styles.get(text, "ok")) for text in shown]

    def all_lines(self) -> Iterator[Line]:
        """Yield every line, for a pager."""
        head, rows = self.parts()
        yield from head
        yield from rows[self.after :]
        if self.view == "overview":
            yield from ((text, "ok") for text in self.next_steps())

    def _more(self, at: int, left: int) -> str:
        again = self.command(
            "debug", self.source, "--view", self.view, "--after", str(max(at, self.after + 1))
        )
        return f"… {formatting.pluralize(left, 'line')} more: {again}"

    def parts(self) -> tuple[list[Line], list[Line]]:
        """Return the head and the rows; a budget shortens only the rows."""
        head = _heading(self.manifest)
        if self.view in ("overview", "metadata"):
            self.content.verify()
        rows = list(_ROWS[self.view](self.content))
        rows += _problem_rows(self.content)
        return (head if self.view == "overview" else head[:1]), rows

    def next_steps(self) -> list[str]:
        others = "|".join(view for view in VIEWS if view != "overview")
        steps = [
            self.command("debug", self.source, "--view") + f" {others}",
            self.command("show", self.source),
        ]
        snapshots = self.manifest.component("snapshots")
        if snapshots is not None and (snapshots.entry_count or 0) > 1:
            steps.append(self.command("diff", f"{self.source}#0", f"{self.source}#1"))
        if any(problem.severity == "error" for problem in self.content.problems):
            steps.append(self.command("recover", self.source))
        return ["next: " + " | ".join(steps)]

    def data(self) -> dict[str, Any]:
        data: dict[str, Any] = {"version": self.version, "source": self.source, "view": self.view}
        data["outcome"] = self.manifest.execution.shown_outcome
        if self.view in ("overview", "metadata"):
            data["manifest"] = manifest_data(self.manifest)
        if self.view in ("overview", "snapshots"):
            data["snapshots"] = [_snapshot_data(*each) for each in _states(self.content)]
        if self.view == "logs":
            data["logs"] = [_log_data(entry) for entry in _entries(self.content)]
        if self.view in ("overview", "files"):
            data["files"] = [
                {"path": file.path, "size_bytes": file.size_bytes} for file in self.content.files()
            ]
        if self.view in ("overview", "metadata"):
            self.content.verify()
        data["problems"] = [str(problem) for problem in self.content.problems]
        return data


def _heading(manifest: Manifest) -> list[Line]:
    execution, agent = manifest.execution, manifest.agent
    outcome = execution.shown_outcome
    seconds = execution.duration_seconds
    # The same bounds as for the imported run (formats/wink/to_records.py).
    known = seconds is not None and 0 <= seconds < 2**32
    took = f" after {formatting.duration(int((seconds or 0) * 1e9))}" if known else ""
    is_unfinished = outcome in ("in_progress", UNKNOWN)
    status = STATUSES.get(outcome, "running" if is_unfinished else "error")
    title = f"{formatting.single_line(agent.name, 80)}: {formatting.single_line(outcome, 40)}{took}"
    lines = [(title, f"head {status}")]
    if execution.error:
        kind = formatting.single_line(str(execution.error.get("type", "error")), 60)
        message = formatting.single_line(str(execution.error.get("message", "")), 200)
        lines.append((f"!! {kind}: {message}", "stamp"))
    bundle_id = formatting.single_line(manifest.bundle_id, 60)
    started = formatting.single_line(execution.started_at, 32)
    lines.append((f"bundle {bundle_id}  {started}", "ok"))
    facts = [
        f"session {formatting.single_line(manifest.session_id, 60)}",
        *(f"{name} {formatting.single_line(value, 60)}" for name, value in _agent_facts(manifest)),
        *(
            f"{formatting.single_line(key, 40)}={formatting.value(value, 60)}"
            for key, value in manifest.tags.items()
        ),
    ]
    return [*lines, (" · ".join(facts), "ok"), ("", "ok")]


def _agent_facts(manifest: Manifest) -> list[tuple[str, str]]:
    agent = manifest.agent
    named = (("adapter", agent.adapter), ("model", agent.model), ("version", agent.version))
    return [(name, value) for name, value in named if value]


# --- overview -----------------------------------------------------------------------------------


def _overview(content: ReadContent) -> Iterator[Line]:
    levels: Counter[str] = Counter()
    errors: list[LogEntry] = []
    for entry in _entries(content):
        level = our_level(entry.level)
        levels[level] += 1
        if level == "error" and len(errors) < ERRORS_SHOWN:
            errors.append(entry)
    snapshots = 0
    last = None
    for line in content.snapshots():  # streamed: all snapshots may not fit into memory
        snapshots, last = snapshots + 1, line
    files = list(content.files())
    counts = ", ".join(
        f"{count} {formatting.single_line(level, 20) or 'without level'}"
        for level, count in levels.most_common(8)
    )
    yield f"{formatting.pluralize(snapshots, 'snapshot')}", "ok"
    slices = parse(last).slices if last is not None else ()
    if slices:
        sizes = ", ".join(
            f"{formatting.single_line(part.slice_type.rpartition(':')[2], 40)} {len(part.items)}"
            for part in slices
        )
        yield f"  at the end: {sizes}", "ok"
    yield (
        f"{formatting.pluralize(levels.total(), 'log line')}{': ' if counts else ''}{counts}",
        "ok",
    )
    for entry in errors:
        yield f"  {_log_text(entry)}", "error"
    total = formatting.size(sum(file.size_bytes for file in files))
    yield f"{formatting.pluralize(len(files), 'file')}, {total}", "ok"
    components = content.manifest.components
    for name, noun in (("snapshots", "state or file record"), ("logs", "log line")):
        dropped = components[name].lost_records if name in components else None
        if dropped:
            text = f"! {formatting.pluralize(dropped, noun)} could not be written during capture"
            yield text, "warn"


def _problem_rows(content: ReadContent) -> list[Line]:
    """Return the problems met while reading; call it after everything else was read."""
    return [
        (
            f"! {formatting.single_line(str(problem), 200)}",
            "error" if problem.severity == "error" else "warn",
        )
        for problem in content.problems
    ]


# --- snapshots ----------------------------------------------------------------------------------


def _states(content: ReadContent) -> Iterator[tuple[SnapshotPayload, list[SliceChange]]]:
    """Yield each snapshot with its changes since the previous one of the same session."""
    before: dict[str | None, SnapshotPayload] = {}
    for index, line in enumerate(content.snapshots()):
        snapshot = parse(line, index)
        yield snapshot, diff_states(before.get(snapshot.session_id), snapshot)
        if snapshot.valid:
            before[snapshot.session_id] = snapshot


def _has_several_sessions(content: ReadContent) -> bool:
    sessions = (parse(line).session_id for line in content.snapshots())
    first = next(sessions, None)
    return any(session != first for session in sessions)


def _snapshot_rows(content: ReadContent) -> Iterator[Line]:
    begun = to_ns(content.manifest.execution.started_at) or 0
    several = _has_several_sessions(content)
    for snapshot, changes in _states(content):
        when = to_ns(snapshot.created_at)
        at = f"+{max(0, when - begun) / 1e9:.3f}s" if when is not None else "?"
        text = (
            f"#{snapshot.index:<4}{at:>10}  {len(snapshot.slices):>3} slices"
            f" {count_items(snapshot.slices):>5} items  {formatting.size(len(snapshot.raw)):>7}"
        )
        if reason := snapshot.tags.get("tag"):
            text += f"  {formatting.single_line(reason, 40)}"
        if several and snapshot.session_id:
            text += f"  session {formatting.single_line(snapshot.session_id, 40)}"
        if snapshot.errors:
            yield (
                f"{text}  invalid: {formatting.single_line('; '.join(snapshot.errors), 160)}",
                "error",
            )
            continue
        if not changes and snapshot.index:
            text += "  no change"
        yield text, "head ok"
        for change in changes:
            yield f"      {change.summary()}", "ok"
            for text in change.examples:
                yield f"        {text}", _MARK_STYLES.get(text[:1], "log")


_MARK_STYLES: Final = {"+": "added", "-": "removed", "~": "warn"}


def _snapshot_data(snapshot: SnapshotPayload, changes: list[SliceChange]) -> dict[str, Any]:
    return {
        "index": snapshot.index,
        "created_at": snapshot.created_at,
        "session_id": snapshot.session_id,
        "parent_id": snapshot.parent_id,
        "tags": dict(snapshot.tags),
        "errors": list(snapshot.errors),
        "slices": [
            {
                "slice_type": part.slice_type,
                "item_type": part.item_type,
                "item_count": len(part.items),
            }
            for part in snapshot.slices
        ],
        "changes": [change.data() for change in changes],
    }


# --- logs ---------------------------------------------------------------------------------------


def _entries(content: ReadContent) -> Iterator[LogEntry]:
    for line in content.logs():
        entry = parse_log(line)
        if entry is not None:
            yield entry


def _log_rows(content: ReadContent) -> Iterator[Line]:
    malformed = 0
    for line in content.logs():
        entry = parse_log(line)
        if entry is None:
            malformed += 1
        else:
            yield _log_text(entry), _LEVEL_STYLES.get(our_level(entry.level), "ok")
    if malformed:
        yield f"! {malformed} malformed entries were skipped", "warn"


def _log_text(entry: LogEntry) -> str:
    """Format a log entry as a line with its context; long values are truncated."""
    message = formatting.single_line(entry.message, 200)
    if entry.event and entry.event != entry.message:
        event = formatting.single_line(entry.event, 60)
        message = f"{event}: {message}" if message else event
    context = list(entry.context.items())
    pairs = [
        f"{formatting.single_line(key, 40)}={_context_value(value)}"
        for key, value in context[:CONTEXT_SHOWN]
    ]
    if len(context) > CONTEXT_SHOWN:
        pairs.append(f"… {len(context) - CONTEXT_SHOWN} more (all with --json)")
    when = formatting.single_line(entry.timestamp, 32)[11:23] or "?"
    level, logger = formatting.single_line(entry.level, 8), formatting.single_line(entry.logger, 60)
    return f"{when:<12}  {level:<8} {logger}  {message}  {' '.join(pairs)}".rstrip()


def _context_value(value: Any) -> str:
    if value is None or isinstance(value, (str, int, float, bool)):
        return formatting.value(value, 60)
    try:
        return formatting.single_line(msgspec.json.encode(value).decode(), 60)
    except RecursionError:
        return "…"


def _log_data(entry: LogEntry) -> dict[str, Any]:
    return {
        "timestamp": entry.timestamp,
        "level": entry.level,
        "logger": entry.logger,
        "event": entry.event,
        "message": entry.message,
        "context": dict(entry.context),
        **entry.extra,
    }


# --- files and metadata -------------------------------------------------------------------------


def _file_rows(content: ReadContent) -> Iterator[Line]:
    files = sorted(content.files(), key=lambda file: file.path)
    damaged = content.damaged_files
    table = [
        [
            formatting.size(file.size_bytes),
            formatting.single_line(file.path, 200) + ("  damaged" if file.path in damaged else ""),
        ]
        for file in files
    ]
    yield from ((text, "ok") for text in columns(table, right=[0]))
    component = content.manifest.component("files")
    if not files:
        yield "No files.", "ok"
    for name, was in ((component.renamed if component else None) or {}).items():
        yield f"{formatting.single_line(name, 100)} was {formatting.single_line(was, 100)}", "log"
    for skipped in (component.skipped if component else None) or ():
        path = formatting.single_line(skipped.path, 120)
        yield f"left out: {path} ({formatting.single_line(skipped.reason, 80)})", "warn"


def _metadata_rows(content: ReadContent) -> Iterator[Line]:
    flat = list(_flat("", manifest_data(content.manifest)))
    yield from ((text, "ok") for text in columns([[key, value] for key, value in flat]))


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), inner)
    else:
        shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        yield formatting.single_line(prefix, 80), formatting.single_line(shown, 200)


_ROWS: Final[dict[View, Callable[[ReadContent], Iterator[Line]]]] = {
    "overview": _overview,
    "snapshots": _snapshot_rows,
    "logs": _log_rows,
    "files": _file_rows,
    "metadata": _metadata_rows,
}

__all__ = ["VIEWS", "BundleAnswer", "View"]
