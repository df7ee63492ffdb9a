"""The rules of an artifact bundle: id, requirement, and the clause of the specification.

A rule belongs to the first profile that enforces it:

    seed      the requirements of the specification, stated or implied (the default)
    latest    seed, and the requirements of later eras of the same schema
    strict    seed, and rules that the specification does not state but readers depend on

Elsewhere: formats/artifacts/validate.py checks them; docs/reference/rules.md is generated from this
table.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Profile = Literal["seed", "latest", "strict"]
PROFILES: Final[tuple[Profile, ...]] = ("seed", "latest", "strict")


class Rule(msgspec.Struct, frozen=True):
    """A rule that a bundle must follow."""

    id: str
    profile: Profile
    meaning: str
    """The requirement, in one line."""
    clause: str
    """The part of the specification that says so."""
    hint: str = ""
    """Advice if it is broken."""
    warning: bool = False
    """It could not be checked; that alone makes no bundle invalid."""


_LAYOUT = "Bundle Layout"
_BUNDLE = "bundle.json Schema"
_ENTRY = "bundle.json Schema: file inventory entry"
_TYPED = "Required Typed Artifact Schemas"
_TRACE = "trace/events.jsonl"
_CHECKS = "Validator enforcement"
_VERSION = "Versioning / Evolution Strategy"
_TAXONOMY = "Artifact Taxonomy"
_SILENT = "the text is silent"
_LATER = "later eras of schema 1.0"
_REWRITE = "Write the bundle again; do not edit its files."

_ALL: Final = (
    # what there is
    Rule(
        "bundle-missing",
        "seed",
        "A bundle has a `bundle.json`.",
        _LAYOUT,
        "If the suite was killed, `vestige store recover` finishes its bundle.",
    ),
    Rule(
        "suite-without-bundle",
        "seed",
        "Every suite of a tree has a bundle.",
        "CI enforcement",
        "Run the suite again, or remove the directory.",
    ),
    Rule("file-missing", "seed", "The required files are there.", _LAYOUT, _REWRITE),
    Rule(
        "file-unlisted",
        "seed",
        "Every file on disk is in the inventory.",
        _LAYOUT + ": authoritative inventory",
        "List it in bundle.json, or remove it.",
    ),
    Rule("file-unreadable", "seed", "Every file can be read.", _CHECKS),
    Rule("file-special", "seed", "A bundle holds files and folders only.", _CHECKS),
    Rule(
        "symlink-escapes",
        "seed",
        "No symlink leads out of the bundle, or nowhere.",
        _ENTRY,
        "Copy the file into the bundle.",
    ),
    # JSON
    Rule("json-empty", "seed", "A typed file is not empty.", _TYPED, _REWRITE),
    Rule("json-invalid", "seed", "`*.json` is JSON, unless it is empty and untyped.", _CHECKS),
    Rule(
        "jsonl-invalid",
        "seed",
        "Every line of `*.jsonl` and `*.ndjson` is JSON, or empty.",
        _CHECKS,
    ),
    Rule("json-utf8", "seed", "JSON is UTF-8.", _CHECKS, "Write it as UTF-8."),
    Rule(
        "json-bom",
        "seed",
        "JSON does not begin with a byte order mark.",
        _CHECKS,
        "Write it without one.",
    ),
    Rule("json-nan", "seed", "NaN and infinities are no JSON.", _CHECKS, "Write null, or a text."),
    Rule("json-too-large", "seed", "A typed file is small enough to be checked.", _TYPED),
    Rule(
        "json-unchecked",
        "seed",
        "There is room to look through an artifact.",
        _CHECKS,
        "It was hashed; whether it is JSON is not known.",
        warning=True,
    ),
    # shapes
    Rule("key-missing", "seed", "Required keys are there.", _TYPED, _REWRITE),
    Rule(
        "type-wrong",
        "seed",
        "Values have the type of their schema; `true` and `1.0` are no ints.",
        _TYPED,
    ),
    Rule("number-negative", "seed", "Sizes and counts are not negative.", _ENTRY),
    Rule("sha256-shape", "seed", "A sha256 is 64 lowercase hex digits, and nothing more.", _ENTRY),
    Rule(
        "path-unsafe",
        "seed",
        "A path is relative, inside the bundle, without `..`.",
        _ENTRY,
        "Name the file relative to the bundle root, with forward slashes.",
    ),
    # bundle.json
    Rule("schema-name", "seed", "`schema.name` is the one that the contract fixes.", _VERSION),
    Rule(
        "schema-major",
        "seed",
        "`schema.major` is one that this validator knows.",
        _VERSION,
        "Upgrade vestige, or validate with the tool that wrote it.",
    ),
    Rule("ref-missing", "seed", "`artifacts` has every section.", _TAXONOMY, _REWRITE),
    Rule("ref-path", "seed", "A section refers to the file that the layout gives it.", _TAXONOMY),
    Rule("ref-schema", "seed", "A section names the schema of its file.", _TAXONOMY),
    Rule(
        "kind-unknown",
        "seed",
        "A file's kind is one of the ten; a minor above 0 may add some.",
        _ENTRY,
    ),
    Rule("entry-schema", "seed", "The inventory names the schema of a typed file.", _ENTRY),
    Rule("path-duplicate", "seed", "A path is listed once.", _ENTRY),
    Rule("entry-without-file", "seed", "A listed file is there.", _CHECKS, _REWRITE),
    Rule("bytes-differ", "seed", "A listed size is that of the file.", _CHECKS, _REWRITE),
    Rule(
        "sha256-differs",
        "seed",
        "A listed hash is that of the file.",
        _ENTRY,
        "The file was changed after the bundle was written, or damaged.",
    ),
    # typed files against bundle.json
    Rule("suite-differs", "seed", "`suite` is the same in every typed file.", _TYPED),
    Rule(
        "timestamp-differs",
        "seed",
        "`timestamp` is the same in every typed file and trace line.",
        _TRACE,
    ),
    Rule(
        "summary-version",
        "seed",
        "`schema_version` of summary.json is 1.",
        _TYPED,
        "Upgrade vestige, or validate with the tool that wrote it.",
    ),
    Rule("counts-differ", "seed", "The counts of metrics.json are those of bundle.json.", _TYPED),
    Rule("fixture-duplicate", "seed", "`fixture_ids` are unique.", "fixtures.json"),
    Rule("index-entry-unlisted", "seed", "What an index lists, the inventory lists.", _CHECKS),
    Rule(
        "index-entry-differs", "seed", "An index has the size and hash of the inventory.", _CHECKS
    ),
    Rule("index-alien", "seed", "The indexes list logs and screenshots only.", _LAYOUT),
    Rule("index-incomplete", "seed", "The indexes list every log and every screenshot.", _LAYOUT),
    # the trace
    Rule(
        "trace-schema-version",
        "seed",
        "`schema_version` of a trace line is 1 (`latest`: or 2).",
        _TRACE,
    ),
    Rule(
        "trace-kind-missing",
        "seed",
        "A trace has a suite_start and a suite_end.",
        _TRACE,
        "If the suite was killed, `vestige store recover` finishes its bundle.",
    ),
    # later eras
    Rule("later-file-missing", "latest", "manifest.json and the scenario files are there.", _LATER),
    Rule(
        "later-key-missing",
        "latest",
        "manifest.json has every key of `environment` and `server_config`.",
        _LATER,
    ),
    Rule(
        "later-case",
        "latest",
        "A case of manifest.json is there once, with a known status.",
        _LATER,
    ),
    Rule(
        "later-scenario",
        "latest",
        "A scenario says where it ran, its trace, its replay and its diagnostics.",
        _LATER,
    ),
    Rule("later-ref-missing", "latest", "`artifacts` has `manifest` and `scenarios`.", _LATER),
    Rule(
        "scenario-count-differs",
        "latest",
        "`scenario_count` counts the lines of scenarios.jsonl.",
        _LATER,
    ),
    # strict
    Rule("symlink", "strict", "A bundle holds no symlinks.", _SILENT, "Copy the file instead."),
    Rule(
        "path-alias",
        "strict",
        "A path is written in the one plain way.",
        _SILENT,
        "Without `./`, `//`, and backslashes.",
    ),
    Rule("path-case", "strict", "No two paths differ only in case.", _SILENT),
    Rule("json-duplicate-key", "strict", "An object has a key once.", _SILENT),
    Rule("schema-version", "strict", "`schema_version` of a typed file is 1.", _SILENT),
    Rule("trace-order", "strict", "suite_start is the first event, suite_end the last.", _SILENT),
    Rule("counters-fall", "strict", "The counters of a trace never fall.", _SILENT),
    Rule("summary-differs", "strict", "summary.json says what bundle.json says.", _SILENT),
    Rule("time-shape", "strict", "Times are RFC 3339, timestamps YYYYMMDD_HHMMSS.", _SILENT),
    # a zip of a bundle
    Rule("zip-name", "seed", "Names in an archive stay inside it, and occur once.", _ENTRY),
    Rule("zip-damaged", "seed", "What an archive holds can be read, within bounds.", _CHECKS),
    # bounds
    Rule("too-many", "seed", "Files and findings are few enough to be reported.", _CHECKS),
)

RULES: Final = {rule.id: rule for rule in _ALL}


def applies(rule: Rule, profile: Profile) -> bool:
    return rule.profile in ("seed", profile)
