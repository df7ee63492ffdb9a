"""What is printed and told already, so that it is not recorded as a print, too (emit/hooks/stdout_capture.py)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

HUSHED: set[int] = set()
"""Threads that are writing what is told already, or are telling."""


@contextmanager
def suppress_prints() -> Iterator[None]:
    """What this thread writes meanwhile is told already."""
    thread = get_ident()
    if thread in HUSHED:
        yield
        return
    HUSHED.add(thread)
    try:
        yield
    finally:
        HUSHED.discard(thread)
