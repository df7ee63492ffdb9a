"""Markers: bytes that every match of a rule leaves in an encoded journal line.

    for marker in all_markers(): ...

The scanner looks for markers in each line, and only a line with one is searched for secrets. A
literal alone would meet ordinary words: usage counters such as `prompt_tokens` are in every line
about a model. Such a marker has a stricter expression for what surrounds its literal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige._runtime.re_compat import re
from vestige.record.redaction.masking import (
    CODE_OWNERS,
    KEY_OWNERS,
    PAIR_GAPS,
    TOKEN_OWNERS,
    WORDS,
    words_of,
)


class Marker(msgspec.Struct, frozen=True, gc=False):
    """Bytes that a secret leaves in an encoded line."""

    literal: bytes
    """Lower case. Every match of the expression contains it. Empty if there is none."""
    expression: bytes
    spelled: bytes = b""
    """The literal in its own case, where that matters: random ids often contain `acca`."""
    plain: bool = False
    """True if the expression is the literal in any case, and nothing else."""
    common: bytes = b""
    """A literal of the expression that is too frequent to search for with all others."""


_WORDS = (
    *("passw", "passphrase", "passcode", "secret", "credential", "authorization", "cookie"),
    *("bearer", "connstr", "authtok", "mnemonic"),
    *sorted(word for word in WORDS if word.endswith("token") and word != "token"),
    "passwort",
)

# The characters that may precede a word, or a run of letters and digits. An escape (\\n,
# \\u001b) ends in a letter or digit, but a word may follow it.
_ESCAPE = rb"\\[bfnrt]|\\u[0-9A-Fa-f]{4}"
_BEFORE_WORD = rb"(?:^|[^A-Za-z]|" + _ESCAPE + rb")"
_BEFORE_STRETCH = rb"(?:^|[^A-Za-z0-9]|" + _ESCAPE + rb")"

_TOKEN = (rb"token[^a-z]", rb"Token[^a-z]", rb"TOKEN[^A-Za-z]", rb"TOKEN[A-Z][a-z]")
# Three letters occur in every image in base64, so these must be words of a key.
_JWT = (
    _BEFORE_WORD + rb"jwt[^a-z]",
    rb"Jwt[^a-z]",
    rb"(?:^|[^A-Z])JWT[^A-Za-z]",
    rb"JWT[A-Z][a-z]",
    _BEFORE_STRETCH + rb"[Jj][Ww][Tt][0-9]*[^A-Za-z0-9]",
)
_PWD = (
    # The last word of a key, or a complete stretch.
    rb"(?:" + _BEFORE_WORD + rb"pwd|(?:^|[^A-Z])PWD|Pwd)[^A-Za-z]*(?:[\"'\\:=\s]|$)",
    _BEFORE_STRETCH + rb"[Pp][Ww][Dd][0-9]*[^A-Za-z0-9]",
    # The end of several words written as one: dbpwd.
    rb"(?i)[a-z]pwd[0-9]*[\"'\\:=\s]",
)
_PSK = (rb"(?i)psk[\"'\\\s]{0,8}[:=]",)
# Keys that hold a secret only if their value looks like one (masking.doubtful_word).
_DOUBTFUL = (
    rb"(?i)(?:pass|pw|[_.-]pat|[_.-]key)(?:[_.-]data)?[0-9]{0,4}[\\\"']{0,8}[ \t]{0,8}[:=>][ "
    rb"\t]{0,8}[\\\"']{0,8}"
    rb"[^\s\"'\\,;&<>(){}]{4}"
)
_DOUBTFUL_LITERALS = (*(b"pass", b"pw", b"_pat", b"-pat", b".pat", b"_key", b"-key", b".key"),)
# The value is on a later line: a field of a form, `name: DB_PASS` above `value: x` in YAML.
_DOUBTFUL_LINES = (
    rb"(?i)(?:pass|pw|[_.-]pat|[_.-]key)[0-9]{0,4}[\\\"']{0,8}(?:\\{1,8}[rn]){1,4}"
    rb"[ \t]{0,32}[^\s\"'\\]{4}"
)
# The same keys in camel case: openaiKey.
_DOUBTFUL_CAMEL = (
    rb"[a-z0-9](?:Key|Pat)[\\\"']{0,8}[ \t]{0,8}[:=>][ \t]{0,8}[\\\"']{0,8}"
    rb"[^\s\"'\\,;&<>(){}]{4}"
)
_DOUBTFUL_CAMEL_LITERALS = tuple(
    end + sign for end in (b"Key", b"Pat") for sign in (b'"', b"\\", b"'", b"=", b":", b">", b" ")
)
# The key of a section: `[auth]` above `key = x`, `"jwt": {"key": "x"}`.
_SECTION_KEY = (
    rb"(?i)(?:api|auth|jwt|crypt|encryption|signing|totem)[\"'\\\]]{0,8}[ \t]{0,4}(?:=>|[:=])?"
    rb"[ \t]{0,4}"
    rb"(?:[\[{(]|\\{1,8}[rn])(?:[ \t]|\\{1,8}[rnt]){0,24}[\\\"']{0,8}key[\\\"']{0,8}[ \t]{0,4}"
    rb"(?:=>|[:=])"
)
_NESTED_KEY = rb"(?i)[\"']key\\{0,15}[\"'][ ]?:[ ]?\\{0,15}[\"'][a-z0-9+/_=-]{24}"
_QUOTED_MIN = 6
"""Characters of a percent-encoded literal: shorter ones are in every URL."""
_ARGUMENT_LIST = rb'",[ ]?\\{0,15}"-'
_CONTEXTS = ((b"token", _TOKEN), (b"jwt", _JWT), (b"psk", _PSK), (b"pwd", _PWD))


@cache
def all_markers() -> tuple[Marker, ...]:
    """Return the markers of all rules."""
    return tuple(_iter_markers())


def _iter_markers() -> Iterator[Marker]:
    # Not at import: the table of rules is only needed once there is a scanner.
    from vestige.record.redaction.secret_patterns import base64_fragments

    yield from map(literal_marker, _key_literals())
    for literal, expressions in _CONTEXTS:
        for expression in expressions:
            yield Marker(literal, expression)
    for literal in _DOUBTFUL_LITERALS:
        yield Marker(literal, _DOUBTFUL)
        yield Marker(literal, _DOUBTFUL_LINES)
    for literal in _DOUBTFUL_CAMEL_LITERALS:
        yield Marker(literal.lower(), _DOUBTFUL_CAMEL, literal)
    # The content of a body in base64 cannot be seen in the line, so it is always searched.
    yield Marker(b"key", _SECTION_KEY)
    yield Marker(b"key", _NESTED_KEY)
    yield literal_marker("-oauth")
    yield literal_marker('"encoding":"base64"')
    yield literal_marker('"base64:')
    # Percent-encoded signs: a colon, equals, at, a dollar. The text must be decoded to be searched.
    yield from map(literal_marker, ("%3a", "%3d", "%40", "%24"))
    # A list of arguments: ["curl", "-u", "me:x"].
    yield Marker(b'"-', _ARGUMENT_LIST)
    for fragment in base64_fragments():
        spelled = fragment.encode()
        yield Marker(spelled.lower(), re.escape(spelled), spelled)
    yield from _shape_markers()


def _key_literals() -> Iterator[str]:
    yield from _WORDS
    for gap in PAIR_GAPS:
        for owner in sorted(KEY_OWNERS):
            yield f"{owner}{gap}key"
        for owner in sorted(TOKEN_OWNERS):
            yield f"{owner}{gap}tokens"
        for owner in sorted(CODE_OWNERS):
            yield f"{owner}{gap}codes"
        yield f"connection{gap}string"
        for owner in ("pass", "recovery", "seed"):
            yield f"{owner}{gap}phrase"


def _shape_markers() -> Iterator[Marker]:
    from urllib.parse import quote

    from vestige.record.redaction.secret_patterns import RULES

    for rule in RULES:
        if not rule.hints:
            expression = (rule.marker or rule.expression).encode()
            yield Marker(b"", expression, common=rule.common.encode())
        for hint in rule.hints:
            if (quoted := quote(hint, safe="")) != hint and len(quoted) >= _QUOTED_MIN:
                yield literal_marker(quoted)
            if rule.marker:
                spelled = "" if rule.marker.startswith("(?i)") else hint
                yield Marker(hint.lower().encode(), rule.marker.encode(), spelled.encode())
            else:
                yield literal_marker(hint)


def literal_marker(text: str | bytes) -> Marker:
    """Return a marker that is only a literal, in any case."""
    literal = (text.encode() if isinstance(text, str) else text).lower()
    # Most are one word, and `escape` takes longer than everything else here.
    escaped = literal if literal.isalnum() else re.escape(literal)
    return Marker(literal, b"(?i)" + escaped, plain=True)


def key_marker(key: str) -> Marker:
    """Return the marker of a key that a user added. Anything may be between its words."""
    words = [re.escape(word.encode()) for word in words_of(key)]
    # A limit, because a search to the end of the line at each first word takes quadratic time.
    return Marker(words_of(key)[0].encode(), b"(?i)" + b".{0,256}?".join(words))


def literals(markers: Iterable[Marker]) -> dict[tuple[bytes, bool], list[Marker]]:
    """Group the markers by literal, and by whether its case is ignored.

    A line without any of these literals has no marker, except a marker without a literal."""
    found: dict[tuple[bytes, bool], list[Marker]] = {}
    for marker in markers:
        if marker.literal:
            key = (marker.spelled or marker.literal, not marker.spelled)
            found.setdefault(key, []).append(marker)
    return found
