"""Check JSON that is too large to be parsed in memory: spool it to a file and scan it there.

    large = LargeJson()
    for chunk in chunks: large.feed(chunk)
    large.find_fault()            # None, or the first syntax error

The scan creates no values: it finds every syntax error in constant memory.
"""

from __future__ import annotations

import codecs
import mmap
import tempfile
from typing import IO

import msgspec

_BEGINNINGS = (b"", *(bytes((byte,)) for byte in b'{["-0123456789tfn'))
_skim = msgspec.json.Decoder(msgspec.Raw).decode


class LargeJson:
    """A JSON value that is checked as a stream."""

    def __init__(self) -> None:
        self.unchecked: str | None = None
        """The reason why it cannot be checked: no space for a temporary file."""
        self._file: IO[bytes] | None = None
        self._text = codecs.getincrementaldecoder("utf-8")()
        self._fault: str | None = None

    def feed(self, chunk: bytes) -> None:
        if self._fault is not None or self.unchecked is not None:
            return
        self._check_text(chunk, last=False)
        if self._file is None and not chunk.strip():
            return  # blank so far; a file that is blank to its end is allowed
        if self._file is None and chunk.lstrip()[:1] not in _BEGINNINGS:
            self._fault = "is not JSON."
            return
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115  # closed in `find_fault`
            self._file.write(chunk)
        except OSError as error:
            self.unchecked = f"is too large to be held, and cannot be spooled ({error.strerror})."

    def find_fault(self) -> str | None:
        """Return what is wrong; None if it is valid JSON or could not be checked."""
        self._check_text(b"", last=True)
        if self._file is None:
            return self._fault
        with self._file as file:
            if self._fault is None and self.unchecked is None:
                try:
                    file.flush()
                    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                        self._fault = _fault_of(data)
                except OSError as error:
                    self.unchecked = f"is too large to be held ({error.strerror})."
        return self._fault

    def _check_text(self, chunk: bytes, *, last: bool) -> None:
        if self._fault is None:
            try:
                self._text.decode(chunk, last)
            except UnicodeDecodeError:
                self._fault = "is not UTF-8."


def _fault_of(data: mmap.mmap) -> str | None:
    view = memoryview(data)
    try:
        _skim(view)
    except msgspec.DecodeError as error:
        return f"is not JSON: {error}."
    except RecursionError:
        return "is nested too deeply to be read."
    finally:
        view.release()
    return None
