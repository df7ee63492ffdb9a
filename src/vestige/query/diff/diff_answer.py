"""`diff`: what differs between two runs, two spans, or a span and what it came from.

    diff_answer(store, target_a, target_b)               # two runs, or two spans
    diff_answer(store, target, prev=True)                # its predecessor of the same type and name
    diff_answer(store, target, before_after=True)        # a prompt as built, against as sent
    diff_answer(store, target, vs_good=True)             # the last good run of the same name

Elsewhere: two runs in query/diff/run_diff.py, two spans in query/diff/span_diff.py, bodies in query/diff/body_diff.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Protocol

from vestige.errors import NotFoundError, UsageError
from vestige.query import formatting
from vestige.query.diff.run_diff import diff_runs
from vestige.query.diff.side_by_side import MODEL_CALLS
from vestige.query.diff.span_diff import DiffAnswer, diff_spans, label
from vestige.query.evidence import Evidence, open_run
from vestige.record.run import RunInfo, SpanInfo
from vestige.store.protocol import Store
from vestige.store.sqlite.read import reports

__all__ = ["DiffAnswer", "Target", "diff_answer", "diff_runs", "diff_spans", "find_before_after"]

OpenRun = Callable[[str], Evidence]


class Target(Protocol):
    """What an id was resolved to."""

    @property
    def run(self) -> RunInfo: ...

    @property
    def span_id(self) -> str | None: ...


def diff_answer(
    store: Store,
    target_a: Target,
    target_b: Target | None = None,
    *,
    prev: bool = False,
    before_after: bool = False,
    vs_good: bool = False,
    ignore: Sequence[str] = (),
    opened: OpenRun | None = None,
) -> DiffAnswer:
    """Two things side by side; the second is given, or found. `opened`: for who has runs open."""
    asked = [target_b is not None, prev, before_after, vs_good]
    if sum(asked) != 1:
        raise UsageError(
            "diff: give two ids, or one id and one of --prev, --before-after, --vs-good."
        )
    opened = cache(opened or partial(open_run, store))
    a = opened(target_a.run.id)
    if target_b is not None:
        return _diff_targets(a, target_a, opened(target_b.run.id), target_b, ignore)
    if before_after:
        before, after = find_before_after(a, _span(a, target_a.span_id))
        command = f"vestige diff {after.short_id} --before-after"
        return diff_spans(a, before, a, after, ignore, command=command, inputs_only=True)
    if prev and target_a.span_id is not None:
        span = _span(a, target_a.span_id)
        b, earlier = _find_previous(store, opened, a, span)
        return diff_spans(
            b, earlier, a, span, ignore, command=f"vestige diff {span.short_id} --prev"
        )
    find = reports.find_run_before if prev else reports.find_last_good
    other = find(reports.connection_of(store), target_a.run.id)
    if other is None:
        what = "earlier run like it" if prev else "good run of the same name"
        raise NotFoundError(
            f"{target_a.run.short_id}: no {what} ({formatting.single_line(target_a.run.name, 60)!r}). "
            "See `vestige list`."
        )
    return diff_runs(opened(other), a, ignore)


def _diff_targets(
    a: Evidence, target_a: Target, b: Evidence, target_b: Target, ignore: Sequence[str]
) -> DiffAnswer:
    if (target_a.span_id is None) != (target_b.span_id is None):
        run, span = (target_a, target_b) if target_a.span_id is None else (target_b, target_a)
        raise UsageError(
            f"diff: {run.run.short_id} is a run and {formatting.single_line(str(span.span_id), 40)} a span. "
            "Give two runs or two spans."
        )
    if target_a.span_id is None:
        return diff_runs(a, b, ignore)
    return diff_spans(a, _span(a, target_a.span_id), b, _span(b, target_b.span_id), ignore)


def _span(evidence: Evidence, span_id: str | None) -> SpanInfo:
    if span_id is None:
        if evidence.root is not None:
            return evidence.root
        raise UsageError(f"diff: {evidence.run.info.short_id} is a run. Give a span of it.")
    found = evidence.spans.get(span_id)
    if found is None:
        raise NotFoundError(
            f"{formatting.single_line(span_id, 40)}: no such span in {evidence.run.info.short_id}. "
            f"See `vestige show {evidence.run.info.short_id}`."
        )
    return found


def _find_previous(
    store: Store, opened: OpenRun, evidence: Evidence, span: SpanInfo
) -> tuple[Evidence, SpanInfo]:
    """The last span of the same type and name: in the run, or in the conversation before it."""
    earlier = evidence.once(_followed).get(span.id)
    if earlier is not None:
        return evidence, earlier
    found = reports.find_span_before(
        reports.connection_of(store), evidence.run.info.id, span.type, span.name
    )
    if found is None:
        raise NotFoundError(
            f"{span.short_id}: no {label(span)} before it in its run or conversation. "
            f"See `vestige show {evidence.run.info.short_id}`."
        )
    other_run = opened(found[0])
    return other_run, other_run.spans[found[1]]


def _followed(evidence: Evidence) -> dict[str, SpanInfo]:
    """By the id of a span: the last one before it of the same type and name."""
    latest: dict[tuple[str, str], SpanInfo] = {}
    found: dict[str, SpanInfo] = {}
    for span in evidence.run.spans:
        alike = span.type, span.name
        if alike in latest:
            found[span.id] = latest[alike]
        latest[alike] = span
    return found


def find_before_after(evidence: Evidence, span: SpanInfo) -> tuple[SpanInfo, SpanInfo]:
    """The span that holds a prompt as it was built, and the model call that sent it."""
    if span.type in MODEL_CALLS:
        before = _find_built(evidence, span)
        if before is not None:
            return before, span
    else:
        after = _find_sent(evidence, span)
        if after is not None:
            if span.input is not None:
                return span, after
            before = _find_built(evidence, after)
            if before is not None:
                return before, after
    raise NotFoundError(
        f"{span.short_id}: no prompt before and request after it (a step or prompt span with a body, "
        f"and a model call with one inside or beside it). See `vestige span {span.short_id}`."
    )


def _find_sent(evidence: Evidence, span: SpanInfo) -> SpanInfo | None:
    """The first model call inside, or else beside and after it."""
    inside = {span.id}
    beside = None
    after = False
    for other in evidence.run.spans:
        if other.id == span.id:
            after = True
        elif other.parent_id in inside:
            inside.add(other.id)
            if other.type in MODEL_CALLS and other.input is not None:
                return other
        elif (
            after
            and beside is None
            and other.parent_id == span.parent_id
            and other.type in MODEL_CALLS
            and other.input is not None
        ):
            beside = other
    return beside


def _find_built(evidence: Evidence, call: SpanInfo) -> SpanInfo | None:
    """The nearest prompt beside and before a model call, or else what it stands in."""
    beside = None
    for other in evidence.children.get(call.parent_id, []):
        if other.id == call.id:
            break
        if other.input is not None and other.type.startswith("prompt"):
            beside = other
    if beside is not None:
        return beside
    seen = {call.id}
    parent = evidence.spans.get(call.parent_id or "")
    while parent is not None and parent.id not in seen:
        if parent.input is not None and parent.type not in ("run", "process"):
            return parent
        seen.add(parent.id)
        parent = evidence.spans.get(parent.parent_id or "")
    return None
