"""What a program prints, recorded below `vestige run`.

The streams stay what they are; only their `write` is ours, so that nothing else of them changes: a
terminal is still one, and a stream that the program puts in their place is its own affair.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import TextIO

from vestige.emit.hooks.stdout_capture import Prints


def capture_prints() -> None:
    for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        if stream is not None:  # a program without a console has none
            _watch(name, stream)


def _watch(name: str, stream: TextIO) -> None:
    prints = Prints(name, stream.write)
    try:
        stream.write = prints  # type: ignore[method-assign]
    except AttributeError:  # not one of Python's own
        return
    atexit.register(prints.finish)
    os.register_at_fork(after_in_child=prints.forget)
