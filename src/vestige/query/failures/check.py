"""`check`: what the checks find in a run, the cause first; and what they rule out.

Findings of one causal chain stand together, and its earliest is told: what follows
from it is counted. Of a finished run they are computed once and kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import msgspec

from vestige.query import checks, formatting
from vestige.query.evidence import Evidence
from vestige.query.text_layout import CommandAnswer, fit
from vestige.record.finding import SEVERITIES, Finding
from vestige.record.run import Run, RunInfo
from vestige.store.protocol import CheckResult, RunFilter, Store

SHOWN_MAX = 7
"""Findings: a reader who gets more than this reads none."""

CASE = "failed-case"
"""The check that tells of a suite's cases (query/checks/process/test_suite.py)."""

Keep = Callable[[RunInfo, Sequence[CheckResult]], None]
"""Stores what was computed of a finished run, where that is possible."""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What all checks said of a run."""

    findings: Sequence[Finding]
    passed: Sequence[str]
    failed: dict[str, str]
    """Checks that broke, and how: bad news about us, not about the run."""


def examine(store: Store, run: Run, keep: Keep | None = None) -> CheckReport:
    """From what is stored, if that is of these checks in these versions; else computed."""
    versions = {check.name: check.version for check in checks.all_checks()}
    stored = store.check_results([run.info.id]).get(run.info.id, ())
    if {result.name: result.version for result in stored} == versions:
        return _examined(stored, {})
    findings, passed, failed = checks.run_checks(_evidence(store, run))
    results = [
        CheckResult(name, version, [each for each in findings if each.check == name])
        for name, version in versions.items()
        if name not in failed
    ]
    if keep is not None and not failed and run.info.outcome != "running":
        keep(run.info, results)
    return CheckReport(findings, passed, failed)


def _evidence(store: Store, run: Run) -> Evidence:
    conversation: Sequence[RunInfo] = ()
    if run.info.conversation_id:
        # What is found is kept with the run, for whoever asks next: it must not tell of others' runs.
        wanted = RunFilter(
            conversation_id=run.info.conversation_id,
            tenant_of=run.info.id,
            with_implicit=True,
            limit=500,
        )
        conversation = tuple(reversed(store.list_runs(wanted)))
    return Evidence(run, store.read_body, conversation, store.read_bodies)


def _examined(results: Sequence[CheckResult], failed: dict[str, str]) -> CheckReport:
    findings = found_in(results)
    return CheckReport(findings, [result.name for result in results if not result.findings], failed)


def found_in(results: Sequence[CheckResult]) -> list[Finding]:
    """What is stored of a run, check by check."""
    return [finding for result in results for finding in result.findings]


def severity_key(finding: Finding) -> tuple[int, bool, float]:
    """The gravest first, of those the surest. What only costs money comes after what went wrong, however sure it is."""
    costs = finding.kind.startswith("cache/")
    return SEVERITIES.index(finding.severity), costs, -finding.confidence


def _only_says(finding: Finding) -> bool:
    """Of the record, or by the program itself: what is said made nothing happen."""
    return finding.kind.startswith(("health/", "error/reported"))


Places = Sequence[tuple[str, str | None, str]]
"""Spans as they began: each one's id, that of the span it stands in, and its type."""


def in_chains(run: Run, findings: Sequence[Finding]) -> list[list[Finding]]:
    """Findings by causal chain, each chain's earliest first; the gravest chain first."""
    return chains(span_tree(run), findings)


def span_tree(run: Run) -> Places:
    return [(span.id, span.parent_id, span.type) for span in run.spans]


def chains(places: Places, findings: Sequence[Finding]) -> list[list[Finding]]:
    """Findings by causal chain, each chain's earliest first; the gravest chain first.

    Two belong together when they name the same cause, when one's cause stands inside the
    other's (what everything stands in aside), or is among its evidence. What is only said, about
    the record or by the program, begins no chain that others join.
    """
    order = {span_id: number for number, (span_id, _, _) in enumerate(places)}
    parents = {span_id: parent for span_id, parent, _ in places}
    around = frames(places)
    found: list[list[Finding]] = []
    chain_of: dict[str, list[Finding]] = {}
    for finding in sorted(
        findings,
        key=lambda each: (_only_says(each), order.get(each.cause or "", -1), *severity_key(each)),
    ):
        chain = _chain_above(finding, parents, around, chain_of)
        if chain is None:
            chain = []
            found.append(chain)
        chain.append(finding)
        if finding.cause is not None and not _only_says(finding):
            chain_of.setdefault(finding.cause, chain)
            for span_id in finding.evidence:
                chain_of.setdefault(span_id, chain)
    gravest = [min(map(severity_key, chain)) for chain in found]
    return [
        chain
        for _, _, chain in sorted(
            zip(gravest, range(len(found)), found, strict=True), key=lambda each: each[:2]
        )
    ]


def find_gravest(run: Run, findings: Sequence[Finding]) -> Finding | None:
    """Where it hurts most: of the chain that `check` tells first, what weighs most."""
    found = in_chains(run, findings)
    return min(found[0], key=severity_key) if found else None


def frames(places: Places) -> set[str]:
    """What much stands in without a reason: the run's root, and processes (`vestige run`).

    To stand in one of them says nothing: a crash of the process would hide what led to it.
    """
    return {span_id for span_id, parent, kind in places if parent is None or kind == "process"}


def _chain_above(
    finding: Finding,
    parents: Mapping[str, str | None],
    around: Set[str],
    chain_of: Mapping[str, list[Finding]],
) -> list[Finding] | None:
    at, steps = finding.cause, 0
    while at is not None and steps < 100:
        if at in chain_of and (steps == 0 or at not in around):
            return chain_of[at]
        at, steps = parents.get(at), steps + 1
    return None


class CaseCause(Protocol):
    """What went wrong inside a case of a suite that failed (query/failures/case_causes.py)."""

    def line(self, placed: Callable[[str], str]) -> str: ...

    def data(self) -> dict[str, Any]: ...


@dataclass
class CheckAnswer(CommandAnswer):
    """Findings, and what passed."""

    verb: ClassVar[str] = "check"
    budget: ClassVar[int] = 800

    run: Run
    examined: CheckReport
    after: int = 0
    """Findings to pass over: those that an answer has told before."""
    verbose: bool = False
    """Also the names of the checks that passed."""
    inside: Mapping[str, CaseCause] = field(default_factory=dict)
    """Of a case that failed (its span's id): what went wrong inside of it."""

    def __post_init__(self) -> None:
        self.exit_code = int(any(each.severity == "error" for each in self.examined.findings))

    def ordered(self) -> list[Finding]:
        """The first of each chain, then what follows from them."""
        chains = in_chains(self.run, self.examined.findings)
        return [chain[0] for chain in chains] + [each for chain in chains for each in chain[1:]]

    def lines(self, budget: int) -> list[str]:
        info = self.run.info
        found = self.ordered()
        leads = len(in_chains(self.run, self.examined.findings))
        head = [self._head(found), *([] if found else self._unexplained())]
        end = self._end()
        shown = found[self.after : self.after + SHOWN_MAX]
        if not self.after:
            shown = shown[: max(1, leads)]
        whole = self.command("check", info.short_id, "--json")

        def more(left_out: int) -> str:
            return f"… {left_out} lines left out: {whole}"

        while shown:
            rows = [line for finding in shown for line in self._tell(finding)]
            rest = self._rest(found, self.after + len(shown), leads)
            lines = fit([*head, *rows, *rest], [], end, budget, more)
            if len(lines) == len(head) + len(rows) + len(rest) + len(end) or len(shown) == 1:
                return lines
            shown = shown[:-1]
        return fit(head, [], end, budget, more)

    def _head(self, found: Sequence[Finding]) -> str:
        info = self.run.info
        counts = Counter(finding.severity for finding in found)
        told = ", ".join(
            formatting.pluralize(counts[each], each) for each in SEVERITIES if counts[each]
        )
        state = " so far" if info.outcome == "running" else ""
        return f"{info.short_id} {formatting.single_line(info.name, 60)} ({formatting.single_line(info.outcome, 20)}): {told or 'nothing found'}{state}"

    def _unexplained(self) -> list[str]:
        """Nothing was found, and yet something failed: where to look."""
        info = self.run.info
        if not info.error_count:
            return []
        errors = formatting.pluralize(info.error_count, "error")
        return [
            f"{errors} that no check explains: {self.command('show', info.short_id, '--errors')}"
        ]

    def _tell(self, finding: Finding) -> list[str]:
        return render_finding(finding, self.run, self.placed) + render_case_cause(
            finding, self.inside, self.placed
        )

    def _rest(self, found: Sequence[Finding], told: int, leads: int) -> list[str]:
        rest = found[told:]
        if not rest:
            return []
        kinds = Counter(formatting.single_line(finding.kind, 40) for finding in rest).most_common()
        named = ", ".join(f"{kind} x{count}" if count > 1 else kind for kind, count in kinds[:6])
        named += f", {len(kinds) - 6} more kinds" if len(kinds) > 6 else ""
        again = self.command("check", self.run.info.short_id, "--after", str(told))
        whose = ""
        if told >= leads:  # what a chain began with was told
            whose = " of the same chains" if leads > 1 else " of the same chain"
        return [f"… {len(rest)} more{whose}: {named}: {again}"]

    def _end(self) -> list[str]:
        lines = []
        # Of two checks for one kind of fault (`crash`, `crash/uncaught`) one may have passed: to say
        # so beside the fault would be read as its opposite.
        kinds = {finding.kind.partition("/")[0] for finding in self.examined.findings}
        passed = sorted(set(self.examined.passed) - kinds)
        if passed and self.verbose:
            lines.append(f"passed: {', '.join(passed)}")
        elif passed:
            names = self.command("check", self.run.info.short_id, "--verbose")
            lines.append(f"passed: {formatting.pluralize(len(passed), 'check')}; by name: {names}")
        for name, why in list(self.examined.failed.items())[:3]:
            lines.append(
                f"!! the check {formatting.single_line(name, 40)} itself failed: {formatting.single_line(why, 120)}"
            )
        return lines

    def data(self) -> dict[str, Any]:
        leads = len(in_chains(self.run, self.examined.findings))
        short = {span.id: span.short_id for span in self.run.spans}
        return {
            "version": self.version,
            "run_id": self.run.info.id,
            "findings": [
                {**data_of(finding, short), "lead": number < leads, **self._inside_data(finding)}
                for number, finding in enumerate(self.ordered())
            ],
            "passed": sorted(self.examined.passed),
            "failed": self.examined.failed,
        }

    def _inside_data(self, finding: Finding) -> dict[str, Any]:
        found = inside_of(finding, self.inside)
        return {} if found is None else {"inside": found.data()}


def data_of(finding: Finding, short: Mapping[str, str]) -> dict[str, Any]:
    """All of it, and the short ids of its spans where the run has them."""
    return {
        **{each: msgspec.to_builtins(getattr(finding, each)) for each in Finding.__struct_fields__},
        "cause_short": short.get(finding.cause or ""),
        "evidence_short": [short.get(span_id) for span_id in finding.evidence],
    }


def render_finding(finding: Finding, run: Run, placed: Callable[[str], str]) -> list[str]:
    """Two lines: what, how sure, and where; then the evidence and the command that shows it."""
    short = {span.id: span.short_id for span in run.spans}
    cause = f" at {short.get(finding.cause, finding.cause)}" if finding.cause else ""
    sure = f"{finding.basis}, {finding.confidence:.0%} sure"
    evidence = [short.get(each, formatting.single_line(each, 20)) for each in finding.evidence]
    told = ", ".join(evidence[:5]) + (f" +{len(evidence) - 5}" if len(evidence) > 5 else "")
    proof = placed(finding.command or f"vestige show {run.info.short_id}")
    return [
        f"[{finding.severity}] {formatting.single_line(finding.kind, 60)}{cause}: "
        f"{formatting.single_line(finding.message, 240)} ({sure})",
        f"    {'evidence ' + told + '; ' if told else ''}proof: {proof}",
    ]


def inside_of(finding: Finding, inside: Mapping[str, CaseCause]) -> CaseCause | None:
    return inside.get(finding.cause or "") if finding.check == CASE else None


def render_case_cause(
    finding: Finding, inside: Mapping[str, CaseCause], placed: Callable[[str], str]
) -> list[str]:
    """One more line, where it is a case that failed because of something else."""
    found = inside_of(finding, inside)
    return [] if found is None else [found.line(placed)]
