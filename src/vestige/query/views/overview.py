"""`overview`: task, outcome, answer, cause, one line for each step, and the next commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from vestige.query import formatting
from vestige.query.failures.check import (
    CheckReport,
    find_chains,
    find_main,
    finding_data,
    render_finding,
)
from vestige.query.failures.split_by_test_case import render_failed_cases
from vestige.query.ids.lineage import Lineage
from vestige.query.run_as_data import run_data
from vestige.query.shorten_text import fold_text
from vestige.query.stats.costs import Cost, format_dollars
from vestige.query.text_layout import CommandAnswer, cost, fit, show_recorded_ids, unread_line
from vestige.query.trajectory import Step, Trajectory
from vestige.query.trajectory.first_and_last_steps import FirstAndLastSteps
from vestige.query.trajectory.headline import shorten_headline, step_result, step_title
from vestige.query.views.lines.common_attributes import find_common
from vestige.query.views.notes import note_data, note_lines
from vestige.query.views.show import header, stamps
from vestige.record.note import Note
from vestige.record.run import Run, RunInfo

FINDINGS_SHOWN = 3
STEPS_MAX = 2_000
"""Steps of an overview as data; `transcript` has all."""
SENTENCE_MAX = 160
"""Characters of the part of a message before its colon that can be read by itself."""
TYPES_SHOWN = 10
TASK_SHOWN = 1_200
ANSWER_SHOWN = 400
SAME_PROGRAM_SHOWN = 4
HEADLINE_SHOWN = 220
HEADLINE_LEAST = 100
"""Characters of a step's headline, with room and without."""


@dataclass
class OverviewAnswer(CommandAnswer):
    """The first answer about a run."""

    verb: ClassVar[str] = "overview"
    budget: ClassVar[int] = 1_600

    run: Run
    ends: FirstAndLastSteps
    report: CheckReport
    last_good: RunInfo | None
    """The latest successful run of the same task."""
    surfaces: Sequence[str] = field(default_factory=tuple)
    """A line for each suspect component that has debugging hints."""
    cost_usd: Cost | None = None
    """Cost of the model calls; None if there were none."""
    found_as: str = ""
    """The way in which the id was resolved; empty for a run's own id."""
    notes: Sequence[Note] = ()
    lineage: Lineage | None = None
    """The run that this one is a replay or a fork of."""
    same_program: Sequence[RunInfo] = ()
    """The runs that the program of this run opened, and its command if that failed."""
    ids: bool = False
    """Show the recorded ids of spans in place of the short ones."""
    unread: int = 0
    """Approximate number of events of a long file that were not read."""

    @property
    def trajectory(self) -> Trajectory:
        return self.ends.trajectory

    def lines(self, budget: int) -> list[str]:
        short = self.run.info.short_id
        head = [*header(self.run), *(f"!! {text}" for text in stamps(self.run)[:2])]
        if self.unread:
            head.insert(1, unread_line(self.unread))
        if budget < 200:
            head = head[:1]
        lead = [
            *self._resolution(),
            *([] if self.lineage is None else [self.lineage.line(self, short)]),
            *self._task(),
            *self._answer(),
            *self._findings(),
            *render_failed_cases(self.run),
        ]
        facts = [
            *self._span_counts(),
            *self._cost(),
            *note_lines(self.notes, lambda: self.command("notes", short)),
            *self._same_program(),
            *self._last_good(),
            *map(self.add_options, self.surfaces),
        ]
        end = self._next()
        if self.ids:
            lead, facts, end = (show_recorded_ids(each, self.run) for each in (lead, facts, end))
        room = budget - cost([*head, *lead, *facts, *end])
        rows = [*lead, *self._steps(room), *facts]
        full = self.command("overview", short, "--json")
        return fit(head, rows, end, budget, lambda n: f"… {n} lines hidden: {full}")

    def _task(self) -> list[str]:
        task = self.trajectory.task
        if task is None or not task.text.strip():
            return []
        lines = fold_text(task.text, TASK_SHOWN, keep="requirements")
        rows = ["task:", *(f"  | {line}".rstrip() for line in lines)]
        span = next((each for each in self.run.spans if each.id == task.span_id), None)
        if len(task.text) > TASK_SHOWN and span is not None:
            part = "--in" if task.side == "input" else "--out"
            command = self.command("body", span.short_id, part, "--text")
            rows.append(f"  … the complete task ({formatting.size(len(task.text))}): {command}")
        return rows

    def _answer(self) -> list[str]:
        answer = self.trajectory.answer
        if answer is None or not answer.text.strip():
            return [] if not self.trajectory.steps else ["answer: none"]
        lines = fold_text(answer.text, ANSWER_SHOWN)
        if len(lines) == 1:
            return [f"answer: {lines[0]}"]
        return ["answer:", *(f"  | {line}".rstrip() for line in lines)]

    def _steps(self, room: int) -> list[str]:
        """Return a line for each step. Shorten lines and join successful steps to save room."""
        steps = self.trajectory.steps
        if not steps or room < 20:
            return []
        for length in (HEADLINE_SHOWN, 160, 130, HEADLINE_LEAST):
            lines = [self._step_line(step, length) for step in steps]
            if cost(lines) <= room - 12:
                break
        else:
            lines = self._fold_steps(lines, room - 12)
        conversations = len(self.trajectory.conversations)
        # Of a run without its middle, it is not known which conversations go on in the end.
        is_known = conversations > 1 and self.ends.unread is None
        noun = f", {conversations} conversations" if is_known else ""
        return [f"steps ({self.ends.step_count}{noun}):", *lines, *self._unread_steps()]

    def _unread_steps(self) -> list[str]:
        """Say which steps of a very long run were not looked at."""
        if self.ends.unread is None:
            return []
        first, last = self.ends.unread
        short = self.run.info.short_id
        command = self.command("transcript", short, "--step", f"{first}:{last}")
        return [f"  … steps {first}-{last} were not looked at: {command}"]

    def _step_line(self, step: Step, length: int) -> str:
        indent = "  " * min(step.depth, 4)
        span = ""
        if step.span is not None:
            span = step.span.id if self.ids else step.span.short_id
        mark = "✕" if step.is_failed else " "
        agent = ""
        if step.agent and self._agents > 1:
            agent = f" {formatting.single_line(step.agent, 24)}:"
        headline = shorten_headline(step.headline, length)
        return f"{mark} {step.number} {span}{indent}{agent} {headline}".rstrip()

    @cached_property
    def _agents(self) -> int:
        return len({step.agent for step in self.trajectory.steps})

    def _fold_steps(self, lines: list[str], room: int) -> list[str]:
        """Keep the first and last steps and those that failed, as far as they fit."""
        steps = self.trajectory.steps
        order = [0, len(steps) - 1]
        order += [index for index, step in enumerate(steps) if step.is_failed]
        order += [index for near in range(1, 4) for index in (near, len(steps) - 1 - near)]
        chosen: set[int] = set()
        for index in order:
            if 0 <= index < len(lines):
                chosen.add(index)
                if cost([lines[each] for each in chosen]) + 8 * (len(chosen) + 1) > room:
                    chosen.discard(index)
                    break
        found: list[str] = []
        at = 0
        for index in [*sorted(chosen), len(lines)]:
            if index > at:
                first, last = steps[at].number, steps[index - 1].number
                found.append(f"  … step {first}" if first == last else f"  … steps {first}-{last}")
            if index < len(lines):
                found.append(lines[index])
            at = index + 1
        return found

    def _resolution(self) -> list[str]:
        if not self.found_as:
            return []
        conversation = self.run.info.conversation_id
        if conversation and "conversation" in self.found_as:
            runs = self.command("list", "--all", "--conversation", conversation)
            return [f"found as: {self.found_as}: {runs}"]
        return [f"found as: {self.found_as}"]

    def _span_counts(self) -> list[str]:
        counts: Counter[str] = Counter()
        failed: Counter[str] = Counter()
        took_ns: Counter[str] = Counter()
        unfinished: Counter[str] = Counter()
        for span in self.run.spans:
            kind = formatting.single_line(span.type, 20)
            counts[kind] += 1
            failed[kind] += span.status not in ("ok", None)
            took_ns[kind] += span.duration_ns or 0
            unfinished[kind] += span.status is None
        parts = []
        by_count = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
        for kind, count in by_count[:TYPES_SHOWN]:
            facts = [formatting.duration(took_ns[kind])] if took_ns[kind] else []
            facts += [f"{failed[kind]} failed"] if failed[kind] else []
            facts += [f"{unfinished[kind]} open"] if unfinished[kind] else []
            parts.append(f"{count} {kind}" + (f" ({', '.join(facts)})" if facts else ""))
        if len(counts) > TYPES_SHOWN:
            parts.append(f"{len(counts) - TYPES_SHOWN} more types")
        rows = [f"spans: {', '.join(parts)}"] if parts else []
        if (count := unfinished.total()) and self.run.info.outcome != "running":
            rows.append(f"unfinished: {formatting.pluralize(count, 'span')}")
        return rows

    def _cost(self) -> list[str]:
        if self.cost_usd is None:
            return []
        models = [
            "calls without a model" if model == "?" else formatting.single_line(model, 40)
            for model in self.cost_usd.unknown[:3]
        ]
        missing = f" (no price for {', '.join(models)})" if models else ""
        if self.cost_usd.dollars is None:
            return [f"cost: unknown{missing}"]
        at_least = "at least " if models else ""
        return [f"cost: {at_least}{format_dollars(self.cost_usd.dollars)}{missing}"]

    def _findings(self) -> list[str]:
        chains = find_chains(self.run, self.report.findings)
        if not chains:
            return [
                f"findings: none; {formatting.pluralize(len(self.report.passed), 'check')} passed"
            ]
        rows = [
            line
            for chain in chains[:FINDINGS_SHOWN]
            for line in render_finding(find_main(chain), self.run, self.placed)
        ]
        rest = len(self.report.findings) - min(len(chains), FINDINGS_SHOWN)
        if rest:
            # `check` lists the first finding of every chain before the others.
            after = ["--after", str(len(chains))] if len(chains) <= FINDINGS_SHOWN else []
            check = self.command("check", self.run.info.short_id, *after)
            rows.append(f"… {formatting.pluralize(rest, 'more finding')}: {check}")
        return rows

    def _same_program(self) -> list[str]:
        runs = [
            f"{run.short_id} {formatting.single_line(run.name, 40)} ({run.outcome})"
            for run in self.same_program[:SAME_PROGRAM_SHOWN]
        ]
        more = ", ..." if len(self.same_program) > SAME_PROGRAM_SHOWN else ""
        return [f"same program: {', '.join(runs)}{more}"] if runs else []

    def _last_good(self) -> list[str]:
        good = self.last_good
        if good is None:
            return []
        diff = self.command("diff", good.short_id, self.run.info.short_id)
        return [
            f"last successful run: {good.short_id} {formatting.timestamp(good.started_ns)}: {diff}"
        ]

    def _next(self) -> list[str]:
        short = self.run.info.short_id
        errors = ["--errors"] if self.run.info.error_count else []
        commands = [self.command("transcript", short), self.command("check", short)]
        if not self.trajectory.steps:
            commands = [self.command("check", short), self.command("show", short, *errors)]
        elif bad := [step for step in self.trajectory.steps if step.is_failed]:
            number = str(bad[-1].number)
            commands.insert(0, self.command("transcript", short, "--step", number, "--full"))
        failed_spans = [
            span for span in self.run.spans if span.status not in ("ok", None) and span.parent_id
        ]
        if failed_spans:
            commands.append(self.command("why", failed_spans[-1].short_id))
        return [f"next: {' | '.join(commands)}"]

    def _cause(self, short: Mapping[str, str]) -> dict[str, Any] | None:
        """Return the main finding of the first chain as a sentence, a detail and its place."""
        mains = [find_main(chain) for chain in find_chains(self.run, self.report.findings)]
        if not mains:
            return None
        # What concerns the recording itself caused nothing that the program did.
        main = next((each for each in mains if not each.kind.startswith("health/")), mains[0])
        sentence, colon, detail = main.message.partition(": ")
        if not colon or len(sentence) > SENTENCE_MAX or any(mark in sentence for mark in '{["('):
            sentence, detail = main.message, ""
        if detail.startswith(("the ", "it ", "its ", "no ")):
            detail = formatting.capitalize(detail)
        step = self.trajectory.step_of(main.cause) if main.cause else None
        return {
            "sentence": formatting.capitalize(sentence).rstrip("."),
            "detail": detail,
            "severity": main.severity,
            "kind": main.kind,
            "span": short.get(main.cause or ""),
            "step": None if step is None else step.number,
        }

    def data(self) -> dict[str, Any]:
        short = {span.id: span.short_id for span in self.run.spans}
        return {
            "version": self.version,
            "run": run_data(self.run.info),
            "title": self.trajectory.title,
            "task": None if self.trajectory.task is None else self.trajectory.task.text[:4_000],
            "answer": (
                None if self.trajectory.answer is None else self.trajectory.answer.text[:4_000]
            ),
            "steps": [step_data(step, short) for step in self.trajectory.steps[:STEPS_MAX]],
            "steps_not_read": None if self.ends.unread is None else list(self.ends.unread),
            "types": dict(sorted(Counter(span.type for span in self.run.spans).items())),
            "cause": self._cause(short),
            "findings": [finding_data(finding, short) for finding in self.report.findings],
            "passed": sorted(self.report.passed),
            "cost_usd": None if self.cost_usd is None else self.cost_usd.dollars,
            "unpriced_models": [] if self.cost_usd is None else list(self.cost_usd.unknown),
            "common_attributes": find_common(self.run.spans),
            "good_run": None if self.last_good is None else run_data(self.last_good),
            "same_program": [run_data(run) for run in self.same_program],
            "lineage": None if self.lineage is None else self.lineage.data(),
            "stamps": stamps(self.run),
            "notes": note_data(self.run.spans, self.notes),
        }


def step_data(step: Step, short: Mapping[str, str]) -> dict[str, Any]:
    """Return a step without its texts."""
    return {
        "number": step.number,
        "span": None if step.span is None else step.span.short_id,
        "agent": step.agent,
        "conversation": step.conversation,
        "parent": step.parent,
        "depth": step.depth,
        "headline": step.headline,
        "title": step_title(step),
        "result": step_result(step),
        "status": step.status,
        "error": step.error,
        "failed": step.is_failed,
        "model": step.model,
        "input_tokens": step.input_tokens,
        "output_tokens": step.output_tokens,
        "cost_usd": step.cost,
        "total_cost_usd": step.total_cost,
        "started_ns": step.started_ns,
        "duration_ns": step.duration_ns,
        "spans": [short[span_id] for span_id in step.span_ids if span_id in short],
        "actions": [
            {
                "kind": action.kind,
                "name": action.name,
                "span": short.get(action.span_id or ""),
                "call_id": action.call_id,
                "status": action.status,
                "error": action.error,
                "duration_ns": action.duration_ns,
                "steps": action.steps,
            }
            for action in step.actions
        ],
    }
