"""The `diff` command: choose the two runs or spans to compare.

    diff_answer(store, target_a, target_b)           # two runs, or two spans
    diff_answer(store, target, prev=True)            # the previous one of the same type and name
    diff_answer(store, target, before_after=True)    # a prompt as built, and as sent
    diff_answer(store, target, vs_good=True)         # the last successful run of the same task

Elsewhere: runs are compared in query/diff/run_diff.py, spans in query/diff/span_diff.py,
bodies in query/diff/body_diff.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Protocol

from vestige.errors import NotFoundError, UsageError
from vestige.query import formatting
from vestige.query.diff.run_diff import diff_runs
from vestige.query.diff.side_by_side import MODEL_CALLS
from vestige.query.diff.span_diff import DiffAnswer, diff_spans, format_label
from vestige.query.evidence import Evidence, open_run
from vestige.query.search.last_good_run import find_last_good
from vestige.record.run import RunInfo, SpanInfo
from vestige.store.protocol import Store

__all__ = ["DiffAnswer", "Target", "diff_answer", "diff_runs", "diff_spans", "find_before_after"]

OpenRun = Callable[[str], Evidence]


class Target(Protocol):
    """A run, or one of its spans, that an id resolved to."""

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
    load: OpenRun | None = None,
) -> DiffAnswer:
    """Compare two targets, of which the second may be found by an option.

    `load` opens a run by its id, for callers that cache open runs.
    """
    if [target_b is not None, prev, before_after, vs_good].count(True) != 1:
        raise UsageError(
            "diff: give two ids, or one id and one of --prev, --before-after, --vs-good."
        )
    load = cache(load or partial(open_run, store))
    a = load(target_a.run.id)
    if target_b is not None:
        return _diff_targets(a, target_a, load(target_b.run.id), target_b, ignore)
    if before_after:
        before, after = find_before_after(a, _get_span(a, target_a.span_id))
        command = f"vestige diff {after.short_id} --before-after"
        return diff_spans(a, before, a, after, ignore, command=command, inputs_only=True)
    if prev and target_a.span_id is not None:
        span = _get_span(a, target_a.span_id)
        b, previous = _find_previous(store, load, a, span)
        command = f"vestige diff {span.short_id} --prev"
        return diff_spans(b, previous, a, span, ignore, command=command)
    return diff_runs(load(_find_baseline(store, load, a, prev=prev)), a, ignore)


def _find_baseline(store: Store, load: OpenRun, evidence: Evidence, *, prev: bool) -> str:
    """Return the id of the previous run, or of the last successful run of the same task."""
    run = evidence.run.info
    if prev:
        baseline = store.find_previous_run(run.id)
    else:
        good = find_last_good(store, evidence, load)
        baseline = None if good is None else good.id
    if baseline is None:
        name = formatting.single_line(run.name, 60)
        expected = (
            f"earlier run of its conversation or named {name!r}"
            if prev
            else f"successful run named {name!r} with the same task"
        )
        raise NotFoundError(f"{run.short_id}: no {expected}. See `vestige list`.")
    return baseline


def _diff_targets(
    a: Evidence, target_a: Target, b: Evidence, target_b: Target, ignore: Sequence[str]
) -> DiffAnswer:
    if (target_a.span_id is None) != (target_b.span_id is None):
        run, span = (target_a, target_b) if target_a.span_id is None else (target_b, target_a)
        span_id = formatting.single_line(str(span.span_id), 40)
        raise UsageError(
            f"diff: {run.run.short_id} is a run and {span_id} a span. Give two runs or two spans."
        )
    if target_a.span_id is None:
        return diff_runs(a, b, ignore)
    return diff_spans(a, _get_span(a, target_a.span_id), b, _get_span(b, target_b.span_id), ignore)


def _get_span(evidence: Evidence, span_id: str | None) -> SpanInfo:
    if span_id is None:
        if evidence.root is not None:
            return evidence.root
        raise UsageError(f"diff: {evidence.run.info.short_id} is a run. Give a span of it.")
    found = evidence.spans.get(span_id)
    if found is None:
        raise NotFoundError(
            f"{formatting.single_line(span_id, 40)}: not found in {evidence.run.info.short_id}. "
            f"See `vestige show {evidence.run.info.short_id}`."
        )
    return found


def _find_previous(
    store: Store, load: OpenRun, evidence: Evidence, span: SpanInfo
) -> tuple[Evidence, SpanInfo]:
    """Return the previous span of the same type and name, in the run or its conversation."""
    previous = evidence.once(_previous_spans).get(span.id)
    if previous is not None:
        return evidence, previous
    found = store.find_previous_span(evidence.run.info.id, span.type, span.name)
    if found is None:
        raise NotFoundError(
            f"{span.short_id}: no earlier {format_label(span)} in its run or conversation. "
            f"See `vestige show {evidence.run.info.short_id}`."
        )
    run_id, span_id = found
    earlier_run = load(run_id)
    return earlier_run, earlier_run.spans[span_id]


def _previous_spans(evidence: Evidence) -> dict[str, SpanInfo]:
    """Return, by span id, the previous span of the same type and name."""
    latest: dict[tuple[str, str], SpanInfo] = {}
    previous: dict[str, SpanInfo] = {}
    for span in evidence.run.spans:
        key = span.type, span.name
        if key in latest:
            previous[span.id] = latest[key]
        latest[key] = span
    return previous


def find_before_after(evidence: Evidence, span: SpanInfo) -> tuple[SpanInfo, SpanInfo]:
    """Return the span that holds a prompt as built, and the model call that sent it."""
    if span.type in MODEL_CALLS:
        prompt = _find_prompt(evidence, span)
        if prompt is not None:
            return prompt, span
    else:
        call = _find_model_call(evidence, span)
        if call is not None:
            prompt = span if span.input is not None else _find_prompt(evidence, call)
            if prompt is not None:
                return prompt, call
    raise NotFoundError(
        f"{span.short_id}: no prompt and request to compare (expected a step or prompt span with "
        "a body, and a model call with a body inside it or among its siblings). "
        f"See `vestige span {span.short_id}`."
    )


def _find_model_call(evidence: Evidence, span: SpanInfo) -> SpanInfo | None:
    """Return the first model call inside the span, else the first later sibling."""
    inside = {span.id}
    sibling = None
    after = False
    for candidate in evidence.run.spans:
        is_call = candidate.type in MODEL_CALLS and candidate.input is not None
        if candidate.id == span.id:
            after = True
        elif candidate.parent_id in inside:
            inside.add(candidate.id)
            if is_call:
                return candidate
        elif after and sibling is None and candidate.parent_id == span.parent_id and is_call:
            sibling = candidate
    return sibling


def _find_prompt(evidence: Evidence, call: SpanInfo) -> SpanInfo | None:
    """Return the nearest earlier prompt among the siblings, else an ancestor with a body."""
    sibling = None
    for candidate in evidence.children.get(call.parent_id, []):
        if candidate.id == call.id:
            break
        if candidate.input is not None and candidate.type.startswith("prompt"):
            sibling = candidate
    if sibling is not None:
        return sibling
    seen = {call.id}
    parent = evidence.spans.get(call.parent_id or "")
    while parent is not None and parent.id not in seen:
        if parent.input is not None and parent.type not in ("run", "process"):
            return parent
        seen.add(parent.id)
        parent = evidence.spans.get(parent.parent_id or "")
    return None
