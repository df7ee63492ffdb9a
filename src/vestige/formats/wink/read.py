"""Read a bundle from an untrusted source: every statement in it is checked before it is used.

    content = ZipContent(path)        # directory and manifest; nothing is unpacked
    for line in content.logs(): ...   # streamed; sizes, checksums and hashes checked on the way
    content.verify()                  # read all of it, and compare everything
    content.problems                  # mismatches, missing parts, skipped parts

Nothing is unpacked under a name from the file, no more is read than was declared, and only one line
or chunk is in memory at a time. Threads may share an object.

A hostile zip, or one without a readable manifest, is refused. Other damage is reported in
`problems`: all readable lines of a damaged member are returned, a damaged file raises when it is
read, and other members are read as usual.

Elsewhere: safe names are in formats/wink/archive/member_names.py, limits of the index in
formats/zip_index_limits.py, damaged members in formats/wink/archive/damaged_members.py.
"""

from __future__ import annotations

import hashlib
import io
import shlex
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, cast

from vestige.errors import (
    BundleComponentMissingError,
    BundleCorruptedError,
    BundleNotFoundError,
)
from vestige.formats.protocol import Problem
from vestige.formats.wink.archive.damaged_members import read_damaged
from vestige.formats.wink.archive.member_names import find_fault
from vestige.formats.wink.bundle_content import ContentFile, Extra
from vestige.formats.wink.manifest import (
    FILES,
    MANIFEST,
    Component,
    Manifest,
    parse_manifest,
)
from vestige.formats.wink.sort_by_time import TimeOrder, log_time, snapshot_time
from vestige.formats.zip_index_limits import check_directory
from vestige.limits import (
    BUNDLE_ENTRY_MAX,
    BUNDLE_MANIFEST_MAX,
    BUNDLE_MEMBERS_MAX,
    BUNDLE_PROBLEMS_MAX,
    BUNDLE_RATIO_FREE,
    BUNDLE_RATIO_MAX,
    BUNDLE_TOTAL_MAX,
    KIB,
)

CHUNK: Final = 256 * KIB
_ENCRYPTED: Final = 0x1 | 0x40 | 0x2000
_OTHER_HASH: Final = (
    "does not have the sha256 that the bundle gives for it. It was changed or damaged."
)
_BAD = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OSError,
    OverflowError,
    IndexError,
)
"""The exceptions of zipfile for damaged files."""


class Members:
    """The members of a zip that anybody may have made."""

    def __init__(self, source: Path | Members) -> None:
        opened = source if isinstance(source, Members) else None
        self.path: Path = opened.path if opened else Path(cast(Path, source))
        self.problems: list[Problem] = []
        self._cached_parts: dict[str, list[bytes]] = {}
        """Members that were unpacked to be verified, until they are read."""
        self._archive: zipfile.ZipFile = opened._archive if opened else _open_archive(self.path)
        self._members: dict[str, zipfile.ZipInfo] = (
            opened._members if opened else check_members(self.path, self._archive.infolist())
        )

    def names(self) -> Iterator[str]:
        """Return the names of all members except folders."""
        return (name for name in self._members if not name.endswith("/"))

    def has(self, name: str) -> bool:
        return name in self._members

    def size(self, name: str) -> int:
        return self._members[name].file_size

    def read(self, name: str, most: int = BUNDLE_ENTRY_MAX) -> bytes:
        """Return one member, if it is not longer than `most`."""
        size = self.size(name)
        if size > most:
            raise BundleCorruptedError(
                f"{self.path}: {name} has {size} bytes (expected at most {most})."
            )
        return b"".join(self.chunks(name))

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield one member in chunks. Raise BundleCorruptedError if it is damaged."""
        cached = self._cached_parts.get(name)
        if cached is not None:
            yield from cached
            return
        member = self._members[name]
        left = member.file_size
        try:
            with self._archive.open(member) as stream:
                while chunk := stream.read(CHUNK):
                    left -= len(chunk)
                    yield chunk
        except _BAD as error:
            raise BundleCorruptedError(
                f"{self.path}: {name} is damaged: {_describe_error(error)}."
            ) from error
        if left:
            raise BundleCorruptedError(
                f"{self.path}: {name} ends {left} bytes early (it says"
                f" {member.file_size} bytes). The file is damaged."
            )

    def lines(
        self, name: str, sha256: str | None = None, *, keep: bool = False
    ) -> Iterator[tuple[int, bytes]]:
        """Yield the lines of a member with their numbers, blank ones left out."""
        for number, line in split_lines(self.salvaged(name, sha256, keep=keep)):
            if line is not None:
                yield number, line
                continue
            self.warn(
                name,
                f"line {number}",
                "entry-too-long",
                f"longer than {BUNDLE_ENTRY_MAX} bytes; passed over.",
            )

    def salvaged(
        self, name: str, sha256: str | None = None, *, keep: bool = False
    ) -> Iterator[bytes]:
        """Yield chunks up to the first damage, which becomes a problem.

        `keep`: it is read again soon.
        """
        cached = self._cached_parts.get(name) if keep else self._cached_parts.pop(name, None)
        if cached is not None:  # compared when it was kept
            yield from cached
            return
        digest = hashlib.sha256()
        done = 0
        try:
            for chunk in self.chunks(name):
                digest.update(chunk)
                done += len(chunk)
                yield chunk
        except BundleCorruptedError as error:
            handle = self._archive.fp
            assert handle is not None
            for chunk in read_damaged(handle.fileno(), self._members[name], done):
                done += len(chunk)
                yield chunk
            reason = str(error).removeprefix(f"{self.path}: {name} ").rstrip(".")
            self.report(
                name,
                "",
                "member-damaged",
                f"{reason}. {done} of {self.size(name)} bytes could be read.",
            )
            return
        if sha256 is not None and digest.hexdigest() != sha256.lower():
            self.report(name, "", "hash-mismatch", _OTHER_HASH)

    def verified(self, name: str) -> Iterator[bytes]:
        """Yield chunks. Raise BundleCorruptedError if the hash differs."""
        expected = self.expected(name)
        digest = hashlib.sha256()
        for chunk in self.chunks(name):
            digest.update(chunk)
            yield chunk
        if expected is not None and digest.hexdigest() != expected.lower():
            raise BundleCorruptedError(f"{self.path}: {name}: {_OTHER_HASH}")

    def find_damage(self, name: str) -> str | None:
        """Read a member through; return what is wrong with it."""
        try:
            for _ in self.verified(name):
                pass
        except BundleCorruptedError as error:
            return str(error).removeprefix(f"{self.path}: {name}").removeprefix(":").strip()
        return None

    def opener(self, name: str) -> Callable[[], BinaryIO]:
        return lambda: io.BufferedReader(_Reader(self.verified(name)))

    def expected(self, name: str) -> str | None:
        """Return the sha256 that the bundle states for a member."""
        return None

    def warn(self, member: str, place: str, rule: str, message: str) -> None:
        """Add a problem that costs nothing of the content."""
        self._add(member, place, rule, message, "warning")

    def report(self, member: str, place: str, rule: str, message: str) -> None:
        """Add a problem that does: something is damaged, changed or missing."""
        self._add(member, place, rule, message, "error")

    def _add(
        self,
        member: str,
        place: str,
        rule: str,
        message: str,
        severity: Literal["error", "warning"],
    ) -> None:
        where = f"{self.path}: {member}" if member else str(self.path)
        problem = Problem(where, place, rule, message, severity=severity)
        # Read twice, a member has the same problems twice.
        if len(self.problems) < BUNDLE_PROBLEMS_MAX and problem not in self.problems:
            self.problems.append(problem)


class ZipContent(Members):
    """The content of a bundle's zip. Implements `BundleContent`."""

    def __init__(self, source: Path | Members, *, partial: bool = False) -> None:
        """`partial`: snapshots or logs that are missing are a problem, not an error."""
        super().__init__(source)
        if not self.has(MANIFEST):
            raise BundleComponentMissingError(
                f"{self.path}: no {MANIFEST} in it (a bundle has one). Is it a debug bundle?"
            )
        raw = self.read(MANIFEST, BUNDLE_MANIFEST_MAX)
        self._manifest = parse_manifest(raw, str(self.path), self._report_manifest)
        self._partial = partial
        self._orders = {"snapshots": TimeOrder(snapshot_time), "logs": TimeOrder(log_time)}
        self._hashes: dict[str, str] | None = None
        self._damaged: dict[str, str] | None = None
        self._check_components()

    @property
    def manifest(self) -> Manifest:
        return self._manifest

    # --- what it holds -------------------------------------------------------------------------

    def snapshots(self) -> Iterator[str]:
        return self._in_order("snapshots")

    def logs(self) -> Iterator[str]:
        return self._in_order("logs")

    def _in_order(self, name: str) -> Iterator[str]:
        order = self._orders[name]
        return order.sorted(lambda: self._entries(name), lambda: self._entries(name, keep=True))

    def numbered(self, name: str) -> Iterator[tuple[str, int, str]]:
        """Yield the member, number and text of each line of a component, as they are in the
        file."""
        component = self._manifest.components[name]
        if self.has(component.path):
            for number, line in self.lines(component.path, component.sha256):
                yield component.path, number, line.decode(errors="surrogateescape")

    def files(self) -> Iterator[ContentFile]:
        """Yield the files under the safe names of their members, never under the original names."""
        for name in self._file_names():
            yield ContentFile(name.removeprefix(self._root), self.size(name), self.opener(name))

    def extras(self) -> Iterator[Extra]:
        """Yield each member once. A part of the format's own components is yielded as that part."""
        files = self._manifest.component("files")
        seen = {MANIFEST, *(self._manifest.components[name].path for name in ("snapshots", "logs"))}
        seen |= {files.listing} if files and files.listing else set()
        for name, component in self._manifest.components.items():
            path = component.path
            if name == "files" or not self.has(path) or path in seen:
                continue
            if path.startswith(self._root):
                continue
            seen.add(path)
            yield Extra(name, path, component.entry_count, self._again(component))

    def _again(self, component: Component) -> Callable[[], Iterator[bytes]]:
        return lambda: self.salvaged(component.path, component.sha256)

    def _entries(self, name: str, *, keep: bool = False) -> Iterator[str]:
        component = self._manifest.components[name]
        if not self.has(component.path):
            return
        count = 0
        for _, line in self.lines(component.path, component.sha256, keep=keep):
            count += 1
            # Bytes that are no UTF-8 stay what they are, and are written back so.
            yield line.decode(errors="surrogateescape")
        if component.entry_count is not None and count != component.entry_count:
            self.warn(
                component.path,
                "",
                "entry-count",
                f"{count} entries (the manifest says {component.entry_count}).",
            )

    @property
    def _root(self) -> str:
        component = self._manifest.component("files")
        return component.path if component else FILES

    def _file_names(self) -> Iterator[str]:
        return (name for name in self.names() if name.startswith(self._root))

    # --- checks ----------------------------------------------------------------------------------

    def verify(self, keep: int = 0) -> None:
        """Read all of it, and compare every size, checksum and hash there is.

        What does not match is in `problems`. Once is enough: an open file does not change.
        """
        if self._damaged is not None:
            return
        for name, component in self._manifest.components.items():
            if name != "files" and self.has(component.path):
                chunks: list[bytes] | None = []
                for chunk in self.salvaged(component.path, component.sha256):
                    keep -= len(chunk)
                    if keep >= 0 and chunks is not None:
                        chunks.append(chunk)
                    else:
                        chunks = None
                if chunks is not None:
                    self._cached_parts[component.path] = chunks
        self._damaged = self._find_damaged_files()

    @property
    def damaged_files(self) -> dict[str, str]:
        """Paths of files that are not what the bundle says, each with what is wrong."""
        self.verify()
        assert self._damaged is not None
        return self._damaged

    def _find_damaged_files(self) -> dict[str, str]:
        damaged: dict[str, str] = {}
        for name in self._file_names():
            reason = self.find_damage(name)
            if reason is not None:
                damaged[name.removeprefix(self._root)] = reason
                self.report(name, "", "file-damaged", reason)
            elif self._hashes and name not in self._hashes:
                self.warn(name, "", "file-unlisted", "is not in the bundle's list of files.")
        for name in self._hashes or ():
            if not self.has(name):
                self.report(name[:200], "", "file-missing", "is missing from the bundle.")
        return damaged

    def file_hashes(self) -> dict[str, str]:
        """Return the hash of each file by the name of its member, if the bundle has a listing."""
        component = self._manifest.component("files")
        if component is None or component.listing is None:
            return {}
        listing = component.listing
        if not self.has(listing):
            self.report(listing[:200], "", "listing-missing", "is missing from the bundle.")
            return {}
        hashes: dict[str, str] = {}
        for number, line in self.lines(listing, component.sha256):
            digest, separator, name = line.decode(errors="surrogateescape").partition("  ")
            if len(hashes) >= BUNDLE_MEMBERS_MAX:
                self.report(
                    listing, "", "listing-too-long", f"more than {BUNDLE_MEMBERS_MAX} lines."
                )
                break
            if not separator or len(digest) != 64:
                self.report(listing, f"line {number}", "listing-malformed", "no `sha256  name`.")
            else:
                hashes[name] = digest
        return hashes

    def expected(self, name: str) -> str | None:
        if self._hashes is None:
            self._hashes = self.file_hashes()
        return self._hashes.get(name)

    def _report_manifest(self, place: str, message: str) -> None:
        self.warn(MANIFEST, place, "manifest-value", message)

    def _check_components(self) -> None:
        expected = {MANIFEST}
        for name, component in self._manifest.components.items():
            if name == "files":
                if not component.path.endswith("/") or find_fault(component.path):
                    raise BundleCorruptedError(
                        f"{self.path}: its files are in {component.path[:60]!r} (expected a folder"
                        " of the bundle). The file is damaged, or was changed."
                    )
                if component.listing is not None:
                    expected.add(component.listing)
            else:
                expected.add(component.path)
                self._check_member(name, component)
        root = self._root if "files" in self._manifest.components else None
        for name in self.names():
            if name not in expected and not (root and name.startswith(root)):
                self.warn(name[:200], "", "member-unlisted", "is not in the manifest; passed over.")
        self._check_files()

    def _check_member(self, name: str, component: Component) -> None:
        if not self.has(component.path):
            if name in ("snapshots", "logs") and not self._partial:
                raise BundleComponentMissingError(
                    f"{self.path}: no {component.path[:100]!r} in it, though the manifest lists it"
                    f" as {name}. `vestige recover` makes a bundle of what is there."
                )
            shown = f"component {name[:100]!r} ({component.path[:100]!r}) is not there."
            self.report(MANIFEST, "", "component-missing", shown)
        elif component.size_bytes is not None and self.size(component.path) != component.size_bytes:
            self.report(
                component.path,
                "",
                "size-mismatch",
                f"{self.size(component.path)} bytes (the manifest says {component.size_bytes}).",
            )

    def _check_files(self) -> None:
        component = self._manifest.component("files")
        if component is None:
            return
        names = list(self._file_names())
        expected = component.file_count
        if expected is not None and len(names) != expected:
            self.report(
                self._root,
                "",
                "file-count",
                f"{len(names)} files (the manifest says {expected}).",
            )
        elif component.total_size_bytes is not None:
            total = sum(self.size(name) for name in names)
            if total != component.total_size_bytes:
                self.report(
                    self._root,
                    "",
                    "size-mismatch",
                    f"{total} bytes of files (the manifest says {component.total_size_bytes}).",
                )


def split_lines(chunks: Iterable[bytes]) -> Iterator[tuple[int, bytes | None]]:
    """Yield lines that are not blank, with their numbers; None for a line over the limit."""
    pieces: list[bytes] = []
    size = number = 0
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        pieces.append(first)
        size += len(first)
        if size > BUNDLE_ENTRY_MAX:
            pieces = []  # its rest is counted, and not kept
        for after in others:
            number += 1
            if size > BUNDLE_ENTRY_MAX:
                yield number, None
            elif (line := b"".join(pieces)).strip():
                yield number, line
            pieces, size = [after], len(after)
    if size > BUNDLE_ENTRY_MAX:
        yield number + 1, None
    elif (line := b"".join(pieces)).strip():
        yield number + 1, line


class _Reader(io.RawIOBase):
    """Chunks as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        if not self._rest:
            self._rest = next(self._chunks, b"")
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


# --- the zip as a whole -------------------------------------------------------------------------


def _open_archive(path: Path) -> zipfile.ZipFile:
    """Open for as long as it is read: a file renamed over it is another bundle."""
    if not path.exists():
        raise BundleNotFoundError(f"{path}: no such file.")
    if path.is_dir():
        raise BundleCorruptedError(
            f"{path}: a folder, and no file (expected a .wink bundle). Name one in it, or look at"
            f" the latest with `vestige debug {shlex.quote(str(path))}`."
        )
    if not path.is_file():
        raise BundleCorruptedError(f"{path}: no file (expected a .wink bundle).")
    check_directory(path)
    # Opened by us, so that the library never closes it under another thread.
    file = path.open("rb")
    try:
        return zipfile.ZipFile(file)
    except _BAD as error:
        file.close()
        raise BundleCorruptedError(
            f"{path}: not a readable zip: {_describe_error(error)}."
        ) from error


def check_members(path: Path, infos: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    """Every member by its name, each found harmless; BundleCorruptedError if one is not."""
    members: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        fault = _member_fault(info)
        if fault is None and info.filename in members:
            fault = "is in it twice"
        if fault is not None:
            raise BundleCorruptedError(f"{path}: {info.orig_filename[:100]!r} {fault}.")
        members[info.filename] = info
    _check_sizes(path, infos)
    return members


def _member_fault(info: zipfile.ZipInfo) -> str | None:
    # Both: what the library makes of a name may come from elsewhere (a field for Unicode names).
    if fault := find_fault(info.orig_filename) or find_fault(info.filename):
        return fault
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is a link or device (expected plain files)"
    if info.flag_bits & _ENCRYPTED:
        return "is encrypted"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return f"is packed by method {info.compress_type} (expected deflate)"
    if info.compress_type == zipfile.ZIP_STORED and info.file_size != info.compress_size:
        return "has two sizes"
    if info.is_dir() and info.file_size:
        return "is a folder with content"
    return None


def _check_sizes(path: Path, infos: list[zipfile.ZipInfo]) -> None:
    packed = sum(info.compress_size for info in infos)
    unpacked = sum(info.file_size for info in infos)
    size = path.stat().st_size
    if packed > size:
        raise BundleCorruptedError(
            f"{path}: its members overlap ({packed} bytes packed in a file of {size}). A zip bomb?"
        )
    if unpacked > BUNDLE_TOTAL_MAX:
        raise BundleCorruptedError(
            f"{path}: {unpacked} bytes unpacked (expected at most {BUNDLE_TOTAL_MAX})."
        )
    if unpacked > BUNDLE_RATIO_FREE and unpacked > BUNDLE_RATIO_MAX * size:
        raise BundleCorruptedError(
            f"{path}: {unpacked} bytes in {size} (expected at most {BUNDLE_RATIO_MAX} times). A zip"
            " bomb?"
        )
    for info in infos:
        # More than deflate can do at its best.
        if info.file_size > 1_040 * info.compress_size + KIB:
            raise BundleCorruptedError(
                f"{path}: {info.filename[:100]!r} says {info.file_size} bytes, which"
                f" {info.compress_size} packed ones cannot hold."
            )


def _describe_error(error: BaseException) -> str:
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__


__all__ = ["Members", "ZipContent", "split_lines"]
