"""Work that leads nowhere: results that are not new, failing code that is run again."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import groupby

from vestige.query import formatting
from vestige.query.checks import check, make_finding
from vestige.query.checks.answer_effects import is_final_tool
from vestige.query.checks.tools.failed_tools import normalize
from vestige.query.checks.tools.ignored_errors import find_error
from vestige.query.evidence import Evidence
from vestige.query.trajectory import Action, Step, build_trajectory
from vestige.record.finding import Finding

DETOUR_MIN = 6
"""Actions in a row without a new result."""

SIMILAR = 0.97
"""Share of equal characters of two codes that counts as no change."""
CODE_MAX = 2_000
COMPARED_MAX = 5
"""Characters of code, and earlier failures, that are compared."""

FINDINGS_MAX = 3
EVIDENCE_MAX = 10


@check(
    "detour",
    title="Many actions without a new result",
    looks_at="results of tools and code in order: empty, failed, or equal to an earlier result",
    severity="warning",
    confidence=0.6,
    false_positives="waiting for something that takes its time",
)
def detour(evidence: Evidence) -> Iterator[Finding]:
    found = 0
    for actions in _by_conversation(evidence):
        seen: set[str] = set()
        marked = [(step, action, _is_new(action, seen)) for step, action in actions]
        for is_new, group in groupby(marked, key=lambda each: each[2]):
            streak = list(group)
            if is_new or len(streak) < DETOUR_MIN or found >= FINDINGS_MAX:
                continue
            found += 1
            steps = {step.number: step for step, _, _ in streak}
            spans = [step.span for step in steps.values() if step.span is not None]
            names = list(dict.fromkeys(action.name for _, action, _ in streak))
            tokens = sum((step.input_tokens or 0) for step in steps.values())
            cost = f", {formatting.number(tokens)} tokens read" if tokens else ""
            yield make_finding(
                evidence,
                "detour",
                kind="detour/nothing-new",
                basis="hypothesis",
                cause=spans[0].id if spans else None,
                evidence=[span.id for span in spans][:EVIDENCE_MAX],
                message=f"{len(streak)} actions in a row returned nothing new "
                f"({', '.join(formatting.single_line(name, 30) for name in names[:3])}{cost}): "
                "their results are empty, errors, or were known.",
            )


@check(
    "repeated-code",
    title="Failing code run again unchanged",
    looks_at="code of the model that failed with the same error, in order",
    severity="warning",
    confidence=0.8,
    false_positives="code that waits for another service",
)
def repeated_code(evidence: Evidence) -> Iterator[Finding]:
    found = 0
    for actions in _by_conversation(evidence):
        failures: list[tuple[str, str, list[Step]]] = []
        for step, action in actions:
            error = find_error(action) if action.kind == "code" else None
            code = action.arguments.text.strip() if action.arguments is not None else ""
            if error and code:
                _add_failure(failures, code[:CODE_MAX], normalize(error), step)
        for _, error, steps in failures:
            spans = [step.span for step in steps if step.span is not None]
            if len(spans) < 2 or found >= FINDINGS_MAX:
                continue
            found += 1
            yield make_finding(
                evidence,
                "repeated-code",
                kind="repeated-code/unchanged",
                cause=spans[1].id,
                evidence=[span.id for span in spans][:EVIDENCE_MAX],
                message=f"Nearly the same code failed {len(spans)} times with the same error: "
                f"{formatting.single_line(error, 160)}",
            )


def _add_failure(
    failures: list[tuple[str, str, list[Step]]], code: str, error: str, step: Step
) -> None:
    """Add a failure to an earlier one with nearly the same code and the same error."""
    for known, known_error, steps in failures[-COMPARED_MAX:]:
        if known_error == error and _is_nearly_equal(known, code):
            steps.append(step)
            return
    failures.append((code, error, [step]))


def _is_nearly_equal(a: str, b: str) -> bool:
    a, b = " ".join(a.split()), " ".join(b.split())
    if a == b:
        return True
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    return matcher.real_quick_ratio() > SIMILAR and matcher.ratio() > SIMILAR


def _by_conversation(evidence: Evidence) -> Iterator[list[tuple[Step, Action]]]:
    trajectory = evidence.once(build_trajectory)
    for conversation in trajectory.conversations:
        steps = [trajectory.steps[number - 1] for number in conversation.steps]
        yield [
            (step, action)
            for step in steps
            for action in step.actions
            if action.kind in ("tool", "code") and not is_final_tool(action.name)
        ]


def _is_new(action: Action, seen: set[str]) -> bool:
    """Return whether an action returned something that no earlier one had returned."""
    text = action.result.text.strip() if action.result is not None else ""
    if action.result is None and action.error is None:
        return True  # the result is not known
    if find_error(action) is not None or not text:
        return False
    if text in seen:
        return False
    seen.add(text)
    return True
