"""Headers and URLs as they may be written: secrets masked, and told to the recorder.

A header's value is a secret when its name says so (record/redaction/masking.py): `Authorization`, `x-api-key`,
`api-key`, `x-goog-api-key`, cookies. It is written as a mask, and the recorder is told the value, so
that it is masked wherever else it appears.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from vestige.record.redaction.masking import MARK, is_secret_key, mask

Headers = Iterable[tuple[str, str]]

_QUERY_SECRETS = frozenset({"key", "sig", "signature", "code", "x-amz-signature"})
"""Names that hold a secret in a query string and not elsewhere: Google's `?key=`, signed URLs."""

_LEARN_MIN = 8
_LEARN_PLAIN_MIN = 20
"""Characters. Local servers are given `EMPTY`, `ollama` or `not-needed` as a key: masking such a word
everywhere would destroy what is recorded. A real key has digits, or is long."""

_SIGNED = "AWS4-"
"""How an AWS signature begins: good for one request, and another each time. Knowing them all would slow
down the program and leave no room for real keys."""

_SCHEMES = ("bearer ", "basic ", "token ", "apikey ", "negotiate ", "digest ")


def is_secret_header(name: str) -> bool:
    return is_secret_key(name)


def masked_headers(headers: Headers) -> dict[str, str]:
    """All headers, by lower-case name; several of one name are joined by a comma, as HTTP does."""
    told: dict[str, str] = {}
    for name, value in headers:
        name = name.lower()
        shown = _mask_header(name, value) if is_secret_header(name) else value
        told[name] = f"{told[name]}, {shown}" if name in told else shown
    return told


def header_secrets(headers: Headers, url: str) -> Iterator[str]:
    """The secrets that a request carries, worth knowing."""
    for name, value in headers:
        if is_secret_header(name):
            values = _cookie_values(value) if "cookie" in name.lower() else [_without_scheme(value)]
            yield from filter(_is_worth_knowing, values)
    if "?" in url or "@" in url:
        parts = urlsplit(url)
        for name, value in parse_qsl(parts.query, keep_blank_values=False):
            if _is_secret_parameter(name) and _is_worth_knowing(value):
                yield value
        if parts.password and _is_worth_knowing(parts.password):
            yield unquote(parts.password)


def masked_url(url: str) -> str:
    """The URL without its secrets: query values by name, and what stands before an `@`."""
    if "?" not in url and "@" not in url:
        return url
    parts = urlsplit(url)
    netloc = parts.netloc
    if "@" in netloc:
        netloc = f"{MARK}@{netloc.rpartition('@')[2]}"
    query = "&".join(map(_masked_parameter, parts.query.split("&"))) if parts.query else ""
    return urlunsplit((parts.scheme, netloc, parts.path, query, parts.fragment))


def find_header(headers: Headers, name: str) -> str | None:
    """By lower-case name; the first."""
    return next((value for key, value in headers if key.lower() == name), None)


def _mask_header(name: str, value: str) -> str:
    """Of cookies each value by itself: their names say which changed."""
    if "cookie" not in name:
        return mask(value)
    told = []
    for part in value.split(";"):
        key, equals, secret = part.strip().partition("=")
        about = key.lower() in _COOKIE_WORDS
        told.append(f"{key}={mask(secret)}" if equals and not about else part.strip())
    return "; ".join(told)


_COOKIE_WORDS = frozenset({"path", "domain", "expires", "max-age", "samesite"})


def _cookie_values(value: str) -> list[str]:
    return [part.partition("=")[2].strip() for part in value.split(";") if "=" in part]


def _without_scheme(value: str) -> str:
    lowered = value.lower()
    for scheme in _SCHEMES:
        if lowered.startswith(scheme):
            return value[len(scheme) :].strip()
    return value


def _is_worth_knowing(value: str) -> bool:
    if value.startswith(_SIGNED):
        return False
    if len(value) >= _LEARN_PLAIN_MIN:
        return True
    return len(value) >= _LEARN_MIN and any(character.isdigit() for character in value)


def _is_secret_parameter(name: str) -> bool:
    return name.lower() in _QUERY_SECRETS or is_secret_key(name)


def _masked_parameter(pair: str) -> str:
    name, equals, value = pair.partition("=")
    if equals and value and _is_secret_parameter(unquote(name)):
        return f"{name}={mask(unquote(value))}"
    return pair
