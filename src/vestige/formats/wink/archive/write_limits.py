"""Keep written bundles within the limits that readers accept.

    named = fit_files(named)            # no more members than a reader counts
    raw = fit_manifest(manifest)        # no longer than a reader reads
    Archive(file)                       # no more densely packed than a reader believes

Parts that do not fit are left out, and the manifest counts them.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable, Mapping
from typing import IO, Any, Final, TypeVar

import msgspec

from vestige.formats.wink.bundle_content import ContentFile
from vestige.formats.wink.manifest import FILES, Component, Manifest, Skipped, render_manifest
from vestige.limits import (
    BUNDLE_DIRECTORY_MAX,
    BUNDLE_MANIFEST_MAX,
    BUNDLE_MEMBERS_MAX,
    BUNDLE_RATIO_FREE,
    BUNDLE_RATIO_MAX,
    CAPTURE_SKIPPED_MAX,
    KIB,
)
from vestige.record.coercion import truncate

T = TypeVar("T")

_OTHERS: Final = 32
"""Members that are no files: the manifest, the lists, the run's records."""
_ENTRY_BYTES: Final = 46 + 28
"""The size of a member's entry in the zip's own directory, without its name."""
_STEPS: Final = ((1_000, 16 * KIB), (100, 4 * KIB), (10, KIB), (1, 64))
"""Entries of a list and characters of a text that a manifest keeps, until it fits."""


# --- files --------------------------------------------------------------------------------------


def fit_files(named: Mapping[str, T]) -> dict[str, T]:
    """Return as many files as a reader accepts, in the order of their names."""
    fitting: dict[str, T] = {}
    size = _OTHERS * (_ENTRY_BYTES + KIB)
    for name in sorted(named):
        size += _ENTRY_BYTES + len((FILES + name).encode())
        if len(fitting) >= BUNDLE_MEMBERS_MAX - _OTHERS or size > BUNDLE_DIRECTORY_MAX:
            break
        fitting[name] = named[name]
    return fitting


def report_skipped(files: Iterable[ContentFile]) -> list[Skipped] | None:
    """Return the files that did not fit, with the reason; None if all did."""
    skipped: list[Skipped] = []
    more = 0
    for file in files:
        if len(skipped) < CAPTURE_SKIPPED_MAX:
            skipped.append(Skipped(file.path, "a bundle holds no more files", file.size_bytes))
        else:
            more += 1
    if more:
        skipped.append(Skipped("", f"{more} more were left out"))
    return skipped or None


# --- the manifest -------------------------------------------------------------------------------


def fit_manifest(manifest: Manifest) -> bytes:
    """Render a manifest. Lists and texts of one that is too long are shortened."""
    raw = render_manifest(manifest)
    for most, length in _STEPS:
        if len(raw) <= BUNDLE_MANIFEST_MAX:
            break
        raw = render_manifest(_shortened(manifest, most, length))
    return raw


def _shortened(manifest: Manifest, most: int, length: int) -> Manifest:
    components = {
        name: _short_component(one, most, length) for name, one in manifest.components.items()
    }
    execution = manifest.execution
    return msgspec.structs.replace(
        manifest,
        session_id=truncate(manifest.session_id, length),
        agent=msgspec.convert(
            _short(msgspec.to_builtins(manifest.agent), most, length), type(manifest.agent)
        ),
        execution=msgspec.structs.replace(execution, error=_short(execution.error, most, length)),
        environment=_short(manifest.environment, most, length),
        components=components,
        tags=_short(manifest.tags, most, length),
        extra=_short(manifest.extra, most, length),
    )


def _short_component(component: Component, most: int, length: int) -> Component:
    skipped = component.skipped
    if skipped is not None:
        limited = [
            msgspec.structs.replace(
                one, path=truncate(one.path, length), reason=truncate(one.reason, length)
            )
            for one in skipped[:most]
        ]
        if len(skipped) > most:
            limited.append(Skipped("", f"{len(skipped) - most} more were left out"))
        skipped = limited
    return msgspec.structs.replace(
        component,
        skipped=skipped,
        renamed=_short(component.renamed, most, length),
        redacted=_short(component.redacted, most, length),
    )


def _short(value: Any, most: int, length: int) -> Any:
    if isinstance(value, str):
        return truncate(value, length)
    if isinstance(value, Mapping):
        most = max(most, 8)  # an error has a type and a message
        limited = {
            truncate(str(key), length): _short(value[key], most, length)
            for key in list(value)[:most]
        }
        if len(value) > most:
            limited["…"] = f"{len(value) - most} more"
        return limited
    if isinstance(value, (list, tuple)):
        kept_list = [_short(one, most, length) for one in value[:most]]
        return [*kept_list, f"… {len(value) - most} more"] if len(value) > most else kept_list
    return value


# --- how densely it is packed -------------------------------------------------------------------


class Archive(zipfile.ZipFile):
    """A zip to be written. States that hardly change pack so well that a reader would take them for
    a bomb: of those, a stretch now and then is stored as it is."""

    def __init__(self, file: IO[bytes], level: int) -> None:
        super().__init__(file, "w", zipfile.ZIP_DEFLATED, compresslevel=level)
        self._unpacked = 0

    def put(self, stream: IO[bytes], data: bytes) -> None:
        """Write to a member that is open."""
        self._unpacked += len(data)
        if self._is_too_dense():
            packer: Any = stream._compressor  # type: ignore[attr-defined]
            stream._compressor = _Plain(packer)  # type: ignore[attr-defined]
            try:
                stream.write(data)
            finally:
                stream._compressor = packer  # type: ignore[attr-defined]
        else:
            stream.write(data)

    def _is_too_dense(self) -> bool:
        if self._unpacked <= BUNDLE_RATIO_FREE // 2:
            return False
        assert self.fp is not None
        return self._unpacked > BUNDLE_RATIO_MAX // 2 * self.fp.tell()


class _Plain:
    """In place of a member's packer: what it holds, then data as it is. After a full flush nothing
    refers to earlier bytes, so inserted bytes separate them."""

    def __init__(self, packer: Any) -> None:
        self._packer = packer

    def compress(self, data: bytes) -> bytes:
        before: bytes = self._packer.flush(zlib.Z_FULL_FLUSH)
        plain = zlib.compressobj(0, zlib.DEFLATED, -zlib.MAX_WBITS)
        return before + plain.compress(data) + plain.flush(zlib.Z_FULL_FLUSH)


__all__ = ["Archive", "fit_files", "fit_manifest", "report_skipped"]
