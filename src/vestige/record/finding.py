"""Finding: the result of a check or a validator, with its evidence."""

from __future__ import annotations

from typing import Literal

from vestige._runtime.msgspec_or_fallback import msgspec

Severity = Literal["error", "warning", "hint"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "hint")
Basis = Literal["measured", "hypothesis"]


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A problem or a possible problem, with its evidence."""

    check: str
    """The name of the check that found it."""
    severity: Severity
    confidence: float
    """0 to 1: the share of such findings that are correct."""
    basis: Basis
    """`measured`: a fact in the record. `hypothesis`: an interpretation of facts."""
    kind: str
    """The check and the case within it: `cache-bust/prefix-changed`."""
    message: str
    """A sentence with the numbers."""
    cause: str | None = None
    """The id of the span that caused it. None: the run."""
    evidence: list[str] = []
    """Ids of the spans that show it, the most relevant first."""
    command: str = ""
    """The command that shows the proof."""
