"""Which checks had something to look at in a run.

A check without findings has passed only if the run has what it looks at. Without model calls,
"no invalid history" would be true and misleading.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from vestige.query.checks.wire_bodies import was_sent
from vestige.record.run import Run

_SENT: Final = "sent"
"""Model calls with a recorded request (query/checks/wire_bodies.py)."""

_NEEDS: Final[dict[str, tuple[str, ...]]] = {
    "announced-call": ("llm",),
    "answer-origin": ("message",),
    "answer-without-tool": ("llm",),
    "bad-arguments": ("llm",),
    "broken-instruction": ("llm",),
    "cache-churn": (_SENT,),
    "cache-miss": (_SENT,),
    "call-as-text": ("llm",),
    "content-filter": ("llm",),
    "context-pressure": ("llm",),
    "delivery-without-enqueue": ("queue.deliver",),
    "detour": ("llm",),
    "duplicate-delivery": ("queue.deliver",),
    "duplicate-result": ("llm", "tool", "queue.deliver"),
    "empty-response": ("llm",),
    "failed-action": ("llm",),
    "failed-call": ("llm",),
    "failed-case": ("test",),
    "failed-tool": ("tool",),
    "history-head-loss": (_SENT,),
    "history-loss": (_SENT,),
    "history-mutation": (_SENT,),
    "ignored-error": ("llm",),
    "invalid-history": (_SENT,),
    "loop": ("llm", "tool"),
    "misrouted-delivery": ("queue.deliver",),
    "missing-resource": ("llm",),
    "orphan-call": ("llm",),
    "output-cut": ("llm",),
    "oversized-result": ("llm",),
    "repeated-code": ("llm",),
    "repeated-result": ("llm",),
    "repeated-tool-error": ("tool",),
    "retry-storm": ("llm", "http"),
    "runaway-cost": ("llm",),
    "soft-error": ("llm", "tool"),
    "steps-after-answer": ("llm",),
    "swapped-results": ("tool",),
    "task-not-passed": ("llm",),
    "undelivered-message": ("queue.enqueue",),
    "unknown-tool": ("llm",),
    "unlinked-delivery": ("queue.deliver",),
    "unsupported-answer": ("llm",),
}
"""Types of spans by check: one of them must be there. Other checks apply to every run."""


def find_inapplicable(run: Run, names: Sequence[str]) -> list[str]:
    """Return the checks that had nothing to look at."""
    present = {span.type for span in run.spans}
    calls = [span for span in run.spans if span.type == "llm"]
    if any(was_sent(span) for span in calls):
        present.add(_SENT)
    if any("message_index" in span.attributes for span in calls):
        present.add("message")
    return [name for name in names if present.isdisjoint(_NEEDS.get(name, tuple(present)))]
