"""Values that a replay ignores, and the proposals that it makes for them."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from support.programs import run_in
from support.provider_answers import chat
from support.provider_server import Server
from vestige.errors import UsageError
from vestige.home import Home
from vestige.wire.replaying.matching_rules import find_unused, normalize, parse_rules
from vestige.wire.replaying.propose_rules import propose
from wire.test_replay import vestige_command

UUIDS = ("123e4567-e89b-12d3-a456-426614174000", "00000000-1111-4222-8333-444444444444")


def body(text: object, **more: Any) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": text}], **more}).encode()


def matches(before: bytes, after: bytes, *rules: str) -> bool:
    parsed = parse_rules(rules)
    return normalize(before, parsed) == normalize(after, parsed)


@pytest.mark.parametrize(
    ("rule", "before", "after"),
    [
        ("time", "Now: 2026-01-02T03:04:05.678Z", "Now: 2026-11-18T23:59:59.001Z"),
        ("time", "Today is 2026-01-02.", "Today is 2026-11-18."),
        ("time", "It is 9:05 am", "It is 11:45 PM"),
        ("time", "November 18, 2026 at 10:00", "Jan 2, 2027 at 9:00"),
        ("time", "at 1763438400 s", "at 1763438999 s"),
        ("uuid", f"session {UUIDS[0]}", f"session {UUIDS[1]}"),
        ("id", "call_8fk2LmQ9xZ", "call_Zx9Qm3Lkf8"),
        ("id", "chatcmpl-tool-1a2b3c4d", "chatcmpl-tool-9f8e7d6c"),
        ("time,uuid", f"9:05 am {UUIDS[0]}", f"11:45 PM {UUIDS[1]}"),
        ("/nonce=[0-9]+/", "nonce=1", "nonce=22"),
        ("messages[0].content", "a", "b"),
        ("messages[*].content", "a", "b"),
    ],
)
def test_ignored_values_do_not_count(rule: str, before: str, after: str) -> None:
    assert not matches(body(before), body(after))
    assert matches(body(before), body(after), rule)


@pytest.mark.parametrize("rule", ["time", "uuid", "id", "metadata.session"])
def test_other_values_still_count(rule: str) -> None:
    assert not matches(body("refund 120"), body("refund 20"), rule)


def test_a_value_that_is_missing_still_counts() -> None:
    assert not matches(body("Now: 2026-01-02"), body("Now: "), "time")


def test_a_body_that_is_not_json_is_compared_as_text() -> None:
    assert matches(b"at 2026-01-02 \xff", b"at 2026-11-18 \xff", "time", "a.b")


@pytest.mark.parametrize("rule", ["", "/(/", "a b", "[", "messages[x]"])
def test_an_invalid_rule_is_refused(rule: str) -> None:
    with pytest.raises(UsageError, match="--ignore"):
        parse_rules([rule])


def test_a_proposal_names_place_kind_and_rule() -> None:
    before = body("Today is 2026-01-02.", metadata={"session": UUIDS[0], "user": "u"})
    after = body("Today is 2026-11-18.", metadata={"session": UUIDS[1], "user": "u"})
    proposal = propose(before, after, [])

    assert proposal.rules == ["time", "uuid"]
    assert before[: proposal.offset] == after[: proposal.offset]
    assert before[proposal.offset] != after[proposal.offset]
    assert proposal.lines()[1:] == [
        "messages[0].content: '2026-01-02' → '2026-11-18' (looks like a time)",
        f"metadata.session: '{UUIDS[0]}' → '{UUIDS[1]}' (looks like a UUID)",
    ]


def test_one_text_may_need_several_rules() -> None:
    before = body(f"At 2026-01-02 for {UUIDS[0]}")
    after = body(f"At 2026-11-18 for {UUIDS[1]}")

    assert propose(before, after, []).rules == ["time", "uuid"]
    assert propose(before, after, parse_rules(["time"])).rules == ["uuid"]


def test_a_number_is_proposed_by_its_path() -> None:
    assert propose(body("a", seed=1), body("a", seed=2), []).rules == ["seed"]
    assert propose(body("a", at=1763438400), body("a", at=1763438999), []).rules == ["time"]


@pytest.mark.parametrize(
    "after",
    [body("refund 20"), body("refund 120", temperature=1), body(None), body(["refund 120"]), b"no"],
)
def test_another_question_is_never_proposed(after: bytes) -> None:
    proposal = propose(body("refund 120"), after, [])

    assert proposal.rules == []
    assert proposal.is_another_request
    assert len(proposal.lines()) >= 2


def test_a_path_that_a_request_does_not_have_is_named() -> None:
    """`uid` is a path, and probably a misspelt `uuid`."""
    rules = parse_rules(["uid", "uuid", "messages[*].content", "messages[3].content", "/x/"])

    assert find_unused(body("a"), rules) == ["uid", "messages[3].content"]
    assert find_unused(b"no JSON", rules) == []


AGENT = """
import sys, time, uuid, httpx
content = f"Session {uuid.uuid4()} at {time.time_ns()}"
body = {"model": "m", "messages": [{"role": "user", "content": content}]}
answer = httpx.post(sys.argv[1] + "/v1/chat/completions", json=body)
print(answer.status_code)
"""


@pytest.mark.slow
def test_a_replay_proposes_the_command_with_which_it_works(home: Home) -> None:
    """The proposed options are taken from the output and tried."""
    run = (sys.executable, "-m", "vestige", "run", "--", sys.executable)
    with Server(lambda _: chat()) as server:
        run_in(home, AGENT, server.url, command=run)
    program = str(home.root.parent / "program.py")
    command = ("--", sys.executable, program, server.url)
    first = vestige_command(home, "replay", "r1", *command)
    proposed = "vestige replay r1 --ignore time --ignore uuid -- "
    again = vestige_command(home, "replay", "r1", "--ignore", "time", "--ignore=uuid", *command)
    wrong = vestige_command(home, "replay", "r1", "--ignore", "a b", *command)
    other = vestige_command(
        home, "replay", "r1", "--until", "s3", "--ignore", "uid", *command[:3], server.url + "/v2"
    )

    assert first.stdout == "400\n"
    assert "replayed 0 of 1" in first.stderr
    assert f"To ignore it: {proposed}" in first.stderr
    assert (again.stdout, again.returncode) == ("200\n", 0), again.stderr
    assert "replayed 1 of 1" in again.stderr
    assert wrong.returncode == 2
    assert "not a rule" in wrong.stderr
    assert "--ignore uid: this request does not have it" in other.stderr


def test_items_in_another_order_are_named_and_never_proposed() -> None:
    """Parallel results that arrive in another order, and members that are written differently."""
    before = b'{"messages": [{"content": "a"}, {"content": "b"}]}'
    after = b'{"messages": [{"content": "b"}, {"content": "a"}]}'
    found = propose(before, after, [])
    written = propose(b'{"a": 1, "b": 2}', b'{"b": 2, "a": 1}', [])

    assert found.rules == []
    assert "messages: the same items in another order" in "\n".join(found.lines())
    assert written.rules == []
    assert "the same JSON, written differently" in "\n".join(written.lines())
