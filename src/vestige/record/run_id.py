"""Validate run ids: an id must also be a safe file name.

is_run_id("5f0c...")            # True
is_run_id("../other")           # False
file_name_of("../other")        # "run-3c6f...": a safe name, the same each time
"""

from __future__ import annotations

import hashlib
from typing import Final

from vestige._runtime.re_compat import re
from vestige.limits import NAME_MAX

_RUN_ID: Final = re.compile(r"[^\s./\\\x00-\x1f\x7f\ud800-\udfff][^/\\\x00-\x1f\x7f\ud800-\udfff]*")
_FILE_BYTES_MAX: Final = 200
"""Longest file name in bytes. File systems accept 255, and an extension is added."""


def is_run_id(text: str) -> bool:
    """Return whether an external id is valid: no separator, leading dot or control character."""
    return len(text) <= NAME_MAX and _RUN_ID.fullmatch(text) is not None


def file_name_of(run_id: str) -> str:
    """Return the file name for a run. Ids in older stores may not be safe as file names."""
    if is_run_id(run_id) and len(run_id.encode()) <= _FILE_BYTES_MAX:
        return run_id
    digest = hashlib.sha256(run_id.encode(errors="surrogatepass")).hexdigest()
    return f"run-{digest[:32]}"
