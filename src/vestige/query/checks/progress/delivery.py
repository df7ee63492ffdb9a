"""Check that messages between conversations are delivered once, to the right conversation.

A `message_id` identifies a message. Its target is the `target_conversation_id` of the enqueue span.
It is delivered to the `conversation_id` of the deliver span, or else to the run's conversation.
A turn is a run of its own, so the earlier runs of the conversation and the runs that a delivery
links to are read, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from vestige.query import formatting
from vestige.query.checks import check, make_finding
from vestige.query.evidence import Evidence
from vestige.record.finding import Finding
from vestige.record.run import SpanInfo

FINDINGS_MAX = 5

_RECEIVED = ("queue.dequeue", "queue.deliver")


@check(
    "duplicate-delivery",
    title="Message delivered twice",
    looks_at="queue.deliver and queue.enqueue spans of one message_id, in this run and in earlier "
    "runs of its conversation",
    severity="error",
    confidence=0.95,
    false_positives="a message for several receivers that was enqueued once",
    version=2,
)
def duplicate_delivery(evidence: Evidence) -> Iterator[Finding]:
    enqueued = _by_message(evidence, "queue.enqueue")
    found = 0
    for message_id, delivered in _by_message(evidence, "queue.deliver").items():
        arrived = [span for span in delivered if span.status in ("ok", None)]
        sent = enqueued.get(message_id, [])
        allowed = max(1, len(sent))
        if len(arrived) <= allowed or found >= FINDINGS_MAX:
            continue
        found += 1
        yield make_finding(
            evidence,
            "duplicate-delivery",
            kind="delivery/twice",
            cause=arrived[allowed].id,
            evidence=[span.id for span in (*arrived[allowed:], *arrived[:allowed], *sent)][:10],
            message=f"Message {_short(message_id)} was delivered {len(arrived)} times, but "
            f"enqueued {formatting.pluralize(len(sent), 'time') if sent else 'elsewhere'}.",
        )
    yield from _delivered_before(evidence, enqueued)


def _delivered_before(evidence: Evidence, enqueued: dict[str, list[SpanInfo]]) -> Iterator[Finding]:
    """Yield messages that an earlier run of the conversation delivered already."""
    others = evidence.once(_read_other_runs)
    found = 0
    for message_id, spans in _by_message(evidence, "queue.deliver").items():
        arrived = [span for span in spans if span.status in ("ok", None)]
        before = others.delivered.get(message_id, [])
        sent = len(enqueued.get(message_id, [])) + others.enqueued.get(message_id, 0)
        if not arrived or len(before) < max(1, sent) or found >= FINDINGS_MAX:
            continue
        found += 1
        yield make_finding(
            evidence,
            "duplicate-delivery",
            kind="delivery/twice",
            cause=arrived[0].id,
            evidence=[span.id for span in arrived][:10],
            message=f"Message {_short(message_id)} was delivered again: run {before[-1]} of this "
            "conversation had delivered it.",
            command=f"vestige show {before[-1]}",
        )


@check(
    "misrouted-delivery",
    title="Message delivered to the wrong conversation",
    looks_at="target_conversation_id of queue.enqueue, and the conversation of queue.deliver",
    severity="error",
    confidence=0.9,
    false_positives="a router that renames conversations; a deliver span in the sender's run "
    "without a conversation_id",
    version=2,
)
def misrouted_delivery(evidence: Evidence) -> Iterator[Finding]:
    enqueued = _by_message(evidence, "queue.enqueue")
    targets = {
        message_id: {target for span in sent if (target := _text(span, "target_conversation_id"))}
        for message_id, sent in enqueued.items()
    }
    found = 0
    for span in evidence.of_type("queue.deliver"):
        sent = enqueued.get(_message_id(span) or "", [])
        expected = targets.get(_message_id(span) or "", set())
        actual, sure = _find_destination(evidence, span, has_enqueue=bool(sent))
        if not sent and (target := _text(span, "target_conversation_id")):
            expected = {target}
        elif not sent:
            expected = evidence.once(_read_other_runs).targets.get(_message_id(span) or "", set())
        if not expected or actual is None or actual in expected or found >= FINDINGS_MAX:
            continue
        found += 1
        yield make_finding(
            evidence,
            "misrouted-delivery",
            kind="delivery/wrong-conversation",
            confidence=0.95 if sure else 0.7,
            cause=span.id,
            evidence=[span.id, *(enqueue.id for enqueue in sent)][:10],
            message=f"Message {_short(_message_id(span))} was sent to conversation "
            f"{', '.join(map(_short, sorted(expected)))}, but delivered to {_short(actual)}.",
        )


def _find_destination(
    evidence: Evidence, span: SpanInfo, *, has_enqueue: bool
) -> tuple[str | None, bool]:
    """Return the conversation that a message reached, and whether that is certain."""
    own = _text(span, "conversation_id")
    if own is None and has_enqueue:
        own = _text(span, "target_conversation_id")
    return (own, True) if own is not None else (evidence.run.info.conversation_id, not has_enqueue)


@check(
    "delivery-without-enqueue",
    title="Message delivered without an enqueue",
    looks_at="queue.deliver spans without an enqueue in this run, a link to one, or a dequeue with "
    "such a link",
    severity="warning",
    confidence=0.5,
    false_positives="an enqueue in another run or in a program that is not recorded, without a "
    "link to it",
)
def delivery_without_enqueue(evidence: Evidence) -> Iterator[Finding]:
    enqueued = _by_message(evidence, "queue.enqueue")
    dequeued = _by_message(evidence, "queue.dequeue")
    linked = _linked(evidence, dequeued)
    found = 0
    for span in evidence.of_type("queue.deliver"):
        message_id = _message_id(span)
        known = message_id in enqueued or message_id in linked or _has_cause(evidence, span)
        if known or found >= FINDINGS_MAX:
            continue
        found += 1
        chain = [span, *dequeued.get(message_id or "", [])]
        yield make_finding(
            evidence,
            "delivery-without-enqueue",
            kind="delivery/no-enqueue",
            basis="hypothesis",
            cause=span.id,
            evidence=[span.id for span in chain][:10],
            message=f"Message {_short(message_id)} was delivered, but this run has neither its "
            "enqueue span nor a link to it.",
        )


@check(
    "undelivered-message",
    title="Message never delivered",
    looks_at="queue.enqueue spans without a dequeue or deliver span of the same message_id, in a "
    "finished run",
    severity="hint",
    confidence=0.3,
    false_positives="a message that another run delivers, which is common between conversations",
)
def undelivered_message(evidence: Evidence) -> Iterator[Finding]:
    if evidence.run.info.outcome == "running":
        return
    received = {_message_id(span) for span in evidence.of_type(*_RECEIVED)}
    enqueued = evidence.of_type("queue.enqueue")
    undelivered = [span for span in enqueued if _message_id(span) not in received]
    if undelivered:
        yield make_finding(
            evidence,
            "undelivered-message",
            kind="delivery/never",
            basis="hypothesis",
            cause=undelivered[0].id,
            evidence=[span.id for span in undelivered][:10],
            message=f"{formatting.pluralize(len(undelivered), 'message')} enqueued, but not "
            f"delivered in this run, first {_short(_message_id(undelivered[0]))}.",
        )


@check(
    "unlinked-delivery",
    title="Delivery without a link",
    looks_at="links of queue.deliver and queue.dequeue spans",
    severity="hint",
    confidence=0.9,
    false_positives="none; a message without a link may still be correct",
)
def unlinked_delivery(evidence: Evidence) -> Iterator[Finding]:
    enqueued = _by_message(evidence, "queue.enqueue")
    linked = _linked(evidence, _by_message(evidence, "queue.dequeue"))
    unlinked = []
    for span in evidence.of_type("queue.deliver"):
        message_id = _message_id(span)
        if message_id in enqueued and message_id not in linked and not _has_cause(evidence, span):
            unlinked.append(span)
    if unlinked:
        first = unlinked[0]
        sent = enqueued[_message_id(first) or ""]
        yield make_finding(
            evidence,
            "unlinked-delivery",
            kind="delivery/unlinked",
            cause=first.id,
            evidence=[span.id for span in (*unlinked, *sent)][:10],
            message=f"{formatting.pluralize(len(unlinked), 'deliver span')} without a link to the "
            "enqueue span. Call add_link(enqueue_span) when a message is delivered.",
        )


# --- other runs -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _OtherRuns:
    """Messages of the earlier runs of the conversation, and of the runs that deliveries link to."""

    delivered: dict[str, list[str]] = field(default_factory=dict)
    """Short ids of the runs of this conversation that delivered a message."""
    enqueued: Counter[str] = field(default_factory=Counter)
    targets: dict[str, set[str]] = field(default_factory=dict)
    """Conversations that a message was sent to."""


def _read_other_runs(evidence: Evidence) -> _OtherRuns:
    found = _OtherRuns()
    deliveries = evidence.of_type(*_RECEIVED)
    if not deliveries:
        return found
    own = evidence.run.info
    earlier = {
        run.id: run.short_id
        for run in evidence.conversation
        if run.id != own.id and run.started_ns <= own.started_ns
    }
    linked = {
        link.target_run: None
        for span in deliveries
        for link in evidence.links_of.get(span.id, ())
        if link.target_run not in (None, own.id)
    }
    # The latest runs first: a bounded number of them is read.
    run_ids = [run_id for run_id in (*linked, *reversed(earlier)) if run_id]
    for span in evidence.facts_of(list(dict.fromkeys(run_ids))):
        message_id = _attribute_text(span.attributes, "message_id")
        if message_id is None:
            continue
        if span.type == "queue.enqueue":
            found.enqueued[message_id] += 1
            if target := _attribute_text(span.attributes, "target_conversation_id"):
                found.targets.setdefault(message_id, set()).add(target)
        elif span.type == "queue.deliver" and span.status in ("ok", None):
            elsewhere = _attribute_text(span.attributes, "conversation_id")
            if span.run_id in earlier and elsewhere in (None, own.conversation_id):
                found.delivered.setdefault(message_id, []).append(earlier[span.run_id])
    return found


# --- helpers ------------------------------------------------------------------------------------


def _has_cause(evidence: Evidence, span: SpanInfo) -> bool:
    """Return whether a span links to its enqueue or dequeue, or to a span of another run."""
    for link in evidence.links_of.get(span.id, ()):
        target = evidence.spans.get(link.target_span)
        if target is None or target.type in ("queue.enqueue", "queue.dequeue"):
            return True
    return False


def _linked(evidence: Evidence, dequeued: dict[str, list[SpanInfo]]) -> set[str]:
    """Return the ids of messages with a dequeue span that links to its cause."""
    return {
        message_id
        for message_id, spans in dequeued.items()
        if any(_has_cause(evidence, span) for span in spans)
    }


def _by_message(evidence: Evidence, type: str) -> dict[str, list[SpanInfo]]:
    spans: dict[str, list[SpanInfo]] = {}
    for span in evidence.of_type(type):
        message_id = _message_id(span)
        if message_id is not None:
            spans.setdefault(message_id, []).append(span)
    return spans


def _message_id(span: SpanInfo) -> str | None:
    return _text(span, "message_id")


def _text(span: SpanInfo, name: str) -> str | None:
    return _attribute_text(span.attributes, name)


def _attribute_text(attributes: Mapping[str, Any], name: str) -> str | None:
    """Return an attribute as text. Some programs use numbers as ids."""
    value = attributes.get(name)
    return None if value is None or value == "" else str(value)


def _short(text: str | None) -> str:
    return "without an id" if text is None else formatting.single_line(text, 60)
