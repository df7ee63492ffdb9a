"""Secrets known by their shape, and by the key beside them in a text."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import secret_corpus
from support.secret_corpus import Maker, make
from vestige.record.redaction.masking import MARK
from vestige.record.redaction.redactor import Redactor
from vestige.record.redaction.secret_patterns import LONG_TEXT, is_placeholder, move_start
from vestige.record.redaction.shapes.service_key_patterns import PROVIDERS, START

REDACTOR = Redactor()
FILL = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0"
HEX = "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9"

SHAPES = {
    rule: make(secret_corpus.SHAPES[rule][0], Maker(1))
    for rule in [
        "openai",
        "anthropic",
        "openrouter",
        "langfuse",
        "google",
        "google-oauth",
        "aws",
        "github",
        "gitlab",
        "slack",
        "stripe",
        "stripe-webhook",
        "huggingface",
        "groq",
        "xai",
        "replicate",
        "perplexity",
        "tavily",
        "npm",
        "pypi",
        "sendgrid",
        "twilio",
        "digitalocean",
        "linear",
        "notion",
        "databricks",
        "vestige",
        "vault",
        "jwt",
    ]
}
"""By rule: a secret of its shape."""
PEM = "\n".join(
    [
        "-----BEGIN RSA " + "PRIVATE KEY-----",
        FILL + FILL[:24],
        FILL,
        "-----END RSA " + "PRIVATE KEY-----",
    ]
)


@pytest.mark.parametrize("rule", SHAPES)
@pytest.mark.parametrize(
    "around", ["{}", "see {} there", '"{}"', "x={}&y", "\\n{}\\n", "(%20{})", "\x1b[31m{}\x1b[0m"]
)
def test_a_known_shape_is_masked_and_its_surroundings_stay(rule: str, around: str) -> None:
    secret = SHAPES[rule]
    counts: dict[str, int] = {}

    masked = REDACTOR.text(around.format(secret), counts)

    assert masked == around.format(secret[:3] + MARK + secret[-3:])
    assert counts == {rule: 1}


@pytest.mark.parametrize("rule", SHAPES)
def test_a_known_shape_is_masked_in_a_long_text(rule: str) -> None:
    """Hints of long texts are found in one pass, which must not miss one."""
    words = "the quick brown fox \u00fc \ud800 " * (LONG_TEXT // 16)
    secret = SHAPES[rule]
    counts: dict[str, int] = {}

    masked = REDACTOR.text(f"{words} {secret} {words}", counts)

    assert masked == f"{words} {secret[:3] + MARK + secret[-3:]} {words}"
    assert counts == {rule: 1}


@settings(max_examples=50)
@given(
    st.lists(
        st.sampled_from(
            ["a", "Z", "9", "_", "-", " ", "\\n", "\\u000a", "%3D", "\x1b[1m", "\x1b[31m", "x="]
        ),
        max_size=3,
    ).map("".join),
    st.sampled_from([row for row in PROVIDERS if row[2].startswith(START)]),
)
def test_an_expression_with_its_start_moved_matches_the_same(
    before: str, row: tuple[str, str, str]
) -> None:
    name, hints, expression = row[:3]
    samples = [SHAPES.get(name, ""), *(f"{hint}{FILL}{HEX}" for hint in hints.split())]
    for sample in samples:
        text = f"{before}{sample} {before}{sample}"
        spans = [match.span() for match in re.finditer(expression, text, re.ASCII)]
        moved = move_start(expression)
        assert [match.span() for match in re.finditer(moved, text, re.ASCII)] == spans


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\\n", "\\\\n", "\\r\\n"])
@pytest.mark.parametrize("end", [True, False])
def test_a_private_key_goes_whole_however_its_lines_are_joined(newline: str, end: bool) -> None:
    """Also when it was torn, and no END came."""
    block = PEM if end else PEM.rpartition("\n")[0]

    masked = REDACTOR.text(f'{{"a": 1, "k": "{block.replace(chr(10), newline)}"}}')

    assert masked.startswith(f'{{"a": 1, "k": "---{MARK}') and masked.endswith('"}')
    assert FILL[:20] not in masked


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ('{"password": "x", "b": 1}', '{"password": "…", "b": 1}'),
        (r'"{\"api_key\": \"x\"}" y', r'"{\"api_key\": \"…\"}" y'),
        (r"\\\"token\\\":\\\"x\\\",", r"\\\"token\\\":\\\"…\\\","),
        (r'{"password": "a\"b\\", "c": "d"}', r'{"password": "…", "c": "d"}'),
        ("{'secret': 'x', 'b': 'c'}", "{'secret': '…', 'b': 'c'}"),
        ('{"password": 1234}', '{"password": "…"}'),
        ('{"passwords": ["a", "b"], "c": ["d"]}', '{"passwords": ["…", "…"], "c": ["d"]}'),
        ('[["authorization", "x"], ["a", "b"]]', '[["authorization", "…"], ["a", "b"]]'),
        ("[(b'cookie', b'x')]", "[(b'cookie', b'…')]"),
        ('{"name": "API_KEY", "value": "x"}', '{"name": "API_KEY", "value": "…"}'),
        ('"cookies": {"sid": "x", "path": "/"}, "c"', '"cookies": {"sid": "…", "path": "/"}, "c"'),
        ("GET /a?token=x&b=c", "GET /a?token=…&b=c"),
        (r"a=b\u0026token=x\u0026c", r"a=b\u0026token=…\u0026c"),
        ("API_KEY=abc DEBUG=1", "API_KEY=… DEBUG=1"),
        (r'"A=1\ntoken=abc\nB=2"', r'"A=1\ntoken=…\nB=2"'),
        ("Server=h;Password=x;Db=d", "Server=h;Password=…;Db=d"),
        ("f(password='x', user='y')", "f(password='…', user='y')"),
        ('api_key = "x"', 'api_key = "…"'),
        ('os.environ["API_KEY"] = "x"', 'os.environ["API_KEY"] = "…"'),
        ("X-Api-Key: x\nAccept: y", "X-Api-Key: …\nAccept: y"),
        ("Authorization: Bearer x\nAccept: y", "Authorization: Bearer …\nAccept: y"),
        ("curl -H 'Cookie: a=b' http://h", "curl -H 'Cookie: …' http://h"),
        ("run --token value --fast", "run --token … --fast"),
        ("run --api-key=value", "run --api-key=…"),
        ('["--token", "x", "--fast"]', '["--token", "…", "--fast"]'),
        ("postgres://u:p@host/db", "postgres://u:…@host/db"),
        ("redis://:p@ss@host:1", "redis://:…@host:1"),
        ("u:pass@tcp(h:1)/db", "u:…@tcp(h:1)/db"),
        ("password: hunter2", "password: …"),
        ("clone https://x-access-token:abcd@h/a", "clone https://x-access-token:…@h/a"),
        ("İ PASSWORD=x", "İ PASSWORD=…"),
    ],
)
def test_a_value_beside_a_secrets_key_is_masked(text: str, masked: str) -> None:
    assert REDACTOR.text(text) == masked.replace("…", MARK)


def test_a_cookie_header_is_masked_to_the_end_of_its_line() -> None:
    """Quotes inside a cookie do not end it."""
    masked = REDACTOR.text('Cookie: first=1; second="two"; third=3\nHost: h')

    assert masked == f"Cookie: fir{MARK}d=3\nHost: h"


@pytest.mark.parametrize(
    "text",
    [
        "token = get_token()",
        "token=get_token()",
        "client(api_key=api_key, token=self.token)",
        'password=os.environ["X"]',
        "def login(password: str, token: Optional[str]) -> None",
        "the token: foo",
        "Enter the password: it is required",
        "token=${TOKEN} password=<password> secret={secret}",
        '{"password": "", "token": null, "secret": true}',
        '{"prompt_tokens":12,"max_tokens":100,"token":5,"tokens":"7"}',
        '{"token":"Hello","logprob":-0.1}',
        '"properties":{"password":{"type":"string"}},"required":["password","email"]',
        "Bearer authentication and Basic understanding",
        "sk-fading-circle-container task-management-system",
        "fill:var(--md-mermaid-edge-color2)",
        "http://localhost:8000/a@b https://host:80/x",
        "PWD=/home/me",
        "export TOKEN=$(cat file) x",
        "if password == other: pass",
        "-----BEGIN CERTIFICATE----- is not a key",
    ],
)
def test_prose_code_and_counters_are_left_alone(text: str) -> None:
    """An agent reads code and prose all day; only literals are secrets."""
    assert REDACTOR.text(text) == text


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["password", "api_key", "Authorization", "clientSecret"]),
    st.text(string.printable + "é…", min_size=1, max_size=30).filter(
        lambda value: len(set(value)) > 2 and not value.isspace()
    ),
    st.integers(0, 4),
)
def test_json_put_into_json_is_still_json_and_its_secret_gone(
    key: str, value: str, depth: int
) -> None:
    """At any depth of escaping, whatever is in the value, what is beside it stays."""
    import json

    secret = f"QQ{value}ZZ-{value}-QQ"
    text = json.dumps({"before": "b", key: secret, "after": ["a", 1]})
    for _ in range(depth):
        text = json.dumps({"inner": text})

    found = json.loads(REDACTOR.text(text))

    for _ in range(depth):
        found = json.loads(found["inner"])
    assert found["before"] == "b" and found["after"] == ["a", 1]
    assert MARK in found[key] and "ZZ" not in found[key]


HURTFUL = [
    *("sk-", "eyJ", "_eyJ", "://a:", "://a:b", "token=", '"token":"', "token='", '\\"token\\":\\"'),
    *("-----BEGIN PRIVATE " + "KEY-----", "Bearer ", "Basic a", "AKIA", "SG." + "a" * 20, ":\\"),
    *("Cookie: ", "--token ", '"passwords": [', "key-", "a", "\\", '"', "secret_", "@tcp(", ":a@"),
    *('"secrets": {"a": ', "1:AA", "%3D", "password: ", "sig=", '["authorization", '),
]


@pytest.mark.slow
@pytest.mark.parametrize("part", HURTFUL)
@pytest.mark.parametrize("size", [40_000, pytest.param(250_000, marks=pytest.mark.full)])
def test_a_long_text_made_to_hurt_is_read_in_linear_time(part: str, size: int) -> None:
    """Nothing here backtracks: quadratic work on this much text would take many minutes."""
    text = part * (size // len(part))

    REDACTOR.text(text)


def test_no_marker_reads_on_from_each_of_many_literals() -> None:
    """`eyJ[\\w-]{8,}\\.` read to the end of `eyJeyJ...` at each `eyJ`: 12 s for 250 kB."""
    from vestige.record.redaction.prefilter_markers import all_markers, key_marker

    markers = [*all_markers(), key_marker("social security number")]
    # These stop at the next occurrence of their own literal.
    stops = (rb"[^A-Za-z]*", rb"[0-9]*", rb'[^\s/"]*', rb"\\+", rb"\\*", rb"\.", rb"\+")

    for marker in markers:
        rest = marker.expression
        for stop in stops:
            rest = rest.replace(stop, b"")
        classes = re.sub(rb"\[[^]]*\]", b"", rest)
        assert marker.plain or not re.search(rb"[*+]|,\}", classes), marker


def test_a_text_without_a_separator_is_searched_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be split, and each search reads all of it."""
    sizes: list[int] = []
    find = Redactor.find
    monkeypatch.setattr(
        Redactor, "find", lambda self, text: (sizes.append(len(text)), find(self, text))[1]
    )
    text = "pass" + "word=" + "pass" + "word=x1" * 30_000

    assert MARK in Redactor().text(text)
    assert sum(sizes) < 4 * len(text)


@pytest.mark.parametrize(
    "text", ["__REDACTED__", "[REDACTED]", "redacted", "****", "${KEY}", "<token>"]
)
def test_what_only_stands_for_a_secret_stays(text: str) -> None:
    """Other tools' marks too: masked again they would count as secrets that were found."""
    assert is_placeholder(text)
