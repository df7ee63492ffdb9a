"""The `groups` command: failed runs by cause, the most frequent first."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from vestige.query import formatting
from vestige.query.diff.compare_groups import Separation
from vestige.query.failures.top_findings import Examine
from vestige.query.groups.common_text import common_text
from vestige.query.groups.failure_groups import FailureGroup, find_differences, group_failures
from vestige.query.search.run_list import find_matching
from vestige.query.text_layout import CommandAnswer, fit_page
from vestige.store.protocol import Store, Term

RUNS_MAX: Final = 1_000
"""Newest runs that are examined for one answer."""
COMPARED_MAX: Final = 20
"""Largest groups that are compared with successful runs."""
DIFFERENCES_MAX: Final = 3
"""Differences shown of each group."""
_BARS: Final = "·▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class ComparedGroup:
    """A group, and what sets it apart from successful runs."""

    group: FailureGroup
    differences: Sequence[Separation]
    good: int
    """Number of successful runs that it was compared with."""


@dataclass
class GroupsAnswer(CommandAnswer):
    """Groups of failed runs."""

    verb: ClassVar[str] = "groups"
    budget: ClassVar[int] = 1_000

    groups: Sequence[ComparedGroup]
    examined: int
    """Number of runs that were examined."""
    more: bool
    """True if older runs match, which were not examined."""
    unexamined: int
    """Number of runs for which no time was left."""
    start_ns: int
    end_ns: int
    """The period of the trend: from the oldest to the newest run that was examined."""
    now_ns: int
    options: Sequence[str] = ()
    """The options of this command, for the next one."""
    after: int = 0
    """Groups to skip, because an earlier answer showed them."""

    def lines(self, budget: int) -> list[str]:
        runs = formatting.pluralize(self.examined, "run")
        left = f"{formatting.pluralize(self.unexamined, 'run')} not examined yet. Ask again."
        if not self.groups:
            return [f"No failures in {runs}.", *([left] if self.unexamined else [])]
        failed = sum(len(each.group.failures) for each in self.groups)
        head = [
            f"{formatting.pluralize(len(self.groups), 'group')}:"
            f" {failed} of {runs} failed or had a warning"
        ]
        if self.unexamined:
            head.append(left)
        if self.more:
            head.append(f"Only the newest {runs} were examined. Select others with --since.")
        blocks = ["\n".join(self._render(each)) for each in self.groups[self.after :]]

        def more(left_out: int) -> str:
            after = len(self.groups) - left_out
            command = self.command("groups", *self.options, "--after", str(after))
            return f"… {formatting.pluralize(left_out, 'more group')}: {command}"

        page = fit_page(head, blocks, [], budget, more)
        return [line for block in page for line in block.split("\n")]

    def _render(self, compared: ComparedGroup) -> list[str]:
        group = compared.group
        newest = group.failures[0]
        first, last = (
            formatting.relative_time(ns, self.now_ns) for ns in (group.first_ns, group.last_ns)
        )
        when = f"first {first}, last {last}" if len(group.failures) > 1 else last
        runs = formatting.pluralize(len(group.failures), "run")
        trend = _draw(group.trend(self.start_ns, self.end_ns))
        lines = [
            f"{group.id}  {runs}  {trend}  {when}",
            f"    {describe_group(group)}",
        ]
        if group.versions:
            shown = ", ".join(group.versions[:3])
            rest = f", +{len(group.versions) - 3}" if len(group.versions) > 3 else ""
            lines.append(f"    versions: {shown}{rest}")
        for found in compared.differences[:DIFFERENCES_MAX]:
            what = formatting.single_line(f"{found.kind} {found.what}", 80)
            lines.append(
                f"    differs from {formatting.pluralize(compared.good, 'good run')}:"
                f" {what} ({found.a} failed, {found.b} good)"
            )
        command = self.command("check", newest.run.short_id)
        lines.append(f"    newest: {newest.run.short_id}. See: {command}")
        return lines

    def data(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "examined": self.examined,
            "unexamined": self.unexamined,
            "more": self.more,
            "groups": [self._group_data(each) for each in self.groups],
        }

    def _group_data(self, compared: ComparedGroup) -> dict[str, Any]:
        group = compared.group
        signature = group.signature
        return {
            "id": group.id,
            "count": len(group.failures),
            "description": describe_group(group),
            "kind": signature.kind,
            "subject": signature.subject,
            "error": signature.error,
            "text": signature.text,
            "place": signature.place,
            "first_ns": group.first_ns,
            "last_ns": group.last_ns,
            "trend": group.trend(self.start_ns, self.end_ns),
            "versions": group.versions,
            "newest": group.failures[0].run.short_id,
            "cause": group.failures[0].cause,
            "runs": [failure.run.short_id for failure in group.failures],
            "good_runs": compared.good,
            "differences": [found.data() for found in compared.differences],
        }


_SPAN_ID: Final = re.compile(r" \((?:r\d+\.)?s\d+\)")
_OUTCOMES: Final = {
    "error": "Failed without a recorded reason",
    "timeout": "Timed out",
    "interrupted": "Crashed without a recorded reason",
}


def describe_group(group: FailureGroup) -> str:
    """Return the cause in one sentence: what failed, how, and where in the program.

    The sentence has only what all runs of the group share.
    """
    signature = group.signature
    messages = [each.finding.message for each in group.failures if each.finding is not None]
    shared = common_text(messages) if len(messages) == len(group.failures) else ""
    if shared:
        # The id of a span is that of one run only.
        cause = formatting.capitalize(_SPAN_ID.sub("", shared))
    elif signature.error:
        text = f"{signature.error}: {signature.text}" if signature.text else signature.error
        cause = f"{signature.subject}: {text}" if signature.subject else text
    else:
        cause = (
            f"{signature.kind}: {signature.text}"
            if messages
            else _OUTCOMES.get(signature.kind, signature.kind)
        )
    place = f" ({formatting.single_line(signature.place, 80)})" if signature.place else ""
    return formatting.single_line(cause, 200) + place


def _draw(counts: Sequence[int]) -> str:
    """Draw counts as bars of text."""
    top = max(counts, default=0)
    steps = len(_BARS) - 1
    return "".join(_BARS[-(-count * steps // top)] if top else _BARS[0] for count in counts)


@dataclass(frozen=True, slots=True)
class GroupsQuery:
    """A selection of runs to group."""

    terms: tuple[Term, ...] = ()
    run_id: str | None = None
    """Return only the group of this run."""
    options: Sequence[str] = ()
    after: int = 0
    seconds: float = math.inf
    """Answer after this time with the runs that were examined."""


def groups_answer(store: Store, query: GroupsQuery, examine: Examine, now_ns: int) -> GroupsAnswer:
    """Group the newest runs that match, by cause."""
    runs, more = find_matching(store, query.terms, RUNS_MAX)
    grouped = group_failures(store, runs, examine, query.seconds)
    groups = grouped.groups
    failed_ids = {failure.run.id for group in groups for failure in group.failures}
    if query.run_id is not None:
        groups = [group for group in groups if _contains(group, query.run_id)]
    compared = [
        ComparedGroup(group, *find_differences(store, group, failed_ids))
        if number < COMPARED_MAX and not grouped.unexamined
        else ComparedGroup(group, (), 0)
        for number, group in enumerate(groups)
    ]
    starts = [run.started_ns for run in runs] or [now_ns]
    period = min(starts), max(starts)
    counts = grouped.examined, more, grouped.unexamined
    return GroupsAnswer(compared, *counts, *period, now_ns, query.options, query.after)


def _contains(group: FailureGroup, run_id: str) -> bool:
    return any(failure.run.id == run_id for failure in group.failures)
