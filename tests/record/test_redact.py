"""The central pass over records, texts, streams and command lines."""

from __future__ import annotations

import base64
import json
import os
import signal
import string
import tempfile
import threading
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_patterns import PEM, SHAPES

from vestige.limits import BODY_CHUNK, SECRET_LENGTH_MAX
from vestige.record.codec import encode, parse_line, render_line
from vestige.record.redaction.masking import MARK
from vestige.record.redaction.redactor import Redactor
from vestige.record.redaction.scan_engines import ENGINES
from vestige.record.types import BodyInfo, KnownRecord, Link, Log, SpanClose, SpanOpen
from vestige.recorder import Recorder

REDACTORS = {engine: Redactor(scanner=engine) for engine in ENGINES}
REDACTOR = REDACTORS["hyperscan"]
EXACT = Redactor()
"""Never asked for its scanner, so it looks closely at everything."""
CANARY = "QZ7canary9XQ"

secrets = st.sampled_from([*SHAPES.values(), PEM]) | st.text(
    string.ascii_letters + string.digits, min_size=4, max_size=20
).map(lambda fill: "sk-" + "proj-1" + fill * 5)


def log(message: str = "m", **fields: object) -> Log:
    return Log(1, "w", 1, 1, "r", "c", "info", message, **fields)  # type: ignore[arg-type]


def nest(text: str, depth: int) -> str:
    for _ in range(depth):
        text = json.dumps({"messages": [{"role": "user", "content": text}]})
    return text


PLACES = {
    "message": lambda text: log(f"failed with {text}"),
    "attribute value": lambda text: log(attributes={"a": text, "input_tokens": 7}),
    "attribute key": lambda text: log(attributes={text: 1}),
    "attribute by key": lambda text: log(attributes={"api_key": text}),
    "body": lambda text: log(body=f"before {text} after"),
    "nested": lambda text: log(body=nest(text, 3)),
    "nested by key": lambda text: log(body=nest(json.dumps({"password": text}), 2)),
    "base64 body": lambda text: log(
        body=base64.b64encode(b"\xff\x00" + text.encode()).decode(), body_info=BodyInfo("base64")
    ),
    "url": lambda text: log(f"GET https://h/p?token={quote(text, safe='')}&a=b"),
    "header": lambda text: log("Host: h\nX-Api-Key: " + text),
    "link": lambda text: SpanOpen(
        1, "w", 1, 1, "r", "s", "c", "tool", "n", links=[Link("t", reason=text)]
    ),
    "name": lambda text: SpanOpen(1, "w", 1, 1, "r", "s", "c", "tool", text),
    "traceback": lambda text: log(attributes={"error.stack": f"  File 'a'\nValueError: {text}\n"}),
    "extra": lambda text: log(extra={"new": [{"deep": text}], "token": text}),
}


def middle(secret: str) -> str:
    """A part that no mask may show, in a form that no escaping changes."""
    return max(secret[6:-6].replace("-", " ").replace("\n", " ").split(), key=len)[:12]


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
@settings(max_examples=40, deadline=None)
@given(secret=secrets)
def test_no_trace_of_a_secret_is_left_wherever_it_was_put(place: str, secret: str) -> None:
    """And every scanner asked for the slow path on that line."""
    record: KnownRecord = PLACES[place](secret)  # type: ignore[no-untyped-call]

    cleaned = REDACTOR.record(record)

    line = render_line(cleaned)
    body = getattr(cleaned, "body", None)
    if place == "base64 body":
        assert body and middle(secret).encode() not in base64.b64decode(body)
    assert middle(secret).encode() not in line
    assert MARK.encode() in line or place == "base64 body"
    assert cleaned.redacted
    for redactor in REDACTORS.values():
        assert redactor.suspicious(render_line(record))


fragments = st.sampled_from(
    [
        *(
            "token",
            "Token",
            "API_KEY",
            "password",
            "cookie",
            "pwd",
            "api",
            "key",
            "secret",
            "tokens",
        ),
        *(
            "=",
            ":",
            ": ",
            '"',
            "'",
            "\\",
            '\\"',
            "\n",
            " ",
            ",",
            "-",
            "--",
            "_",
            "n",
            "{",
            "[",
            "]",
        ),
        *("}", "://", "@", "u", "Bearer ", "Basic ", "x1", "a", "Z9", MARK, "é", "\x01", "…"),
        *(SHAPES["openai"], SHAPES["jwt"], SHAPES["aws"], PEM),
    ]
)
soup = st.lists(fragments, max_size=25).map("".join)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(key=soup, value=soup, message=soup)
def test_whatever_is_redacted_was_suspicious_to_every_scanner(
    key: str, value: str, message: str
) -> None:
    """The quick path must never let pass what the slow path would have masked."""
    record = log(message, attributes={key: value, "n": 1})

    changed = EXACT.record(record) != record

    if changed:
        for engine, redactor in REDACTORS.items():
            assert redactor.suspicious(encode((record,))), engine


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(soup)
def test_a_text_that_the_scanner_passes_is_as_if_looked_at_closely(text: str) -> None:
    """Of a suspicious record, the texts that are not are left alone."""
    exact = EXACT.text(text)

    for engine, redactor in REDACTORS.items():
        redactor.suspicious(b"")  # there is a scanner from now on
        assert redactor.text(text) == exact, engine


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.lists(soup, max_size=8))
def test_texts_that_are_clean_together_are_clean_each(texts: list[str]) -> None:
    """By a scanner and without one; a text beside others may not hide what it holds by itself."""
    dirty = [text for text in texts if EXACT.text(text) != text and not text.startswith("base64:")]

    assert not (dirty and EXACT.are_clean(texts))
    for engine, redactor in REDACTORS.items():
        redactor.suspicious(b"")  # there is a scanner from now on
        assert not (dirty and redactor.are_clean(texts)), engine


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(soup)
def test_redacting_twice_is_redacting_once(text: str) -> None:
    once = REDACTOR.text(text)

    assert REDACTOR.text(once) == once


def test_a_clean_record_stays_equal_and_uncounted() -> None:
    record = SpanClose(
        1, "w", 1, 1, "r", "s", "ok", 5, {"input_tokens": 5, "max_tokens": 7, "model": "m"}, "text"
    )

    assert REDACTOR.record(record) == record


def test_hits_are_counted_by_rule_and_added_to_what_was_counted_before() -> None:
    record = log("password=abc", attributes={"token": "t"}, redacted={"key:token": 1})

    assert REDACTOR.record(record).redacted == {"key:token": 2, "key:password": 1}


def test_a_number_under_a_password_is_masked_and_under_a_token_is_not() -> None:
    """A token that is a number is a count."""
    cleaned = REDACTOR.record(log(attributes={"password": 123456, "token": 5, "secret": True}))

    assert cleaned.attributes == {"password": MARK, "token": 5, "secret": True}


def test_two_keys_that_become_one_mask_both_keep_their_values() -> None:
    first = SHAPES["openai"]
    second = f"{first[:20]}zzz9{first[24:]}"

    cleaned = REDACTOR.record(log(attributes={first: 1, second: 2}))

    assert list(cleaned.attributes.values()) == [1, 2]


def test_fields_of_a_newer_version_are_redacted_too() -> None:
    line = b'{"kind":"log","v":2,"writer":"w","seq":1,"time_ns":1,"run_id":"r","component":"c",'
    line += b'"level":"info","message":"m","new":{"password":"hunter2"}}\n'
    record = parse_line(line)
    assert isinstance(record, Log)

    assert b"hunter2" not in render_line(REDACTOR.record(record))


# --- registered values ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=15, deadline=None)
@given(value=st.text(string.printable + "é", min_size=8, max_size=20), depth=st.integers(0, 2))
def test_a_registered_value_is_masked_in_every_form(engine: str, value: str, depth: int) -> None:
    """As it is, in JSON once to three times, in a URL, in base64 alone and inside something."""
    redactor = Redactor(scanner=engine)
    secret = CANARY + value
    redactor.add_secret(secret)
    coded = base64.b64encode(f"user:{secret}".encode()).decode()
    texts = [nest(f"a {secret} b", depth), f"?q={quote(secret, safe='')}", f"x {coded}"]

    for text in texts:
        record = log(body=text)
        assert redactor.suspicious(encode((record,)))
        assert MARK in (redactor.record(record).body or "")
        assert CANARY not in redactor.text(text) and coded[12:24] not in redactor.text(text)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_registered_value_may_be_as_long_as_a_certificate(engine: str) -> None:
    """An engine that refuses long expressions must not leave this or the next one unmasked."""
    long, short = "Zq4Xw9Tb2Lk8" * 1_500, "Hj8Qp2Wd6Kx1"
    redactor = Redactor(scanner=engine)
    line = encode((Log(1, "w", 1, 1, "r", "c", "info", f"it is {long} or {short}."),))
    assert not redactor.suspicious(line)

    redactor.add_secret(long)
    redactor.add_secret(short)

    assert redactor.suspicious(line)
    assert long[40:80] not in redactor.text(f"it is {long}.")
    assert short not in redactor.text(f"it is {short}.")


def test_a_value_of_three_characters_is_not_registered() -> None:
    redactor = Redactor()
    redactor.add_secret("abc")

    assert redactor.text("abc abcd") == "abc abcd"


def test_secrets_may_be_registered_while_others_scan() -> None:
    redactor = Redactor()
    failures: list[str] = []

    def work(number: int) -> None:
        for step in range(5):
            value = f"walrus-{number}-{step}-"
            redactor.add_secret(value)
            record = log(f"the {value} is here")
            if not redactor.suspicious(encode((record,))) or value in redactor.text(record.message):
                failures.append(value)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []


# --- added keys, switched off keys ------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_an_added_key_is_masked_in_attributes_and_text(engine: str) -> None:
    redactor = Redactor(scanner=engine, extra_keys=["employee_number"])
    record = log('{"employeeNumber": "12-345"}', attributes={"employee-number": "12-345"})

    assert redactor.suspicious(encode((record,)))
    assert b"12-345" not in encode((redactor.record(record),))


def test_without_key_rules_shapes_are_still_masked() -> None:
    redactor = Redactor(key_rules=False)
    record = log("password=abc " + SHAPES["openai"], attributes={"password": "abc"})

    cleaned = redactor.record(record)

    assert isinstance(cleaned, Log)
    assert cleaned.message.startswith("password=abc sk-") and MARK in cleaned.message
    assert cleaned.attributes == {"password": "abc"}


# --- streams --------------------------------------------------------------------------------

planted = st.sampled_from(
    [*SHAPES.values(), PEM, '"password": "abcdefgh"', "Cookie: a=b; c=d", "--token abc", "a.b"]
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(planted, st.integers(0, 9000)), max_size=16), st.integers(500, 30_000))
def test_a_text_in_pieces_is_redacted_as_the_whole(parts: list[tuple[str, int]], step: int) -> None:
    """Wherever the pieces were cut, a secret across two of them is masked the same."""
    text = "".join(f"{secret}\n{'lorem ipsum ' * (length // 12)}\n" for secret, length in parts)
    pieces = [text[start : start + step] for start in range(0, len(text), step)]
    counts: dict[str, int] = {}
    counts_whole: dict[str, int] = {}

    streamed = "".join(REDACTOR.stream(pieces, counts))

    assert streamed == REDACTOR.text(text, counts_whole)
    assert counts == counts_whole


def test_a_long_stream_is_passed_on_before_it_ends() -> None:
    """Memory stays near one step."""
    steps = 0

    def pieces():  # type: ignore[no-untyped-def]
        nonlocal steps
        for _ in range(4):
            steps += 1
            yield "word " * (BODY_CHUNK // 5)

    first = next(REDACTOR.stream(pieces()))

    assert steps == 1
    assert len(first) >= BODY_CHUNK - 3 * SECRET_LENGTH_MAX


# --- command lines --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "cleaned"),
    [
        (["run", "--token", "value", "--fast"], ["run", "--token", MARK, "--fast"]),
        (["--api-key=a b", "x"], [f"--api-key={MARK}", "x"]),
        (["DB_PASSWORD=a b", "x=y"], [f"DB_PASSWORD={MARK}", "x=y"]),
        (["-H", "Authorization: Bearer x"], ["-H", f"Authorization: Bearer {MARK}"]),
        (["--max-tokens", "100"], ["--max-tokens", "100"]),
        (["--token", "--fast"], ["--token", "--fast"]),
        (["psql", "postgres://u:p@h/d"], ["psql", f"postgres://u:{MARK}@h/d"]),
        (["curl", "-u", "me:swordfish", "h"], ["curl", "-u", f"me:s{MARK}h", "h"]),
        (["mysql", "-u", "me", "-pswordfish"], ["mysql", "-u", "me", f"-ps{MARK}h"]),
    ],
)
def test_a_command_line_keeps_its_shape_and_loses_its_secrets(
    arguments: list[str], cleaned: list[str]
) -> None:
    assert REDACTOR.argv(arguments) == cleaned


@pytest.mark.slow
def test_keys_can_be_added_while_it_is_in_use() -> None:
    redactor = Redactor()
    _ = redactor.suspicious
    text = '{"iban": "DE89370400440532013000"}'
    before = redactor.text(text)
    redactor.add_keys(["iban"])

    assert before == text
    assert redactor.suspicious(b'{"body":"{\\"iban\\": 1}"}')
    assert redactor.text(text) == '{"iban": "DE8…redacted…000"}'


def test_without_key_rules_shapes_and_registered_values_still_count() -> None:
    redactor = Redactor()
    redactor.add_secret("registered-value")
    plain = redactor.without_key_rules()

    assert plain.text('{"password": "correct-horse-battery"}') == (
        '{"password": "correct-horse-battery"}'
    )
    assert "registered-value" not in plain.text("a registered-value b")
    assert redactor.text('{"password": "correct-horse-battery"}') != plain.text(
        '{"password": "correct-horse-battery"}'
    )


def test_a_registered_secret_that_is_itself_written_as_base64_is_masked() -> None:
    """Some frameworks write their keys so: what it decodes to is not what was registered."""
    redactor = Redactor()
    secret = "base64:" + base64.b64encode(bytes(range(200, 232))).decode()
    redactor.add_secret(secret)

    assert redactor.text(secret) == "bas" + MARK + secret[-3:]


@pytest.mark.slow
def test_a_placeholder_of_any_length_is_passed_in_bounded_steps() -> None:
    """What is harmless so far is not held, and looked at again and again, until it ends."""
    redactor = Redactor()
    text = 'password="' + "*" * (16 * BODY_CHUNK)
    fed = 0

    def pieces() -> Iterator[str]:
        nonlocal fed
        for at in range(0, len(text), BODY_CHUNK):
            fed += BODY_CHUNK
            yield text[at : at + BODY_CHUNK]

    passed = held_max = 0
    parts = []
    for step in redactor.stream(pieces()):
        passed += len(step)
        held_max = max(held_max, fed - passed)
        parts.append(step)

    assert "".join(parts) == text
    assert held_max <= 6 * BODY_CHUNK
    assert len(parts) > 2


def test_a_text_that_says_base64_again_and_again_is_one_text() -> None:
    """A program may print anything: each of them must not be a call inside a call."""
    text = "base64:" * 5000 + " password=hunter2hunter2"

    assert EXACT.text("base64:" * 5000) == "base64:" * 5000
    assert "hunter2hunter2" not in EXACT.text(text)


def test_a_forked_child_registers_secrets_though_another_thread_was_about_to() -> None:
    """The lock was held by a thread that does not exist in the child."""
    with tempfile.TemporaryDirectory() as folder, Recorder(folder) as recorder:
        assert recorder.redactor is not None
        locked, done = threading.Event(), threading.Event()

        def hold(lock: threading.RLock) -> None:  # type: ignore[valid-type]  # a function to mypy
            with lock:  # type: ignore[attr-defined]  # a module-level name
                locked.set()
                done.wait()

        thread = threading.Thread(target=hold, args=(recorder.redactor._learning,))
        thread.start()
        locked.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(10)  # the end of one that waits for ever
            recorder.secret("a-secret-of-the-child")
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        done.set()
        thread.join()

    assert status == 0


@pytest.mark.parametrize(
    ("stored", "before", "after"),
    [
        (b"\x01\x02\xaf\x1b+\x8dPWd6=`1\xf1\xbbw\xc6\xd0aD\xf2\xfa\xb9Ap\xe1", b"", b""),
        (b"\x0f\x1f\xd4\x11C>JWT=\xe1\x93\xe2\xf0\xa7Bg\x1c\x9c\xca\xde\x0c", b"", b""),
        (b"", b"\x00\x01\xffpassword=correct-horse-battery", b"\x00\x07\xfe\xff rest"),
        (b"", b"password=h\xe4sslich-battery", b"\n"),
    ],
    ids=["three letters by chance", "and others", "a secret in a binary file", "Latin-1"],
)
def test_bytes_that_are_no_text_are_kept_and_a_secret_among_them_is_not(
    stored: bytes, before: bytes, after: bytes
) -> None:
    """A large image or archive has `pwd=` in it somewhere: that is not a key."""
    text = (stored + before + after).decode(errors="surrogateescape")

    masked = Redactor().text(text).encode(errors="surrogateescape")

    assert masked.startswith(stored) and masked.endswith(after)
    assert (masked == stored) if stored else b"battery" not in masked


def test_a_text_that_was_clean_is_searched_again_when_a_secret_is_registered() -> None:
    redactor = Redactor()
    text = "the password field of the form " * 20 + "Kx7-unknown-Value-93"

    before = redactor.text(text)
    again = redactor.text(text)
    redactor.add_secret("Kx7-unknown-Value-93")
    after = redactor.text(text)

    assert before is text and again is text
    assert "Kx7-unknown-Value-93" not in after
