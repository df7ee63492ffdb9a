"""What went wrong inside a failed case: the gravest that checks found there.

There is what stands inside its span, and the runs of agents that it started, each with findings of its own.

    find_culprits(opened, examined, store.links_to, open_run, examine)     # by the case that a finding names
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vestige.errors import NotFoundError
from vestige.query import formatting
from vestige.query.evidence import Evidence
from vestige.query.failures.check import CASE, CheckReport, data_of, severity_key
from vestige.record.finding import Finding
from vestige.record.run import Run
from vestige.store.protocol import SpanRef

CASES_MAX = 20
"""Cases that are looked into for one answer."""
SPANS_MAX = 50
"""Spans of one case that are asked for runs that they started."""
RUNS_MAX = 10
"""Runs of one case: each is loaded and checked."""

LinksTo = Callable[[str, str], Sequence[tuple[SpanRef, str | None]]]


@dataclass(frozen=True, slots=True)
class Culprit:
    """A finding inside a case, and the run that it is of."""

    finding: Finding
    run: Run

    def line(self, placed: Callable[[str], str]) -> str:
        finding = self.finding
        short = {span.id: span.short_id for span in self.run.spans}
        at = short.get(finding.cause or "", self.run.info.short_id)
        return (
            f"    inside: [{finding.severity}] {formatting.single_line(finding.kind, 60)} at {at}: "
            f"{formatting.single_line(finding.message, 200)} ({finding.confidence:.0%} sure); "
            f"proof: {placed(finding.command or f'vestige check {self.run.info.short_id}')}"
        )

    def data(self) -> dict[str, Any]:
        short = {span.id: span.short_id for span in self.run.spans}
        return {"run_id": self.run.info.id, **data_of(self.finding, short)}


def find_culprits(
    opened: Evidence,
    examined: CheckReport,
    links_to: LinksTo,
    open_run: Callable[[str], Evidence],
    examine: Callable[[Run], CheckReport],
) -> dict[str, Culprit]:
    """By the id of the case that a finding names as its cause."""
    found: dict[str, Culprit] = {}
    left = CASES_MAX
    for finding in examined.findings:
        if finding.check != CASE or finding.cause is None:
            continue
        for case in finding.evidence[:left]:
            left -= 1
            inside = _spans_inside(opened, case)
            own = [
                each for each in examined.findings if each.cause in inside and each.check != CASE
            ]
            culprits = [Culprit(each, opened.run) for each in own]
            for run in _runs(opened, inside, links_to, open_run):
                culprits += [Culprit(each, run) for each in examine(run).findings]
            if culprits:
                found[finding.cause] = min(culprits, key=lambda each: severity_key(each.finding))
                break
    return found


def _spans_inside(opened: Evidence, case: str) -> list[str]:
    """Itself first: a check may have something to say of it, too."""
    inside = [case]
    for span_id in inside:
        children = opened.children.get(span_id, ()) if len(inside) <= SPANS_MAX else ()
        inside += [span.id for span in children if span.id != span_id]
    return inside


def _runs(
    opened: Evidence, spans: Sequence[str], links_to: LinksTo, open_run: Callable[[str], Evidence]
) -> Iterator[Run]:
    """The runs that a case, or something inside of it, started."""
    met = {opened.run.info.id}
    for span_id in spans[:SPANS_MAX]:
        for place, reason in links_to(opened.run.info.id, span_id):
            if reason == "started by" and place.run_id not in met and len(met) <= RUNS_MAX:
                met.add(place.run_id)
                try:
                    yield open_run(place.run_id).run
                except NotFoundError:
                    continue  # pruned meanwhile
