"""Bodies beyond the format's own components: each message once, each body exact.

A bundle with the records of its run has two members more. `vestige/pieces` holds every
distinct piece of text once, one after the other; `vestige/bodies.ndjson` says of each body of
which stretches of it, in order, it is made. A body that the format's components contain anyway is
found there instead:

    {"sha256":"…","size_bytes":9120,"ranges":[[0,8000],[9001,1120]]}
    {"sha256":"…","size_bytes":7593,"member":"snapshots.jsonl","line":4}
    {"sha256":"…","size_bytes":12,"member":"files/workspace/.env"}

Records refer to bodies by their sha256, as a journal's records refer to spilled ones.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from vestige.errors import BundleCorruptedError
from vestige.formats.wink.read import ZipContent
from vestige.limits import BUNDLE_ENTRY_MAX, BUNDLE_PIECES_MAX, BUNDLE_TOTAL_MAX, KIB, MIB
from vestige.providers.message_split import split
from vestige.record.types import Count

PIECES: Final = "vestige/pieces"
BODIES: Final = "vestige/bodies.ndjson"
HELD_MAX: Final = 32 * MIB
"""Pieces in memory; more go to a temporary file."""
CHUNK: Final = 256 * KIB


class Recipe(msgspec.Struct, frozen=True, omit_defaults=True):
    """The position of the bytes of one body."""

    sha256: str
    size_bytes: Count
    ranges: list[tuple[Count, Count]] | None = None
    member: str | None = None
    line: Count | None = None


class Packer:
    """Bodies on their way out."""

    def __init__(self) -> None:
        # Closed with this object.
        self._file = tempfile.SpooledTemporaryFile(max_size=HELD_MAX)  # noqa: SIM115
        self._size = 0
        self._places: dict[bytes, int] = {}
        self.recipes: dict[str, Recipe] = {}

    def add(self, data: bytes) -> str:
        """Keep a body; its sha256."""
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self.recipes:
            self.recipes[digest] = Recipe(digest, len(data), ranges=self._put(data))
        return digest

    def refer(self, data: bytes, member: str, line: int | None = None) -> str:
        """Refer to a body in another member of the bundle."""
        digest = hashlib.sha256(data).hexdigest()
        self.recipes.setdefault(digest, Recipe(digest, len(data), member=member, line=line))
        return digest

    def _put(self, data: bytes) -> list[tuple[int, int]]:
        ranges: list[tuple[int, int]] = []
        for piece in split(data):
            key = hashlib.blake2b(piece, digest_size=16).digest()
            at = self._places.get(key)
            if at is None:
                at = self._places[key] = self._size
                self._file.write(piece)
                self._size += len(piece)
            if ranges and sum(ranges[-1]) == at:
                ranges[-1] = (ranges[-1][0], ranges[-1][1] + len(piece))
            else:
                ranges.append((at, len(piece)))
        return ranges

    def index(self) -> Iterator[bytes]:
        for recipe in self.recipes.values():
            yield msgspec.json.encode(recipe) + b"\n"

    def pieces(self) -> Iterator[bytes]:
        self._file.seek(0)
        while chunk := self._file.read(CHUNK):
            yield chunk


class Unpacker:
    """The bodies of a bundle, by their hash."""

    def __init__(self, content: ZipContent) -> None:
        self._content = content
        self._recipes: dict[str, Recipe] = {}
        self._pieces: tempfile.SpooledTemporaryFile[bytes] | None = None
        self._lines: dict[str, _LinesOf] = {}
        """Readers of the members whose single lines are bodies."""
        self._read_bytes = 0
        self.beyond = 0
        """Bodies that were not read: records ask for the same large one over and over."""
        if content.has(BODIES):
            self._read_index(self._sha256("bodies"))

    def _sha256(self, name: str) -> str | None:
        component = self._content.manifest.component(name)
        return component.sha256 if component else None

    def _read_index(self, sha256: str | None) -> None:
        decoder = msgspec.json.Decoder(Recipe)
        total = pieces = 0
        for number, line in self._content.lines(BODIES, sha256):
            pieces += 1 + line.count(b"[")  # before it is an object of many
            if pieces > BUNDLE_PIECES_MAX:
                raise BundleCorruptedError(
                    f"{self._content.path}: {BODIES}: more than {BUNDLE_PIECES_MAX} bodies and "
                    f"their"
                    " pieces. A bomb?"
                )
            try:
                recipe = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                self._content.report(BODIES, f"line {number}", "body-malformed", f"{error}.")
                continue
            self._recipes[recipe.sha256] = recipe
            total += recipe.size_bytes
            if total > BUNDLE_TOTAL_MAX:  # the same pieces, over and over
                raise BundleCorruptedError(
                    f"{self._content.path}: {BODIES}: more than {BUNDLE_TOTAL_MAX} bytes of "
                    f"bodies in"
                    " all. A bomb?"
                )

    def read(self, sha256: str) -> bytes | None:
        """A body; None if the bundle does not have it, has another in its place (a problem), or too
        much was read of it already."""
        recipe = self._recipes.get(sha256)
        if recipe is None or recipe.size_bytes > BUNDLE_ENTRY_MAX:
            return None
        if self._read_bytes > BUNDLE_TOTAL_MAX:
            self.beyond += 1
            return None
        data = self._read(recipe)
        self._read_bytes += len(data or b"")  # not what it says: a member may be larger
        if data is None or hashlib.sha256(data).hexdigest() != sha256:
            self._content.report(
                BODIES, "", "body-damaged", f"body {sha256[:16]} is not what its hash says."
            )
            return None
        return data

    def _read(self, recipe: Recipe) -> bytes | None:
        if recipe.member is not None:
            if not self._content.has(recipe.member):
                return None
            if recipe.line is not None:
                return self._read_line(recipe.member, recipe.line)
            return self._read_member(recipe.member)
        if sum(length for _, length in recipe.ranges or ()) != recipe.size_bytes:
            return None
        pieces = self._open_pieces()
        parts = []
        for at, length in recipe.ranges or ():
            pieces.seek(at)
            parts.append(pieces.read(length))
        return b"".join(parts)

    def _read_member(self, member: str) -> bytes | None:
        try:
            return self._content.read(member)
        except BundleCorruptedError:
            return None

    def _open_pieces(self) -> tempfile.SpooledTemporaryFile[bytes]:
        if self._pieces is None:
            # Closed in `close`.
            self._pieces = tempfile.SpooledTemporaryFile(max_size=HELD_MAX)  # noqa: SIM115
            if self._content.has(PIECES):
                for chunk in self._content.salvaged(PIECES):
                    self._pieces.write(chunk)
        return self._pieces

    def _read_line(self, member: str, line: int) -> bytes | None:
        """Unpacked once: records may ask for the same lines in any order, over and over."""
        found = self._lines.get(member)
        if found is None:
            numbers = {one.line for one in self._recipes.values() if one.member == member}
            found = self._lines[member] = _LinesOf(self._content.lines(member), numbers)
        return found.read(line)


class _LinesOf:
    """Some lines of a member; beyond a bound in a temporary file."""

    def __init__(self, lines: Iterator[tuple[int, bytes]], numbers: set[int | None]) -> None:
        # Closed with this object.
        self._file = tempfile.SpooledTemporaryFile(max_size=HELD_MAX)  # noqa: SIM115
        self._places: dict[int, tuple[int, int]] = {}
        for number, line in lines:
            if number in numbers:
                self._places[number] = (self._file.tell(), len(line))
                self._file.write(line)

    def read(self, number: int) -> bytes | None:
        if number not in self._places:
            return None
        at, size = self._places[number]
        self._file.seek(at)
        return self._file.read(size)


ReadBody = Callable[[str], bytes | None]
