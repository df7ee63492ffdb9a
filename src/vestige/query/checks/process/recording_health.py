"""Check the recording itself: gaps, missing bodies, clock steps, secrets, sampling."""

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
"""Smaller steps are normal clock adjustment."""

BODIES_MAX = 200
"""Bodies that are looked up to find expired ones, oldest first: these expire first."""


@check(
    "recorder-gap",
    title="Records missing",
    looks_at="the recorder's reports of dropped records, and spans whose start is missing",
    severity="warning",
    confidence=0.98,
    false_positives="none; the missing records may not matter",
    version=2,
)
def recorder_gap(evidence: Evidence) -> Iterator[Finding]:
    dropped: Counter[str] = Counter()
    for log in evidence.run.logs:
        if log.component == OWN_COMPONENT and "gap" in log.attributes:
            count = log.attributes.get("count")
            dropped[str(log.attributes["gap"])] += count if isinstance(count, int) else 1
    if dropped.total():
        reasons = ", ".join(
            f"{formatting.single_line(reason, 200)} ({n})" for reason, n in dropped.most_common(4)
        )
        yield make_finding(
            evidence,
            "recorder-gap",
            kind="health/gap",
            cause=evidence.root.id if evidence.root is not None else None,
            message=f"{_count_records(dropped)} missing: {reasons}.",
            command="vestige doctor",
        )
    without_start = [span.id for span in evidence.run.spans if span.seq is None]
    if without_start:
        yield make_finding(
            evidence,
            "recorder-gap",
            kind="health/hole",
            cause=without_start[0],
            evidence=without_start[:EVIDENCE_MAX],
            message=f"{formatting.pluralize(len(without_start), 'span')} without a start record: "
            "only later records arrived.",
        )


def _count_records(dropped: Counter[str]) -> str:
    total = dropped.total()
    return f"{formatting.pluralize(total, 'record')} {'is' if total == 1 else 'are'}"


@check(
    "clock-step",
    title="Clock stepped back",
    looks_at="times of one writer's records in the order in which they were written",
    severity="hint",
    confidence=0.95,
    false_positives="imported runs with times of several machines",
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
        step_ns, node = max(steps, key=lambda step: step[0])
        span_id = node.id if isinstance(node, SpanInfo) else node.span_id
        yield make_finding(
            evidence,
            "clock-step",
            kind="health/clock-step",
            cause=span_id if span_id in evidence.spans else None,
            evidence=[span_id] if span_id in evidence.spans and span_id is not None else [],
            message=f"The clock stepped back {formatting.pluralize(len(steps), 'time')}, by up to "
            f"{formatting.duration(step_ns)}. Order and durations are not affected.",
        )


@check(
    "secret-found",
    title="Secrets redacted",
    looks_at="how often each redaction rule matched in the run's records",
    severity="hint",
    confidence=0.8,
    false_positives="text that only looks like a key, for example in documentation or test data",
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
        spans = [span_id for span_id, _ in by_span.most_common(EVIDENCE_MAX)]
        yield make_finding(
            evidence,
            "secret-found",
            kind="health/secret",
            cause=spans[0] if spans else None,
            evidence=spans,
            message=f"{formatting.pluralize(by_rule.total(), 'secret')} redacted before writing: "
            f"{rules}. Register known secrets with vestige.mask(value).",
        )


@check(
    "body-incomplete",
    title="Payloads truncated or expired",
    looks_at="references to truncated or missing bodies, and whether the oldest bodies expired",
    severity="hint",
    confidence=0.98,
    false_positives="none; checks that read bodies may have missed something",
)
def body_incomplete(evidence: Evidence) -> Iterator[Finding]:
    spans_by_state: dict[str, list[str]] = {}
    for span in evidence.run.spans:
        for ref in (span.input, span.output):
            if ref is not None and (ref.id is None or ref.cut):
                state = "lost" if ref.id is None else "cut"
                spans_by_state.setdefault(state, []).append(span.id)
    spans_by_state["evicted"] = list(_expired(evidence))
    for state, spans in spans_by_state.items():
        if spans:
            yield make_finding(
                evidence,
                "body-incomplete",
                kind=f"health/body-{state}",
                severity="warning" if state == "lost" else "hint",
                cause=spans[0],
                evidence=list(dict.fromkeys(spans))[:EVIDENCE_MAX],
                message=f"{formatting.pluralize(len(spans), 'payload')} {_STATES[state]}.",
            )


_STATES = {
    "lost": "missing: the files with their content no longer exist",
    "cut": "truncated, because of their size",
    "evicted": "expired (of those examined). Pin a run to keep its payloads",
}


def _expired(evidence: Evidence) -> Iterator[str]:
    expired: dict[int, bool] = {}
    for span in evidence.run.spans:
        for ref in (span.input, span.output):
            if ref is None or ref.id is None:
                continue
            if ref.id not in expired:
                if len(expired) >= BODIES_MAX:
                    return
                expired[ref.id] = evidence.is_gone(ref.id)
            if expired[ref.id]:
                yield span.id


@check(
    "unsampled-run",
    title="Run not sampled",
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
            message="This run was not sampled: only its root, warnings and errors were recorded.",
            command="vestige doctor",
        )


@check(
    "unrecorded-program",
    title="Program not recorded",
    looks_at="a run that `vestige run` started, without a process in it",
    severity="hint",
    confidence=0.95,
    false_positives="a command that is not a Python program and starts none",
)
def unrecorded_program(evidence: Evidence) -> Iterator[Finding]:
    root, run = evidence.root, evidence.run
    if root is None or "command" not in root.attributes or "pid" not in root.attributes:
        return  # `vestige run` did not start it
    if len(run.spans) == 1 and run.info.outcome != "running" and root.component == OWN_COMPONENT:
        yield make_finding(
            evidence,
            "unrecorded-program",
            kind="health/unrecorded",
            cause=root.id,
            evidence=[root.id],
            message="Nothing inside the command was recorded: it is not a Python program, or "
            "Vestige is not installed for its Python (`pip install` it there), or Python was "
            "started with -I, -E or -S.",
        )


@check(
    "partial-run",
    title="Incomplete run",
    looks_at=f"attribute `{PARTIAL}` of the run's root span",
    severity="warning",
    confidence=1.0,
    false_positives="none; importing a complete bundle of the same run adds the rest",
)
def partial_run(evidence: Evidence) -> Iterator[Finding]:
    description = partial_of(evidence.run)
    if description and evidence.root is not None:
        yield make_finding(
            evidence,
            "partial-run",
            kind="health/partial",
            cause=evidence.root.id,
            evidence=[evidence.root.id],
            message=f"{formatting.single_line(description, 200)}; later events are missing.",
        )
