"""Compare two runs step by step: the first difference in detail, then all others.

Steps are aligned by type, name and normalised arguments. Paired steps are then compared by
inputs, outputs, status and attributes. A status or output counts at the time at which the step
ended, so a failing tool comes before the step and the run that failed because of it.

Elsewhere: alignment in query/diff/sequence_alignment.py; ignored values in
query/diff/word_diff.py; details of a pair in query/diff/span_diff.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from vestige.limits import MIB
from vestige.query import formatting
from vestige.query.diff.attribute_diff import diff_attributes
from vestige.query.diff.body_diff import Differences
from vestige.query.diff.repeated_changes import output_texts
from vestige.query.diff.sequence_alignment import Change, find_changes
from vestige.query.diff.side_by_side import (
    MODEL_CALLS,
    RowBuilder,
    StepPair,
    build_deltas,
    short_id,
)
from vestige.query.diff.span_diff import (
    DiffAnswer,
    compare_spans,
    differ_beyond_text,
    format_label,
    format_step,
    ignore_options,
)
from vestige.query.diff.suite_diff import diff_suites
from vestige.query.diff.word_diff import DEFAULT_RULES, normalise, validate_rules
from vestige.query.evidence import Evidence
from vestige.query.views.lines.common_attributes import find_common
from vestige.record.run import LogInfo, Node, SpanInfo, in_order
from vestige.record.types import OWN_COMPONENT

ARGUMENTS_MAX = 64 * 1024
"""Size of an input up to which it identifies a step. A longer one is compared by its id."""

READ_MAX = 64 * MIB
"""Bytes of bodies to read. A body is read only if its pair is not the same stored body."""

DETAILS_SHOWN = 12
"""Lines of structure at the first difference. A printed command shows the rest."""


class _BodyComparer:
    """Compare the bodies of paired steps, by stored id if possible, and read up to `READ_MAX`."""

    def __init__(self, a: Evidence, b: Evidence, rules: tuple[str, ...], same_store: bool) -> None:
        self.a, self.b, self.rules, self.same_store = a, b, rules, same_store
        self.bytes_left = READ_MAX
        self.unread = 0
        self.run_attributes = _find_run_attributes(a), _find_run_attributes(b)

    def compare(self, which: str, a: SpanInfo, b: SpanInfo) -> str:
        """Return `same`, `volatile` (only ignored values differ) or `differs`."""
        a_ref, b_ref = getattr(a, which), getattr(b, which)
        if a_ref is None or b_ref is None:
            return "same" if a_ref is b_ref else "differs"
        if self.same_store and a_ref.id == b_ref.id:
            return "same"
        size = a_ref.size_bytes + b_ref.size_bytes
        if size > self.bytes_left or max(a_ref.size_bytes, b_ref.size_bytes) > 2 * MIB:
            self.unread += 1
            return "differs"
        self.bytes_left -= size
        a_text, b_text = getattr(self.a, which)(a), getattr(self.b, which)(b)
        if a_text is None or b_text is None:
            return "same" if a_text is b_text else "differs"
        if a_text == b_text:
            differs = differ_beyond_text(a_text, self.a, a_ref, self.b, b_ref)
            return "differs" if differs else "same"
        volatile = normalise(a_text, self.rules) == normalise(b_text, self.rules)
        if volatile or (which == "output" and self._is_same_answer(a, b)):
            return "volatile"
        return "differs"

    def _is_same_answer(self, a: SpanInfo, b: SpanInfo) -> bool:
        """Return True if two responses differ in counts of tokens and the like only."""
        if a.type not in MODEL_CALLS or b.type not in MODEL_CALLS:
            return False
        answers = []
        for evidence, span in ((self.a, a), (self.b, b)):
            response = evidence.response(span)
            if response is None or not (response.text or response.calls):
                return False
            texts = [normalise(text, self.rules) for text in output_texts(evidence, span)]
            answers.append((texts, response.finish_reason, response.error, len(response.parts)))
        return answers[0] == answers[1]

    def is_of_run(self, name: str) -> bool:
        """Return True for an attribute that all steps of each run have with one value."""
        return all(name in common for common in self.run_attributes)


def _find_run_attributes(evidence: Evidence) -> dict[str, Any]:
    """Return the attributes of nearly all spans of a run, which differ once, for the run."""
    steps = [span for span in _steps(evidence) if isinstance(span, SpanInfo)]
    return dict(find_common(steps))


def diff_runs(
    a: Evidence, b: Evidence, ignore: Sequence[str] = (), *, same_store: bool = True
) -> DiffAnswer:
    """Compare two runs. `same_store`: equal body ids mean equal bodies."""
    rules = validate_rules(ignore or DEFAULT_RULES)
    a_steps, b_steps = _steps(a), _steps(b)
    arguments: dict[int, str] = {}
    changes, complete = find_changes(
        [_step_key(step, a, rules, arguments) for step in a_steps],
        [_step_key(step, b, rules, arguments if same_store else {}) for step in b_steps],
        [_kind(step) for step in a_steps],
        [_kind(step) for step in b_steps],
    )
    bodies = _BodyComparer(a, b, rules, same_store)
    pairs = [_compare_pair(change, a_steps, b_steps, bodies) for change in changes]
    differing = [pair for pair in pairs if pair.differs]
    at = _find_first(pairs)
    first = None if at is None else pairs[at]
    root = _diff_roots(a, b, rules)
    _add_run_attributes(root, *bodies.run_attributes)
    lines = _render_summary(a, b, pairs, differing, root, rules)
    suites = diff_suites(a, b)
    if suites is not None:
        lines += ["", *suites.lines()]
    if at is not None and first is not None:
        same = sum(not pair.differs for pair in pairs[:at])
        lines += _render_first(first, same, a, b, rules, _find_instead(pairs, at))
        others = [pair for pair in differing if pair is not first]
        if others:
            lines += ["", f"Other differences ({len(others)}):", *_render_others(others)]
    if bodies.unread:
        unread = formatting.pluralize(bodies.unread, "body pair")
        lines.append(f"{unread} too long to read, counted as different")
    if not complete:
        lines.append("the runs are too long to align: the last steps were not compared")

    # The rows read bodies, so they are built now, while the store is open.
    rows, first_row, left_out = RowBuilder(a, b, rules).build(pairs, at)

    def make_data() -> dict[str, Any]:
        return {
            "kind": "runs",
            "a": a.run.info.short_id,
            "b": b.run.info.short_id,
            "ignored": list(rules),
            "steps_a": len(a_steps),
            "steps_b": len(b_steps),
            "same": len(pairs) - len(differing),
            "same_but_ignored": sum(pair.volatile and not pair.differs for pair in pairs),
            "complete": complete and not bodies.unread,
            "run": [difference.data() for difference in root],
            "first": None if first is None else _pair_data(first),
            "differences": [_pair_data(pair) for pair in differing],
            "rows": rows,
            "first_row": first_row,
            "rows_left_out": left_out,
            "deltas": build_deltas(a, b),
            **({} if suites is None else {"tests": suites.data()}),
        }

    command = f"vestige diff {a.run.info.short_id} {b.run.info.short_id}{ignore_options(ignore)}"
    return DiffAnswer(lines, make_data, differs=bool(differing or root), command=command)


def _steps(evidence: Evidence) -> list[Node]:
    """Return spans and log records in order, without the run and Vestige's own records."""
    root = evidence.root
    nodes: list[Node] = [
        span for span in evidence.run.spans if span is not root and span.type != "process"
    ]
    nodes.extend(log for log in evidence.run.logs if log.component != OWN_COMPONENT)
    return in_order(nodes)


def _kind(step: Node) -> tuple[str, str]:
    return ("log", step.level) if isinstance(step, LogInfo) else (step.type, step.name)


def _step_key(
    step: Node, evidence: Evidence, rules: tuple[str, ...], arguments_cache: dict[int, str]
) -> tuple[Any, ...]:
    """Return the key by which steps are aligned: type, name and normalised arguments.

    The input of a model call is its growing history, so model calls are aligned by their
    model, and their bodies are compared once they are paired.
    """
    if isinstance(step, LogInfo):
        return ("log", step.level, normalise(step.message, rules))
    if step.type in MODEL_CALLS:
        return (step.type, step.name, step.attributes.get("model"))
    ref = step.input
    if ref is None:
        return (step.type, step.name, None)
    if ref.size_bytes > ARGUMENTS_MAX:
        return (step.type, step.name, ref.size_bytes, ref.id)
    arguments = None if ref.id is None else arguments_cache.get(ref.id)
    if arguments is None:
        text = evidence.input(step)
        if text is None or ref.id is None:
            return (step.type, step.name, None)
        arguments = arguments_cache[ref.id] = normalise(text, rules)
    return (step.type, step.name, arguments)


def _compare_pair(
    change: Change, a_steps: list[Node], b_steps: list[Node], bodies: _BodyComparer
) -> StepPair:
    a = None if change.a is None else a_steps[change.a]
    b = None if change.b is None else b_steps[change.b]
    if isinstance(a, LogInfo) and isinstance(b, LogInfo):
        message = ("message",) if change.mark == "~" else ()
        return StepPair(change.mark, a, b, message, a.message != b.message)
    if not isinstance(a, SpanInfo) or not isinstance(b, SpanInfo):
        return StepPair(change.mark, a, b)
    aspects, volatile = [], False
    for which in ("input", "output"):
        result = bodies.compare(which, a, b)
        volatile |= result == "volatile"
        if result == "differs":
            aspects.append(which)
    if a.status != b.status:
        aspects.append("status")
    if a.attributes != b.attributes:
        found = Differences()
        diff_attributes(a, b, bodies.rules, found)
        volatile |= not found
        if any(not bodies.is_of_run(difference.where) for difference in found):
            aspects.append("attributes")
    return StepPair("~" if aspects else "=", a, b, tuple(aspects), volatile)


def _find_first(pairs: list[StepPair]) -> int | None:
    """Return the index of the difference that happened first.

    An input differs when its span opens. Status and output differ when the span closes, after
    everything inside it.
    """
    last_inside: dict[str, int] = {}
    for at in range(len(pairs) - 1, -1, -1):
        for node in (pairs[at].a, pairs[at].b):
            if node is None:
                continue
            parent = node.span_id if isinstance(node, LogInfo) else node.parent_id
            end = max(at, last_inside.get(node.id, at)) if isinstance(node, SpanInfo) else at
            if parent is not None:
                last_inside[parent] = max(end, last_inside.get(parent, end))
    found: tuple[int, int] | None = None
    for at, pair in enumerate(pairs):
        if not pair.differs:
            continue
        when = at
        if pair.mark == "~" and "input" not in pair.aspects:
            ids = [node.id for node in (pair.a, pair.b) if isinstance(node, SpanInfo)]
            when = max([at, *(last_inside.get(span_id, at) for span_id in ids)])
        if found is None or (when, -at) < found:
            found = (when, -at)
    return None if found is None else -found[1]


def _find_instead(pairs: list[StepPair], at: int) -> Node | None:
    """Return the next step of the run that lacks the step at `at`."""
    lacks_a = pairs[at].a is None
    following = (pair.a if lacks_a else pair.b for pair in pairs[at + 1 :])
    return next((node for node in following if node is not None), None)


def _diff_roots(a: Evidence, b: Evidence, rules: tuple[str, ...]) -> Differences:
    found = Differences()
    for name, was, now in (
        ("name", a.run.info.name, b.run.info.name),
        ("outcome", a.run.info.outcome, b.run.info.outcome),
    ):
        if was != now:
            found.add("~", name, was, now)
    if a.root is not None and b.root is not None:
        diff_attributes(a.root, b.root, rules, found)
        for which in ("input", "output"):
            a_text, b_text = getattr(a, which)(a.root), getattr(b, which)(b.root)
            if a_text == b_text:
                continue
            if normalise(a_text or "", rules) != normalise(b_text or "", rules):
                found.add("~", which, a_text or "none", b_text or "none")
    return found


def _add_run_attributes(found: Differences, a: dict[str, Any], b: dict[str, Any]) -> None:
    """Add what all steps differ in, unless the root has it, too."""
    known = {difference.where for difference in found}
    for key in sorted(a.keys() & b.keys() - known):
        if a[key] != b[key]:
            found.add("~", key, str(a[key]), str(b[key]))


# --- rendering ----------------------------------------------------------------------------------


def _render_summary(
    a: Evidence,
    b: Evidence,
    pairs: list[StepPair],
    differing: list[StepPair],
    root: Differences,
    rules: tuple[str, ...],
) -> list[str]:
    lines = [f"A {_format_run(a)}", f"B {_format_run(b)}"]
    steps = formatting.pluralize(len(pairs), "step")
    volatile = sum(pair.volatile and not pair.differs for pair in pairs)
    lines.append(
        f"{len(differing)} of {steps} differ" if differing else f"no step differs ({steps})"
    )
    if volatile:
        ignored_in = formatting.pluralize(volatile, "step")
        lines[-1] += f"; {' and '.join(rules)} ignored in {ignored_in}"
    return lines + [f"run {line}" for line in root.lines(6, "difference")]


def _format_run(evidence: Evidence) -> str:
    info = evidence.run.info
    name, outcome = formatting.single_line(info.name, 60), formatting.single_line(info.outcome, 20)
    text = f"{info.short_id} {name}: {outcome}{formatting.after(info.elapsed_ns)}"
    text += f", {formatting.pluralize(info.span_count, 'span')}"
    if info.tokens:
        tokens_in, tokens_out = map(formatting.number, (info.input_tokens, info.output_tokens))
        text += f", {tokens_in} → {tokens_out} tokens"
    return text


def _render_first(
    first: StepPair,
    same: int,
    a: Evidence,
    b: Evidence,
    rules: tuple[str, ...],
    instead: Node | None,
) -> list[str]:
    lines = ["", f"First difference (after {formatting.pluralize(same, 'identical step')}):"]
    a_node, b_node = first.a, first.b
    if isinstance(a_node, SpanInfo) and isinstance(b_node, SpanInfo):
        found = compare_spans(a, a_node, b, b_node, rules)
        lines += [f"A {format_step(a_node)}", f"B {format_step(b_node)}"]
        lines += [f"  {line}" for line in found.lines(DETAILS_SHOWN)]
        lines.append(f"next: vestige diff {a_node.short_id} {b_node.short_id}")
        return lines
    lines += [f"{first.mark} {format_step(node)}" for node in (a_node, b_node) if node is not None]
    if first.mark in "+-":
        present, absent = ("A", "B") if first.mark == "-" else ("B", "A")
        then = "ends" if instead is None else f"continues with {format_step(instead)}"
        lines.append(f"only in {present}; {absent} {then}")
    lines += _next_span(first, a, b)
    return lines


def _next_span(pair: StepPair, a: Evidence, b: Evidence) -> list[str]:
    for node, side in ((pair.b, b), (pair.a, a)):
        span_id = node.span_id if isinstance(node, LogInfo) else node.id if node else None
        span = side.spans.get(span_id or "")
        if span is not None:
            return [f"next: vestige span {span.short_id}"]
    return []


def _render_others(pairs: list[StepPair]) -> list[str]:
    """Return one line per difference, in order. Similar neighbours share a line."""
    lines: list[str] = []
    for _, group in groupby(pairs, key=_similarity_key):
        first, *others = group
        count = f"  ×{len(others) + 1}" if others else ""
        lines.append(f"{_format_pair(first)}{count}")
    return lines


def _similarity_key(pair: StepPair) -> tuple[object, ...]:
    return pair.mark, _kind(pair.node), pair.aspects, getattr(pair.node, "status", None)


def _format_pair(pair: StepPair) -> str:
    ids = [node.short_id for node in (pair.a, pair.b) if isinstance(node, SpanInfo)]
    aspects = f": {', '.join(pair.aspects)}" if pair.aspects else ""
    return f"{pair.mark} {' '.join([*ids, format_label(pair.node)])}{aspects}"


def _pair_data(pair: StepPair) -> dict[str, Any]:
    return {
        "mark": pair.mark,
        "a": short_id(pair.a),
        "b": short_id(pair.b),
        "what": format_label(pair.node),
        "aspects": list(pair.aspects),
    }
