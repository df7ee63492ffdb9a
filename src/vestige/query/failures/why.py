"""The `why` command: follow links and parents of a span to the first finding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from vestige.errors import NotFoundError
from vestige.query import formatting
from vestige.query.checks.answer_effects import FAILED, action_of
from vestige.query.evidence import Evidence
from vestige.query.failures.check import (
    CaseCause,
    CheckReport,
    find_containers,
    find_most_severe,
    finding_data,
    group_chains,
    render_case_cause,
    render_finding,
    span_tree,
)
from vestige.query.failures.ranking import severity_key
from vestige.query.text_layout import CommandAnswer, fit
from vestige.query.views.span import format_span
from vestige.record.finding import Finding
from vestige.record.run import Run, SpanInfo

STEPS_MAX = 100
RUNS_MAX = 5
"""Runs in a chain. Each is loaded and checked."""
ALSO_MAX = 3
"""Other findings shown if the chain starts at a root or process span."""

_RELATIONS: Final = {
    "inside": "parent",
    "linked": "triggered by",
    "blamed": "likely cause",
    "requested": "requested by",
}


@dataclass(frozen=True, slots=True)
class Step:
    """A span of the chain, and its relation to the previous step."""

    relation: str
    """`asked` (the start), `inside`, `linked`, `blamed` (the cause that a finding names), or
    `requested`: the model call whose answer made a failed tool or step happen."""
    reason: str | None
    span: SpanInfo
    evidence: Evidence
    """The run of the span."""
    finding: Finding | None
    """The first finding with this span as its cause."""

    @property
    def run(self) -> Run:
        return self.evidence.run


@dataclass
class WhyAnswer(CommandAnswer):
    """The causal chain of a span, upward."""

    verb: ClassVar[str] = "why"
    budget: ClassVar[int] = 600

    steps: Sequence[Step]
    others: Sequence[Finding]
    """Findings of the run whose cause is not in the chain; those with evidence in it come first."""
    case_causes: Mapping[str, CaseCause] = field(default_factory=dict)
    """Causes of failed test cases, by the span id of the case."""

    def lines(self, budget: int) -> list[str]:
        first = self.steps[0]
        rows = [self._format(step) for step in self.steps[1:]]
        last = self.last
        if last is not None and last.finding is not None:
            end = render_finding(last.finding, last.run, self.placed)
            end += render_case_cause(last.finding, self.case_causes, self.placed)
            end += self._also_found()
        elif self.others:
            end = ["no finding has its cause in this chain; the first finding of the run:"]
            end += render_finding(self.others[0], first.run, self.placed)
        else:
            end = [f"no findings in this chain: {self.command('check', first.run.info.short_id)}"]
        head = [f"{first.span.short_id} {format_span(first.span)}"]

        def more(left_out: int) -> str:
            return f"  … {left_out} steps hidden: {self.command('span', first.span.short_id)}"

        return fit(head, rows, end, budget, more, keep_end=True)

    @property
    def last(self) -> Step | None:
        """The last step with a finding."""
        return next((step for step in reversed(self.steps) if step.finding is not None), None)

    def _also_found(self) -> list[str]:
        """Render findings of the run for a root or process span, which has no chain upward."""
        first = self.steps[0]
        run, short_id = first.run, first.run.info.short_id
        tree = span_tree(run)
        if not self.others or first.span.id not in find_containers(tree):
            return []
        leads = [chain[0] for chain in group_chains(tree, self.others)]
        rows = [
            line for lead in leads[:ALSO_MAX] for line in render_finding(lead, run, self.placed)
        ]
        rest = len(self.others) - min(len(leads), ALSO_MAX)
        more = [f"… {rest} more: {self.command('check', short_id)}"] if rest else []
        return [f"also found in {short_id}:", *rows, *more]

    def _format(self, step: Step) -> str:
        reason = f" ({formatting.single_line(step.reason, 60)})" if step.reason else ""
        mark = "  <- first finding" if step.finding is not None else ""
        relation = _RELATIONS[step.relation]
        return f"  ^ {relation}{reason} {step.span.short_id} {format_span(step.span)}{mark}"

    def data(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "chain": [
                {
                    "relation": step.relation,
                    "reason": step.reason,
                    "run_id": step.run.info.id,
                    "span_id": step.span.id,
                    "short_id": step.span.short_id,
                    "finding": None
                    if step.finding is None
                    else finding_data(step.finding, step.evidence.short_ids),
                }
                for step in self.steps
            ],
            "inside": {case: cause.data() for case, cause in self.case_causes.items()},
            "others": [
                finding_data(finding, self.steps[0].evidence.short_ids) for finding in self.others
            ],
        }


def why_answer(
    evidence: Evidence,
    span_id: str,
    open_run: Callable[[str], Evidence],
    examine: Callable[[Run], CheckReport],
) -> WhyAnswer:
    """Follow the chain upward; `open_run` and `examine` are for other runs in the chain."""
    builder = _ChainBuilder(evidence, open_run, examine)
    steps = builder.build(span_id)
    chain = {step.span.id for step in steps}
    findings = builder.reports[evidence.run.info.id].findings
    others = [finding for finding in findings if finding.cause not in chain]
    others.sort(key=lambda finding: chain.isdisjoint(finding.evidence))
    return WhyAnswer(steps, others)


def find_start_span(evidence: Evidence, report: CheckReport, root: SpanInfo) -> SpanInfo:
    """Return the cause of the most severe finding, else the last failed span, else the root."""
    located = [finding for finding in report.findings if finding.cause in evidence.spans]
    most_severe = find_most_severe(evidence.run, located)
    if most_severe is not None and most_severe.cause is not None:
        return evidence.spans[most_severe.cause]
    spans = reversed(evidence.run.spans)
    return next((span for span in spans if span.status not in ("ok", None)), root)


class _ChainBuilder:
    """Follow links, findings and parents. Each run of the chain is loaded and checked once."""

    def __init__(
        self,
        start: Evidence,
        open_run: Callable[[str], Evidence],
        examine: Callable[[Run], CheckReport],
    ) -> None:
        self.start, self._open_run, self._examine = start.run, open_run, examine
        self.runs: dict[str, Evidence] = {}
        self.reports: dict[str, CheckReport] = {}
        self._add(start)

    def _add(self, evidence: Evidence) -> None:
        self.runs[evidence.run.info.id] = evidence
        self.reports[evidence.run.info.id] = self._examine(evidence.run)

    def build(self, span_id: str) -> list[Step]:
        steps: list[Step] = []
        seen: set[str] = set()
        following: _Next | None = ("asked", None, self.start.info.id, span_id)
        while following is not None and len(steps) < STEPS_MAX:
            relation, reason, run_id, span_id = following
            evidence = self.runs[run_id]
            span = evidence.spans[span_id]
            findings = self.reports[run_id].findings
            at = [found for found in findings if found.cause == span_id]
            # An exception is the effect of what its call did, if that has a finding, too.
            finding = min(
                at, key=lambda each: (_is_exception(each), severity_key(each)), default=None
            )
            steps.append(Step(relation, reason, span, evidence, finding))
            seen.add(span_id)
            # A finding of the first span does not end the chain: the question is what led to it.
            ends = finding is not None and len(steps) > 1
            following = None if ends else self._find_next(evidence, span, seen)
            if finding is not None and _is_exception(finding):
                following = self._find_refused_call(evidence, span, seen) or following
        return steps

    def _find_next(self, evidence: Evidence, span: SpanInfo, seen: set[str]) -> _Next | None:
        """Return the next step: a link, then a finding, then the requester, then the parent.

        Links from a run to its process do not count: they are not causal.
        """
        run_id = evidence.run.info.id
        for link in evidence.links_of.get(span.id, ()):
            if link.target_span not in seen and link.reason != "process":
                target_run = link.target_run or run_id
                if self._has_span(target_run, link.target_span):
                    return ("linked", link.reason, target_run, link.target_span)
        for finding in self.reports[run_id].findings:
            cause = finding.cause
            if span.id in finding.evidence and cause in evidence.spans and cause not in seen:
                return ("blamed", finding.kind, run_id, cause)
        action = action_of(evidence, span) if span.status in FAILED else None
        if action is not None and action.call.id not in seen:
            return ("requested", None, run_id, action.call.id)
        if span.parent_id in evidence.spans and span.parent_id not in seen:
            return ("inside", None, run_id, span.parent_id)
        return None

    def _find_refused_call(
        self, evidence: Evidence, span: SpanInfo, seen: set[str]
    ) -> _Next | None:
        """Return the last failed model call inside a span, if a finding explains its failure."""
        run_id = evidence.run.info.id
        kinds = {
            finding.cause: finding.kind
            for finding in reversed(self.reports[run_id].findings)
            if finding.severity != "hint" and finding.kind.startswith(("history/", "call/"))
        }
        for call in reversed(evidence.model_calls):
            if call.status not in FAILED or call.id in seen or call.id not in kinds:
                continue
            if _is_inside(evidence, call, span):
                return ("blamed", kinds[call.id], run_id, call.id)
        return None

    def _has_span(self, run_id: str, span_id: str) -> bool:
        """Load the run if needed, and return True if it has the span."""
        if run_id not in self.runs and len(self.runs) < RUNS_MAX:
            try:
                self._add(self._open_run(run_id))
            except NotFoundError:
                return False  # The run was pruned, or it is in another store.
        evidence = self.runs.get(run_id)
        return evidence is not None and span_id in evidence.spans


def _is_exception(finding: Finding) -> bool:
    return finding.kind == "crash/uncaught"


def _is_inside(evidence: Evidence, span: SpanInfo, outer: SpanInfo) -> bool:
    """Return whether a span is below another. A process contains all spans of its run."""
    if outer.type == "process":
        return True
    parent = span.parent_id
    for _ in range(STEPS_MAX):
        if parent is None or parent == outer.id:
            return parent is not None
        above = evidence.spans.get(parent)
        parent = above.parent_id if above is not None else None
    return False


_Next = tuple[str, str | None, str, str]
"""(relation, reason, run id, span id)."""
