"""Show a long file while it is read: another process imports it into a temporary home.

with import_in_background(Path("rollout.jsonl")) as home:    # has the beginning
    ...                                                      # and more of it, until all is read
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from vestige._runtime import clock
from vestige.errors import StoreError, UnreadableError
from vestige.home import Home
from vestige.transfer.import_runs import find_format
from vestige.transfer.temp_folder import create_folder

_POLL_S: Final = 0.05
_ERROR_MAX: Final = 2_000
_STORE: Final = "VESTIGE_STORE"
"""The temporary home has its own store."""


def is_long_source(path: Path) -> bool:
    """Return whether the file is so long that its beginning is shown first."""
    from vestige.formats.session_files import is_long

    found = find_format(path) if is_long(path) else None
    return found is not None and hasattr(found[1], "read_head")


@contextmanager
def import_in_background(path: Path) -> Iterator[Home]:
    """Yield a temporary home when it has the first records of a file. The rest is added later."""
    folder, remove = create_folder()
    home = Home(folder)
    home.make()
    command = [sys.executable, "-m", "vestige", "import", str(path), "--home", str(folder)]
    with open(folder / "errors", "wb") as errors:
        # In a group of its own: Ctrl-C stops the viewer, which stops this process.
        child = subprocess.Popen(
            command,
            env={name: value for name, value in os.environ.items() if name != _STORE},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
    try:
        while not _has_run(home):
            if child.poll() is not None and not _has_run(home):
                text = (folder / "errors").read_bytes()[-_ERROR_MAX:].decode(errors="replace")
                raise UnreadableError(text.strip().removeprefix("vestige: ") or f"{path}: no run.")
            clock.sleep(_POLL_S)
        yield home
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait()
        remove()


def _has_run(home: Home) -> bool:
    from vestige.store.open import open_store
    from vestige.store.protocol import RunFilter

    if not home.store.is_file():
        return False
    try:
        with open_store(home.store, readonly=True) as store:
            return bool(store.list_runs(RunFilter(limit=1)))
    except StoreError:  # it is being created
        return False
