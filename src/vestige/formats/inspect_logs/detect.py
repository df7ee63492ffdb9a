"""The samples of a log: members of a zip (`.eval`), or items of one JSON document.

    log = open_log(path)
    log.count                   # number of samples
    log.header()                # the evaluation: task, model, dataset
    log.sample(3)               # the decoded sample

A sample is decoded when it is read. The zip's members are compressed with zstd or deflate, and
are bounded before they are decompressed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vestige.errors import UnreadableError
from vestige.formats.bounded_lines import BOM
from vestige.formats.lenient_json import (
    Object,
    Raw,
    decode_items,
    decode_members,
    decode_object,
    decode_value,
    read_document,
)
from vestige.formats.zip_index_limits import check_directory
from vestige.limits import (
    BUNDLE_RATIO_FREE,
    BUNDLE_RATIO_MAX,
    BUNDLE_TOTAL_MAX,
    FOREIGN_FILE_MAX,
    FOREIGN_RUNS_MAX,
    MIB,
)

if TYPE_CHECKING or sys.version_info >= (3, 14):
    import zipfile
else:
    from backports.zstd import zipfile  # the standard library's reads no zstd before 3.14

NUMBER_SEPARATOR: Final = "#"
_ARCHIVE: Final = ".eval"
_SNIFF_BYTES: Final = 64 * 1024
_ZIP: Final = b"PK\x03\x04"
_SIGNATURES: Final = (b'"eval_id"', b'"task_id"')
_SAMPLES: Final = "samples/"
_HEADERS: Final = ("header.json", "_journal/start.json")
_ERRORS: Final = (zipfile.BadZipFile, EOFError, NotImplementedError, ValueError, OSError)
"""A header is written at the end; a log that was not finished has only its journal."""


class Log:
    """A log and its samples."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._items: list[Raw] = []
        self._names: list[str] = []
        self._members: dict[str, Raw] = {}
        self._archive: zipfile.ZipFile | None = None
        if path.suffix == _ARCHIVE:
            self._index_archive()
        else:
            self._members = decode_members(read_document(path, " Write logs as .eval."))
            self._items = decode_items(self._members.pop("samples", None))[:FOREIGN_RUNS_MAX]

    @property
    def count(self) -> int:
        return len(self._names) or len(self._items)

    def header(self) -> Object:
        """Return the evaluation: its `eval`, `status` and `results`."""
        if self._members:
            return {key: decode_value(raw) for key, raw in self._members.items()}
        for name in _HEADERS:
            try:
                return decode_object(self._read(name))
            except UnreadableError:
                continue
        return {}

    def sample(self, number: int) -> Object:
        """Return a sample by its number, 1 for the first."""
        if not 1 <= number <= self.count:
            raise UnreadableError(f"{self.path}: has no sample {number} (it has {self.count}).")
        raw = self._read(self._names[number - 1]) if self._names else self._items[number - 1]
        sample = decode_object(raw)
        if not sample:
            raise UnreadableError(f"{self.path}: sample {number} is not JSON.")
        return sample

    def _index_archive(self) -> None:
        try:
            check_directory(self.path, "an .eval log")
            # Stays open: reading its directory again for every sample would take minutes.
            self._archive = zipfile.ZipFile(self.path)
        except UnreadableError:
            raise
        except _ERRORS as error:
            raise UnreadableError(f"{self.path}: damaged ({error}).") from None
        infos = self._archive.infolist()
        total = sum(info.file_size for info in infos)
        packed = sum(info.compress_size for info in infos)
        if total > BUNDLE_TOTAL_MAX or (
            total > BUNDLE_RATIO_FREE and total > BUNDLE_RATIO_MAX * packed
        ):
            raise UnreadableError(
                f"{self.path}: would unpack to {total // MIB} MiB from {packed // MIB} MiB."
            )
        names = [
            info.filename
            for info in infos
            if info.filename.startswith(_SAMPLES) and info.filename.endswith(".json")
        ]
        # A sample that was run again has two members with one name: the last is read.
        self._names = list(dict.fromkeys(names))[:FOREIGN_RUNS_MAX]

    def _read(self, name: str) -> bytes:
        if self._archive is None:
            raise UnreadableError(f"{self.path}: has no {name}.")
        try:
            with self._archive.open(name) as member:
                data = member.read(FOREIGN_FILE_MAX + 1)
        except KeyError:
            raise UnreadableError(f"{self.path}: has no {name}.") from None
        except Exception as error:  # noqa: BLE001  # damaged data: also errors of the decoder
            raise UnreadableError(f"{self.path}: {name} is damaged ({error}).") from None
        if len(data) > FOREIGN_FILE_MAX:
            raise UnreadableError(
                f"{self.path}: {name} is larger than {FOREIGN_FILE_MAX // MIB} MiB."
            )
        return data


# --- paths ----------------------------------------------------------------------------------------


def has_log(path: Path) -> bool:
    """Return whether a path is a log, or a folder with one. Bounded work; never raises."""
    try:
        if path.is_dir():
            return any(map(is_log, _log_files(path)))
        return is_log(path)
    except OSError:
        return False


def is_log(path: Path) -> bool:
    try:
        if not path.is_file():
            return False
        with open(path, "rb") as file:
            head = file.read(_SNIFF_BYTES)
    except OSError:
        return False
    if path.suffix == _ARCHIVE:
        return head.startswith(_ZIP)
    is_object = head.removeprefix(BOM).lstrip().startswith(b"{")
    return is_object and all(signature in head for signature in _SIGNATURES)


def _log_files(folder: Path) -> list[Path]:
    files = (path for path in folder.iterdir() if path.suffix in (_ARCHIVE, ".json"))
    return sorted(files)[:FOREIGN_RUNS_MAX]


def find_sample_paths(path: Path) -> Iterator[Path]:
    """Yield the file of a log with one sample, or `FILE#n` for each sample."""
    files = [file for file in _log_files(path) if is_log(file)] if path.is_dir() else [path]
    for file in files:
        count = open_log(file).count
        if count == 1:
            yield file
        for number in range(1, count + 1) if count > 1 else ():
            yield file.with_name(f"{file.name}{NUMBER_SEPARATOR}{number}")


def split_number(path: Path) -> tuple[Path, int]:
    """Return the file and the number of a sample, 1 for the first."""
    name, _, number = path.name.rpartition(NUMBER_SEPARATOR)
    if name and number.isdecimal() and not path.exists():
        return path.with_name(name), int(number)
    return path, 1


def open_log(path: Path) -> Log:
    """Open a log. The latest one is cached until it changes."""
    try:
        stat = path.stat()
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read ({error.strerror}).") from None
    return _open_cached(path, stat.st_mtime_ns, stat.st_size, stat.st_ino)


@lru_cache(maxsize=1)
def _open_cached(path: Path, _mtime_ns: int, _size: int, _inode: int) -> Log:
    return Log(path)
