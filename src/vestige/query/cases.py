"""The failed cases of a test suite, told before anything else: they are what one came for."""

from __future__ import annotations

from vestige.query import words
from vestige.record.run import Run, SpanInfo

SHOWN_MAX = 5
_BAD = ("fail", "unknown")


def failed_cases(run: Run) -> list[str]:
    """Lines: which cases failed or never ended, and why. None where the run is no suite, or all is well."""
    # Of reruns the last one counts.
    last = {span.name: span for span in run.spans if span.type == "test"}
    failed = [span for span in last.values() if span.attributes.get("outcome") in _BAD]
    if not failed:
        return []
    told = [f"  {_told(span)}" for span in failed[:SHOWN_MAX]]
    if len(failed) > SHOWN_MAX:
        told.append(f"  … {len(failed) - SHOWN_MAX} more")
    return [f"failed cases ({len(failed)} of {len(last)}):", *told]


def _told(span: SpanInfo) -> str:
    message = span.attributes.get("error.message")
    why = f": {words.one_line(str(message), 120)}" if message else ""
    return f"{span.short_id} {words.one_line(span.name, 100)}{why}"
