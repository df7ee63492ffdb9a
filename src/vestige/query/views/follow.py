"""`follow`: what is new in a run, each time one looks.

    following = Following()
    for line in following.news(run): ...        # now, and again with the run as it is later

A span is told when it begins, if it lasts until somebody looks, and when it has ended. Pure.
"""

from __future__ import annotations

from vestige.query.views.timeline import Line, timeline
from vestige.record.run import LogInfo, Run, put_in_order, time_ns

Fact = tuple[str, int | str, bool]
"""A node, and whether it has ended: of a log line its writer and number, of a span its id."""


class Following:
    """Remembers what was told."""

    def __init__(self, *, errors: bool = False, type: str | None = None) -> None:
        self._errors = errors
        self._type = type
        self._told: set[Fact] = set()

    def news(self, run: Run) -> list[Line]:
        """In the order in which it happened."""
        new = [line for line in timeline(run, fold=False) if self._is_new(line)]
        wanted = filter(self._is_wanted, new)
        return put_in_order(wanted, lambda line: line.node.writer, _number, _happened_ns)

    def _is_new(self, line: Line) -> bool:
        node = line.node
        if isinstance(node, LogInfo):
            fact: Fact = (node.writer, node.seq, True)
        else:
            fact = ("", node.id, node.status is not None)
        if fact in self._told:
            return False
        self._told.add(fact)
        return True

    def _is_wanted(self, line: Line) -> bool:
        if self._type is not None and (
            isinstance(line.node, LogInfo) or line.node.type != self._type
        ):
            return False
        return not self._errors or line.mood in ("error", "stamp")


def _number(line: Line) -> int:
    """Of what is told: of a span that has ended, its end."""
    node = line.node
    end = None if isinstance(node, LogInfo) else node.end_seq
    return end or node.seq or 0


def _happened_ns(line: Line) -> int:
    node = line.node
    return time_ns(node) + (0 if isinstance(node, LogInfo) else node.duration_ns or 0)
