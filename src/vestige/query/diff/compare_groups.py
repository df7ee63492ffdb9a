"""The `compare` command: find what separates two groups of runs.

Every run has traits (it used a tool, an attribute had a value) and numbers (tokens, calls). The
score of a trait is the difference of its shares in the two groups. The score of a number is how
much more often it is larger in one group than in the other. Scores are between 0 and 1. They
measure a correlation, which need not be a cause.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from statistics import median
from typing import Any, ClassVar, Final

from vestige.errors import UsageError, VestigeError
from vestige.limits import MIB
from vestige.query import formatting
from vestige.query.diff.word_diff import DEFAULT_RULES, normalise
from vestige.query.text_layout import CommandAnswer, columns, fit
from vestige.query.token_budget import TOKENS_MAX
from vestige.record.prompt_segments import SPAN_TYPE, parse_segments
from vestige.record.run import RunInfo
from vestige.record.types import MODEL_CALL_TYPES, OWN_COMPONENT
from vestige.store.protocol import SpanFacts, Store

RUNS_MAX: Final = 200
"""Runs of one group. More would not change the result."""

SPANS_MAX: Final = 2_000
"""Spans read of one run, from its start."""

SPANS_TOTAL_MAX: Final = 100_000
"""Spans read of one group. In a large group, fewer are read of each run."""

PROMPTS_MAX: Final = 20
"""Prompts of one run whose segments are read."""

VALUE_MAX: Final = 60
"""Characters of an attribute's value. Longer values are texts that differ in every run."""

SHOWN_MIN: Final = 0.3
"""Score below which a difference is not shown in the text."""

EFFECT_MIN: Final = 0.1
"""Relative distance of two medians below which the numbers count as equal."""

IDS_REPEATED_MAX: Final = 12
"""Run ids up to which the next command is spelled out."""

_TOKENS: Final = frozenset(("input_tokens", "output_tokens"))
"""Numbers that the run itself has."""

_NOT_COMPARED: Final = frozenset(
    (
        "error.message",
        "error.stack",
        "error.cause.message",
        "error.cause.stack",
        "error.type",
        "pid",
        "implicit",
        "segments",
        "prompt_bytes",
    )
)


@dataclass(slots=True)
class RunFacts:
    """The traits and numbers of one run."""

    info: RunInfo
    traits: set[tuple[str, str]] = field(default_factory=set)
    """(kind, name)."""
    numbers: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    """All values by (kind, name)."""
    spans: int = 0
    prompts: int = 0

    def add_number(self, kind: str, name: str, value: float) -> None:
        self.numbers.setdefault((kind, name), []).append(value)


@dataclass(frozen=True, slots=True)
class Separation:
    """A trait or number that differs between the groups."""

    kind: str
    what: str
    a: str
    b: str
    score: float
    """0: no difference. 1: it predicts the group of every run."""
    effect: float = 1.0
    """The distance of the medians of a number, as a share of the larger one."""

    def data(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "what": self.what,
            "a": self.a,
            "b": self.b,
            "separation": round(self.score, 4),
        }


def compare_answer(
    store: Store,
    a_ids: Sequence[str],
    b_ids: Sequence[str],
    *,
    a_more: bool = False,
    b_more: bool = False,
) -> CompareAnswer:
    """Compare two groups of runs, by ids that `Store.find_runs` finds.

    `a_more` and `b_more`: the group has only the newest runs that match its filter.
    """
    if not a_ids or not b_ids:
        raise UsageError("compare: both groups need a run. `vestige compare A... -- B...`")
    a_runs, b_runs = _find_runs(store, a_ids), _find_runs(store, b_ids)
    common = {run.id for run in a_runs} & {run.id for run in b_runs}
    if common:
        others = formatting.pluralize(len(common) - 1, "other run")
        subject = f"{min(common)} is" if len(common) == 1 else f"{min(common)} and {others} are"
        raise UsageError(
            f"compare: {subject} in both groups (expected groups without common runs, such as"
            " is:failed and is:ok)."
        )
    a = read_run_facts(store, a_runs[:RUNS_MAX])
    b = read_run_facts(store, b_runs[:RUNS_MAX])
    return CompareAnswer(a, b, find_separations(a, b), len(a_runs), len(b_runs), (a_more, b_more))


def _find_runs(store: Store, ids: Iterable[str]) -> list[RunInfo]:
    found = {}
    for text in ids:
        runs = store.find_runs(text)
        if len(runs) != 1:
            problem = "matches several runs" if runs else "not found"
            raise UsageError(
                f"compare: run {formatting.single_line(text, 60)!r} {problem}. See `vestige list`."
            )
        found[runs[0].id] = runs[0]
    return list(found.values())


# --- facts ----------------------------------------------------------------------------------------


def read_run_facts(store: Store, runs: Sequence[RunInfo]) -> list[RunFacts]:
    """Return the traits and numbers of runs."""
    found = {run.id: RunFacts(run) for run in runs}
    for facts in found.values():
        _add_run(facts)
    spans_max = min(SPANS_MAX, SPANS_TOTAL_MAX // len(found))
    for span in store.read_span_facts(list(found), spans_max):
        facts = found[span.run_id]
        facts.spans += 1
        _add_span(facts, span)
        if span.type == SPAN_TYPE and span.output_body and facts.prompts < PROMPTS_MAX:
            facts.prompts += 1
            _add_segments(store, facts, span.output_body)
    return list(found.values())


def _add_run(facts: RunFacts) -> None:
    info = facts.info
    duration_ns = info.duration_ns or info.last_ns - info.started_ns
    facts.traits.add(("run", f"name {info.name}"))
    facts.add_number("run", "duration_ms", duration_ns / 1e6)
    facts.add_number("run", "spans", info.span_count)
    facts.add_number("run", "input_tokens", info.input_tokens)
    facts.add_number("run", "output_tokens", info.output_tokens)


def _add_span(facts: RunFacts, span: SpanFacts) -> None:
    if span.component == OWN_COMPONENT or span.type == "process":
        return
    kind = "tool" if span.type == "tool" else "step"
    if span.type != "run":
        facts.traits.add((kind, f"{span.type} {span.name}" if kind == "step" else span.name))
        facts.traits.add(("component", span.component))
        facts.add_number("calls", f"{span.type} {span.name}", 1)
    error = span.attributes.get("error.type")
    if error is not None or span.status not in ("ok", None):
        facts.traits.add(("error", f"{error or span.status} in {span.type} {span.name}"))
    for key, value in span.attributes.items():
        if key in _NOT_COMPARED:
            continue
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if span.type not in MODEL_CALL_TYPES or key not in _TOKENS:
                facts.add_number("number", f"{span.type} {key}", float(value))
        elif isinstance(value, str) and (len(value) > VALUE_MAX or _is_volatile(value)):
            continue
        else:
            kind = "model" if key == "model" else "attribute"
            text = formatting.value(value, VALUE_MAX)
            facts.traits.add((kind, f"{span.type} {key}={text}"))


def _is_volatile(value: str) -> bool:
    return normalise(value, DEFAULT_RULES) != value


def _add_segments(store: Store, facts: RunFacts, body: int) -> None:
    try:
        text = store.read_body(body, 0, MIB).decode(errors="replace")
    except VestigeError:
        return  # The body was evicted, or it is damaged.
    for segment in parse_segments(text):
        facts.traits.add(("contributor", segment.contributor))
        facts.add_number("contributor", f"{segment.contributor} bytes", segment.length)


# --- separations --------------------------------------------------------------------------------


def find_separations(a: Sequence[RunFacts], b: Sequence[RunFacts]) -> list[Separation]:
    """Return all differences between the groups, the highest score first."""
    found = []
    a_counts, b_counts = (
        Counter(trait for facts in group for trait in facts.traits) for group in (a, b)
    )
    for trait in sorted(a_counts.keys() | b_counts.keys()):
        in_a, in_b = a_counts[trait], b_counts[trait]
        score = abs(in_a / len(a) - in_b / len(b))
        if score:
            found.append(Separation(*trait, f"{in_a}/{len(a)}", f"{in_b}/{len(b)}", score))
    a_numbers, b_numbers = _numbers_per_run(a), _numbers_per_run(b)
    # A number that only one group has is skipped: a trait shows the same difference.
    for key in sorted(a_numbers.keys() & b_numbers.keys()):
        separation = _separate_numbers(key, a_numbers[key], b_numbers[key])
        if separation is not None:
            found.append(separation)
    found.sort(key=_rank)
    return found


def _rank(separation: Separation) -> tuple[float, int, float, str]:
    kind = _KINDS.index(separation.kind)
    return -round(separation.score, 9), kind, -round(separation.effect, 9), separation.what


_KINDS: Final = (
    "error",
    "model",
    "attribute",
    "contributor",
    "tool",
    "component",
    "run",
    "step",
    "calls",
    "number",
)
"""The order of kinds at the same score: the most actionable first."""


def _numbers_per_run(group: Sequence[RunFacts]) -> dict[tuple[str, str], list[float]]:
    """Return one value of each number for each run that has it."""
    found: dict[tuple[str, str], list[float]] = {}
    for facts in group:
        for key, values in facts.numbers.items():
            found.setdefault(key, []).append(_summarize(key, values))
    return found


def _separate_numbers(
    key: tuple[str, str], a: Sequence[float], b: Sequence[float]
) -> Separation | None:
    ordered = sorted(b)
    less = sum(bisect_left(ordered, value) for value in a)
    more = sum(len(ordered) - bisect_right(ordered, value) for value in a)
    score = abs(less - more) / (len(a) * len(b))
    a_median, b_median = median(a), median(b)
    larger = max(abs(a_median), abs(b_median))
    effect = abs(a_median - b_median) / larger if larger else 0.0
    if not score or effect < EFFECT_MIN:
        return None
    a_text, b_text = f"~{_format_number(a_median)}", f"~{_format_number(b_median)}"
    return Separation(*key, a_text, b_text, score, effect)


def _summarize(key: tuple[str, str], values: Sequence[float]) -> float:
    """Return the sum of a count, or the mean of any other number."""
    total = sum(values)
    if key[0] == "calls":
        return total
    # The sum of huge values ("no limit") may overflow. Then each value is divided first.
    return total / len(values) if isfinite(total) else sum(v / len(values) for v in values)


def _format_number(value: float) -> str:
    integral = float(value).is_integer() or abs(value) >= 100
    return f"{value:.0f}" if integral and abs(value) < 1e15 else f"{value:.3g}"


# --- the answer ---------------------------------------------------------------------------------


class CompareAnswer(CommandAnswer):
    """The differences between two groups, the highest score first."""

    verb: ClassVar[str] = "compare"
    budget: ClassVar[int] = 800

    def __init__(
        self,
        a: Sequence[RunFacts],
        b: Sequence[RunFacts],
        found: list[Separation],
        a_total: int,
        b_total: int,
        more: tuple[bool, bool] = (False, False),
    ) -> None:
        self.a, self.b, self.found = a, b, found
        self.a_total, self.b_total = a_total, b_total
        self.more = more

    def lines(self, budget: int) -> list[str]:
        head = [f"A {_format_group(self.a)}", f"B {_format_group(self.b)}", *self._omissions()]
        shown = [row for row in self.found if row.score >= SHOWN_MIN]
        weak = len(self.found) - len(shown)
        if not shown:
            small = formatting.pluralize(weak, "small difference")
            return [*head, f"nothing separates the groups ({small}: {self._repeat('--json')})"]
        rows = [["separates", "what", "", "A", "B"]]
        rows += [
            [f"{row.score:.0%}", row.kind, formatting.single_line(row.what, 60), row.a, row.b]
            for row in shown
        ]
        table = columns(rows, right=(0, 3, 4))
        end = ["These are correlations, not proven causes."]
        if weak:
            small = formatting.pluralize(weak, "smaller difference")
            end.append(f"{small} not shown: {self._repeat('--json')}")
        pair = (self.b[-1].info.short_id, self.a[-1].info.short_id)
        end.append(f"next: {self.command('diff', *pair)}")

        def more(left_out: int) -> str:
            larger = min(TOKENS_MAX, budget * 4)
            option = f"--budget {larger}" if budget < TOKENS_MAX else "--json"
            return f"… {formatting.pluralize(left_out, 'more row')}: {self._repeat(option)}"

        return fit([*head, table[0]], table[1:], end, budget, more)

    def _repeat(self, option: str) -> str:
        """Return this command with one more option, or a reference to it if it is long."""
        if self.a_total + self.b_total > IDS_REPEATED_MAX:
            return f"the same command with {option}"
        at = f"{self.at} " if self.at else ""
        a, b = (" ".join(facts.info.short_id for facts in group) for group in (self.a, self.b))
        return f"vestige compare {at}{option} {a} -- {b}"

    def _omissions(self) -> list[str]:
        lines = []
        sides = (
            ("A", self.a_total, self.a, self.more[0]),
            ("B", self.b_total, self.b, self.more[1]),
        )
        for side, total, group, more in sides:
            if more:
                lines.append(f"{side}: the newest {len(group)} runs; more may match its filter")
            if total > len(group):
                lines.append(f"{side}: only the first {len(group)} of {total} runs were compared")
            partial = [facts.spans for facts in group if facts.info.span_count > facts.spans]
            if partial:
                runs = formatting.pluralize(len(partial), "run")
                lines.append(f"{side}: only the first {max(partial)} spans of {runs} were compared")
        return lines

    def data(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "a": [facts.info.id for facts in self.a],
            "b": [facts.info.id for facts in self.b],
            "a_given": self.a_total,
            "b_given": self.b_total,
            "a_more": self.more[0],
            "b_more": self.more[1],
            "separations": [separation.data() for separation in self.found],
        }


def _format_group(group: Sequence[RunFacts]) -> str:
    counts = Counter(facts.info.outcome for facts in group)
    outcomes = ", ".join(
        f"{count} {formatting.single_line(outcome, 20)}"
        for outcome, count in sorted(counts.items())
    )
    ids = ", ".join(facts.info.short_id for facts in group[:8])
    more = f", +{len(group) - 8}" if len(group) > 8 else ""
    return f"{formatting.pluralize(len(group), 'run')} ({outcomes}): {ids}{more}"
