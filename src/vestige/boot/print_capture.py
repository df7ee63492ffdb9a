"""Record what a program prints under `vestige run`.

Only the `write` method of the standard streams is replaced, so a terminal is still a terminal. A
stream that the program sets as `sys.stdout` later is not recorded.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import TextIO

from vestige.emit.hooks.stdout_capture import Prints


def capture_prints() -> None:
    for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        if stream is not None:  # None in a program without a console
            _replace_write(name, stream)


def _replace_write(name: str, stream: TextIO) -> None:
    prints = Prints(name, stream.write)
    try:
        stream.write = prints  # type: ignore[method-assign]
    except AttributeError:  # The stream does not allow new attributes.
        return
    atexit.register(prints.finish)
    os.register_at_fork(after_in_child=prints.reset_after_fork)
