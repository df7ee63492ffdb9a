"""The task of a run, without its trajectory: cheap enough to compare many runs.

is_same_task(find_task_text(a), find_task_text(b))
"""

from __future__ import annotations

import re
from typing import Final

from vestige.providers.injected_context import strip_context
from vestige.query.body_cache import BODY_READ_MAX
from vestige.query.evidence import Evidence
from vestige.query.trajectory.headline import extract_task
from vestige.query.trajectory.message_items import read_role
from vestige.query.trajectory.span_roles import is_agent
from vestige.record.run import SpanInfo

SAME_SHARE: Final = 0.9
"""Share of equal words from which on two tasks are nearly the same."""
WORDS_MAX: Final = 5_000

_WORD: Final = re.compile(r"\w+")


def find_task_text(evidence: Evidence) -> str:
    """Return the input of the run or its first agent, else the first text of the user."""
    if text := find_task_input(evidence):
        return extract_task(text)
    for call in evidence.model_calls[:1]:
        request = evidence.request(call) if _is_small(call) else None
        messages = request.messages if request is not None else []
        texts = [each.text for each in messages if read_role(each.role) == "user"]
        found = next(filter(None, map(strip_context, texts)), None)
        return found or next((text for text in texts if text.strip()), "")
    return ""


def find_task_input(evidence: Evidence) -> str:
    """Return the recorded input of the run or of its first agent; empty if there is none."""
    spans = [evidence.root, next(filter(is_agent, evidence.run.spans), None)]
    texts = (_read(evidence, span) for span in spans)
    return next((text for text in texts if extract_task(text).strip()), "")


def is_same_task(a: str, b: str) -> bool:
    """Return True if two tasks are equal, or nearly equal by their words."""
    if " ".join(a.split()) == " ".join(b.split()):
        return True
    words_a, words_b = (frozenset(_WORD.findall(text.lower())[:WORDS_MAX]) for text in (a, b))
    if not words_a or not words_b:
        return False
    # The question is often a few words in a long frame, so every different word counts twice.
    different = len(words_a ^ words_b)
    return 1 - 2 * different / len(words_a | words_b) >= SAME_SHARE


def has_manifest(span: SpanInfo) -> bool:
    """Return whether the input of a root span is the manifest of a debug bundle, not a task."""
    return span.type == "run" and "bundle_id" in span.attributes


def _read(evidence: Evidence, span: SpanInfo | None) -> str:
    if span is None or not _is_small(span) or has_manifest(span):
        return ""
    return evidence.input(span) or ""


def _is_small(span: SpanInfo) -> bool:
    return span.input is not None and span.input.size_bytes <= BODY_READ_MAX
