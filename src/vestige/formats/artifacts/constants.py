"""The layout of a bundle: required paths, their types, and references of `bundle.json`.

    <root>/<suite>/<timestamp>/bundle.json, summary.json, trace/events.jsonl, ...

Tables, and pure functions about paths that validator, reader and writer share: whether a path is a
log or a screenshot, its kind, and whether it is safe inside a bundle.
"""

from __future__ import annotations

import posixpath
import re
from types import NoneType
from typing import Any, Final

import msgspec

from vestige.formats.artifacts import file_structs

BUNDLE: Final = "bundle.json"
TRACE: Final = "trace/events.jsonl"
LOGS_INDEX: Final = "logs/index.json"
SCREENSHOTS_INDEX: Final = "screenshots/index.json"
ENVIRONMENT: Final = "diagnostics/env_redacted.txt"
REPLAY_ENVIRONMENT: Final = "repro.env"
CASE_ARTIFACTS: Final = "trace/.case_artifacts.tsv"
"""The real writer's own notes (case, tab, path): on disk, and never listed."""
UNLISTED: Final = frozenset((BUNDLE, CASE_ARTIFACTS))

KINDS: Final = (
    "metadata",
    "metrics",
    "diagnostics",
    "trace",
    "transcript",
    "log",
    "screenshot",
    "fixture",
    "replay",
    "opaque",
)


class Part(msgspec.Struct, frozen=True):
    """A file that every bundle has."""

    path: str
    section: tuple[str, ...]
    """The member of `bundle.json.artifacts` that refers to it."""
    kind: str
    schema: str | None = None
    type: Any = None
    """The struct of the file, or of each of its lines."""


PARTS: Final = (
    Part("meta.json", ("metadata",), "metadata", "meta.v1", file_structs.MetaFile),
    Part("metrics.json", ("metrics",), "metrics", "metrics.v1", file_structs.Metrics),
    Part("summary.json", ("summary",), "metrics", "summary.v1", file_structs.Summary),
    Part(ENVIRONMENT, ("diagnostics", "env_redacted"), "diagnostics"),
    Part("diagnostics/tree.txt", ("diagnostics", "tree"), "diagnostics"),
    Part(TRACE, ("trace", "events"), "trace", "trace-events.v1", file_structs.TraceEvent),
    Part("transcript/summary.txt", ("transcript", "summary"), "transcript"),
    Part(LOGS_INDEX, ("logs", "index"), "log", "logs-index.v1", file_structs.FileIndex),
    Part(
        SCREENSHOTS_INDEX,
        ("screenshots", "index"),
        "screenshot",
        "screenshots-index.v1",
        file_structs.FileIndex,
    ),
    Part("fixtures.json", ("fixtures",), "fixture", "fixtures.v1", file_structs.Fixtures),
    Part("repro.txt", ("replay", "command"), "replay"),
    Part(REPLAY_ENVIRONMENT, ("replay", "environment"), "replay"),
    Part("repro.json", ("replay", "metadata"), "replay", "repro.v1", file_structs.Repro),
)
"""Files that the specification requires beside `bundle.json`."""

LATER_PARTS: Final = (
    Part("manifest.json", ("manifest",), "metadata", "e2e-manifest.v1", file_structs.Manifest),
    Part(
        "scenarios/index.json",
        ("scenarios", "index"),
        "replay",
        "scenarios-index.v1",
        file_structs.ScenariosIndex,
    ),
    Part(
        "scenarios/scenarios.jsonl",
        ("scenarios", "events"),
        "replay",
        "scenario-events.v1",
        file_structs.Scenario,
    ),
)
"""Files that later eras require too. Their kind is an old one, which the first era accepts."""

PART_OF: Final = {part.path: part for part in (*PARTS, *LATER_PARTS)}
REQUIRED: Final = (BUNDLE, *(part.path for part in PARTS))

SEED_TIMESTAMP = re.compile(r"\d{8}_\d{6}")
"""`20260210_170000`: how a bundle's directory is named."""

RFC3339 = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})")

_ODD = re.compile(r"(?:^|/)\.{0,2}(?:/|\Z)")
"""An empty step in a path, `.` or `..`."""

_LOG = re.compile(r"\.log(\.[^/]*)?\Z")
_SCREENSHOTS = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")
_DRIVE = re.compile(r"[A-Za-z]:")
_KIND_BY_FOLDER: Final = {
    "diagnostics": "diagnostics", "failures": "diagnostics", "trace": "trace", "steps": "trace",
    "transcript": "transcript", "logs": "log", "screenshots": "screenshot", "fixtures": "fixture",
    "scenarios": "replay",
}  # fmt: skip
_SCHEMA_BY_FOLDER: Final = {"failures": "failure.v1", "steps": "step.v1"}


def parts(later: bool = False) -> tuple[Part, ...]:
    """The files that a bundle must have; `later`: for later eras too."""
    return (*PARTS, *LATER_PARTS) if later else PARTS


def refs(later: bool = False) -> dict[str, Any]:
    """`bundle.json.artifacts`, as it has to be; `later`: as every era accepts it."""
    found: dict[str, Any] = {}
    for part in parts(later):
        ref = (
            {"path": part.path}
            if part.schema is None
            else {"path": part.path, "schema": part.schema}
        )
        *outer, last = part.section
        place = found
        for name in outer:
            place = place.setdefault(name, {})
        place[last] = ref
    return found


def is_log(path: str) -> bool:
    """Return whether logs/index.json must list a file: `*.log` and `*.log.*`."""
    return ".log" in path and _LOG.search(path) is not None


def is_screenshot(path: str) -> bool:
    """Check for a file that screenshots/index.json must list, in any folder."""
    return path.lower().endswith(_SCREENSHOTS)


MANIFEST_KEYS: Final[dict[str, dict[str, tuple[type, ...]]]] = {
    "environment": dict.fromkeys(("os", "arch", "rust_version", "binary_version"), (str,)),
    "server_config": {"port": (int, NoneType), "auth": (str,), "storage_root": (str,)},
}
"""The members of manifest.json that validators of later eras require."""


STATUSES: Final = ("pass", "fail", "skip", "unknown")
"""The statuses of a case in manifest.json and the scenarios."""


def kind_of(path: str) -> str:
    """Return the kind under which a writer lists a file."""
    if path in PART_OF:
        return PART_OF[path].kind
    if is_log(path):
        return "log"
    folder, slash, _ = path.partition("/")
    if is_screenshot(path):
        return "screenshot"
    return _KIND_BY_FOLDER.get(folder, "opaque") if slash else "opaque"


def schema_of(path: str) -> str | None:
    """Return the schema under which a writer lists a file."""
    if path in PART_OF:
        return PART_OF[path].schema
    folder, slash, rest = path.partition("/")
    return _SCHEMA_BY_FOLDER.get(folder) if slash and rest.endswith(".json") else None


def fault_of_path(path: str) -> str | None:
    """Return why a path is not safe inside a bundle, or None if it is."""
    if not path:
        return "is empty"
    if "\0" in path:
        return "holds a NUL"
    if path[0] in "/\\":
        return "is absolute"
    if _DRIVE.match(path):
        return "names a drive"
    if ".." in path.split("/"):
        return "holds `..`"
    return None


def is_alias(path: str) -> bool:
    """Return whether a safe path is not in its normal form: `./a`, `a//b`, `a\b`."""
    return "\\" in path or posixpath.normpath(path) != path


def plain(path: str) -> str:
    """Return the normal form of a safe path."""
    return posixpath.normpath(path) if _ODD.search(path) else path
