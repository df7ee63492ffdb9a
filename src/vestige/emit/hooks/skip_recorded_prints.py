"""Mark a thread whose output is already recorded, so that stdout capture skips it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

SUPPRESSED: set[int] = set()
"""Threads whose writes emit/hooks/stdout_capture.py ignores."""


@contextmanager
def suppress_prints() -> Iterator[None]:
    """Do not record what this thread prints inside."""
    thread = get_ident()
    if thread in SUPPRESSED:
        yield
        return
    SUPPRESSED.add(thread)
    try:
        yield
    finally:
        SUPPRESSED.discard(thread)
