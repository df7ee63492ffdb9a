"""Redaction of secrets in headers and URLs.

A header is secret by its name (record/redaction/masking.py): `Authorization`, `x-api-key`,
`api-key`, `x-goog-api-key`, cookies. Its value is masked, and registered with the recorder, which
then masks it wherever else it appears.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from vestige.record.redaction.masking import MARK, is_secret_key, mask

Headers = Iterable[tuple[str, str]]

_QUERY_SECRETS = frozenset({"key", "sig", "signature", "code", "x-amz-signature"})
"""Names of secrets only in a query string: Google's `?key=`, signed URLs."""

_SECRET_MIN = 8
_SECRET_WORD_MIN = 20
"""Minimum lengths with and without a digit. Keys of local servers are often words such as `EMPTY`,
`ollama` or `not-needed`, and masking these everywhere would destroy recorded text."""

_SIGNED = "AWS4-"
"""Prefix of an AWS signature. Each request has a new one, and registering them all would slow down
the program and displace real keys."""

_SCHEMES = ("bearer ", "basic ", "token ", "apikey ", "negotiate ", "digest ")


def is_secret_header(name: str) -> bool:
    return is_secret_key(name)


def masked_headers(headers: Headers) -> dict[str, str]:
    """Return all headers by lower-case name. Repeated headers are joined by a comma."""
    masked: dict[str, str] = {}
    for name, value in headers:
        name = name.lower()
        text = _mask_header(name, value) if is_secret_header(name) else value
        masked[name] = f"{masked[name]}, {text}" if name in masked else text
    return masked


def header_secrets(headers: Headers, url: str) -> Iterator[str]:
    """Yield the secrets of a request that should be masked everywhere."""
    for name, value in headers:
        if is_secret_header(name):
            values = _cookie_values(value) if "cookie" in name.lower() else [_without_scheme(value)]
            yield from filter(_is_worth_masking, values)
    if "?" in url or "@" in url:
        parts = urlsplit(url)
        for name, value in parse_qsl(parts.query, keep_blank_values=False):
            if _is_secret_parameter(name) and _is_worth_masking(value):
                yield value
        if parts.password and _is_worth_masking(parts.password):
            yield unquote(parts.password)


def masked_url(url: str) -> str:
    """Mask the user info and the secret query values of a URL."""
    if "?" not in url and "@" not in url:
        return url
    parts = urlsplit(url)
    netloc = parts.netloc
    if "@" in netloc:
        netloc = f"{MARK}@{netloc.rpartition('@')[2]}"
    query = "&".join(map(_masked_parameter, parts.query.split("&"))) if parts.query else ""
    return urlunsplit((parts.scheme, netloc, parts.path, query, parts.fragment))


def find_header(headers: Headers, name: str) -> str | None:
    """Return the first header with this lower-case name."""
    return next((value for key, value in headers if key.lower() == name), None)


def _mask_header(name: str, value: str) -> str:
    """Mask a header's value. Cookies are masked one by one, so that their names are visible."""
    if "cookie" not in name:
        return mask(value)
    masked = []
    for part in value.split(";"):
        key, equals, secret = part.strip().partition("=")
        is_attribute = key.lower() in _COOKIE_ATTRIBUTES
        masked.append(f"{key}={mask(secret)}" if equals and not is_attribute else part.strip())
    return "; ".join(masked)


_COOKIE_ATTRIBUTES = frozenset({"path", "domain", "expires", "max-age", "samesite"})


def _cookie_values(value: str) -> list[str]:
    return [part.partition("=")[2].strip() for part in value.split(";") if "=" in part]


def _without_scheme(value: str) -> str:
    lowered = value.lower()
    for scheme in _SCHEMES:
        if lowered.startswith(scheme):
            return value[len(scheme) :].strip()
    return value


def _is_worth_masking(value: str) -> bool:
    if value.startswith(_SIGNED):
        return False
    if len(value) >= _SECRET_WORD_MIN:
        return True
    return len(value) >= _SECRET_MIN and any(character.isdigit() for character in value)


def _is_secret_parameter(name: str) -> bool:
    return name.lower() in _QUERY_SECRETS or is_secret_key(name)


def _masked_parameter(pair: str) -> str:
    name, equals, value = pair.partition("=")
    if equals and value and _is_secret_parameter(unquote(name)):
        return f"{name}={mask(unquote(value))}"
    return pair
