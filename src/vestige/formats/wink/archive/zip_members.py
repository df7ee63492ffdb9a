"""The members of a bundle's zip: streamed, bounded, with damage reported as problems."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, cast

from vestige.errors import (
    BundleCorruptedError,
)
from vestige.formats.protocol import Problem
from vestige.formats.wink.archive.damaged_members import read_damaged
from vestige.formats.wink.archive.open_archive import (
    ZIP_ERRORS,
    check_members,
    describe_error,
    open_archive,
)
from vestige.limits import (
    BUNDLE_ENTRY_MAX,
    BUNDLE_PROBLEMS_MAX,
    KIB,
)

CHUNK: Final = 256 * KIB
_OTHER_HASH: Final = (
    "does not have the sha256 that the bundle gives for it. It was changed or damaged."
)


class Members:
    """The members of a zip that anybody may have made."""

    def __init__(self, source: Path | Members) -> None:
        opened = source if isinstance(source, Members) else None
        self.path: Path = opened.path if opened else Path(cast(Path, source))
        self.problems: list[Problem] = []
        self._cached_parts: dict[str, list[bytes]] = {}
        """Members that were unpacked to be verified, until they are read."""
        self._archive: zipfile.ZipFile = opened._archive if opened else open_archive(self.path)
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
        except ZIP_ERRORS as error:
            raise BundleCorruptedError(
                f"{self.path}: {name} is damaged: {describe_error(error)}."
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
    """A file of chunks."""

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
