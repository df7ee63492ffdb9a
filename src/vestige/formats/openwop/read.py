"""A bundle file as a document: bounded, decoded, and recognisably a bundle; nothing more is
trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from vestige.errors import UnreadableError
from vestige.limits import MIB, OPENWOP_FILE_MAX

Object = dict[str, Any]


def load(path: Path) -> Any:
    """Return the JSON value in a file. Raise UnreadableError if it is too large or not JSON."""
    try:
        with open(path, "rb") as file:
            data = file.read(OPENWOP_FILE_MAX + 1)
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read: {error.strerror}.") from None
    if len(data) > OPENWOP_FILE_MAX:
        raise UnreadableError(
            f"{path}: larger than {OPENWOP_FILE_MAX // MIB} MiB (a bundle of one run is 8 MB)."
        )
    try:
        return msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"))
    except RecursionError:
        raise UnreadableError(f"{path}: JSON nested too deeply.") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise UnreadableError(f"{path}: not JSON ({str(error)[:200]}).") from None


def load_bundle(path: Path) -> Object:
    """Return a document with the fields that reading requires."""
    document = load(path)
    if not isinstance(document, dict):
        raise UnreadableError(f"{path}: no OpenWOP bundle (expected an object).")
    run = document.get("run")
    if not isinstance(run, dict) or not text_of(run.get("runId")):
        raise UnreadableError(f"{path}: /run/runId: missing (expected the run that it is about).")
    if not isinstance(document.get("events"), list):
        raise UnreadableError(f"{path}: /events: missing (expected an array).")
    version = str(document.get("bundleVersion", "1"))
    if version.partition(".")[0] not in ("1", ""):
        raise UnreadableError(
            f"{path}: bundle version {version[:20]!r} is newer than this reader (knows 1). "
            f"Upgrade vestige."
        )
    return document


def object_of(value: Any) -> Object:
    """Return a value that should be an object, or an empty object."""
    return value if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""
