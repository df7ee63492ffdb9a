"""Names inside a bundle: which are safe, and how any other becomes one.

A bundle is opened on other machines, so a name must mean the same place on all of them:
relative, forward slashes, no `..`, no drive, no control characters. What a capture found
under another name (`a\\b` is one file on Linux) is stored with `%5C` in place of what is not
safe, and the manifest says what it was.

    find_fault("../x")           "leads out of the bundle"
    safe_path("a\\\\b")            "a%5Cb"
"""

from __future__ import annotations

import hashlib
import re

from vestige.limits import BUNDLE_NAME_MAX

PATH_MAX = BUNDLE_NAME_MAX - 64
"""Bytes of a captured file's path: it follows `files/`, and may need a number."""

_UNSAFE = re.compile(r"[\\\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_DRIVE = re.compile(r"[A-Za-z]:")


def find_fault(name: str) -> str | None:
    """Return why a name is not safe, or None if it is."""
    if len(name.encode(errors="surrogatepass")) > BUNDLE_NAME_MAX:
        return f"is longer than {BUNDLE_NAME_MAX} bytes"
    if "\\" in name:
        return "has a backslash"
    if _UNSAFE.search(name):
        return "has a control character"
    if name.startswith("/"):
        return "is absolute"
    if _DRIVE.match(name):
        return "has a drive"
    if any(part in ("", ".", "..") for part in name.removesuffix("/").split("/")):
        return "leads out of the bundle" if ".." in name.split("/") else "is not a plain path"
    return None


def safe_path(path: str) -> str:
    """Return the path under which a captured file is stored. A safe path is unchanged."""
    long = len(path) > PATH_MAX // 4 and len(path.encode(errors="surrogatepass")) > PATH_MAX
    if not long and find_fault(path) is None and not path.endswith("/"):
        return path
    text = _UNSAFE.sub(lambda found: _percent(found.group()), path)
    parts = [_safe_part(part) for part in text.split("/")]
    text = "/".join(parts)
    if _DRIVE.match(text):
        text = text.replace(":", "%3A", 1)
    raw = text.encode()
    if len(raw) > PATH_MAX:
        digest = hashlib.sha256(path.encode(errors="surrogatepass")).hexdigest()[:16]
        text = raw[: PATH_MAX - 20].decode(errors="ignore").rstrip("/") + "~" + digest
    return text


def _safe_part(part: str) -> str:
    if part in (".", ".."):
        return part.replace(".", "%2E")
    return part or "%2F"


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode(errors="surrogatepass"))
