"""The typed files other than bundle.json and the trace: shape, and agreement with bundle.json."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from vestige.formats.artifacts import constants
from vestige.formats.artifacts.bundle_json import Inventory, check_time
from vestige.formats.artifacts.constants import Part
from vestige.formats.artifacts.file_structs import Fixtures
from vestige.formats.artifacts.finding_report import Report
from vestige.formats.artifacts.json_files.json_schemas import schema_of
from vestige.formats.artifacts.json_files.parsing import DoubledKeyError, NotJsonError, parse_json
from vestige.formats.artifacts.json_files.schema_check import find_faults, shown

_INDEXED = {
    constants.LOGS_INDEX: constants.is_log,
    constants.SCREENSHOTS_INDEX: constants.is_screenshot,
}
_NAMES = {"suite": "suite", "test_suite": "suite", "timestamp": "timestamp"}
_TIMES = ("started_at", "ended_at", "finished_at", "run_started_at")


def check_untyped(path: str, data: bytes, report: Report) -> None:
    """Check any other `*.json`: it must be JSON, or blank."""
    if data.isspace() or not data:
        return
    try:
        parse_json(data, report.profile == "strict")
    except NotJsonError as error:
        report_bad_json(error, path, report)


def check_typed(part: Part, data: bytes, inventory: Inventory, report: Report) -> Any:
    """Check a typed file. Return its value if it is an object, else an empty one."""
    try:
        value = parse_json(data, report.profile == "strict")
    except DoubledKeyError as error:
        report_bad_json(error, part.path, report)
        value = error.value
    except NotJsonError as error:
        report_bad_json(error, part.path, report)
        return {}
    if report.profile == "strict" or not _fits(data, part.type):
        for fault in find_faults(value, schema_of(part.type)):
            report.add(fault.rule, part.path, fault.message, fault.pointer)
    if not isinstance(value, dict):
        return {}
    check_names(value, part.path, inventory, report)
    version = value.get("schema_version")
    if part.path == "summary.json" and type(version) is int and version != 1:
        report.add("summary-version", part.path, f"{version} should be 1.", "/schema_version")
    if part.path == "manifest.json":
        _check_later_keys(value, part.path, report)
    if part.path == "metrics.json":
        _check_counts("counts-differ", value.get("counts"), part.path, "/counts", inventory, report)
    elif part.path in _INDEXED:
        _check_index(value, part.path, inventory, report)
    if report.profile == "strict":
        _check_strict(value, part.path, inventory, report)
    return value


def _fits(data: bytes, type: Any) -> bool:
    """Check a file against its struct. Faster than its schema, which must be built first."""
    try:
        value = _decoder(type).decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    # What its schema says and a struct cannot.
    return not isinstance(value, Fixtures) or len(set(value.fixture_ids)) == len(value.fixture_ids)


@cache
def _decoder(type: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type)


def report_bad_json(error: NotJsonError, path: str, report: Report) -> None:
    report.add(error.rule, path, error.message, f"line {error.line}" if error.line else "")


def check_names(value: dict[str, Any], path: str, inventory: Inventory, report: Report) -> None:
    """Check that a file states the suite and timestamp of its bundle."""
    for key, name in _NAMES.items():
        own, expected = value.get(key), inventory.head.get(name)
        if isinstance(own, str) and isinstance(expected, str) and own != expected:
            report.add(
                f"{name}-differs",
                path,
                f"{shown(own)} is {shown(expected)} in bundle.json.",
                f"/{key}",
            )


def _check_counts(
    rule: str, own: Any, path: str, pointer: str, inventory: Inventory, report: Report
) -> None:
    expected = inventory.head.get("counts")
    if not isinstance(own, dict) or not isinstance(expected, dict):
        return
    for name in ("total", "pass", "fail", "skip"):
        a, b = own.get(name), expected.get(name)
        if type(a) is int and type(b) is int and a != b:
            report.add(rule, path, f"{a} is {b} in bundle.json.", f"{pointer}/{name}")


def _check_later_keys(value: dict[str, Any], path: str, report: Report) -> None:
    """Check what later eras require of manifest.json beyond its types."""
    for name, keys in constants.MANIFEST_KEYS.items():
        inner = value.get(name)
        for key, kinds in keys.items():
            if not isinstance(inner, dict) or key not in inner:
                report.add("later-key-missing", path, "is not there.", f"/{name}/{key}")
            elif type(inner[key]) not in kinds:
                report.add(
                    "later-key-missing",
                    path,
                    f"{shown(inner[key])} is of another type.",
                    f"/{name}/{key}",
                )
    cases = value.get("cases")
    names: set[str] = set()
    for at, case in enumerate(cases if isinstance(cases, list) else ()):
        own = case.get("name") if isinstance(case, dict) else None
        if isinstance(own, str):
            if own in names:
                report.add("later-case", path, f"{shown(own)} is there twice.", f"/cases/{at}/name")
            names.add(own)
            status = case.get("status")
            if isinstance(status, str) and status not in constants.STATUSES:
                report.add(
                    "later-case",
                    path,
                    f"{shown(status)} is none of {', '.join(constants.STATUSES)}.",
                    f"/cases/{at}/status",
                )


def _check_index(value: dict[str, Any], path: str, inventory: Inventory, report: Report) -> None:
    files = value.get("files")
    for at, entry in enumerate(files if isinstance(files, list) else ()):
        name = entry.get("path") if isinstance(entry, dict) else None
        if not isinstance(name, str) or constants.fault_of_path(name) is not None:
            continue
        if not _INDEXED[path](name):
            what = "log" if path == constants.LOGS_INDEX else "screenshot"
            report.add("index-alien", path, f"{shown(name)} is no {what}.", f"/files/{at}/path")
        if not inventory.known:
            continue
        listed = inventory.files.get(constants.plain(name))
        if listed is None:
            report.add(
                "index-entry-unlisted",
                path,
                f"{shown(name)} is not in bundle.json.",
                f"/files/{at}/path",
            )
            continue
        for key, expected in (("bytes", listed.bytes), ("sha256", listed.sha256)):
            own = entry.get(key)
            if own is not None and expected is not None and own != expected:
                report.add(
                    "index-entry-differs",
                    path,
                    f"{name}: {shown(own)} is {shown(expected)} in bundle.json.",
                    f"/files/{at}/{key}",
                )


def find_incomplete(indexes: dict[str, Any], paths: list[str], report: Report) -> None:
    """Find logs and screenshots on disk that their index leaves out."""
    for path, belongs in _INDEXED.items():
        files = indexes.get(path, {}).get("files")
        if not isinstance(files, list):
            continue
        names = [entry.get("path") for entry in files if isinstance(entry, dict)]
        listed = {constants.plain(name) for name in names if isinstance(name, str)}
        for name in paths:
            if belongs(name) and name not in listed:
                report.add("index-incomplete", path, f"{shown(name)} is not listed.", "/files")


def _check_strict(value: dict[str, Any], path: str, inventory: Inventory, report: Report) -> None:
    version = value.get("schema_version")
    if type(version) is int and version != 1 and path != "summary.json":
        report.add("schema-version", path, f"{version} should be 1.", "/schema_version")
    for key in _TIMES:
        check_time(value.get(key), f"/{key}", path, report)
    if path == "summary.json":
        _check_counts("summary-differs", value, path, "", inventory, report)
        for key in ("started_at", "ended_at"):
            own, expected = value.get(key), inventory.head.get(key)
            if isinstance(own, str) and isinstance(expected, str) and own != expected:
                report.add(
                    "summary-differs",
                    path,
                    f"{shown(own)} is {shown(expected)} in bundle.json.",
                    f"/{key}",
                )
