"""Compressed files (`.gz`, `.zst`) of anything that can be opened.

    plain = decompress(Path("trace.json.gz"))     # a temporary file `trace.json`
    CompressedFormat(format, path, plain)         # reads it under the path of the compressed file

Formats that read compressed files themselves come first. The temporary file has the name and the
name of the folder of the compressed one, so ids that derive from them are those of a plain file.
"""

from __future__ import annotations

import atexit
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from vestige.errors import UnreadableError, UsageError
from vestige.formats.line_reader import ZSTD_WINDOW_LOG_MAX, open_file
from vestige.limits import DECOMPRESSED_FILE_MAX, MIB
from vestige.transfer.temp_folder import create_folder

if TYPE_CHECKING:
    from vestige.formats.protocol import Format, Problem, RunToWrite, Source
    from vestige.record.types import KnownRecord

_MAGIC: Final = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd"}
_files: dict[tuple[str, int, int], Path] = {}
"""Files that this process has decompressed, by path, size and time of the compressed one."""


def is_compressed(path: Path) -> bool:
    """Return whether a file has the suffix and the first bytes of a compressed one."""
    magic = _MAGIC.get(path.suffix)
    if magic is None or not path.is_file():
        return False
    try:
        with open_file(path) as file:
            return file.read(len(magic)) == magic
    except (UnreadableError, OSError):
        return False


def decompress(path: Path) -> Path:
    """Return a temporary, decompressed file. It is deleted when the process ends."""
    status = path.stat()
    key = (str(path.absolute()), status.st_size, status.st_mtime_ns)
    if key not in _files:
        folder, remove = create_folder()
        atexit.register(remove)
        plain = folder / (path.absolute().parent.name or "root") / path.stem
        try:
            plain.parent.mkdir()
            _write_plain(path, plain)
            # Times of some formats are those of the file.
            os.utime(plain, ns=(status.st_atime_ns, status.st_mtime_ns))
        except BaseException:
            remove()
            raise
        _files[key] = plain
    return _files[key]


def _write_plain(path: Path, plain: Path) -> None:
    size = 0
    with open_file(path) as file, open(plain, "wb") as target:
        try:
            with _open_decompressor(path, file) as source:
                while chunk := source.read(MIB):
                    size += len(chunk)
                    if size > DECOMPRESSED_FILE_MAX:
                        limit = f"{DECOMPRESSED_FILE_MAX // MIB} MiB"
                        raise UnreadableError(
                            f"{path}: too large (expected at most {limit} when decompressed)."
                        )
                    target.write(chunk)
        except EOFError:  # its writer was killed; the complete lines are read
            if not size:
                raise UnreadableError(f"{path}: damaged (it ends too early).") from None
        except (zlib.error, ValueError, OSError) as error:
            if isinstance(error, UnreadableError):
                raise
            raise UnreadableError(f"{path}: cannot be decompressed ({error}).") from None


def _open_decompressor(path: Path, file: BinaryIO) -> BinaryIO:
    if path.suffix == ".gz":
        import gzip

        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    from vestige._runtime.zstd import zstd

    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG_MAX}

    class ZstdReader(zstd.ZstdFile):
        def read(self, size: int | None = -1) -> bytes:
            try:
                return self.read1(size)
            except zstd.ZstdError as error:
                raise ValueError(str(error)) from None

    return cast(BinaryIO, ZstdReader(file, options=options))


@dataclass(frozen=True, slots=True)
class CompressedFormat:
    """A format whose file is compressed. Paths are those of the compressed file."""

    format: Format
    path: Path
    plain: Path

    def is_readable(self, path: Path) -> bool:
        return self.format.is_readable(self._to_plain(path))

    def find_runs(self, path: Path) -> Iterator[Path]:
        for found in self.format.find_runs(self._to_plain(path)):
            yield Path(self._rename(str(found)))

    def read_run(self, path: Path) -> Source:
        with self._rename_errors():
            source = self.format.read_run(self._to_plain(path))
        source.records = self._read_records(source, source.records)
        return source

    def read_head(self, path: Path) -> Source | None:
        read_head = getattr(self.format, "read_head", None)
        head: Source | None = read_head(self._to_plain(path)) if read_head is not None else None
        return head

    def validate_run(self, path: Path) -> Sequence[Problem]:
        plain = self._to_plain(path)
        with self._rename_errors():
            return [self._rename_problem(one) for one in self.format.validate_run(plain)]

    def write_run(self, run: RunToWrite, target: Path) -> Path:
        raise UsageError(f"{target}: a compressed file cannot be written. Compress it afterwards.")

    def _read_records(
        self, source: Source, records: Iterator[KnownRecord]
    ) -> Iterator[KnownRecord]:
        with self._rename_errors():
            yield from records
        source.problems[:] = [self._rename_problem(one) for one in source.problems]

    def _to_plain(self, path: Path) -> Path:
        text, compressed = str(path), str(self.path)
        return Path(str(self.plain) + text.removeprefix(compressed))

    def _rename(self, text: str) -> str:
        return text.replace(str(self.plain), str(self.path))

    def _rename_problem(self, problem: Problem) -> Problem:
        from msgspec.structs import replace

        file, message = self._rename(problem.file), self._rename(problem.message)
        return replace(problem, file=file, message=message)

    @contextmanager
    def _rename_errors(self) -> Iterator[None]:
        try:
            yield
        except UnreadableError as error:
            raise UnreadableError(self._rename(str(error))) from None
