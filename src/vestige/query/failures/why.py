"""`why`: from a span up the chain of its causes, by links and parents, to the first finding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from vestige.errors import NotFoundError
from vestige.query import formatting
from vestige.query.evidence import Evidence
from vestige.query.failures.check import (
    CaseCause,
    CheckReport,
    chains,
    data_of,
    find_gravest,
    frames,
    render_case_cause,
    render_finding,
    span_tree,
)
from vestige.query.text_layout import CommandAnswer, fit
from vestige.query.views.span_view import format_span
from vestige.record.finding import Finding
from vestige.record.run import Run, SpanInfo

STEPS_MAX = 100
RUNS_MAX = 5
"""Runs that a chain may lead through: each is loaded and checked."""
ALSO_MAX = 3
"""Findings beside a chain that ends where everything stands."""


@dataclass(frozen=True, slots=True)
class Step:
    """One span of the chain, and how the one before it led here."""

    relation: str
    """`asked`, `inside`, `linked`, `blamed`: a finding that rests on the span names its cause."""
    reason: str | None
    span: SpanInfo
    opened: Evidence
    """The run that it is in."""
    finding: Finding | None
    """The first thing that a check has to say with this span as the cause."""

    @property
    def run(self) -> Run:
        return self.opened.run


@dataclass
class WhyAnswer(CommandAnswer):
    """The chain upward."""

    verb: ClassVar[str] = "why"
    budget: ClassVar[int] = 600

    steps: Sequence[Step]
    others: Sequence[Finding]
    """Findings of the span's run that rest on a span of the chain, or whose cause is none of it."""
    inside: Mapping[str, CaseCause] = field(default_factory=dict)
    """Of a case that failed (its span's id): what went wrong inside of it."""

    def lines(self, budget: int) -> list[str]:
        first = self.steps[0]
        rows = [self._say(step) for step in self.steps[1:]]
        last = self.last
        if last is not None and last.finding is not None:
            end = render_finding(last.finding, last.run, self.placed)
            end += render_case_cause(last.finding, self.inside, self.placed) + self._also()
        elif self.others:
            end = ["no finding names a span of this chain as its cause; the run's first:"]
            end += render_finding(self.others[0], first.run, self.placed)
        else:
            check = self.command("check", first.run.info.short_id)
            end = [f"no check has anything to say about this chain. What they looked at: {check}"]
        again = self.command("span", first.span.short_id)
        head = [f"{first.span.short_id} {format_span(first.span)}"]
        return fit(
            head,
            rows,
            end,
            budget,
            lambda n: f"  … {n} steps left out; from the start: {again}",
            keep_end=True,
        )

    @property
    def last(self) -> Step | None:
        """Where the chain comes to a finding: the end of it, if there is one."""
        return next((step for step in reversed(self.steps) if step.finding is not None), None)

    def _also(self) -> list[str]:
        """Of a whole process one asks what happened in it: the chain upward does not lead there."""
        first = self.steps[0]
        run, short = first.run, first.run.info.short_id
        places = span_tree(run)
        if not self.others or first.span.id not in frames(places):
            return []
        leads = [chain[0] for chain in chains(places, self.others)]
        rows = [
            line for lead in leads[:ALSO_MAX] for line in render_finding(lead, run, self.placed)
        ]
        rest = len(self.others) - min(len(leads), ALSO_MAX)
        more = [f"… {rest} more: {self.command('check', short)}"] if rest else []
        return [f"also found in {short}:", *rows, *more]

    def _say(self, step: Step) -> str:
        reason = f" ({formatting.single_line(step.reason, 60)})" if step.reason else ""
        mark = "  <- first finding" if step.finding is not None else ""
        how = "inside" if step.relation == "inside" else "because of"
        return f"  ^ {how}{reason} {step.span.short_id} {format_span(step.span)}{mark}"

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
                    else data_of(step.finding, step.opened.short_ids),
                }
                for step in self.steps
            ],
            "inside": {case: found.data() for case, found in self.inside.items()},
            "others": [data_of(finding, self.steps[0].opened.short_ids) for finding in self.others],
        }


def why_answer(
    evidence: Evidence,
    span_id: str,
    open_run: Callable[[str], Evidence],
    examine: Callable[[Run], CheckReport],
) -> WhyAnswer:
    """`open_run`, `examine`: for other runs that the chain leads to."""
    climbing = _Climbing(evidence, open_run, examine)
    steps = climbing.climb(span_id)
    met = {step.span.id for step in steps}
    findings = climbing.examined[evidence.run.info.id].findings
    others = sorted(findings, key=lambda each: met.isdisjoint([*each.evidence, each.cause or ""]))
    return WhyAnswer(steps, [finding for finding in others if finding.cause not in met])


def where_to_begin(evidence: Evidence, examined: CheckReport, root: SpanInfo) -> SpanInfo:
    """Of a whole run: the cause of its gravest finding, else what failed last, else its root."""
    placed = [each for each in examined.findings if each.cause in evidence.spans]
    gravest = find_gravest(evidence.run, placed)
    if gravest is not None and gravest.cause is not None:
        return evidence.spans[gravest.cause]
    spans = reversed(evidence.run.spans)
    return next((each for each in spans if each.status not in ("ok", None)), root)


class _Climbing:
    """Loads and checks each run that the chain comes through, once."""

    def __init__(
        self,
        start: Evidence,
        open_run: Callable[[str], Evidence],
        examine: Callable[[Run], CheckReport],
    ) -> None:
        self.start, self._open_run, self._examine = start.run, open_run, examine
        self.runs: dict[str, Evidence] = {}
        self.examined: dict[str, CheckReport] = {}
        self._take(start)

    def _take(self, opened: Evidence) -> None:
        self.runs[opened.run.info.id] = opened
        self.examined[opened.run.info.id] = self._examine(opened.run)

    def climb(self, span_id: str) -> list[Step]:
        steps: list[Step] = []
        seen: set[str] = set()
        at: tuple[str, str | None, str, str] | None = ("asked", None, self.start.info.id, span_id)
        while at is not None and len(steps) < STEPS_MAX:
            relation, reason, run_id, span_id = at
            opened = self.runs[run_id]
            span = opened.spans[span_id]
            finding = self._finding(run_id, span_id)
            steps.append(Step(relation, reason, span, opened, finding))
            seen.add(span_id)
            # What is said of the span itself is no reason to stop: one asks what led to it.
            at = None if finding is not None and len(steps) > 1 else self._above(opened, span, seen)
        return steps

    def _finding(self, run_id: str, span_id: str) -> Finding | None:
        return next(
            (each for each in self.examined[run_id].findings if each.cause == span_id), None
        )

    def _above(
        self, opened: Evidence, span: SpanInfo, seen: set[str]
    ) -> tuple[str, str | None, str, str] | None:
        """A link says more than where a span stands; that a run ran in a process says nothing."""
        run = opened.run
        for link in opened.links_of.get(span.id, ()):
            if link.target_span not in seen and link.reason != "process":
                target = self._reach(link.target_run or run.info.id, link.target_span)
                if target is not None:
                    return ("linked", link.reason, target, link.target_span)
        for finding in self.examined[run.info.id].findings:
            if span.id in finding.evidence and finding.cause and finding.cause not in seen:
                target = self._reach(run.info.id, finding.cause)
                if target is not None:
                    return ("blamed", finding.kind, target, finding.cause)
        if span.parent_id and span.parent_id not in seen:
            target = self._reach(run.info.id, span.parent_id)
            if target is not None:
                return ("inside", None, target, span.parent_id)
        return None

    def _reach(self, run_id: str, span_id: str) -> str | None:
        if run_id not in self.runs and len(self.runs) < RUNS_MAX:
            try:
                self._take(self._open_run(run_id))
            except NotFoundError:
                return None  # pruned, or never recorded here
        opened = self.runs.get(run_id)
        return run_id if opened is not None and span_id in opened.spans else None
