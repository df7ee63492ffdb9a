"""The `check` command: the findings of a run, the cause first.

Findings of one causal chain are grouped. The earliest is shown, and the others are counted.
The findings of a finished run are computed once and stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import msgspec

from vestige.query import checks, formatting
from vestige.query.checks.applicability import find_inapplicable
from vestige.query.checks.process.stop_reason import STOPPED_KIND
from vestige.query.evidence import Evidence
from vestige.query.failures.findings_of_successful_runs import CommonFindings
from vestige.query.failures.ranking import severity_key
from vestige.query.stats.user_prices import load_user_prices
from vestige.query.text_layout import CommandAnswer, fit, show_recorded_ids
from vestige.record.finding import SEVERITIES, Finding
from vestige.record.run import Run, RunInfo
from vestige.store.protocol import CheckResult, RunFilter, SpanFacts, Store

SHOWN_MAX = 7
SIBLINGS_SHOWN = 2
SHOWN_ALL_MAX = 3
"""Findings of a run that are all shown, also those that are related to the first."""
"""Findings shown per page."""

SAME_TYPE_MAX = 12
"""Further spans of a finding's evidence that are named."""

RELATED_RUNS_MAX = 100
RELATED_SPANS_MAX = 5_000
"""Other runs that a check reads, and spans of each."""

CASE = "failed-case"
"""The check that reports failed test cases (query/checks/process/failed_recorded_tests.py)."""

SaveResults = Callable[[RunInfo, Sequence[CheckResult]], None]
"""Store the check results of a finished run, if possible."""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The results of all checks over a run."""

    findings: Sequence[Finding]
    passed: Sequence[str]
    failed: dict[str, str]
    """Checks that raised an exception, with its message. This is a defect of Vestige."""
    inapplicable: Sequence[str] = ()
    """Checks that had nothing to look at."""


def examine(
    store: Store, run: Run, save: SaveResults | None = None, opened: Evidence | None = None
) -> CheckReport:
    """Return the stored results if they have the current versions, else run the checks.

    `opened` is the evidence of the run, if its parsed requests are used for views, too.
    """
    report = find_all_findings(store, run, save, opened)
    findings = CommonFindings(store).lower(run.info, report.findings)
    evidence = opened or Evidence(run, store.read_body)
    inapplicable = find_inapplicable(run, report.passed, evidence)
    passed = [name for name in report.passed if name not in inapplicable]
    return CheckReport(findings, passed, report.failed, inapplicable)


def find_all_findings(
    store: Store, run: Run, save: SaveResults | None = None, opened: Evidence | None = None
) -> CheckReport:
    """Return the results of the run alone, without those of other runs in view."""
    versions = {check.name: check.version for check in checks.all_checks()}
    stored = store.check_results([run.info.id]).get(run.info.id, ())
    if {result.name: result.version for result in stored} == versions:
        passed = [result.name for result in stored if not result.findings]
        return CheckReport(get_findings(stored), passed, {})
    findings, passed, failed = checks.run_checks(_build_evidence(store, run, opened))
    results = [
        CheckResult(name, version, [finding for finding in findings if finding.check == name])
        for name, version in versions.items()
        if name not in failed
    ]
    if save is not None and not failed and run.info.outcome != "running":
        save(run.info, results)
    return CheckReport(findings, passed, failed)


def _build_evidence(store: Store, run: Run, opened: Evidence | None) -> Evidence:
    conversation: Sequence[RunInfo] = ()
    if run.info.conversation_id:
        # Findings are stored with the run, so they must not mention runs of other tenants.
        same_conversation = RunFilter(
            conversation_id=run.info.conversation_id,
            tenant_of=run.info.id,
            with_implicit=True,
            limit=500,
        )
        conversation = tuple(reversed(store.list_runs(same_conversation)))
    if opened is None:
        prices = load_user_prices(store)
        opened = Evidence(run, store.read_body, read_bodies=store.read_bodies, prices=prices)
    opened.add_related(conversation, partial(_read_facts, store, run.info.id))
    return opened


def _read_facts(store: Store, run_id: str, others: Sequence[str]) -> Iterator[SpanFacts]:
    """Yield spans of other runs of the same tenant, within bounds."""
    for other in others[:RELATED_RUNS_MAX]:
        if store.list_runs(RunFilter(of_process=other, tenant_of=run_id, with_implicit=True)):
            yield from store.read_span_facts([other], RELATED_SPANS_MAX)


def get_findings(results: Sequence[CheckResult]) -> list[Finding]:
    return [finding for result in results for finding in result.findings]


# --- causal chains ------------------------------------------------------------------------------


def _is_report(finding: Finding) -> bool:
    """Return True if the finding is about the recording, or an error that the program logged.

    Such a finding causes no other.
    """
    return finding.kind.startswith(("health/", "error/reported"))


SpanTree = Sequence[tuple[str, str | None, str]]
"""Spans in order: (id, parent id, type)."""


def find_chains(run: Run, findings: Sequence[Finding]) -> list[list[Finding]]:
    """Group the findings of a run into causal chains; see `group_chains`."""
    return group_chains(span_tree(run), findings)


def span_tree(run: Run) -> SpanTree:
    return [(span.id, span.parent_id, span.type) for span in run.spans]


def group_chains(tree: SpanTree, findings: Sequence[Finding]) -> list[list[Finding]]:
    """Return causal chains, the most severe first. A chain starts with its earliest finding.

    A finding joins a chain if its cause is the cause or evidence of a finding in the chain, or
    is inside such a span. Containers do not count (`find_containers`), and a report
    (`_is_report`) starts no chain that others join.
    """
    order = {span_id: number for number, (span_id, _, _) in enumerate(tree)}
    parents = {span_id: parent for span_id, parent, _ in tree}
    containers = find_containers(tree)
    chains: list[list[Finding]] = []
    chain_of: dict[str, list[Finding]] = {}

    def earliest_first(finding: Finding) -> tuple[Any, ...]:
        position = order.get(finding.cause or "", -1)
        # Why Vestige stopped a program is known: no earlier finding takes its place.
        stop = finding.kind == STOPPED_KIND
        return not stop, _is_report(finding), position, *severity_key(finding)

    for finding in sorted(findings, key=earliest_first):
        chain = _find_chain(finding, parents, containers, chain_of)
        if chain is None:
            chain = []
            chains.append(chain)
        chain.append(finding)
        if finding.cause is not None and not _is_report(finding):
            chain_of.setdefault(finding.cause, chain)
            for span_id in finding.evidence:
                chain_of.setdefault(span_id, chain)
    return sorted(chains, key=lambda chain: min(map(severity_key, chain)))


def find_most_severe(run: Run, findings: Sequence[Finding]) -> Finding | None:
    """Return the most severe finding of the first chain."""
    chains = find_chains(run, findings)
    return min(chains[0], key=severity_key) if chains else None


def find_main(chain: Sequence[Finding]) -> Finding:
    """Return the finding that names a chain: the most severe one that says more than a crash.

    The first finding of a chain may be a span around the others, such as a step that took long.
    """
    worst = min(map(severity_key, chain))[0]
    return min(
        (each for each in chain if severity_key(each)[0] == worst),
        key=lambda each: (each.kind == "crash/uncaught", severity_key(each)),
    )


def find_containers(tree: SpanTree) -> set[str]:
    """Return the spans that contain others without a causal relation: roots and processes.

    If they counted, the crash of a process would hide the findings that led to it.
    """
    return {span_id for span_id, parent, kind in tree if parent is None or kind == "process"}


def _find_chain(
    finding: Finding,
    parents: Mapping[str, str | None],
    containers: Set[str],
    chain_of: Mapping[str, list[Finding]],
) -> list[Finding] | None:
    span_id, steps = finding.cause, 0
    while span_id is not None and steps < 100:
        if span_id in chain_of and (steps == 0 or span_id not in containers):
            return chain_of[span_id]
        span_id, steps = parents.get(span_id), steps + 1
    return None


# --- the answer ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CaseCause:
    """The finding that explains a failed test case (query/failures/case_causes.py)."""

    finding: Finding
    run: Run
    """The run of the finding: the suite, or a run that the case started."""

    def line(self, with_home: Callable[[str], str]) -> str:
        finding = self.finding
        short_ids = {span.id: span.short_id for span in self.run.spans}
        at = short_ids.get(finding.cause or "", self.run.info.short_id)
        command = with_home(finding.command or f"vestige check {self.run.info.short_id}")
        return (
            f"    inside: [{finding.severity}] {formatting.single_line(finding.kind, 60)} at {at}: "
            f"{formatting.single_line(finding.message, 200)} (see: {command})"
        )

    def data(self) -> dict[str, Any]:
        short_ids = {span.id: span.short_id for span in self.run.spans}
        return {"run_id": self.run.info.id, **finding_data(self.finding, short_ids)}


@dataclass
class CheckAnswer(CommandAnswer):
    """Findings, and the checks that passed."""

    verb: ClassVar[str] = "check"
    budget: ClassVar[int] = 800

    run: Run
    report: CheckReport
    after: int = 0
    """Findings to skip, because an earlier answer showed them."""
    verbose: bool = False
    """Show the confidence of findings, and the names of the checks that passed."""
    case_causes: Mapping[str, CaseCause] = field(default_factory=dict)
    """Causes of failed test cases, by the span id of the case."""
    ids: bool = False
    """Show the recorded ids of spans in place of the short ones."""
    failed_siblings: Sequence[RunInfo] = ()
    """Other runs of the same program that failed."""

    def __post_init__(self) -> None:
        self.exit_code = int(any(found.severity == "error" for found in self.report.findings))

    def ordered(self) -> list[Finding]:
        """Return the main finding of each chain, then all others."""
        chains = find_chains(self.run, self.report.findings)
        mains = [find_main(chain) for chain in chains]
        named = set(map(id, mains))
        return mains + [found for chain in chains for found in chain if id(found) not in named]

    def lines(self, budget: int) -> list[str]:
        info = self.run.info
        found = self.ordered()
        leads = len(find_chains(self.run, self.report.findings))
        head = [self._head(found), *([] if found else self._unexplained())]
        end = self._end()
        shown = found[self.after : self.after + SHOWN_MAX]
        if not self.after and len(found) > SHOWN_ALL_MAX:
            shown = shown[: max(1, leads)]
        command = self.command("check", info.short_id, "--json")

        def more(left_out: int) -> str:
            return f"… {left_out} more lines: {command}"

        while shown:
            rows = [line for finding in shown for line in self._render(finding)]
            rest = self._rest(found, self.after + len(shown), leads)
            lines = fit([*head, *rows, *rest], [], end, budget, more)
            if len(lines) == len(head) + len(rows) + len(rest) + len(end) or len(shown) == 1:
                return lines
            shown = shown[:-1]
        return fit(head, [], end, budget, more)

    def _head(self, found: Sequence[Finding]) -> str:
        info = self.run.info
        counts = Counter(finding.severity for finding in found)
        summary = ", ".join(
            formatting.pluralize(counts[severity], severity)
            for severity in SEVERITIES
            if counts[severity]
        )
        name, outcome = (
            formatting.single_line(info.name, 60),
            formatting.single_line(info.outcome, 20),
        )
        state = " so far" if info.outcome == "running" else ""
        return f"{info.short_id} {name} ({outcome}): {summary or 'no findings'}{state}"

    def _unexplained(self) -> list[str]:
        """Return a hint to the errors of a run without findings."""
        info = self.run.info
        if not info.error_count:
            return []
        errors = formatting.pluralize(info.error_count, "error")
        return [f"{errors} without a finding: {self.command('show', info.short_id, '--errors')}"]

    def _render(self, finding: Finding) -> list[str]:
        lines = render_finding(finding, self.run, self.placed, verbose=self.verbose)
        lines += render_case_cause(finding, self.case_causes, self.placed)
        return show_recorded_ids(lines, self.run) if self.ids else lines

    def _rest(self, found: Sequence[Finding], shown: int, leads: int) -> list[str]:
        rest = found[shown:]
        if not rest:
            return []
        kinds = Counter(formatting.single_line(finding.kind, 40) for finding in rest).most_common()
        names = ", ".join(f"{kind} ×{count}" if count > 1 else kind for kind, count in kinds[:6])
        names += f", {len(kinds) - 6} more kinds" if len(kinds) > 6 else ""
        command = self.command("check", self.run.info.short_id, "--after", str(shown))
        # After the main finding of each chain, all others are related to one of them.
        noun = "related finding" if shown >= leads else "more finding"
        return [f"… {formatting.pluralize(len(rest), noun)} ({names}): {command}"]

    def _end(self) -> list[str]:
        lines = [
            f"{formatting.single_line(run.name, 40)}, of the same program, failed:"
            f" {self.command('check', run.short_id)}"
            for run in self.failed_siblings[:SIBLINGS_SHOWN]
        ]
        # If `crash/uncaught` found something, a passed check `crash` would be misleading.
        kinds = {finding.kind.partition("/")[0] for finding in self.report.findings}
        passed = sorted(set(self.report.passed) - kinds)
        if passed and self.verbose:
            lines.append(f"passed: {', '.join(passed)}")
        elif passed:
            lines.append(f"{formatting.pluralize(len(passed), 'check')} passed")
        skipped = sorted(set(self.report.inapplicable) - kinds)
        if skipped and self.verbose:
            lines.append(f"not applicable: {', '.join(skipped)}")
        elif skipped and passed:
            lines[-1] += f", {len(skipped)} not applicable"
        elif skipped:
            lines.append(f"{formatting.pluralize(len(skipped), 'check')} not applicable")
        for name, error in list(self.report.failed.items())[:3]:
            check, message = formatting.single_line(name, 40), formatting.single_line(error, 120)
            lines.append(f"!! internal error in check {check}: {message}")
        return lines

    def data(self) -> dict[str, Any]:
        leads = len(find_chains(self.run, self.report.findings))
        short_ids = {span.id: span.short_id for span in self.run.spans}
        findings = []
        for number, finding in enumerate(self.ordered()):
            data = {**finding_data(finding, short_ids), "lead": number < leads}
            cause = _find_case_cause(finding, self.case_causes)
            findings.append(data if cause is None else {**data, "inside": cause.data()})
        return {
            "version": self.version,
            "run_id": self.run.info.id,
            "findings": findings,
            "passed": sorted(self.report.passed),
            "not_applicable": sorted(self.report.inapplicable),
            "failed": self.report.failed,
            "failed_siblings": [run.short_id for run in self.failed_siblings],
        }


def finding_data(finding: Finding, short_ids: Mapping[str, str]) -> dict[str, Any]:
    """Return all fields of a finding, and the short ids of its spans."""
    fields = Finding.__struct_fields__
    return {
        **{name: msgspec.to_builtins(getattr(finding, name)) for name in fields},
        "cause_short": short_ids.get(finding.cause or ""),
        "evidence_short": [short_ids.get(span_id) for span_id in finding.evidence],
    }


def render_finding(
    finding: Finding, run: Run, with_home: Callable[[str], str], *, verbose: bool = False
) -> list[str]:
    """Render two lines: the finding with its cause, and the command that shows it."""
    short_ids = {span.id: span.short_id for span in run.spans}
    cause = f" at {short_ids.get(finding.cause, finding.cause)}" if finding.cause else ""
    also = _find_same_type(finding, run)
    others = f"also {', '.join(short_ids[each] for each in also)}. " if also else ""
    confidence = f" ({finding.basis}, confidence {finding.confidence:.0%})" if verbose else ""
    return [
        f"[{finding.severity}] {formatting.single_line(finding.kind, 60)}{cause}: "
        f"{formatting.single_line(finding.message, 240)}{confidence}",
        f"    {others}See: {with_home(finding.command or f'vestige show {run.info.short_id}')}",
    ]


def _find_same_type(finding: Finding, run: Run) -> list[str]:
    """Return the spans of the evidence that are of the same type as the cause."""
    types = {span.id: span.type for span in run.spans if span.id in finding.evidence}
    kind = types.get(finding.cause or "")
    if kind is None:
        return []
    others = [each for each in finding.evidence if each != finding.cause]
    return [each for each in others if types.get(each) == kind][:SAME_TYPE_MAX]


def _find_case_cause(finding: Finding, case_causes: Mapping[str, CaseCause]) -> CaseCause | None:
    return case_causes.get(finding.cause or "") if finding.check == CASE else None


def render_case_cause(
    finding: Finding, case_causes: Mapping[str, CaseCause], with_home: Callable[[str], str]
) -> list[str]:
    """Render the cause of a failed test case, or no line for other findings."""
    cause = _find_case_cause(finding, case_causes)
    return [] if cause is None else [cause.line(with_home)]
