"""The signature of a failure: what two runs have in common that failed for the same reason.

A signature consists of the finding's kind, the failed span, the class of the innermost exception,
its text without volatile values, and the function of the program that raised it. Ids, numbers,
paths and URLs differ between runs of the same cause, so they are placeholders. Pure functions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from vestige.query.failures.traceback_parsing import find_own_frame
from vestige.record.finding import Finding
from vestige.record.run import Run, SpanInfo

TEXT_MAX: Final = 2_000
"""Characters of an error text that are compared."""
SHOWN_MAX: Final = 160

# Each alternative is bounded, so a hostile text cannot make the search quadratic.
_VOLATILE: Final = re.compile(
    r"(?P<url>\b[a-z][a-z0-9+.-]{1,15}://[^\s\"'<>)\]]{1,2000})"
    r"|(?P<path>(?:[A-Za-z]:)?(?:[\\/][\w.@~+-]{1,255}){2,64}[\\/]?)"
    r"|(?P<value>\b(?=[\w-]{0,128}\d)(?:[0-9a-f]{8}-[0-9a-f-]{20,40}|[0-9a-f]{12,}"
    r"|[A-Za-z]{1,16}[_-][\w-]{1,128}|0x[0-9a-f]+)\b"
    r"|(?<![A-Za-z_])[+-]?\d[\d.,:_]*(?:e[+-]?\d+)?(?:\s?(?:ms|s|kB|MB|GB)\b|%)?)",
    re.IGNORECASE,
)
_WORD: Final = re.compile(r"[^\W\d_]{2,}")


@dataclass(frozen=True, slots=True, order=True)
class Signature:
    """The cause of a failure, without the values of one run."""

    kind: str
    """The kind of the leading finding, or the outcome of a run without one."""
    subject: str
    """Type and name of the failed span: `tool get_rate`. Of a model call, only the type: its name
    is that of an API, or of an agent, which may differ from task to task."""
    error: str
    """Class of the innermost exception; empty if there is none."""
    text: str
    """The error text with placeholders, such as `order <value> not found`."""
    place: str
    """File and function of the program that raised it, without the line; empty if unknown."""

    def is_similar(self, other: Signature) -> bool:
        """Return True if only the words of the error text differ, and few of them."""
        mine = (self.kind, self.subject, self.error, self.place)
        if mine != (other.kind, other.subject, other.error, other.place):
            return False
        words, others = (set(_WORD.findall(each.text.lower())) for each in (self, other))
        either = words | others
        return not either or len(words & others) / len(either) >= _SIMILAR_SHARE


_SIMILAR_SHARE: Final = 0.6
"""Share of common words from which on two error texts have the same cause."""


def find_signature(run: Run, finding: Finding | None) -> Signature:
    """Return the signature of a run with its leading finding, if it has one."""
    span = _find_span(run, finding)
    attributes = span.attributes if span is not None else {}
    error, message, stack = (
        attributes.get(f"error.cause.{part}") or attributes.get(f"error.{part}")
        for part in ("type", "message", "stack")
    )
    text = str(message or (finding.message if finding is not None else ""))
    frame = find_own_frame(stack)
    return Signature(
        kind=finding.kind if finding is not None else run.info.outcome,
        subject=_name_subject(span),
        error=str(error or "").rpartition(".")[2],
        text=normalize(text),
        place=f"{frame.file.replace(chr(92), '/').rpartition('/')[2]} in {frame.function}"
        if frame is not None
        else "",
    )


def _name_subject(span: SpanInfo | None) -> str:
    if span is None:
        return ""
    return span.type if span.type == "llm" else normalize(f"{span.type} {span.name}")


def normalize(text: str) -> str:
    """Replace the values that differ between runs by placeholders, and fold white space."""
    replaced = _VOLATILE.sub(lambda match: f"<{match.lastgroup}>", text[:TEXT_MAX])
    return " ".join(replaced.split())


def _find_span(run: Run, finding: Finding | None) -> SpanInfo | None:
    """Return the span that the finding blames, else the innermost failed span."""
    if finding is not None and finding.cause is not None:
        for span in run.spans:
            if span.id == finding.cause:
                return span
    failed = {span.id: span for span in run.spans if span.status not in ("ok", None)}
    parents = {span.parent_id for span in failed.values()}
    leaves = [span for span in failed.values() if span.id not in parents]
    return leaves[-1] if leaves else None
