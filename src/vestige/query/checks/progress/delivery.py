"""Messages between conversations: enqueued, dequeued, delivered. Once, and in the right place.

A message is its `message_id`. Where it should go is its enqueue's `target_conversation_id`;
where it went is the deliver span's `conversation_id`, else the conversation of the run it is in.
"""

from __future__ import annotations

from collections.abc import Iterator

from vestige.query import formatting
from vestige.query.checks import check, make_finding
from vestige.query.evidence import Evidence
from vestige.record.finding import Finding
from vestige.record.run import SpanInfo

FINDINGS_MAX = 5

_TAKEN = ("queue.dequeue", "queue.deliver")


@check(
    "duplicate-delivery",
    title="A message was delivered twice",
    looks_at="queue.deliver spans of one message_id, against its queue.enqueue spans",
    severity="error",
    confidence=0.95,
    false_positives="a message that is meant for several receivers but was enqueued once",
)
def duplicate_delivery(evidence: Evidence) -> Iterator[Finding]:
    enqueued = _by_message(evidence, "queue.enqueue")
    found = 0
    for message_id, delivered in _by_message(evidence, "queue.deliver").items():
        arrived = [span for span in delivered if span.status in ("ok", None)]
        put = enqueued.get(message_id, [])
        allowed = max(1, len(put))
        if len(arrived) <= allowed or found >= FINDINGS_MAX:
            continue
        found += 1
        yield make_finding(
            evidence,
            "duplicate-delivery",
            kind="delivery/twice",
            cause=arrived[allowed].id,
            evidence=[span.id for span in (*arrived[allowed:], *arrived[:allowed], *put)][:10],
            message=f"message {_short(message_id)} was delivered {len(arrived)} times "
            f"and enqueued {formatting.pluralize(len(put), 'time') if put else 'elsewhere'}.",
        )


@check(
    "misrouted-delivery",
    title="A message arrived in another conversation than it was sent to",
    looks_at="target_conversation_id of queue.enqueue against the conversation of queue.deliver",
    severity="error",
    confidence=0.9,
    false_positives="a router that renames conversations; a deliver span recorded in the sender's run without its conversation_id",
)
def misrouted_delivery(evidence: Evidence) -> Iterator[Finding]:
    enqueued = _by_message(evidence, "queue.enqueue")
    targets = {
        message_id: {target for each in put if (target := _text(each, "target_conversation_id"))}
        for message_id, put in enqueued.items()
    }
    found = 0
    for span in evidence.of_type("queue.deliver"):
        put = enqueued.get(_message_id(span) or "", [])
        meant = targets.get(_message_id(span) or "", set())
        went, sure = _went_to(evidence, span, alone=not put)
        if not put and (target := _text(span, "target_conversation_id")):
            meant = {target}
        if not meant or went is None or went in meant or found >= FINDINGS_MAX:
            continue
        found += 1
        yield make_finding(
            evidence,
            "misrouted-delivery",
            kind="delivery/wrong-conversation",
            confidence=0.95 if sure else 0.7,
            cause=span.id,
            evidence=[span.id, *(each.id for each in put)][:10],
            message=f"message {_short(_message_id(span))} was sent to conversation "
            f"{', '.join(map(_short, sorted(meant)))} and delivered in {_short(went)}.",
        )


def _went_to(evidence: Evidence, span: SpanInfo, *, alone: bool) -> tuple[str | None, bool]:
    """The conversation that it reached, and whether the span itself says so."""
    own = _text(span, "conversation_id")
    if own is None and not alone:
        own = _text(span, "target_conversation_id")
    return (own, True) if own is not None else (evidence.run.info.conversation_id, alone)


@check(
    "delivery-without-enqueue",
    title="A message was delivered that nobody is known to have sent",
    looks_at="queue.deliver spans without an enqueue in this run, a link to one, or a dequeue that has one",
    severity="warning",
    confidence=0.5,
    false_positives="an enqueue in another run, or in a program that is not recorded, without a link to it",
)
def delivery_without_enqueue(evidence: Evidence) -> Iterator[Finding]:
    enqueued = _by_message(evidence, "queue.enqueue")
    dequeued = _by_message(evidence, "queue.dequeue")
    linked = _linked(evidence, dequeued)
    found = 0
    for span in evidence.of_type("queue.deliver"):
        message_id = _message_id(span)
        known = message_id in enqueued or message_id in linked or _causes(evidence, span)
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
            evidence=[each.id for each in chain][:10],
            message=f"message {_short(message_id)} was delivered, and no enqueue of it is in this "
            "run or linked to.",
        )


@check(
    "undelivered-message",
    title="A message was enqueued and never delivered",
    looks_at="queue.enqueue spans without a dequeue or deliver of the same message_id, in a run that is over",
    severity="hint",
    confidence=0.3,
    false_positives="a message that another run delivers, which is usual between conversations",
)
def undelivered_message(evidence: Evidence) -> Iterator[Finding]:
    if evidence.run.info.outcome == "running":
        return
    taken = {_message_id(span) for span in evidence.of_type(*_TAKEN)}
    left = [span for span in evidence.of_type("queue.enqueue") if _message_id(span) not in taken]
    if left:
        yield make_finding(
            evidence,
            "undelivered-message",
            kind="delivery/never",
            basis="hypothesis",
            cause=left[0].id,
            evidence=[span.id for span in left][:10],
            message=f"{formatting.pluralize(len(left), 'message')} enqueued and not delivered in this "
            f"run, the first {_short(_message_id(left[0]))}.",
        )


@check(
    "unlinked-delivery",
    title="A delivery does not say which enqueue caused it",
    looks_at="links of queue.deliver and queue.dequeue spans",
    severity="hint",
    confidence=0.9,
    false_positives="none for the missing link; the message may be right all the same",
)
def unlinked_delivery(evidence: Evidence) -> Iterator[Finding]:
    enqueued = _by_message(evidence, "queue.enqueue")
    linked = _linked(evidence, _by_message(evidence, "queue.dequeue"))
    unlinked = []
    for span in evidence.of_type("queue.deliver"):
        message_id = _message_id(span)
        if message_id in enqueued and message_id not in linked and not _causes(evidence, span):
            unlinked.append(span)
    if unlinked:
        first = unlinked[0]
        put = enqueued[_message_id(first) or ""]
        yield make_finding(
            evidence,
            "unlinked-delivery",
            kind="delivery/unlinked",
            cause=first.id,
            evidence=[span.id for span in (*unlinked, *put)][:10],
            message=f"{len(unlinked)} deliver spans without a link to their enqueue: call "
            "add_link(enqueue_span) when a message is delivered.",
        )


# --- small things -------------------------------------------------------------------------------


def _causes(evidence: Evidence, span: SpanInfo) -> bool:
    """Does it name what caused it? In another run any span may be the enqueue."""
    for link in evidence.links_of.get(span.id, ()):
        target = evidence.spans.get(link.target_span)
        if target is None or target.type in ("queue.enqueue", "queue.dequeue"):
            return True
    return False


def _linked(evidence: Evidence, dequeued: dict[str, list[SpanInfo]]) -> set[str]:
    """Messages of which a dequeue names what caused it."""
    return {
        message_id
        for message_id, spans in dequeued.items()
        if any(_causes(evidence, span) for span in spans)
    }


def _by_message(evidence: Evidence, type: str) -> dict[str, list[SpanInfo]]:
    found: dict[str, list[SpanInfo]] = {}
    for span in evidence.of_type(type):
        message_id = _message_id(span)
        if message_id is not None:
            found.setdefault(message_id, []).append(span)
    return found


def _message_id(span: SpanInfo) -> str | None:
    return _text(span, "message_id")


def _text(span: SpanInfo, name: str) -> str | None:
    """Some count their messages and conversations: a number is an id, too."""
    value = span.attributes.get(name)
    return None if value is None or value == "" else str(value)


def _short(text: str | None) -> str:
    return "without an id" if text is None else formatting.single_line(text, 60)
