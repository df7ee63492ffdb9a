"""The manifest: the subject and the contents of a bundle.

The fields of the wink format in their order, version "1". In addition each component has a `sha256`
and may count the parts that were left out (`dropped_entries`, `skipped`).

    manifest = parse_manifest(raw, where="crash.wink")     # raises, one line each
    raw = render_manifest(manifest)                        # the same manifest: the same bytes

A manifest is read strictly where it decides how everything else is read. Values that decide
nothing (a tag that is a number, an error that is a text) are converted and reported. Keys that
are not known here are kept, and written again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec

from vestige.errors import BundleComponentMissingError, BundleCorruptedError, BundleVersionError
from vestige.limits import BUNDLE_MANIFEST_MAX, BUNDLE_NESTING_MAX
from vestige.record.coercion import clean_text
from vestige.record.types import Count

VERSION: Final = "1"
MANIFEST: Final = "manifest.json"
SNAPSHOTS: Final = "snapshots.jsonl"
LOGS: Final = "logs.jsonl"
FILES: Final = "files/"
LISTING: Final = "files.sha256"
"""The hash of every file, one line each, as `sha256sum` writes it: `sha256sum -c` can check it."""

LEFT_OUT: Final = "components_left_out"
"""Components of another program's bundle whose content was not imported."""

OUTCOMES: Final = ("success", "failure", "timeout", "cancelled")
"""`in_progress` too, but never in a file that was finalized."""
UNKNOWN: Final = "unknown"
"""The outcome of a source that does not name one: a bare file of snapshots."""
INTERRUPTED: Final = "Interrupted"
"""`error.type` of a run that was killed: the format has no outcome for it, so it is a failure."""

_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]


class Agent(msgspec.Struct, frozen=True):
    """Who ran."""

    name: str
    version: str | None = None
    adapter: str = ""
    model: str = ""


class Execution(msgspec.Struct, frozen=True):
    """When, and how it ended."""

    started_at: str
    ended_at: str | None = None
    duration_seconds: float | None = None
    outcome: str = "in_progress"
    error: dict[str, Any] | None = None

    @property
    def shown_outcome(self) -> str:
        """Return the outcome to show: `interrupted` for a killed run, a failure on disk."""
        if self.outcome == "failure" and (self.error or {}).get("type") == INTERRUPTED:
            return "interrupted"
        return self.outcome


class Skipped(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that was left out of a bundle, and why."""

    path: str
    reason: str
    size_bytes: Count | None = None


class Component(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of the bundle. Counts and sizes that it does not have are not written."""

    path: Name
    entry_count: Count | None = None
    size_bytes: Count | None = None
    file_count: Count | None = None
    total_size_bytes: Count | None = None
    sha256: str | None = None
    """The hash of the member; for files, the hash of the listing, which has those of the files."""
    listing: str | None = None
    """The path of the listing of files."""
    renamed: dict[str, str] | None = None
    """Files whose own path is not safe everywhere: the path here, and what it was."""
    dropped_entries: Count | None = None
    """The number of log entries that rotation deleted."""
    dropped_bytes: Count | None = None
    lost_records: Count | None = None
    """The number of records that the disk could not store during the capture."""
    skipped: list[Skipped] | None = None
    """Files that were left out: too large, excluded, unreadable."""
    redacted: list[str] | None = None
    """Files in which a secret was redacted, so their bytes differ from the originals."""


class Manifest(msgspec.Struct, frozen=True):
    """The subject and the contents of a bundle."""

    version: str
    bundle_id: Name
    created_at: str
    session_id: str
    agent: Agent
    execution: Execution
    environment: dict[str, Any] = {}
    components: dict[str, Component] = {}
    tags: dict[str, str] = {}
    extra: dict[str, Any] = {}
    """Keys that are not known here, where they stood; written again by `render_manifest`."""

    def component(self, name: str) -> Component | None:
        return self.components.get(name)


Report = Callable[[str, str], None]
"""Called with a JSON pointer and a message for each value that had to be converted."""


def _ignore(place: str, message: str) -> None:
    """Report nothing."""


def manifest_data(manifest: Manifest) -> dict[str, Any]:
    """Return the manifest as JSON data, with the keys that are not known here."""
    data: dict[str, Any] = msgspec.to_builtins(manifest)
    return _merged(data, data.pop("extra"))


def _merged(data: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Add keys that are not there; in objects that are, too."""
    for key, value in more.items():
        there = data.get(key)
        if isinstance(there, dict) and isinstance(value, dict):
            _merged(there, value)
        elif key not in data:
            data[key] = value
    return data


def render_manifest(manifest: Manifest) -> bytes:
    """Return indented JSON, for people. Equal manifests give equal bytes."""
    data = manifest_data(manifest)
    try:
        raw = msgspec.json.encode(data)
    except UnicodeEncodeError:
        # Lone surrogates, in a tag or in the name that a file had: written out.
        raw = msgspec.json.encode(_cleaned(data))
    return msgspec.json.format(raw, indent=2) + b"\n"


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cleaned(inner) for inner in value]
    return value


def parse_manifest(raw: bytes, where: str, report: Report = _ignore) -> Manifest:
    """Parse a manifest that can be relied on; raise, with one line, for any other."""
    if len(raw) > BUNDLE_MANIFEST_MAX:
        raise BundleCorruptedError(
            f"{where}: {MANIFEST} of {len(raw)} bytes (expected at most {BUNDLE_MANIFEST_MAX})."
        )
    _check_nesting(raw, where)
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BundleCorruptedError(f"{where}: {MANIFEST} is not JSON: {error}.") from None
    if not isinstance(found, dict):
        raise BundleCorruptedError(f"{where}: {MANIFEST} is not a JSON object.")
    _check_version(found, where, report)
    _convert_values(found, report)
    extra = _take_unknown(found)
    try:
        manifest = msgspec.convert({**found, "extra": extra}, Manifest)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BundleCorruptedError(f"{where}: {MANIFEST} is not a manifest: {error}.") from None
    _check_values(manifest, where)
    return manifest


def _check_version(found: dict[str, Any], where: str, report: Report) -> None:
    version = found.get("version")
    if version is None:
        raise BundleCorruptedError(f"{where}: {MANIFEST} has no version (expected {VERSION!r}).")
    if type(version) is int and str(version) == VERSION:
        report("/version", f"version is the number {version} (expected the text {VERSION!r}).")
        found["version"] = VERSION
    elif version != VERSION:
        raise BundleVersionError(
            f"{where}: bundle version {repr(version)[:40]} is not known (this reader knows"
            f" {VERSION!r}). Upgrade vestige, or export it again as {VERSION}."
        )


def _convert_values(found: dict[str, Any], report: Report) -> None:
    """Convert values that decide nothing and have the wrong type."""
    for key in ("tags", "environment", "components"):
        if key in found and found[key] is None:
            del found[key]
    _convert_agent(found, report)
    tags = found.get("tags")
    if isinstance(tags, dict):
        for key, value in tags.items():
            if not isinstance(value, str):
                tags[key] = msgspec.json.encode(value).decode()
                report(f"/tags/{key[:60]}", f"{tags[key][:60]} is not a text (expected one).")
    execution = found.get("execution")
    if not isinstance(execution, dict):
        return
    error = execution.get("error")
    if error is not None and not isinstance(error, dict):
        text = error if isinstance(error, str) else msgspec.json.encode(error).decode()
        execution["error"] = {"message": text}
        report("/execution/error", "not an object (expected one); taken as its message.")


def _convert_agent(found: dict[str, Any], report: Report) -> None:
    """Give texts to the fields that only describe the agent."""
    agent = found.get("agent")
    if not isinstance(agent, dict):
        return
    for key in ("version", "adapter", "model"):
        value = agent.get(key)
        if value is None:
            agent.pop(key, None)
        elif not isinstance(value, str):
            agent[key] = msgspec.json.encode(value).decode()
            report(f"/agent/{key}", f"{agent[key][:60]} is not a text (expected one).")


def without_missing_components(extra: dict[str, Any], written: Collection[str]) -> dict[str, Any]:
    """Return the unknown keys, with the components that are not in the bundle under another key.

    A reader would take a component that is listed for one that is damaged.
    """
    listed = extra.get("components", {})
    missing = {name: one for name, one in listed.items() if name not in written}
    if not missing:
        return extra
    rest = {name: one for name, one in listed.items() if name in written}
    changed = {**extra, "components": rest} if rest else dict(extra)
    if not rest:
        del changed["components"]
    return {**changed, LEFT_OUT: {**missing, **extra.get(LEFT_OUT, {})}}


def _take_unknown(found: dict[str, Any]) -> dict[str, Any]:
    """Take out of a decoded manifest the keys that no struct here has."""
    extra = {key: found.pop(key) for key in list(found) if key not in _FIELDS}
    for key, known in _INNER_FIELDS.items():
        inner = found.get(key)
        if isinstance(inner, dict):
            more = {name: inner[name] for name in inner if name not in known}
            if more:
                extra[key] = more
                found[key] = {name: inner[name] for name in inner if name in known}
    components = found.get("components")
    for name, one in (components if isinstance(components, dict) else {}).items():
        if isinstance(one, dict):
            known = Component.__struct_fields__
            more = {key: one.pop(key) for key in list(one) if key not in known}
            if name not in _COMPONENTS:
                more = {**one, **more}  # complete, as it may be written without its content
            if more:
                extra.setdefault("components", {})[name] = more
    return extra


_COMPONENTS: Final = ("snapshots", "logs", "files", "records", "bodies", "pieces", "notes")
_FIELDS: Final = frozenset(Manifest.__struct_fields__) - {"extra"}
_INNER_FIELDS: Final = {"agent": Agent.__struct_fields__, "execution": Execution.__struct_fields__}


def _check_values(manifest: Manifest, where: str) -> None:
    times = {
        "created_at": manifest.created_at,
        "execution.started_at": manifest.execution.started_at,
        "execution.ended_at": manifest.execution.ended_at,
    }
    for name, text in times.items():
        if text is not None and parse_time(text) is None:
            raise BundleCorruptedError(
                f"{where}: {MANIFEST}: {name} is {text[:40]!r} (expected an ISO 8601 time)."
            )
    seconds = manifest.execution.duration_seconds
    if seconds is not None and not math.isfinite(seconds):
        raise BundleCorruptedError(
            f"{where}: {MANIFEST}: execution.duration_seconds is not a number of seconds."
        )
    for name in ("snapshots", "logs"):
        if name not in manifest.components:
            raise BundleComponentMissingError(
                f"{where}: {MANIFEST} lists no component {name!r} (a bundle has one)."
            )


def _check_nesting(raw: bytes, where: str) -> None:
    """Refuse deeply nested JSON, before recursive code reads it."""
    if nesting(raw, BUNDLE_NESTING_MAX) > BUNDLE_NESTING_MAX:
        raise BundleCorruptedError(
            f"{where}: {MANIFEST} is nested deeper than {BUNDLE_NESTING_MAX} levels."
        )


def nesting(raw: bytes, most: int) -> int:
    """Return a lower bound of the nesting of JSON. Counting stops once it is too deep.

    Without strings and everything but brackets, each pass takes away the innermost pairs: a few
    passes over bytes instead of a walk in Python.
    """
    if raw.count(b"[") + raw.count(b"{") <= most:
        return 0
    left = _STRING.sub(b"", raw).translate(None, _NO_BRACKETS)
    for depth in range(most + 1):
        before = len(left)
        left = left.replace(b"[]", b"").replace(b"{}", b"")
        if (
            len(left) == before
        ):  # nothing is left, or it is invalid JSON, which the decoder will report
            return depth if not left else _open_depth(left, most)
    return most + 1


def _open_depth(left: bytes, most: int) -> int:
    """Return a depth over the limit if too many brackets are open: a decoder would recurse."""
    return most + 1 if left.count(b"[") + left.count(b"{") > most else 0


def parse_time(text: str) -> datetime | None:
    """Parse an ISO 8601 time. A time without an offset is UTC."""
    from datetime import UTC

    try:
        time = datetime.fromisoformat(text)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
