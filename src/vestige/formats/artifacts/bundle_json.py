"""Check `bundle.json` and compare it with the other files.

The valid parts of a partly wrong bundle.json are used, so that all problems of a bundle are
reported at once. Another major version is a different format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from vestige.formats.artifacts import constants
from vestige.formats.artifacts.file_structs import SCHEMA_MAJOR, SCHEMA_NAME, Bundle
from vestige.formats.artifacts.finding_report import Report
from vestige.formats.artifacts.json_files.json_schemas import bundle_schema
from vestige.formats.artifacts.json_files.parsing import DoubledKeyError, NotJsonError, parse_json
from vestige.formats.artifacts.json_files.schema_check import find_faults, shown
from vestige.formats.artifacts.read import Tree, UnreadablePartError
from vestige.limits import ARTIFACT_BUNDLE_MAX, MIB


class InventoryEntry(msgspec.Struct, frozen=True, gc=False):
    """A file as bundle.json lists it; None for values of a wrong type."""

    at: int
    sha256: str | None
    bytes: int | None


class Inventory:
    """The content of bundle.json."""

    def __init__(self) -> None:
        self.known = False
        """False if bundle.json has no list of files."""
        self.head: dict[str, Any] = {}
        """Everything but `files`."""
        self.files: dict[str, InventoryEntry] = {}
        """Keyed by the normalised path."""

    @property
    def minor(self) -> int:
        schema = self.head.get("schema")
        minor = schema.get("minor") if isinstance(schema, dict) else 0
        return minor if isinstance(minor, int) else 0


def read_inventory(tree: Tree, report: Report) -> Inventory | None:
    """Read the inventory. None: an unknown major version, which cannot be checked further."""
    found = Inventory()
    try:
        data = tree.read(constants.BUNDLE, ARTIFACT_BUNDLE_MAX)
    except UnreadablePartError as error:
        report.add(error.rule, constants.BUNDLE, error.message)
        return found
    if data is None:
        report.add("bundle-missing", constants.BUNDLE, "is not there.")
        return found
    if len(data) > ARTIFACT_BUNDLE_MAX:
        report.add(
            "json-too-large", constants.BUNDLE, f"is larger than {ARTIFACT_BUNDLE_MAX // MIB} MiB."
        )
        return found
    if report.profile != "strict":
        try:
            data.decode()  # of keys that the struct does not have, nobody looks at the bytes
            return _of_struct(msgspec.json.decode(data, type=Bundle), report)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            pass  # the thorough way says all that is wrong
    return _of_value(data, found, report)


def _of_struct(bundle: Bundle, report: Report) -> Inventory | None:
    found = Inventory()
    found.known = True
    # Everything but the files, as plain values; the files are many, and are right already.
    head = msgspec.structs.replace(bundle, files=[])
    found.head = msgspec.to_builtins(head)
    if not _check_major(found.head, report):
        return None
    if report.profile != "seed" or not _is_as_we_write(bundle):
        _check_shape(found.head, report)
    entries = (
        (at, entry.path, entry.sha256, entry.bytes, entry.kind, entry.schema)
        for at, entry in enumerate(bundle.files)
    )
    _take_entries(entries, found, report)
    return found


def _is_as_we_write(bundle: Bundle) -> bool:
    """Check what the struct does not, so that the schema need not be built."""
    expected = constants.refs()
    found = {name: bundle.artifacts.get(name) for name in expected}
    return bundle.schema.name == SCHEMA_NAME and found == expected


def _of_value(data: bytes, found: Inventory, report: Report) -> Inventory | None:
    try:
        value = parse_json(data, report.profile == "strict")
    except DoubledKeyError as error:
        report.add(error.rule, constants.BUNDLE, error.message)
        value = error.value
    except NotJsonError as error:
        place = f"line {error.line}" if error.line else ""
        report.add(error.rule, constants.BUNDLE, error.message, place)
        return found
    if not isinstance(value, dict):
        report.add("type-wrong", constants.BUNDLE, f"{shown(value)} is not an object.")
        return found
    if not _check_major(value, report):
        return None
    _check_shape(value, report)
    found.head = {key: inner for key, inner in value.items() if key != "files"}
    files = value.get("files")
    if isinstance(files, list):
        found.known = True
        _take_entries(_usable(files), found, report)
    return found


Entry = tuple[int, str, str | None, int | None, Any, Any]


def _usable(files: list[Any]) -> Iterator[Entry]:
    """Return the entries that name a file, whatever else is wrong with them."""
    for at, entry in enumerate(files):
        path = entry.get("path") if isinstance(entry, dict) else None
        if isinstance(path, str) and constants.fault_of_path(path) is None:
            sha256, size = entry.get("sha256"), entry.get("bytes")
            yield (
                at,
                path,
                sha256 if isinstance(sha256, str) else None,
                size if type(size) is int else None,
                entry.get("kind"),
                entry.get("schema"),
            )


def _check_major(head: dict[str, Any], report: Report) -> bool:
    schema = head.get("schema")
    major = schema.get("major") if isinstance(schema, dict) else None
    if type(major) is not int or major == SCHEMA_MAJOR:
        return True
    age = "newer" if major > SCHEMA_MAJOR else "older"
    message = (
        f"major version {major} is {age} than this validator knows ({SCHEMA_MAJOR});"
        " nothing else was checked."
    )
    report.add("schema-major", constants.BUNDLE, message, "/schema/major")
    return False


def _check_shape(value: dict[str, Any], report: Report) -> None:
    for fault in find_faults(value, bundle_schema(report.profile == "latest")):
        report.add(fault.rule, constants.BUNDLE, fault.message, fault.pointer)
    if report.profile == "strict":
        for key in ("generated_at", "started_at", "ended_at"):
            check_time(value.get(key), f"/{key}", constants.BUNDLE, report)
        stamp = value.get("timestamp")
        if isinstance(stamp, str) and constants.SEED_TIMESTAMP.fullmatch(stamp) is None:
            report.add(
                "time-shape",
                constants.BUNDLE,
                f"{shown(stamp)} is not YYYYMMDD_HHMMSS.",
                "/timestamp",
            )


def check_time(value: Any, pointer: str, file: str, report: Report) -> None:
    if isinstance(value, str) and constants.RFC3339.fullmatch(value) is None:
        report.add("time-shape", file, f"{shown(value)} is not RFC 3339.", pointer)


def _take_entries(entries: Iterable[Entry], found: Inventory, report: Report) -> None:
    known = {part.path: part for part in constants.parts(report.profile == "latest")}
    kinds_open = found.minor > 0
    strict = report.profile == "strict"
    for at, path, sha256, size, kind, schema in entries:
        plain = path if path in known else constants.plain(path)
        if strict and constants.is_alias(path):
            report.add(
                "path-alias",
                constants.BUNDLE,
                f"{shown(path)} is written {shown(plain)}.",
                f"/files/{at}/path",
            )
        if isinstance(kind, str) and kind not in _KINDS and not kinds_open:
            report.add(
                "kind-unknown",
                constants.BUNDLE,
                f"{shown(kind)} is none of {', '.join(constants.KINDS)}.",
                f"/files/{at}/kind",
            )
        if plain in known and schema != known[plain].schema:
            report.add(
                "entry-schema",
                constants.BUNDLE,
                f"{plain}: {shown(schema)} should be {shown(known[plain].schema)}.",
                f"/files/{at}/schema",
            )
        if plain in found.files:
            report.add(
                "path-duplicate",
                constants.BUNDLE,
                f"{shown(path)} is listed twice.",
                f"/files/{at}/path",
            )
            continue
        found.files[plain] = InventoryEntry(at, sha256, size)


_KINDS = frozenset(constants.KINDS)
