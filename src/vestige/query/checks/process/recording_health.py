"""Can the record be trusted? Gaps, lost pieces, clocks that jump, secrets, runs not sampled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from vestige.query import formatting
from vestige.query.checks import check, make_finding
from vestige.query.evidence import Evidence
from vestige.record.finding import Finding
from vestige.record.run import PARTIAL, Node, SpanInfo, partial_of, time_ns
from vestige.record.types import OWN_COMPONENT

EVIDENCE_MAX = 10

CLOCK_STEP_MIN_NS = 10**9
"""Smaller steps are a clock that is being kept right."""

BODIES_LOOKED_AT_MAX = 200
"""Whether retention has taken a body is asked of this many, the oldest first: those go first."""


@check(
    "recorder-gap",
    title="The recorder lost records",
    looks_at="what the recorder says about its own losses, and spans whose opening is missing",
    severity="warning",
    confidence=0.98,
    false_positives="none; what was lost may not matter",
)
def recorder_gap(evidence: Evidence) -> Iterator[Finding]:
    lost: Counter[str] = Counter()
    for log in evidence.run.logs:
        if log.component == OWN_COMPONENT and "gap" in log.attributes:
            count = log.attributes.get("count")
            lost[str(log.attributes["gap"])] += count if isinstance(count, int) else 1
    if lost:
        said = ", ".join(
            f"{formatting.single_line(what, 60)} ({n})" for what, n in lost.most_common(4)
        )
        yield make_finding(
            evidence,
            "recorder-gap",
            kind="health/gap",
            cause=evidence.root.id if evidence.root is not None else None,
            message=f"the recorder lost {formatting.pluralize(lost.total(), 'record')}: {said}.",
            command="vestige doctor",
        )
    headless = [span.id for span in evidence.run.spans if span.seq is None]
    if headless:
        yield make_finding(
            evidence,
            "recorder-gap",
            kind="health/hole",
            cause=headless[0],
            evidence=headless[:EVIDENCE_MAX],
            message=f"the opening of {formatting.pluralize(len(headless), 'span')} is missing: only what "
            "came later arrived.",
        )


@check(
    "clock-step",
    title="The clock went back while the run was recorded",
    looks_at="times of one writer's records in the order in which they were written",
    severity="hint",
    confidence=0.95,
    false_positives="imported runs whose source gives times of several machines",
)
def clock_step(evidence: Evidence) -> Iterator[Finding]:
    by_writer: dict[str, list[Node]] = {}
    recorded: list[Node] = [*evidence.run.spans, *evidence.run.logs]
    for node in recorded:
        if node.seq is not None:
            by_writer.setdefault(node.writer, []).append(node)
    for nodes in by_writer.values():
        nodes.sort(key=lambda node: node.seq or 0)
        steps = [
            (time_ns(before) - time_ns(after), after)
            for before, after in pairwise(nodes)
            if time_ns(before) - time_ns(after) > CLOCK_STEP_MIN_NS
        ]
        if not steps:
            continue
        back, node = max(steps, key=lambda step: step[0])
        at = node.id if isinstance(node, SpanInfo) else node.span_id
        yield make_finding(
            evidence,
            "clock-step",
            kind="health/clock-step",
            cause=at if at in evidence.spans else None,
            evidence=[at] if at in evidence.spans and at is not None else [],
            message=f"the clock went back {formatting.pluralize(len(steps), 'time')}, at most by "
            f"{formatting.duration(back)}; order and durations do not depend on it.",
        )


@check(
    "secret-found",
    title="The backstop found secrets that their owner had not masked",
    looks_at="how often each redaction rule acted on the run's records",
    severity="hint",
    confidence=0.8,
    false_positives="text that only looks like a key, as in documentation or test data",
)
def secret_found(evidence: Evidence) -> Iterator[Finding]:
    by_rule: Counter[str] = Counter()
    by_span: Counter[str] = Counter()
    for span in evidence.run.spans:
        if span.redacted:
            by_rule.update(span.redacted)
            by_span[span.id] += sum(span.redacted.values())
    for log in evidence.run.logs:
        if log.redacted:
            by_rule.update(log.redacted)
            if log.span_id in evidence.spans:
                by_span[log.span_id or ""] += sum(log.redacted.values())
    if by_rule:
        rules = ", ".join(
            f"{formatting.single_line(rule, 40)} ({n})" for rule, n in by_rule.most_common(6)
        )
        most = [span_id for span_id, _ in by_span.most_common(EVIDENCE_MAX)]
        yield make_finding(
            evidence,
            "secret-found",
            kind="health/secret",
            cause=most[0] if most else None,
            evidence=most,
            message=f"{formatting.pluralize(by_rule.total(), 'secret')} masked before they were written, by "
            f"rule: {rules}. Mask them where they are known: vestige.mask(value).",
        )


@check(
    "body-incomplete",
    title="Bodies are cut, lost, or gone with age",
    looks_at="body references that are cut or lost, and whether retention has taken the oldest",
    severity="hint",
    confidence=0.98,
    false_positives="none; checks that read bodies may have missed something",
)
def body_incomplete(evidence: Evidence) -> Iterator[Finding]:
    found: dict[str, list[str]] = {}
    for span in evidence.run.spans:
        for ref in (span.input, span.output):
            if ref is not None and (ref.id is None or ref.cut):
                found.setdefault("lost" if ref.id is None else "cut", []).append(span.id)
    found["evicted"] = list(_evicted(evidence))
    for what, spans in found.items():
        if spans:
            yield make_finding(
                evidence,
                "body-incomplete",
                kind=f"health/body-{what}",
                severity="warning" if what == "lost" else "hint",
                cause=spans[0],
                evidence=list(dict.fromkeys(spans))[:EVIDENCE_MAX],
                message=f"{len(spans)} bodies {_HOW[what]}.",
            )


_HOW = {
    "lost": "were recorded and are lost: their files are gone",
    "cut": "were longer than is kept, and are cut",
    "evicted": "were taken by retention (of those looked at); pin a run to keep its bodies",
}


def _evicted(evidence: Evidence) -> Iterator[str]:
    looked_at: dict[int, bool] = {}
    for span in evidence.run.spans:
        for ref in (span.input, span.output):
            if ref is None or ref.id is None:
                continue
            if ref.id not in looked_at:
                if len(looked_at) >= BODIES_LOOKED_AT_MAX:
                    return
                looked_at[ref.id] = evidence.is_gone(ref.id)
            if looked_at[ref.id]:
                yield span.id


@check(
    "unsampled-run",
    title="The run was not sampled: what happened inside is not recorded",
    looks_at="attribute `sampled` of the run's root span",
    severity="hint",
    confidence=1.0,
    false_positives="none",
)
def unsampled_run(evidence: Evidence) -> Iterator[Finding]:
    root = evidence.root
    if root is not None and root.attributes.get("sampled") is False:
        yield make_finding(
            evidence,
            "unsampled-run",
            kind="health/unsampled",
            cause=root.id,
            evidence=[root.id],
            message="this run was not sampled: only its root, warnings and errors are here.",
            command="vestige doctor",
        )


@check(
    "unrecorded-program",
    title="Nothing inside the command was recorded",
    looks_at="a run that `vestige run` opened, without a process in it",
    severity="hint",
    confidence=0.95,
    false_positives="a command that is no Python program, and starts none",
)
def unrecorded_program(evidence: Evidence) -> Iterator[Finding]:
    root, run = evidence.root, evidence.run
    if root is None or "command" not in root.attributes or "pid" not in root.attributes:
        return  # of another kind, or it could not be started
    if len(run.spans) == 1 and run.info.outcome != "running" and root.component == OWN_COMPONENT:
        yield make_finding(
            evidence,
            "unrecorded-program",
            kind="health/unrecorded",
            cause=root.id,
            evidence=[root.id],
            message="only how the command ended is known: it is no Python program, or Vestige is not installed "
            "for its Python (`pip install` it there), or that was started with -I, -E or -S.",
        )


@check(
    "partial-run",
    title="The run came in a truncated bundle: its end is not here",
    looks_at=f"attribute `{PARTIAL}` of the run's root span",
    severity="warning",
    confidence=1.0,
    false_positives="none; a whole bundle of the same run, imported as well, adds the rest",
)
def partial_run(evidence: Evidence) -> Iterator[Finding]:
    told = partial_of(evidence.run)
    if told and evidence.root is not None:
        yield make_finding(
            evidence,
            "partial-run",
            kind="health/partial",
            cause=evidence.root.id,
            evidence=[evidence.root.id],
            message=f"{formatting.single_line(told, 200)}: what happened after them is not known here.",
        )
