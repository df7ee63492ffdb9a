"""The encoding of a text file that no reader can read.

find_wide_encoding(path)    # "x.json: encoded as UTF-16 (expected UTF-8). ...", or None
"""

from __future__ import annotations

import codecs
import shlex
from pathlib import Path
from typing import Final

_BYTES_MAX: Final = 64
_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
"""The mark of UTF-16 is the beginning of that of UTF-32."""
_OPENINGS: Final = "{[<"


def find_wide_encoding(path: Path) -> str | None:
    """Return the error of a file in UTF-16 or UTF-32, and None for any other."""
    try:
        if not path.is_file():
            return None
        with open(path, "rb") as file:
            head = file.read(_BYTES_MAX)
    except OSError:
        return None
    name = _find_name(head)
    if name is None:
        return None
    command = f"iconv -f {name} -t UTF-8 {shlex.quote(str(path))}"
    return f"{path}: encoded as {name} (expected UTF-8). Convert it: {command}"


def _find_name(head: bytes) -> str | None:
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name
    for name in ("UTF-16LE", "UTF-16BE"):
        text = head[: len(head) // 2 * 2].decode(name, errors="replace")
        # Text in UTF-8 has no zero bytes.
        if b"\0" in head and text.lstrip()[:1] in tuple(_OPENINGS) and text.isascii():
            return name
    return None
