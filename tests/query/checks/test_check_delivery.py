"""Messages: once, in the right conversation, and with their cause."""

from __future__ import annotations

from typing import Any

import vestige
from support.planted_bugs import findings, recording
from vestige._runtime.clock import FakeClock
from vestige.collector.loop import catch_up
from vestige.emit.span import Span
from vestige.home import Home
from vestige.query.checks.progress import delivery
from vestige.recorder import Recorder

ALL = (
    delivery.duplicate_delivery,
    delivery.misrouted_delivery,
    delivery.delivery_without_enqueue,
    delivery.undelivered_message,
    delivery.unlinked_delivery,
)


def put(run: Span, target: str = "c-1", message_id: str = "m-1") -> Span:
    attributes = {"message_id": message_id, "target_conversation_id": target}
    span = run.child("put", "queue.enqueue", attributes)
    span.end()
    return span


def deliver(run: Span, cause: Span | None, message_id: str = "m-1", **attributes: Any) -> Span:
    span = run.child("deliver", "queue.deliver", {"message_id": message_id, **attributes})
    if cause is not None:
        span.add_link(cause, reason="enqueue")
    span.end()
    return span


def test_a_message_that_arrives_once_where_it_should_is_fine(home: Home) -> None:
    with recording(home, "c-1") as run:
        deliver(run, put(run))
        deliver(run, put(run, "c-2", "m-2"), "m-2", conversation_id="c-2")

    assert findings(home, *ALL) == []


def test_a_message_delivered_twice(home: Home) -> None:
    with recording(home, "c-1") as run:
        queued = put(run)
        first, second = deliver(run, queued), deliver(run, queued)

    (found,) = findings(home, *ALL)

    assert (found.kind, found.severity, found.cause) == ("delivery/twice", "error", second.id)
    assert found.evidence == [second.id, first.id, queued.id]
    assert "2 times" in found.message


def test_a_delivery_that_failed_and_was_tried_again_is_one(home: Home) -> None:
    with recording(home, "c-1") as run:
        queued = put(run)
        failed = run.child("deliver", "queue.deliver", {"message_id": "m-1"})
        failed.add_link(queued)
        failed.end(ConnectionError("gone"))
        deliver(run, queued)

    assert findings(home, *ALL) == []


def test_a_message_in_the_wrong_conversation(home: Home) -> None:
    with recording(home, "c-1") as run:
        queued = put(run, "c-2")
        wrong = deliver(run, queued, conversation_id="c-3")

    (found,) = findings(home, *ALL)

    assert (found.kind, found.cause) == ("delivery/wrong-conversation", wrong.id)
    assert found.evidence == [wrong.id, queued.id]
    assert "c-2" in found.message and "c-3" in found.message


def test_the_conversation_of_the_run_is_where_it_went(home: Home) -> None:
    """Enqueued elsewhere: the delivery carries where it should have gone."""
    with recording(home, "c-9") as run:
        wrong = run.child(
            "deliver", "queue.deliver", {"message_id": "m", "target_conversation_id": "c-1"}
        )
        wrong.add_link("00000000000000ff", "00000000-0000-4000-8000-0000000000ff", "enqueue")
        wrong.end()

    (found,) = findings(home, *ALL)

    assert (found.kind, found.cause) == ("delivery/wrong-conversation", wrong.id)


def test_a_message_that_nobody_sent(home: Home) -> None:
    with recording(home, "c-1") as run:
        span = deliver(run, None)

    (found,) = findings(home, *ALL)

    assert (found.kind, found.basis, found.cause) == ("delivery/no-enqueue", "hypothesis", span.id)


def test_a_message_that_never_arrives_is_a_hint(home: Home) -> None:
    with recording(home, "c-1") as run:
        span = put(run)

    (found,) = findings(home, *ALL)

    assert (found.kind, found.severity, found.cause) == ("delivery/never", "hint", span.id)


def test_a_delivery_without_a_link_is_a_hint(home: Home) -> None:
    with recording(home, "c-1") as run:
        queued = put(run)
        span = deliver(run, None)

    (found,) = findings(home, *ALL)

    assert (found.kind, found.severity, found.cause) == ("delivery/unlinked", "hint", span.id)
    assert queued.id in found.evidence


# --- turns are runs of their own ------------------------------------------------------------------


def check_last_run(home: Home, conversation_id: str) -> list[Any]:
    """Return what `check` finds about deliveries in the latest run of a conversation."""
    catch_up(home)
    with vestige.open(home.root) as debugger:
        run_id = debugger.resolve(conversation_id).run.id
        found = debugger.check(run_id).data()["findings"]
    return [each for each in found if each["kind"].startswith("delivery/")]


def record_turn(recorder: Recorder, conversation_id: str, cause: Span | None, **more: Any) -> Span:
    with recorder.run("turn", conversation_id) as run:
        return deliver(run, cause, **more)


def test_a_message_that_an_earlier_turn_delivered_is_a_duplicate(home: Home) -> None:
    with Recorder(home, crash_hooks=False, clock=FakeClock()) as recorder:
        with recorder.run("sender", "c-0") as sender:
            queued = put(sender)
        record_turn(recorder, "c-1", queued)
        second = record_turn(recorder, "c-1", queued)

    (found,) = check_last_run(home, "c-1")

    assert (found["kind"], found["severity"]) == ("delivery/twice", "error")
    assert found["cause"] == second.id and "run r3 of this conversation" in found["message"]


def test_turns_that_deliver_different_messages_are_fine(home: Home) -> None:
    with Recorder(home, crash_hooks=False, clock=FakeClock()) as recorder:
        with recorder.run("sender", "c-0") as sender:
            first, second = put(sender), put(sender, message_id="m-2")
        record_turn(recorder, "c-1", first)
        record_turn(recorder, "c-1", second, message_id="m-2")

    assert check_last_run(home, "c-1") == []


def test_a_message_that_was_sent_twice_may_arrive_in_two_turns(home: Home) -> None:
    with Recorder(home, crash_hooks=False, clock=FakeClock()) as recorder:
        with recorder.run("sender", "c-0") as sender:
            queued = [put(sender), put(sender)]
        for cause in queued:
            record_turn(recorder, "c-1", cause)

    assert check_last_run(home, "c-1") == []


def test_a_turn_of_another_conversation_than_the_sender_meant_is_found(home: Home) -> None:
    with Recorder(home, crash_hooks=False, clock=FakeClock()) as recorder:
        with recorder.run("sender", "c-0") as sender:
            queued = put(sender, "c-1")
        wrong = record_turn(recorder, "c-9", queued)

    (found,) = check_last_run(home, "c-9")

    assert (found["kind"], found["cause"]) == ("delivery/wrong-conversation", wrong.id)
    assert "c-1" in found["message"] and "c-9" in found["message"]
