"""Write a bundle: one zip, streamed, the same bytes for the same content, all or nothing.

    path = write_bundle(content, "debug/")              # debug/<bundle id>.wink
    path = write_bundle(content, "debug/crash.wink")

The manifest goes last, because only then the sizes are known. The file gets its name when it is
whole and on the disk: under the final name there is never half a bundle.

Elsewhere: bundles are read, and checked, in formats/wink/read.py.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final

import msgspec

from vestige.errors import DebugBundleError
from vestige.formats.atomic_file import replace_file
from vestige.formats.wink.archive.member_names import find_fault, safe_path
from vestige.formats.wink.archive.write_limits import (
    Archive,
    fit_files,
    fit_manifest,
    report_skipped,
)
from vestige.formats.wink.bundle_content import BundleContent, ContentFile
from vestige.formats.wink.manifest import (
    FILES,
    LISTING,
    LOGS,
    MANIFEST,
    SNAPSHOTS,
    Component,
    without_missing_components,
)
from vestige.formats.wink.read import ZipContent
from vestige.limits import KIB

SUFFIX: Final = ".wink"
LEVEL: Final = 4
"""The level of deflate. Level 6 takes twice as long and saves a few percent."""

CHUNK: Final = 256 * KIB

__all__ = ["ZipContent", "name_files", "target_path", "write_bundle"]


def target_path(target: str | os.PathLike[str], bundle_id: str) -> Path:
    """Return the file of a target. A target without a suffix, or with a final `/`, is a folder."""
    text = os.fspath(target)
    path = Path(text)
    if text.endswith(("/", os.sep)) or path.is_dir() or not path.suffix:
        fault = find_fault(bundle_id) or ("/" in bundle_id and "has a slash")
        if fault:
            raise DebugBundleError(
                f"{path}: the bundle's id {bundle_id[:60]!r} {fault}. Give a file name."
            )
        return path / f"{bundle_id}{SUFFIX}"
    return path


def write_bundle(content: BundleContent, target: str | os.PathLike[str]) -> Path:
    """Write a bundle to, or into, the target; the path of the file that was made."""
    path = target_path(target, content.manifest.bundle_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as file:
        _write_zip(content, file)
    _sync_folder(path.parent)
    return path


def _sync_folder(folder: Path) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # not on every platform
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def _write_zip(content: BundleContent, file: IO[bytes]) -> None:
    with Archive(file, LEVEL) as archive:
        listed = content.manifest.components
        components = {
            "snapshots": _write_lines(archive, SNAPSHOTS, content.snapshots()),
            "logs": _write_lines(archive, LOGS, content.logs()),
        }
        if files := _write_files(archive, content.files()):
            components["files"] = files
        elif "files" in listed:
            components["files"] = Component(FILES, file_count=0, total_size_bytes=0)
        # What nobody needs to open by hand is packed quickly.
        archive.compresslevel = 1
        for extra in content.extras():
            _check_extra(extra.path)
            component = _write_chunks(archive, extra.path, extra.chunks())
            components[extra.name] = msgspec.structs.replace(
                component, entry_count=extra.entry_count
            )
        manifest = msgspec.structs.replace(
            content.manifest,
            components={
                name: _with_losses(one, listed.get(name)) for name, one in components.items()
            },
            extra=without_missing_components(content.manifest.extra, components),
        )
        with archive.open(_member(MANIFEST), "w") as stream:
            stream.write(fit_manifest(manifest))


def _with_losses(made: Component, listed: Component | None) -> Component:
    """Add what the capture left out, which only its own manifest knows."""
    if listed is None:
        return made
    return msgspec.structs.replace(
        made,
        renamed={**(listed.renamed or {}), **(made.renamed or {})} or None,
        dropped_entries=listed.dropped_entries,
        dropped_bytes=listed.dropped_bytes,
        lost_records=listed.lost_records,
        skipped=[*(listed.skipped or ()), *(made.skipped or ())] or None,
        redacted=listed.redacted,
    )


def _member(name: str) -> zipfile.ZipInfo:
    """Return the header of a member, equal for equal names on every machine and at any time."""
    info = zipfile.ZipInfo(name)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = 3
    info.external_attr = 0o100644 << 16
    return info


def _open(archive: Archive, name: str) -> IO[bytes]:
    info = _member(name)
    # Its own attribute for this is younger than the oldest Python that we run on.
    info._compresslevel = archive.compresslevel  # type: ignore[attr-defined]
    return archive.open(info, "w", force_zip64=True)


def _write_lines(archive: Archive, name: str, lines: Iterable[str]) -> Component:
    count = 0

    def chunks() -> Iterator[bytes]:
        nonlocal count
        for line in lines:
            count += 1
            yield _encode(line) + b"\n"

    component = _write_chunks(archive, name, chunks())
    return msgspec.structs.replace(component, entry_count=count)


def _encode(line: str) -> bytes:
    """Encode one line of any content. Bytes that were not UTF-8 when read stay as they
    were."""
    if "\n" in line or "\r" in line:
        line = line.replace("\r", " ").replace("\n", " ")  # between JSON's tokens, blanks are alike
    try:
        return line.encode()
    except UnicodeEncodeError:
        pass
    try:
        return line.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return line.encode(errors="backslashreplace")  # as JSON would write it


def _write_chunks(archive: Archive, name: str, chunks: Iterable[bytes]) -> Component:
    size = 0
    digest = hashlib.sha256()
    with _open(archive, name) as stream:
        for chunk in _gathered(chunks):
            size += len(chunk)
            digest.update(chunk)
            archive.put(stream, chunk)
    return Component(name, size_bytes=size, sha256=digest.hexdigest())


def _gathered(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Join chunks into fewer, larger ones: each costs a call of zlib."""
    pieces: list[bytes] = []
    size = 0
    for chunk in chunks:
        pieces.append(chunk)
        size += len(chunk)
        if size >= CHUNK:
            yield b"".join(pieces)
            pieces, size = [], 0
    if pieces:
        yield b"".join(pieces)


def _write_files(archive: Archive, files: Iterable[ContentFile]) -> Component | None:
    """Write the files, sorted by name, and then the listing of their hashes."""
    every = _name_all(files)
    named = fit_files(every)
    if not named:
        return None
    total = 0
    listing: list[bytes] = []
    for name in sorted(named):
        with named[name].open() as source:
            one = _write_chunks(archive, FILES + name, _read_chunks(source))
        total += one.size_bytes or 0
        listing.append(f"{one.sha256}  {FILES}{name}\n".encode())
    listed = _write_chunks(archive, LISTING, listing)
    renamed = {name: file.path for name, file in named.items() if file.path != name}
    return Component(
        FILES,
        file_count=len(named),
        total_size_bytes=total,
        sha256=listed.sha256,
        listing=LISTING,
        renamed={name: renamed[name] for name in sorted(renamed)} or None,
        skipped=report_skipped(every[name] for name in sorted(every) if name not in named),
    )


def name_files(files: Iterable[ContentFile]) -> dict[str, ContentFile]:
    """Yield each file of the bundle with a name that is safe and unique."""
    return fit_files(_name_all(files))


def _name_all(files: Iterable[ContentFile]) -> dict[str, ContentFile]:
    named: dict[str, ContentFile] = {}
    waiting: list[ContentFile] = []
    for file in files:
        if file.path in named or safe_path(file.path) != file.path:
            waiting.append(file)
        else:
            named[file.path] = file
    # Those that need another name come last: they must not take another file's name.
    for file in sorted(waiting, key=lambda file: file.path):
        name = base = safe_path(file.path)
        number = 1
        while name in named:
            number += 1
            name = f"{base}~{number}"
        named[name] = file
    return named


def _read_chunks(source: IO[bytes]) -> Iterator[bytes]:
    while chunk := source.read(CHUNK):
        yield chunk


def _check_extra(path: str) -> None:
    taken = path in (MANIFEST, SNAPSHOTS, LOGS, LISTING) or path.startswith(FILES)
    fault = find_fault(path) or ("is the place of another component" if taken else None)
    if fault:
        raise DebugBundleError(f"{path[:100]!r} {fault}. A bundle cannot have a component there.")
