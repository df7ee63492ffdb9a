"""Open the zip of a bundle, and refuse it if a member is unsafe or too large."""

from __future__ import annotations

import shlex
import stat
import zipfile
import zlib
from pathlib import Path
from typing import Final

from vestige.errors import (
    BundleCorruptedError,
    BundleNotFoundError,
)
from vestige.formats.wink.archive.member_names import find_fault
from vestige.formats.zip_index_limits import check_directory
from vestige.limits import (
    BUNDLE_RATIO_FREE,
    BUNDLE_RATIO_MAX,
    BUNDLE_TOTAL_MAX,
    KIB,
)

_ENCRYPTED: Final = 0x1 | 0x40 | 0x2000
ZIP_ERRORS = (
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


def open_archive(path: Path) -> zipfile.ZipFile:
    """Open a zip, and keep it open: a file that replaces it is another bundle."""
    if not path.exists():
        raise BundleNotFoundError(f"{path}: no such file.")
    if path.is_dir():
        raise BundleCorruptedError(
            f"{path}: a folder, not a file (expected a .wink bundle). Name one in it, or look at"
            f" the latest with `vestige bundle show {shlex.quote(str(path))}`."
        )
    if not path.is_file():
        raise BundleCorruptedError(f"{path}: not a file (expected a .wink bundle).")
    recover = f"vestige store recover {shlex.quote(str(path))}"
    check_directory(path, hint=f"To save its intact parts: {recover}")
    # Opened by us, so that the library never closes it under another thread.
    file = path.open("rb")
    try:
        return zipfile.ZipFile(file)
    except ZIP_ERRORS as error:
        file.close()
        raise BundleCorruptedError(
            f"{path}: not a readable zip: {describe_error(error)}."
        ) from error


def check_members(path: Path, infos: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    """Return the members by name. Raise BundleCorruptedError if one is unsafe."""
    members: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        fault = _member_fault(info)
        if fault is None and info.filename in members:
            fault = "occurs twice"
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


def describe_error(error: BaseException) -> str:
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
