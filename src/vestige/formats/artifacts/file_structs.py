"""Structs of the typed files of an artifact bundle, with the fields that a validator requires.

    bundle = msgspec.json.decode(data, type=Bundle)      # or a ValidationError that names one place
    msgspec.json.encode(Summary(...))

Required fields come first. The optional fields after them are added by later eras or by the writer
of Vestige. Unknown keys are allowed everywhere: a minor version may add them.

Decoding is strict (`true` and `1.0` are not ints, NaN is not JSON), but stops at the first fault.
formats/artifacts/json_files/schema_check.py finds all faults, with the JSON Schema that is
generated from these structs (formats/artifacts/json_files/json_schemas.py).

Elsewhere: formats/artifacts/constants.py maps paths to types and lists the references that
`bundle.json` must have.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

_RULE = "x-rule"
"""The rule (validation_rules.py) that a value breaks if it does not fit its pattern or bound."""

Natural = Annotated[int, Meta(ge=0, extra_json_schema={_RULE: "number-negative"})]
Sha256 = Annotated[
    str,
    # Python's `$` also matches before a last newline; ECMA's does not. This means one thing in
    # both.
    Meta(pattern=r"^[0-9a-f]{64}(?!\n)$", extra_json_schema={_RULE: "sha256-shape"}),
]
RelativePath = Annotated[
    str,
    # As layout.fault_of_path (not empty, no NUL, not absolute, no drive, no `..`), and not a
    # folder.
    Meta(
        pattern=(
            r"^(?![/\\]|[A-Za-z]:)(?!(?:[^\0]*/)?\.\.(?:/|$(?!\n)))"
            r"(?![^\0]*/\.?$(?!\n))[^\0]+$"
        ),
        extra_json_schema={_RULE: "path-unsafe"},
    ),
]
Time = str
"""RFC 3339 in UTC, to the second: `2026-02-10T17:00:05Z`. The profile `strict` checks the shape."""

SCHEMA_NAME: Final = "mcp-agent-mail-artifacts"
SCHEMA_MAJOR: Final = 1


class Counts(msgspec.Struct, frozen=True, gc=False, rename={"passed": "pass"}):
    """`total` counts cases, the others count assertions: they need not add up."""

    total: Natural
    passed: Natural
    fail: Natural
    skip: Natural


class Git(msgspec.Struct, frozen=True):
    commit: str
    branch: str
    dirty: bool


# --- bundle.json ---------------------------------------------------------------------------------


class SchemaId(msgspec.Struct, frozen=True):
    """A new major is another contract; a new minor only adds."""

    name: str
    major: int
    minor: Natural


class FileEntry(msgspec.Struct, frozen=True, gc=False):
    """A file of the bundle. `bundle.json` itself is not listed."""

    path: RelativePath
    """Relative to the bundle root, forward slashes, no `..`."""
    sha256: Sha256
    bytes: Natural
    kind: str
    """A kind of layout.KINDS; a minor version above 0 may add some."""
    schema: str | None
    """The schema of a typed file; else null."""


class Bundle(msgspec.Struct, frozen=True):
    """`bundle.json`: what there is, and where the parts of a suite's evidence begin."""

    schema: SchemaId
    suite: str
    timestamp: str
    """The time in the name of the directory: `20260210_170000`; equal in all typed files."""
    generated_at: Time
    started_at: Time
    ended_at: Time
    counts: Counts
    git: Git
    artifacts: dict[str, Any]
    """The file of each section, or names of several: `constants` has those that must be there."""
    files: list[FileEntry]


# --- the typed files -----------------------------------------------------------------------------


class Summary(msgspec.Struct, frozen=True, rename={"passed": "pass"}):
    """`summary.json`, `summary.v1`."""

    schema_version: int
    suite: str
    timestamp: str
    started_at: Time
    ended_at: Time
    total: Natural
    passed: Natural
    fail: Natural
    skip: Natural


class MetaFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """`meta.json`, `meta.v1`."""

    schema_version: int
    suite: str
    timestamp: str
    started_at: Time
    ended_at: Time
    git: Git
    runner: dict[str, Any]
    """Informational: user, hostname, os, python, ..."""
    paths: dict[str, Any]
    """Informational: project_root, artifact_dir."""
    determinism: dict[str, Any] | UnsetType = UNSET


class Timing(msgspec.Struct, frozen=True):
    start_epoch_s: int
    end_epoch_s: int
    duration_s: int


class Metrics(msgspec.Struct, frozen=True):
    """`metrics.json`, `metrics.v1`."""

    schema_version: int
    suite: str
    timestamp: str
    timing: Timing
    counts: Counts


class Fixtures(msgspec.Struct, frozen=True):
    """`fixtures.json`, `fixtures.v1`."""

    schema_version: int
    suite: str
    timestamp: str
    fixture_ids: Annotated[
        list[str], Meta(extra_json_schema={"uniqueItems": True, _RULE: "fixture-duplicate"})
    ]


class Repro(msgspec.Struct, frozen=True, omit_defaults=True):
    """`repro.json`, `repro.v1`."""

    schema_version: int
    suite: str
    timestamp: str
    clock_mode: str
    seed: int
    run_started_at: Time
    run_start_epoch_s: int
    command: str


class IndexEntry(msgspec.Struct, frozen=True, gc=False):
    """A file with the same size and hash as in the inventory of `bundle.json`."""

    path: RelativePath
    bytes: Natural
    sha256: Sha256


class FileIndex(msgspec.Struct, frozen=True):
    """`logs/index.json`, `logs-index.v1`, and `screenshots/index.json`, `screenshots-index.v1`."""

    schema_version: int
    suite: str
    timestamp: str
    files: list[IndexEntry]


# --- the trace -----------------------------------------------------------------------------------


class TraceEvent(msgspec.Struct, omit_defaults=True, gc=False):
    """A line of `trace/events.jsonl`, `trace-events.v1`."""

    schema_version: int
    suite: str
    run_timestamp: str
    """Equals the bundle's `timestamp`."""
    ts: str
    kind: str
    """Readers know those of `trace_events.py`; at least suite_start and suite_end occur."""
    case: str
    """Empty when not in a case."""
    message: str
    counters: Counts
    """The counters after the event."""
    elapsed_ms: float | UnsetType = UNSET
    """The duration, in a `case_end` or an assertion."""
    assertion_id: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    """The result, in a `case_end` of our writer: `pass`, `fail`, `skip`, `unknown`."""
    run_id: str | UnsetType = UNSET
    """In a `suite_start` of our writer: the run that recorded the suite, a UUIDv4."""
    span_id: str | UnsetType = UNSET
    """In a `case_start` of our writer: the case's span in that run."""
    tool: str | UnsetType = UNSET
    """In a `suite_start` of our writer: the program that wrote it.

    Such a trace ends every case with `case_end`, so cases may run side by side. In another trace, a
    case ends where the next one begins.
    """
    attempt: int | UnsetType = UNSET
    """In a `case_start`: 2 for the first rerun."""
    path: str | UnsetType = UNSET
    """In an `attachment`: the file, relative to the bundle root."""
    folded: bool | UnsetType = UNSET
    """In a `case_end` of a large suite: it replaces the case's `case_start` and `assert_pass`."""


# --- what later eras require (profile `latest`) --------------------------------------------------


class ManifestCase(msgspec.Struct, frozen=True, gc=False):
    name: str
    status: str
    assertion_count: Natural
    duration_ms: Natural
    artifacts: list[str]


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """`manifest.json`, `e2e-manifest.v1`."""

    schema_version: int
    test_suite: str
    started_at: Time
    finished_at: Time
    rerun_command: str
    cases: list[ManifestCase]
    environment: dict[str, Any] | UnsetType = UNSET
    server_config: dict[str, Any] | UnsetType = UNSET


class ScenariosIndex(msgspec.Struct, frozen=True, omit_defaults=True):
    """`scenarios/index.json`, `scenarios-index.v1`."""

    schema_version: int
    suite: str
    timestamp: str
    scenario_count: Natural
    statuses: dict[str, Natural]
    scenarios_jsonl: str
    replay: dict[str, Any] | UnsetType = UNSET
    diagnostics: dict[str, Any] | UnsetType = UNSET
    generated_from: dict[str, Any] | UnsetType = UNSET


class Scenario(msgspec.Struct, omit_defaults=True):
    """A line of `scenarios/scenarios.jsonl`, `scenario-events.v1`."""

    schema_version: int
    suite: str
    run_timestamp: str
    case: str
    status: str
    assertion_count: Natural
    duration_ms: Natural
    artifacts: list[dict[str, Any]]
    failures: list[dict[str, Any]]
    artifact_dir: str | UnsetType = UNSET
    diagnostics: dict[str, Any] | UnsetType = UNSET
    replay: dict[str, Any] | UnsetType = UNSET
    trace: dict[str, Any] | UnsetType = UNSET
