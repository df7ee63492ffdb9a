"""Group the passing cases of a large suite by their file, for its manifest and scenarios.

A case that did not pass, or that has attachments, is listed by itself in any suite. The trace
has every case.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from vestige.formats.artifacts.trace_events import CaseResult
    from vestige.formats.times_and_outcomes import CaseOutcome


class PassedGroup(msgspec.Struct):
    """The passing cases of one file, as one entry of a manifest."""

    file: str
    count: int = 0
    assertions: int = 0
    duration_ms: int = 0
    attachments: list[str] = msgspec.field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.file}: {self.count} passed" if self.file else f"{self.count} passed"

    @property
    def failures(self) -> list[str]:
        return []

    @property
    def outcome(self) -> CaseOutcome:
        return "pass"


def group_passes(cases: Sequence[CaseResult]) -> list[Any]:
    """Return the cases in their order, with one group per file in place of its passing cases."""
    groups: dict[str, PassedGroup] = {}
    listed: list[Any] = []
    for case in cases:
        if case.outcome != "pass" or case.attachments:
            listed.append(case)
            continue
        file, found, _ = case.name.partition("::")
        group = groups.get(file if found else "")
        if group is None:
            group = groups[file if found else ""] = PassedGroup(file if found else "")
            listed.append(group)
        group.count += 1
        group.assertions += case.assertions
        group.duration_ms += case.duration_ms
    return listed


__all__ = ["PassedGroup", "group_passes"]
