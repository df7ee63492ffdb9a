"""`compare`: what differs between two groups of runs, failed and good ones say.

Every run is turned into facts it has (this tool was used, that attribute had this value) and
numbers (tokens, calls). A fact separates the groups by the difference of its shares; a number
by how much more often it is larger in one group than in the other. Both are from 0 to 1, and
measured; that what separates the groups also causes their difference is a hypothesis.
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
from vestige.query.budget import TOKENS_MAX
from vestige.query.diff.word_diff import normalise
from vestige.query.text_layout import CommandAnswer, columns, fit
from vestige.record.prompt_segments import SPAN_TYPE, parse_segments
from vestige.record.run import RunInfo
from vestige.record.types import OWN_COMPONENT
from vestige.store.protocol import Store
from vestige.store.sqlite.read import reports
from vestige.store.sqlite.read.reports import SpanFacts

RUNS_MAX: Final = 200
"""Of one group. More of them would not change what separates the groups."""

SPANS_MAX: Final = 2_000
"""Of one run that are looked at, from its beginning."""

SPANS_TOTAL_MAX: Final = 100_000
"""Of a whole group; of many runs, less of each."""

PROMPTS_MAX: Final = 20
"""Prompts of one run whose segments are read."""

VALUE_MAX: Final = 60
"""Characters of an attribute's value; a longer one is a text, and every run has its own."""

SHOWN_MIN: Final = 0.3
"""What separates the groups less than this is left out of the text."""

EFFECT_MIN: Final = 0.1
"""Numbers whose medians are nearer than this, of the larger one, are the same: two runs never agree."""

IDS_REPEATED_MAX: Final = 12
"""Run ids that a next command spells out."""

_TOKENS: Final = frozenset(("input_tokens", "output_tokens"))
"""Added up per run; other numbers are averaged."""

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
class Facts:
    """One run, as far as a comparison looks at it."""

    info: RunInfo
    has: set[tuple[str, str]] = field(default_factory=set)
    """(kind, what)."""
    sums: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    spans: int = 0
    prompts: int = 0

    def number(self, kind: str, what: str, value: float) -> None:
        self.sums.setdefault((kind, what), []).append(value)


@dataclass(frozen=True, slots=True)
class Separation:
    """One thing that is not the same in both groups."""

    kind: str
    what: str
    a: str
    b: str
    score: float
    """0: no difference, 1: it tells every run's group."""
    effect: float = 1.0
    """Of a number: how far the medians are apart, as a share of the larger one."""

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
    """Two groups of run ids (full ids, or what `find_runs` finds one of). `a_more`: they are the
    newest of those that were asked for."""
    if not a_ids or not b_ids:
        raise UsageError("compare: both groups need a run. `vestige compare A... -- B...`")
    a_runs, b_runs = _find(store, a_ids), _find(store, b_ids)
    both = {run.id for run in a_runs} & {run.id for run in b_runs}
    if both:
        first, more = sorted(both)[0], len(both) - 1
        others = f", and so do {formatting.pluralize(more, 'other run')}" if more else ""
        raise UsageError(
            f"compare: {first} stands in both groups{others}. Ask for groups that share no run,"
            " such as is:failed and is:ok."
        )
    a = _read_facts(store, a_runs[:RUNS_MAX])
    b = _read_facts(store, b_runs[:RUNS_MAX])
    return CompareAnswer(a, b, find_separations(a, b), len(a_runs), len(b_runs), (a_more, b_more))


def _find(store: Store, ids: Iterable[str]) -> list[RunInfo]:
    found = {}
    for text in ids:
        runs = store.find_runs(text)
        if len(runs) != 1:
            raise UsageError(
                f"compare: {formatting.single_line(text, 60)!r} is {'no run' if not runs else 'not one run'}. See `vestige list`."
            )
        found[runs[0].id] = runs[0]
    return list(found.values())


# --- facts ----------------------------------------------------------------------------------------


def _read_facts(store: Store, runs: Sequence[RunInfo]) -> list[Facts]:
    found = {run.id: Facts(run) for run in runs}
    for facts in found.values():
        _add_run(facts)
    connection = reports.connection_of(store)
    spans_max = min(SPANS_MAX, SPANS_TOTAL_MAX // len(found))
    for span in reports.read_spans(connection, list(found), spans_max):
        facts = found[span.run_id]
        facts.spans += 1
        _add_span(facts, span)
        if span.type == SPAN_TYPE and span.output_body and facts.prompts < PROMPTS_MAX:
            facts.prompts += 1
            _add_segments(store, facts, span.output_body)
    return list(found.values())


def _add_run(facts: Facts) -> None:
    info = facts.info
    facts.has.add(("run", f"name {info.name}"))
    facts.number("run", "duration_ms", (info.duration_ns or info.last_ns - info.started_ns) / 1e6)
    facts.number("run", "spans", info.span_count)
    facts.number("run", "input_tokens", info.input_tokens)
    facts.number("run", "output_tokens", info.output_tokens)


def _add_span(facts: Facts, span: SpanFacts) -> None:
    if span.component == OWN_COMPONENT or span.type == "process":
        return
    kind = "tool" if span.type == "tool" else "step"
    if span.type != "run":
        facts.has.add((kind, f"{span.type} {span.name}" if kind == "step" else span.name))
        facts.has.add(("component", span.component))
        facts.number("calls", f"{span.type} {span.name}", 1)
    error = span.attributes.get("error.type")
    if error is not None or span.status not in ("ok", None):
        facts.has.add(("error", f"{error or span.status} in {span.type} {span.name}"))
    for key, value in span.attributes.items():
        if key in _NOT_COMPARED:
            continue
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if span.type != "llm" or key not in _TOKENS:  # the run's own numbers say these
                facts.number("number", f"{span.type} {key}", float(value))
        elif isinstance(value, str) and (len(value) > VALUE_MAX or _is_volatile(value)):
            continue
        else:
            facts.has.add(
                (
                    "model" if key == "model" else "attribute",
                    f"{span.type} {key}={formatting.value(value, VALUE_MAX)}",
                )
            )


def _is_volatile(value: str) -> bool:
    return normalise(value, ("ids", "times")) != value


def _add_segments(store: Store, facts: Facts, body: int) -> None:
    try:
        text = store.read_body(body, 0, MIB).decode(errors="replace")
    except VestigeError:
        return  # evicted, or damaged
    for segment in parse_segments(text):
        facts.has.add(("contributor", segment.contributor))
        facts.number("contributor", f"{segment.contributor} bytes", segment.length)


# --- what separates --------------------------------------------------------------------------------


def find_separations(a: Sequence[Facts], b: Sequence[Facts]) -> list[Separation]:
    """All of them, the best first; ties in the order of the alphabet."""
    found = []
    having = [Counter(fact for facts in group for fact in facts.has) for group in (a, b)]
    for fact in sorted(having[0].keys() | having[1].keys()):
        in_a, in_b = having[0][fact], having[1][fact]
        score = abs(in_a / len(a) - in_b / len(b))
        if score:
            found.append(Separation(*fact, f"{in_a}/{len(a)}", f"{in_b}/{len(b)}", score))
    numbers = [_numbers_of(group) for group in (a, b)]
    # A number that one group does not have is none to compare; a fact says so already.
    for key in sorted(numbers[0].keys() & numbers[1].keys()):
        separation = _separate_numbers(key, numbers[0][key], numbers[1][key])
        if separation is not None:
            found.append(separation)
    found.sort(
        key=lambda one: (
            -round(one.score, 9),
            _KINDS.index(one.kind),
            -round(one.effect, 9),
            one.what,
        )
    )
    return found


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
"""At the same separation, in this order: what one can act on first."""


def _numbers_of(group: Sequence[Facts]) -> dict[tuple[str, str], list[float]]:
    """Of each number, one for each run that has it."""
    found: dict[tuple[str, str], list[float]] = {}
    for facts in group:
        for key in facts.sums:
            found.setdefault(key, []).append(_of_run(key, facts))
    return found


def _separate_numbers(
    key: tuple[str, str], of_a: Sequence[float], of_b: Sequence[float]
) -> Separation | None:
    ordered = sorted(of_b)
    less = sum(bisect_left(ordered, value) for value in of_a)
    more = sum(len(ordered) - bisect_right(ordered, value) for value in of_a)
    score = abs(less - more) / (len(of_a) * len(of_b))
    middle_a, middle_b = median(of_a), median(of_b)
    larger = max(abs(middle_a), abs(middle_b))
    effect = abs(middle_a - middle_b) / larger if larger else 0.0
    if not score or effect < EFFECT_MIN:
        return None
    return Separation(*key, f"~{_say(middle_a)}", f"~{_say(middle_b)}", score, effect)


def _of_run(key: tuple[str, str], facts: Facts) -> float:
    values = facts.sums[key]
    total = sum(values)
    if key[0] == "calls":
        return total
    # Numbers as large as there are (some mean "no limit" by them) are divided first.
    return total / len(values) if isfinite(total) else sum(v / len(values) for v in values)


def _say(value: float) -> str:
    whole = float(value).is_integer() or abs(value) >= 100
    return f"{value:.0f}" if whole and abs(value) < 1e15 else f"{value:.3g}"


# --- the answer ------------------------------------------------------------------------------------


class CompareAnswer(CommandAnswer):
    """What separates two groups, the best first."""

    verb: ClassVar[str] = "compare"
    budget: ClassVar[int] = 800

    def __init__(
        self,
        a: Sequence[Facts],
        b: Sequence[Facts],
        found: list[Separation],
        a_given: int,
        b_given: int,
        more: tuple[bool, bool] = (False, False),
    ) -> None:
        self.a, self.b, self.found = a, b, found
        self.a_given, self.b_given = a_given, b_given
        self.more = more

    def lines(self, budget: int) -> list[str]:
        head = [f"{side} {_say_group(group)}" for side, group in (("A", self.a), ("B", self.b))]
        head += self._cuts()
        strong = [one for one in self.found if one.score >= SHOWN_MIN]
        weak = len(self.found) - len(strong)
        if not strong:
            return [
                *head,
                f"nothing separates them ({formatting.pluralize(weak, 'small difference')}: {self._again('--json')})",
            ]
        rows = [["separates", "what", "", "A", "B"]]
        rows += [
            [f"{one.score:.0%}", one.kind, formatting.single_line(one.what, 60), one.a, one.b]
            for one in strong
        ]
        table = columns(rows, right=(0, 3, 4))
        end = ["measured; that it is the cause is a hypothesis"]
        if weak:
            end.append(
                f"{formatting.pluralize(weak, 'smaller difference')} not shown: {self._again('--json')}"
            )
        end += self._next()
        return fit([*head, table[0]], table[1:], end, budget, self._more(budget))

    def _more(self, budget: int) -> Any:
        def more(left_out: int) -> str:
            larger = min(TOKENS_MAX, budget * 4)
            how = f"--budget {larger}" if budget < TOKENS_MAX else "--json"
            return f"… {formatting.pluralize(left_out, 'more row')}: {self._again(how)}"

        return more

    def _again(self, option: str) -> str:
        """The same question; of a long one, only what to add."""
        groups = [[facts.info.short_id for facts in group] for group in (self.a, self.b)]
        if self.a_given + self.b_given > IDS_REPEATED_MAX:
            return f"the same command with {option}"
        at = f"{self.at} " if self.at else ""
        return f"vestige compare {at}{option} {' '.join(groups[0])} -- {' '.join(groups[1])}"

    def _cuts(self) -> list[str]:
        told = []
        sides = (
            ("A", self.a_given, self.a, self.more[0]),
            ("B", self.b_given, self.b, self.more[1]),
        )
        for side, given, group, more in sides:
            if more:
                told.append(
                    f"{side}: the newest {len(group)}; more runs may be wanted by its filter"
                )
            if given > len(group):
                told.append(f"{side}: the first {len(group)} of {given} runs were looked at")
            long = [facts for facts in group if facts.info.span_count > facts.spans]
            if long:
                most = max(facts.spans for facts in long)
                told.append(
                    f"{side}: of {formatting.pluralize(len(long), 'run')} only the first {most} spans were looked at"
                )
        return told

    def _next(self) -> list[str]:
        """One of each group that is typical for it: their steps side by side."""
        pair = (self.b[-1].info.short_id, self.a[-1].info.short_id)
        return [f"next: {self.command('diff', *pair)}"]

    def data(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "a": [facts.info.id for facts in self.a],
            "b": [facts.info.id for facts in self.b],
            "a_given": self.a_given,
            "b_given": self.b_given,
            "a_more": self.more[0],
            "b_more": self.more[1],
            "separations": [one.data() for one in self.found],
        }


def _say_group(group: Sequence[Facts]) -> str:
    outcomes: dict[str, int] = {}
    for facts in group:
        outcomes[facts.info.outcome] = outcomes.get(facts.info.outcome, 0) + 1
    told = ", ".join(
        f"{count} {formatting.single_line(what, 20)}" for what, count in sorted(outcomes.items())
    )
    ids = ", ".join(facts.info.short_id for facts in group[:8])
    more = f", +{len(group) - 8}" if len(group) > 8 else ""
    return f"{formatting.pluralize(len(group), 'run')} ({told}): {ids}{more}"
