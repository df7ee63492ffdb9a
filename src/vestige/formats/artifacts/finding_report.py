"""Collect the problems of one bundle: by rule, within the profile, bounded."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

from vestige.limits import ARTIFACT_FINDINGS_MAX

if TYPE_CHECKING:
    from vestige.formats.artifacts.validation_rules import Profile, Rule
    from vestige.formats.protocol import Problem


class Report:
    """Collects problems of one bundle."""

    def __init__(self, name: str, profile: Profile) -> None:
        self.profile = profile
        self._name = name
        self._found: list[Problem] = []
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, rule: str, file: str, message: str, place: str = "") -> None:
        """Add a problem, unless its rule does not belong to the profile."""
        # Most bundles are valid, and are validated at the end of a test session: nothing is loaded
        # for them.
        from vestige.formats.artifacts.validation_rules import RULES, applies
        from vestige.formats.protocol import Problem

        known = RULES[rule]
        if not applies(known, self.profile):
            return
        # Every finding about a missing file counts; others are limited per file.
        self._counts[rule, file] += 1
        if self._counts[rule, file] > ARTIFACT_FINDINGS_MAX:
            return
        self._found.append(
            Problem(self.path(file), place, rule, message, known.hint, _severity(known))
        )

    def path(self, file: str) -> str:
        return f"{self._name}/{file}" if file else self._name

    def problems(self) -> list[Problem]:
        """Return all findings, in the order of the files."""
        if not self._counts:
            return []
        from vestige.formats.artifacts.validation_rules import RULES
        from vestige.formats.protocol import Problem

        for (rule, file), count in self._counts.items():
            more = count - ARTIFACT_FINDINGS_MAX
            if more > 0:
                message, severity = f"{more} more findings of {rule}.", _severity(RULES[rule])
                self._found.append(Problem(self.path(file), "", rule, message, severity=severity))
        return self._found


def _severity(rule: Rule) -> Literal["error", "warning"]:
    return "warning" if rule.warning else "error"
