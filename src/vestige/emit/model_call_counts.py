"""Count the model calls that are recorded inside each span.

A framework reports its model calls, and the wire records their HTTP requests. The integration of
the framework records a call itself only if the wire recorded none inside:

    before = count_calls(span.id)
    ...                                     # the framework calls its model
    if count_calls(span.id) == before: ...  # a local model, or a client that is not hooked
"""

from __future__ import annotations

from vestige.emit.emitter import Emitter
from vestige.limits import COUNTED_SPANS_MAX

_ANCESTORS_MAX = 50

_counts: dict[str, int] = {}


def add_call(emitter: Emitter, parent_id: str | None) -> None:
    """Count a model call inside a span and its open ancestors."""
    for _ in range(_ANCESTORS_MAX):
        if parent_id is None:
            break
        _counts[parent_id] = _counts.get(parent_id, 0) + 1
        parent = emitter.open_spans.get(parent_id)
        parent_id = None if parent is None else parent.parent_id
    while len(_counts) > COUNTED_SPANS_MAX:
        _counts.pop(next(iter(list(_counts)), ""), None)


def count_calls(span_id: str | None) -> int:
    return _counts.get(span_id or "", 0)
