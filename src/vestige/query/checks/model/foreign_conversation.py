"""Find messages in the wrong conversation, and messages that a conversation has twice.

An answer that is missing in its own conversation and occurs in another one was appended to the
wrong history. A `previous_response_id` of another user's response continues the wrong conversation.
A message that occurs twice was handled twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vestige.query.checks import check, make_finding
from vestige.query.checks.requested_calls import parse_json
from vestige.query.checks.sent_requests import sent_calls
from vestige.query.evidence import Evidence
from vestige.query.formatting import single_line
from vestige.record.finding import Finding
from vestige.record.run import SpanInfo

FINDINGS_MAX = 5

ANSWER_MIN = 20
"""Characters; two conversations may have the same short answer by chance."""

MESSAGE_MIN = 30
"""Characters; people do repeat short messages."""

REDELIVERY_MAX_NS = 2_000_000_000
"""Time from an answer to the repeated message: a person needs longer to send it again."""

_OWNER_KEYS = ("user", "safety_identifier")
"""Fields of a request that name the person whom it is for."""

_OWNER_WORDS = ("conversation", "session", "thread", "user", "tenant", "customer")
"""Words in keys of `metadata` that do."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """The opening of a conversation, and the answers in the history of one request."""

    span: SpanInfo
    opening: int
    answers: frozenset[str]


@check(
    "misrouted-answer",
    title="Answer in another conversation's history",
    looks_at="answers of model calls, and the assistant messages of later requests",
    severity="error",
    confidence=0.9,
    false_positives="an agent that is given an answer of another agent as its own, while that "
    "agent goes on without it",
)
def misrouted_answer(evidence: Evidence) -> Iterator[Finding]:
    turns = [turn for span in sent_calls(evidence) if (turn := _read_turn(evidence, span))]
    by_text: dict[str, list[_Turn]] = {}
    for turn in turns:
        response = evidence.response(turn.span)
        text = response.text.strip() if response is not None and not response.calls else ""
        if len(text) >= ANSWER_MIN:
            by_text.setdefault(text, []).append(turn)
    reported: set[str] = set()
    for turn in turns:
        for text in sorted(turn.answers & by_text.keys()):
            origins = by_text[text]
            if text in reported or len(origins) > 1 or origins[0].opening == turn.opening:
                continue
            if len(reported) >= FINDINGS_MAX or not _is_dropped(evidence, origins[0], text, turns):
                continue
            reported.add(text)
            yield make_finding(
                evidence,
                "misrouted-answer",
                kind="history/misrouted",
                cause=turn.span.id,
                evidence=[turn.span.id, origins[0].span.id],
                message=f"The answer of {origins[0].span.short_id} is in the history of "
                f"{turn.span.short_id}, which is another conversation, and is missing in its own: "
                f'"{single_line(text, 100)}".',
                command=f"vestige diff {origins[0].span.short_id} {turn.span.short_id}",
            )


def _read_turn(evidence: Evidence, span: SpanInfo) -> _Turn | None:
    request = evidence.request(span)
    if request is None:
        return None
    opening: list[tuple[str, str]] = []
    for message in request.messages:
        opening.append((message.role, message.text))
        if message.role == "user":
            break
    answers = (m.text.strip() for m in request.messages if m.role == "assistant" and not m.calls)
    return _Turn(span, hash(tuple(opening)), frozenset(filter(None, answers)))


def _is_dropped(evidence: Evidence, origin: _Turn, text: str, turns: list[_Turn]) -> bool:
    """Return whether the conversation of an answer goes on, and never has it."""
    ended_ns = origin.span.started_ns + (origin.span.duration_ns or 0)
    later = [
        turn
        for turn in turns
        if turn.opening == origin.opening and turn.span.started_ns >= ended_ns
    ]
    return bool(later) and all(text not in turn.answers for turn in later)


@check(
    "foreign-response",
    title="Request continues another user's conversation",
    looks_at="`previous_response_id` of requests, and the user, conversation and session that "
    "both requests name",
    severity="error",
    confidence=0.95,
    false_positives="a conversation that several users share on purpose",
)
def foreign_response(evidence: Evidence) -> Iterator[Finding]:
    requests: dict[str, tuple[SpanInfo, dict[str, Any]]] = {}
    found = 0
    for span in sent_calls(evidence):
        text = evidence.input(span) or ""
        body = parse_json(text) if _is_stateful(span, text) else None
        if not isinstance(body, dict):
            continue
        earlier = requests.get(str(body.get("previous_response_id")))
        key = _find_other_owner(earlier[1], body) if earlier is not None else None
        if earlier is not None and key is not None and found < FINDINGS_MAX:
            found += 1
            yield make_finding(
                evidence,
                "foreign-response",
                kind="history/foreign-response",
                cause=span.id,
                evidence=[span.id, earlier[0].id],
                message=f"The request continues the response of {earlier[0].short_id} "
                f"(previous_response_id), whose {key} is "
                f"{single_line(_owner_of(earlier[1])[key], 60)}, not "
                f"{single_line(_owner_of(body)[key], 60)}.",
                command=f"vestige diff {earlier[0].short_id} {span.short_id}",
            )
        response = parse_json(evidence.output(span) or "")
        if isinstance(response, dict) and isinstance(response.get("id"), str):
            requests[response["id"]] = span, body


def _is_stateful(span: SpanInfo, text: str) -> bool:
    return "previous_response_id" in text or str(span.attributes.get("url", "")).endswith(
        "/responses"
    )


def _owner_of(body: dict[str, Any]) -> dict[str, str]:
    """Return the fields of a request that name its user or conversation."""
    metadata = body.get("metadata")
    named = {key: body.get(key) for key in _OWNER_KEYS}
    for key, value in metadata.items() if isinstance(metadata, dict) else ():
        if any(word in str(key).casefold() for word in _OWNER_WORDS):
            named[f"metadata.{key}"] = value
    return {key: value for key, value in named.items() if isinstance(value, str) and value}


def _find_other_owner(earlier: dict[str, Any], later: dict[str, Any]) -> str | None:
    before, after = _owner_of(earlier), _owner_of(later)
    return next((key for key in before if key in after and before[key] != after[key]), None)


@check(
    "repeated-message",
    title="User message handled twice",
    looks_at="first user messages that occur a second time after an answer, in a request that "
    "followed the answer within 2 s",
    severity="warning",
    confidence=0.65,
    false_positives="a program that sends the question again to get a second answer",
)
def repeated_message(evidence: Evidence) -> Iterator[Finding]:
    answered: dict[tuple[str, str], SpanInfo] = {}
    reported: set[str] = set()
    for span in sent_calls(evidence):
        request = evidence.request(span)
        response = evidence.response(span)
        users = [m.text for m in request.messages if m.role == "user"] if request else []
        if request is None or not users or any(m.calls or m.results for m in request.messages):
            continue
        text = users[0]
        if len(users) == 1 and response is not None and response.text and not response.calls:
            answered[text, response.text.strip()] = span
        elif len(users) == 2 and users[1] == text and len(text) >= MESSAGE_MIN:
            answers = [m.text.strip() for m in request.messages if m.role == "assistant"]
            first = answered.get((text, answers[0])) if len(answers) == 1 else None
            if first is None or text in reported or len(reported) >= FINDINGS_MAX:
                continue
            if span.started_ns - first.started_ns - (first.duration_ns or 0) > REDELIVERY_MAX_NS:
                continue
            reported.add(text)
            yield make_finding(
                evidence,
                "repeated-message",
                kind="history/repeated-message",
                cause=span.id,
                evidence=[span.id, first.id],
                message=f"The user message that {first.short_id} answered is sent again in "
                f"{span.short_id}, as the next message of the same conversation: "
                f'"{single_line(text, 100)}".',
                command=f"vestige diff {first.short_id} {span.short_id}",
            )
