"""Finding: what a check or a validator has to say, with the evidence for it."""

from __future__ import annotations

from typing import Literal

import msgspec

Severity = Literal["error", "warning", "hint"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "hint")
Basis = Literal["measured", "hypothesis"]


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that is wrong, or may be."""

    check: str
    """The name of the check that found it."""
    severity: Severity
    confidence: float
    """0 to 1: how often, of a hundred such findings, it is really so."""
    basis: Basis
    """`measured`: a fact of the record. `hypothesis`: a reading of facts."""
    kind: str
    """What it is, finer than the check: `cache-bust/prefix-changed`."""
    message: str
    """One sentence, with the numbers."""
    cause: str | None = None
    """The span that made it happen (span id); None: the run as a whole."""
    evidence: list[str] = []
    """Span ids that show it, the telling ones first."""
    command: str = ""
    """The command that shows the proof."""
