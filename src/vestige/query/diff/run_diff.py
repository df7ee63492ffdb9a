"""Two runs side by side, step by step: where they part, and all the places where they differ.

Steps are aligned on (type, name, normalised arguments). What is the same step on both sides is
then compared in its inputs, outputs, status and attributes. A step's end (status, output) counts
where it ended: the failing tool comes before the step and the run that failed by it.

    diff_runs(evidence, other)

Elsewhere: alignment in query/diff/sequence_alignment.py; what is ignored in query/diff/word_diff.py; details of a pair in query/diff/span_diff.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vestige.limits import MIB
from vestige.query import formatting
from vestige.query.diff.attribute_diff import diff_attributes
from vestige.query.diff.body_diff import Differences
from vestige.query.diff.sequence_alignment import Change, find_changes
from vestige.query.diff.side_by_side import MODEL_CALLS, RowPosition, Rows, make_deltas
from vestige.query.diff.span_diff import (
    DiffAnswer,
    compare_spans,
    differ_beyond_text,
    format_value,
    ignored,
    label,
)
from vestige.query.diff.test_suite_diff import diff_tests
from vestige.query.diff.word_diff import USUAL, check_rules, normalise
from vestige.query.evidence import Evidence
from vestige.record.run import LogInfo, Node, SpanInfo, in_order
from vestige.record.types import OWN_COMPONENT

ARGUMENTS_MAX = 64 * 1024
"""Bytes of a body that are part of what a step is; a longer one is material, not arguments."""

READ_MAX = 64 * MIB
"""Of bodies that differ and are read to see whether they differ in more than ids and times."""

DETAILS_SHOWN = 12
"""Lines of structure at the first divergence; the rest is one command away."""


class _Bodies:
    """Compares bodies of pairs, by reference where that is enough, and reads only so much."""

    def __init__(self, a: Evidence, b: Evidence, rules: tuple[str, ...], same_store: bool) -> None:
        self.a, self.b, self.rules, self.same_store = a, b, rules, same_store
        self.left = READ_MAX
        self.unread = 0

    def compare(self, which: str, a: SpanInfo, b: SpanInfo) -> str:
        """`same`, `volatile`, or `differs`."""
        a_ref, b_ref = getattr(a, which), getattr(b, which)
        if a_ref is None or b_ref is None:
            return "same" if a_ref is b_ref else "differs"
        if self.same_store and a_ref.id == b_ref.id:
            return "same"
        size = a_ref.size_bytes + b_ref.size_bytes
        if size > self.left or max(a_ref.size_bytes, b_ref.size_bytes) > 2 * MIB:
            self.unread += 1
            return "differs"
        self.left -= size
        was, now = getattr(self.a, which)(a), getattr(self.b, which)(b)
        if was is None or now is None:
            return "same" if was is now else "differs"
        if was == now:
            beyond = differ_beyond_text(was, self.a, a_ref, self.b, b_ref)
            return "differs" if beyond else "same"
        return "volatile" if normalise(was, self.rules) == normalise(now, self.rules) else "differs"


def diff_runs(
    a: Evidence, b: Evidence, ignore: Sequence[str] = (), *, same_store: bool = True
) -> DiffAnswer:
    """Two runs, step by step. `same_store`: equal body ids mean equal bodies."""
    rules = check_rules(ignore or USUAL)
    a_steps, b_steps = _steps(a), _steps(b)
    held: dict[int, str] = {}
    changes, complete = find_changes(
        [_key(step, a, rules, held) for step in a_steps],
        [_key(step, b, rules, held if same_store else {}) for step in b_steps],
        [_kind(step) for step in a_steps],
        [_kind(step) for step in b_steps],
    )
    bodies = _Bodies(a, b, rules, same_store)
    places = [_place(change, a_steps, b_steps, bodies) for change in changes]
    differing = [place for place in places if place.differs]
    at = _find_first(places)
    first = None if at is None else places[at]
    root = _diff_roots(a, b, rules)
    command = f"vestige diff {a.run.info.short_id} {b.run.info.short_id}{ignored(ignore)}"
    told = _tell_runs(a, b, places, differing, root, rules)
    tests = diff_tests(a, b)
    if tests is not None:  # a test suite: its cases are what one came for
        told += ["", *tests.lines()]
    if at is not None and first is not None:
        same = sum(not place.differs for place in places[:at])
        told += _tell_first(first, same, a, b, rules, _find_instead(places, at))
        rest = [place for place in differing if place is not first]
        if rest:
            told += [
                "",
                f"all the rest ({formatting.pluralize(len(rest), 'step')}):",
                *_tell_rest(rest),
            ]
    if bodies.unread:
        told.append(
            f"{formatting.pluralize(bodies.unread, 'body pair')} too long to read: taken as different"
        )
    if not complete:
        told.append("the runs are too long to align to the end: the last steps were not looked at")

    # Now, while the store is open: to say what parted, bodies are looked into.
    rows, first_row, left_out = Rows(a, b, rules).make(places, at)

    def facts() -> dict[str, Any]:
        return {
            "kind": "runs",
            "a": a.run.info.short_id,
            "b": b.run.info.short_id,
            "ignored": list(rules),
            "steps_a": len(a_steps),
            "steps_b": len(b_steps),
            "same": sum(not place.differs for place in places),
            "same_but_ignored": sum(place.volatile and not place.differs for place in places),
            "complete": complete and not bodies.unread,
            "run": [difference.data() for difference in root],
            "first": None if first is None else _place_data(first),
            "differences": [_place_data(place) for place in differing],
            "rows": rows,
            "first_row": first_row,
            "rows_left_out": left_out,
            "deltas": make_deltas(a, b),
            **({} if tests is None else {"tests": tests.data()}),
        }

    return DiffAnswer(told, facts, differs=bool(differing or root), command=command)


def _steps(evidence: Evidence) -> list[Node]:
    """What the program did and said, in order; not the run itself, nor the recorder's own words."""
    root = evidence.root
    nodes: list[Node] = [
        span for span in evidence.run.spans if span is not root and span.type != "process"
    ]
    nodes.extend(log for log in evidence.run.logs if log.component != OWN_COMPONENT)
    return in_order(nodes)


def _kind(step: Node) -> tuple[str, str]:
    return ("log", step.level) if isinstance(step, LogInfo) else (step.type, step.name)


def _key(
    step: Node, evidence: Evidence, rules: tuple[str, ...], held: dict[int, str]
) -> tuple[Any, ...]:
    """(type, name, normalised arguments). A model's arguments are its history, which only grows:
    two calls are the same step by their model, and their bodies are compared once paired."""
    if isinstance(step, LogInfo):
        return ("log", step.level, normalise(step.message, rules))
    if step.type in MODEL_CALLS:
        return (step.type, step.name, step.attributes.get("model"))
    ref = step.input
    if ref is None:
        return (step.type, step.name, None)
    if ref.size_bytes > ARGUMENTS_MAX:
        return (step.type, step.name, ref.size_bytes, ref.id)
    arguments = None if ref.id is None else held.get(ref.id)
    if arguments is None:
        text = evidence.input(step)
        if text is None or ref.id is None:
            return (step.type, step.name, None)
        arguments = held[ref.id] = normalise(text, rules)
    return (step.type, step.name, arguments)


def _place(
    change: Change, a_steps: list[Node], b_steps: list[Node], bodies: _Bodies
) -> RowPosition:
    a = None if change.a is None else a_steps[change.a]
    b = None if change.b is None else b_steps[change.b]
    if isinstance(a, LogInfo) and isinstance(b, LogInfo):
        aspects = ("message",) if change.mark == "~" else ()
        return RowPosition(change.mark, a, b, aspects, a.message != b.message)
    if not isinstance(a, SpanInfo) or not isinstance(b, SpanInfo):
        return RowPosition(change.mark, a, b)
    aspects_of, volatile = [], False
    for which in ("input", "output"):
        how = bodies.compare(which, a, b)
        volatile |= how == "volatile"
        if how == "differs":
            aspects_of.append(which)
    if a.status != b.status:
        aspects_of.append("status")
    if a.attributes != b.attributes:
        found = Differences()
        diff_attributes(a, b, bodies.rules, found)
        volatile |= not found
        if found:
            aspects_of.append("attributes")
    return RowPosition("~" if aspects_of else "=", a, b, tuple(aspects_of), volatile)


def _find_first(places: list[RowPosition]) -> int | None:
    """The divergence that happened first. What a span is shows when it opens; how it went, after
    all that happened inside it."""
    latest: dict[str, int] = {}
    for at in range(len(places) - 1, -1, -1):
        for node in (places[at].a, places[at].b):
            if node is None:
                continue
            parent = node.span_id if isinstance(node, LogInfo) else node.parent_id
            end = max(at, latest.get(node.id, at)) if isinstance(node, SpanInfo) else at
            if parent is not None:
                latest[parent] = max(end, latest.get(parent, end))
    found: tuple[int, int] | None = None
    for at, place in enumerate(places):
        if not place.differs:
            continue
        when = at
        if place.mark == "~" and "input" not in place.aspects:
            ids = [node.id for node in (place.a, place.b) if isinstance(node, SpanInfo)]
            when = max([at, *(latest.get(span_id, at) for span_id in ids)])
        if found is None or (when, -at) < found:
            found = (when, -at)
    return None if found is None else -found[1]


def _find_instead(places: list[RowPosition], at: int) -> Node | None:
    """What the side that lacks the step at `at` does at that place."""
    lacks_a = places[at].a is None
    following = (place.a if lacks_a else place.b for place in places[at + 1 :])
    return next((node for node in following if node is not None), None)


def _diff_roots(a: Evidence, b: Evidence, rules: tuple[str, ...]) -> Differences:
    found = Differences()
    for name, was, now in (
        ("name", a.run.info.name, b.run.info.name),
        ("outcome", a.run.info.outcome, b.run.info.outcome),
    ):
        if was != now:
            found.note("~", name, was, now)
    if a.root is not None and b.root is not None:
        diff_attributes(a.root, b.root, rules, found)
        for which in ("input", "output"):
            was_text, now_text = getattr(a, which)(a.root), getattr(b, which)(b.root)
            if was_text != now_text and normalise(was_text or "", rules) != normalise(
                now_text or "", rules
            ):
                found.note("~", which, was_text or "none", now_text or "none")
    return found


# --- the words --------------------------------------------------------------------------------------


def _tell_runs(
    a: Evidence,
    b: Evidence,
    places: list[RowPosition],
    differing: list[RowPosition],
    root: Differences,
    rules: tuple[str, ...],
) -> list[str]:
    told = [f"{side} {_say_run(evidence)}" for side, evidence in (("A", a), ("B", b))]
    alike = len(places) - len(differing)
    volatile = sum(place.volatile and not place.differs for place in places)
    if differing:
        told.append(f"{len(differing)} of {formatting.pluralize(len(places), 'step')} differ")
    else:
        told.append(f"no step differs ({formatting.pluralize(alike, 'step')})")
    if volatile:
        told[-1] += f"; {volatile} of the same ones differ only in {' and '.join(rules)}"
    told += [f"run {difference.line()}" for difference in root[:6]]
    if len(root) > 6:
        told.append(
            f"run … {formatting.pluralize(len(root) - 6 + root.left_out, 'more difference')}"
        )
    return told


def _say_run(evidence: Evidence) -> str:
    info = evidence.run.info
    spent = info.duration_ns if info.duration_ns is not None else info.last_ns - info.started_ns
    tokens = (
        f", {formatting.number(info.input_tokens)}+{formatting.number(info.output_tokens)} tokens"
    )
    return (
        f"{info.short_id} {formatting.single_line(info.name, 60)}: {formatting.single_line(info.outcome, 20)} after {formatting.duration(spent)}, "
        f"{formatting.pluralize(info.span_count, 'span')}{tokens if info.tokens else ''}"
    )


def _tell_first(
    first: RowPosition,
    same: int,
    a: Evidence,
    b: Evidence,
    rules: tuple[str, ...],
    instead: Node | None,
) -> list[str]:
    told = ["", f"first divergence, after {formatting.pluralize(same, 'same step')}:"]
    a_node, b_node = first.a, first.b
    if isinstance(a_node, SpanInfo) and isinstance(b_node, SpanInfo):
        found = compare_spans(a, a_node, b, b_node, rules)
        told += [f"A {format_value(a_node)}", f"B {format_value(b_node)}"]
        told += [f"  {line}" for line in found.lines(DETAILS_SHOWN)]
        told.append(f"next: vestige diff {a_node.short_id} {b_node.short_id}")
        return told
    told += [f"{first.mark} {format_value(node)}" for node in (a_node, b_node) if node is not None]
    if first.mark in "+-":
        side, other = ("A", "B") if first.mark == "-" else ("B", "A")
        goes_on = "ends" if instead is None else f"goes on with {format_value(instead)}"
        told.append(f"only {side} has it; {other} {goes_on}")
    told += _next_span(first, a, b)
    return told


def _next_span(place: RowPosition, a: Evidence, b: Evidence) -> list[str]:
    for node, side in ((place.b, b), (place.a, a)):
        span_id = node.span_id if isinstance(node, LogInfo) else node.id if node else None
        span = side.spans.get(span_id or "")
        if span is not None:
            return [f"next: vestige span {span.short_id}"]
    return []


def _tell_rest(rest: list[RowPosition]) -> list[str]:
    """One line each, in order; the same in a row told once."""
    told: list[str] = []
    held: tuple[object, ...] | None = None
    count = 0
    for place in rest:
        node = place.b if place.a is None else place.a
        assert node is not None
        same = (place.mark, _kind(node), place.aspects, getattr(node, "status", None))
        if same == held:
            count += 1
            continue
        if count > 1:
            told[-1] += f"  x{count} such"
        held, count = same, 1
        told.append(_say_place(place))
    if count > 1:
        told[-1] += f"  x{count} such"
    return told


def _say_place(place: RowPosition) -> str:
    ids = [node.short_id for node in (place.a, place.b) if isinstance(node, SpanInfo)]
    node = place.b if place.a is None else place.a
    assert node is not None
    what = f": {', '.join(place.aspects)}" if place.aspects else ""
    return f"{place.mark} {' '.join([*ids, label(node)])}{what}"


def _place_data(place: RowPosition) -> dict[str, Any]:
    return {
        "mark": place.mark,
        "a": place.a.short_id if isinstance(place.a, SpanInfo) else None,
        "b": place.b.short_id if isinstance(place.b, SpanInfo) else None,
        "what": label(place.b if place.a is None else place.a),  # type: ignore[arg-type]  # one is there
        "aspects": list(place.aspects),
    }
