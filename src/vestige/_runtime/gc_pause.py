"""Let Python look for garbage less often while much is made and kept: a batch, the end of a suite.

It looks after every few hundred new objects that can hold others, and at all that are young. A batch
is many of them, all alive and none in a cycle: the looking was a sixth of the work.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

NEW_OBJECTS = 100_000
"""Some MB: what may wait to be found."""


@contextmanager
def pause_gc() -> Iterator[None]:
    young, *older = gc.get_threshold()
    if young:  # else it is off already
        gc.set_threshold(max(young, NEW_OBJECTS), *older)
    try:
        yield
    finally:
        gc.set_threshold(young, *older)
