"""`follow`: the lines of a run that are new since the previous poll.

    following = Following()
    for line in following.news(run): ...        # call again with the run loaded again

A span is reported when it starts, if it is still open at that poll, and when it has ended. Pure.
"""

from __future__ import annotations

from vestige.query.views.timeline import Line, timeline
from vestige.record.run import LogInfo, Run, put_in_order, time_ns

SeenKey = tuple[str, int | str, bool]
"""(writer, seq, True) of a log record; ("", span id, has ended) of a span."""


class Following:
    """The lines already reported of one run."""

    def __init__(self, *, errors: bool = False, type: str | None = None) -> None:
        self._errors = errors
        self._type = type
        self._seen: set[SeenKey] = set()

    def news(self, run: Run) -> list[Line]:
        """Return the new lines, in the order of the events."""
        new = [line for line in timeline(run, fold=False) if self._is_new(line)]
        matching = filter(self._matches, new)
        return put_in_order(matching, lambda line: line.node.writer, _event_seq, _event_ns)

    def _is_new(self, line: Line) -> bool:
        node = line.node
        if isinstance(node, LogInfo):
            key: SeenKey = (node.writer, node.seq, True)
        else:
            key = ("", node.id, node.status is not None)
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def _matches(self, line: Line) -> bool:
        if self._type is not None and (
            isinstance(line.node, LogInfo) or line.node.type != self._type
        ):
            return False
        return not self._errors or line.style in ("error", "stamp")


def _event_seq(line: Line) -> int:
    """Return the sequence number of the reported record: a span's end if it has ended."""
    node = line.node
    end = None if isinstance(node, LogInfo) else node.end_seq
    return end or node.seq or 0


def _event_ns(line: Line) -> int:
    node = line.node
    return time_ns(node) + (0 if isinstance(node, LogInfo) else node.duration_ns or 0)
