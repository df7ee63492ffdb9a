"""Which texts may be a run's id: those that can also be the name of a file, and nothing worse.

is_run_id("5f0c...")            # True
is_run_id("../other")           # False
file_name_of("../other")        # "run-3c6f...": always a plain name, the same each time
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from vestige.limits import NAME_MAX

_RUN_ID: Final = re.compile(r"[^\s./\\\x00-\x1f\x7f\ud800-\udfff][^/\\\x00-\x1f\x7f\ud800-\udfff]*")
_FILE_BYTES_MAX: Final = 200
"""Of a file's name: systems take 255, and an ending is added to it."""


def is_run_id(text: str) -> bool:
    """Whether an id from outside may name a run: no separator, no leading dot, no control characters."""
    return len(text) <= NAME_MAX and _RUN_ID.fullmatch(text) is not None


def file_name_of(run_id: str) -> str:
    """The name of a file or folder for a run. Older stores may hold ids that are not safe as one."""
    if is_run_id(run_id) and len(run_id.encode()) <= _FILE_BYTES_MAX:
        return run_id
    digest = hashlib.sha256(run_id.encode(errors="surrogatepass")).hexdigest()
    return f"run-{digest[:32]}"
