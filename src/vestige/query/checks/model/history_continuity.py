"""Compare the history of a call with what came before it: its first messages, its tool results.

A history only grows. If its first messages are missing in the next call and no compaction explains
that, the model no longer sees its task. If two results are under each other's call ids, the model
reads each as the answer to the other call.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace

from vestige.query.checks import check, make_finding
from vestige.query.checks.model.history import ANNOUNCEMENT
from vestige.query.checks.requested_calls import (
    get_call_id,
    get_tool_name,
    latest_results,
    parse_json,
)
from vestige.query.checks.sent_requests import sent_calls
from vestige.query.evidence import Evidence
from vestige.query.formatting import pluralize, single_line
from vestige.record.finding import Finding
from vestige.record.run import SpanInfo

OVERLAP_MIN = 2
"""Messages that two histories must share to be one conversation."""

OPEN_MAX = 16
"""Conversations of one component that are followed at a time."""

FINDINGS_MAX = 5


@dataclass(frozen=True, slots=True)
class _History:
    """The messages of one request, as hashes."""

    span: SpanInfo
    system: int
    """The system prompt; 0 if there is none."""
    tools: frozenset[str]
    messages: tuple[int, ...]
    opening: str
    has_loss: bool = False
    """An earlier request of the conversation lost its first messages."""


@check(
    "history-head-loss",
    title="First messages of the conversation dropped",
    looks_at="messages of consecutive requests of one conversation, and compaction or repair "
    "spans between them",
    severity="warning",
    confidence=0.75,
    version=2,
    false_positives="a window over the last messages that is intended, without a span for it",
)
def history_head_loss(evidence: Evidence) -> Iterator[Finding]:
    announced = [
        place
        for place, span in enumerate(evidence.run.spans)
        if span.type in ("repair", "compaction") or ANNOUNCEMENT.search(span.name)
    ]
    found = 0
    for before, after, dropped in _find_losses(evidence):
        begin, end = evidence.places[before.span.id], evidence.places[after.span.id]
        if bisect_left(announced, begin) < bisect_left(announced, end) or found >= FINDINGS_MAX:
            continue
        found += 1
        yield make_finding(
            evidence,
            "history-head-loss",
            kind="history/head-lost",
            cause=after.span.id,
            evidence=[after.span.id, before.span.id],
            message=f"The {_describe_dropped(before, after, dropped)} of "
            f"{before.span.short_id} are missing in {after.span.short_id}, without a compaction. "
            f'The conversation began with "{single_line(before.opening, 80)}".',
            command=f"vestige diff {before.span.short_id} {after.span.short_id}",
        )


def _describe_dropped(before: _History, after: _History, dropped: int) -> str:
    system = "system prompt and the " if before.system and not after.system else ""
    return f"{system}first {pluralize(dropped, 'message')}"


def _find_losses(evidence: Evidence) -> Iterator[tuple[_History, _History, int]]:
    """Yield the first loss of each conversation: the calls, and the number of messages."""
    open_histories: dict[str, list[_History]] = {}
    for span in sent_calls(evidence):
        history = _read_history(evidence, span)
        if history is None:
            continue
        known = open_histories.setdefault(span.component, [])
        for earlier in reversed(known):
            if _continues(earlier, history):
                history = replace(history, has_loss=earlier.has_loss)
                known.remove(earlier)
                break
            dropped = _count_dropped(earlier, history)
            if dropped:
                history = replace(history, has_loss=True)
                known.remove(earlier)
                if not earlier.has_loss:
                    yield earlier, history, dropped
                break
        known.append(history)
        del known[:-OPEN_MAX]


def _read_history(evidence: Evidence, span: SpanInfo) -> _History | None:
    request = evidence.request(span)
    if request is None:
        return None
    messages: list[int] = []
    opening, system = "", 0
    for message in request.messages:
        if message.role == "system":
            system = hash((system, message.text))
            continue
        opening = opening or message.text[:200]
        calls = tuple((call.id, call.name, call.arguments) for call in message.calls)
        results = tuple((result.call_id, result.text) for result in message.results)
        messages.append(hash((message.role, message.text, calls, results)))
    tools = frozenset(tool.name for tool in request.tools)
    return _History(span, system, tools, tuple(messages), opening) if messages else None


def _continues(earlier: _History, later: _History) -> bool:
    return earlier.messages[:1] == later.messages[:1]


def _count_dropped(earlier: _History, later: _History) -> int:
    """Return how many first messages are missing, if the rest of the history goes on."""
    if earlier.system != later.system and (later.system or earlier.tools != later.tools):
        return 0  # another agent, which is given a part of the history
    old, new = earlier.messages, later.messages
    for dropped in range(1, len(old) - OVERLAP_MIN + 1):
        if old[dropped:] == new[: len(old) - dropped]:
            return dropped
    return 0


# --- swapped results ------------------------------------------------------------------------------


@check(
    "swapped-results",
    title="Tool results under each other's call ids",
    looks_at="outputs of tool spans, and the results with the same call ids in later requests",
    severity="error",
    confidence=0.95,
    false_positives="none known",
)
def swapped_results(evidence: Evidence) -> Iterator[Finding]:
    outputs = _outputs_by_call(evidence)
    sent: dict[str, dict[str, str]] = {}
    for model, result in latest_results(evidence):
        if result.call_id in outputs:
            sent.setdefault(model.id, {})[result.call_id] = _normalize(result.text)
    found = 0
    done: set[frozenset[str]] = set()
    for model_id, results in sent.items():
        wrong = {call_id: text for call_id, text in results.items() if outputs[call_id][1] != text}
        for call_id, text in wrong.items():
            other = next(
                (
                    each
                    for each in wrong
                    if outputs[each][1] == text and wrong[each] == outputs[call_id][1]
                ),
                None,
            )
            pair = frozenset([call_id, other or call_id])
            if other is None or pair in done or found >= FINDINGS_MAX:
                continue
            done.add(pair)
            found += 1
            yield _swapped_finding(evidence, model_id, outputs[call_id][0], outputs[other][0])


def _outputs_by_call(evidence: Evidence) -> dict[str, tuple[SpanInfo, str]]:
    """Return tool spans and their outputs by call id, if the id is of one span only."""
    found: dict[str, tuple[SpanInfo, str] | None] = {}
    for span in evidence.of_type("tool"):
        call_id, output = get_call_id(span), evidence.output(span)
        if call_id is None or output is None:
            continue
        found[call_id] = None if call_id in found else (span, _normalize(output))
    return {call_id: pair for call_id, pair in found.items() if pair is not None and pair[1]}


def _normalize(text: str) -> str:
    value = parse_json(text) if text[:1] == '"' else None
    return " ".join((value if isinstance(value, str) else text).split())


def _swapped_finding(
    evidence: Evidence, model_id: str, first: SpanInfo, second: SpanInfo
) -> Finding:
    model = evidence.spans[model_id]
    names = " and ".join(
        f"{single_line(get_tool_name(span), 40)} ({span.short_id})" for span in (first, second)
    )
    return make_finding(
        evidence,
        "swapped-results",
        kind="history/swapped-results",
        cause=model_id,
        evidence=[model_id, first.id, second.id],
        message=f"The results of {names} are under each other's call ids in the request of "
        f"{model.short_id}.",
        command=f"vestige body {model.short_id} --in",
    )
