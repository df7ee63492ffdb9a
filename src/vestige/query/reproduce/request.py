"""Reproduce a recorded request as a curl or Python script.

    reproduce(run, span, store.read_body, "curl")       # needs sh and curl
    reproduce(run, span, store.read_body, "python")     # needs Python only

The body is the recorded one, byte for byte. Secrets were redacted before they were stored, so
each mask becomes an environment variable, and equal masks share one. The API key gets the
usual name of the provider (`OPENAI_API_KEY`), and others are `SECRET_1`, `SECRET_2`, ...

Headers of a connection or of a body encoding are omitted, because the client sets its own. An
incomplete request is refused.

Elsewhere: rendering in query/reproduce/render.py; masks in record/redaction/masking.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import msgspec

from vestige.errors import NotFoundError, UsageError, VestigeError
from vestige.query import formatting
from vestige.query.body_cache import ReadBody
from vestige.record.redaction.masking import MARK
from vestige.record.run import Run, SpanInfo

Format = Literal["curl", "python"]
FORMATS: tuple[str, ...] = get_args(Format)

KEY_NAMES = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "google": "GEMINI_API_KEY",
}
OTHER_KEY_NAME = "API_KEY"

_HOSTS = {"openai.com": "openai", "anthropic.com": "anthropic", "googleapis.com": "gemini"}
_AUTH_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
_CONNECTION_HEADERS = frozenset(
    (
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "upgrade",
        "expect",
        "proxy-connection",
        "accept-encoding",
    )
)
"""Headers that the sending client sets by itself."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_URL = re.compile(r"(?i)https?://[^\s\x00-\x1f\x7f]+")
_ENCODED_DOTS = re.compile("%E2%80%A6", re.IGNORECASE)
_EDGE = r"[^\s\"'&;=,:/@\\…<>(){}\[\]]{0,3}"
_IN_TEXT = f"(?P<head>{_EDGE}){MARK}(?P<tail>{_EDGE})"


def _symmetric_mask(character: str) -> str:
    """Return a pattern of a mask that shows the same number of characters at both ends."""
    ends = (character * shown for shown in (3, 2, 1, 0))
    return "|".join(f"{end}{MARK}{end}" for end in ends)


_IN_STRING = _symmetric_mask(r'[^"\\\n]')
_MASK = re.compile(f'(?<=")(?P<mask>{_IN_STRING})(?=")|{_IN_TEXT}')
_MASK_ONLY = re.compile(rf"(?P<scheme>(?:\w+[ \t]+)?)(?P<mask>{_symmetric_mask('.')})")


@dataclass(frozen=True, slots=True)
class Secret:
    """A redacted secret, and the environment variable that replaces it."""

    name: str
    mask: str


Piece = str | Secret
"""Recorded text, in which surrogates are invalid UTF-8, or a secret."""


@dataclass(slots=True)
class Request:
    """An HTTP request to send."""

    title: str
    method: str
    url: list[Piece]
    headers: list[tuple[str, list[Piece]]]
    body: list[Piece]
    secrets: list[Secret]
    notes: list[str] = field(default_factory=list)


def reproduce(run: Run, span: SpanInfo, read_body: ReadBody, format: str) -> str:
    """Return the script.

    Raise UsageError for an unknown format, or a span without a request, and NotFoundError for
    an incomplete request.
    """
    from vestige.query.reproduce.render import render_curl, render_python

    if format not in FORMATS:
        raise UsageError(
            f"format: unknown value {formatting.single_line(format, 40)!r} "
            f"(expected {' or '.join(FORMATS)})."
        )
    request = read_request(run, span, read_body)
    return render_curl(request) if format == "curl" else render_python(request)


def read_request(run: Run, span: SpanInfo, read_body: ReadBody) -> Request:
    """Return the request that a span recorded, with a variable for each secret."""
    method, url = span.attributes.get("method"), span.attributes.get("url")
    url = _ENCODED_DOTS.sub("…", url) if isinstance(url, str) else None
    if url is None or not _URL.fullmatch(url):
        raise UsageError(
            f"{span.short_id}: no HTTP request (expected a span with `method` and `url`, as "
            f"`vestige run` records model calls). See `vestige span {span.short_id}`."
        )
    body = _read_body(span, read_body)
    headers, notes = _read_headers(span)
    method = method if isinstance(method, str) and _TOKEN.fullmatch(method) else "POST"
    secrets = _Secrets(_key_name(span, url))
    for text in (*(headers.get(name, "") for name in _AUTH_HEADERS), url):
        secrets.split(text, is_key=True)  # These come first, so the API key gets the usual name.
    shown = formatting.single_line(url, 200)
    return Request(
        title=f"{method} {shown}: {span.short_id} of run {run.info.short_id}",
        method=method,
        url=secrets.split(url),
        headers=[(name, secrets.split(value)) for name, value in headers.items()],
        body=secrets.split(body.decode("utf-8", "surrogateescape")),
        secrets=secrets.found,
        notes=notes,
    )


def _read_body(span: SpanInfo, read_body: ReadBody) -> bytes:
    ref = span.input
    if ref is None:
        return b""
    sent = span.attributes.get("request.bytes")
    if ref.cut is not None:
        reason = ref.cut
    elif ref.id is None:
        reason = "the body is missing"
    elif isinstance(sent, int) and sent > ref.size_bytes:
        reason = f"{sent} bytes were sent"
    else:
        try:
            return read_body(ref.id, 0, None)
        except VestigeError as error:
            reason = str(error)
    raise NotFoundError(
        f"{span.short_id}: the recorded request is incomplete "
        f"({formatting.single_line(reason, 200)}), so it cannot be sent again. "
        f"See `vestige body {span.short_id} --in`."
    )


# --- headers ------------------------------------------------------------------------------------


def _read_headers(span: SpanInfo) -> tuple[dict[str, str], list[str]]:
    """Return the headers to send, by lower-case name, and notes on them."""
    recorded = dict(_iter_headers(span.attributes))
    notes = [] if recorded else ["No headers were recorded: add those that the server needs."]
    encoding = span.attributes.get("request.encoding")
    size = span.input.size_bytes if span.input is not None else 0
    is_decoded = encoding is not None and span.attributes.get("request.wire_bytes") != size
    if is_decoded and "content-encoding" in recorded:
        del recorded["content-encoding"]
        shown = formatting.single_line(str(encoding), 40)
        notes.append(f"The body was sent with encoding {shown}; here it is sent without.")
    headers = {
        name: value
        for name, value in recorded.items()
        if name not in _CONNECTION_HEADERS and _TOKEN.fullmatch(name) and value.isprintable()
    }
    return headers, notes


def _iter_headers(attributes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield headers from an attribute with a JSON object, or from one attribute per header."""
    encoded = attributes.get("request.headers")
    if isinstance(encoded, str):
        try:
            headers = msgspec.json.decode(encoded)
        except (msgspec.DecodeError, ValueError, RecursionError):
            headers = None
        if isinstance(headers, dict):
            yield from ((name.lower(), _to_text(value)) for name, value in headers.items())
    for key, value in attributes.items():
        for prefix in ("request.header.", "http.request.header."):
            if key.startswith(prefix):
                yield key.removeprefix(prefix).lower(), _to_text(value)


def _to_text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


# --- secrets ------------------------------------------------------------------------------------


def _key_name(span: SpanInfo, url: str) -> str:
    provider = str(span.attributes.get("provider", "")).lower()
    if provider not in KEY_NAMES:
        host = url.partition("://")[2].partition("/")[0].rpartition("@")[2].partition(":")[0]
        provider = next((p for end, p in _HOSTS.items() if host.lower().endswith(end)), "")
    return KEY_NAMES.get(provider, OTHER_KEY_NAME)


class _Secrets:
    """Assign an environment variable to each mask."""

    def __init__(self, key_name: str) -> None:
        self._key_name = key_name
        self.found: list[Secret] = []

    def split(self, text: str, *, is_key: bool = False) -> list[Piece]:
        """Split a text at its masks, and replace each by a secret."""
        only = _MASK_ONLY.fullmatch(text)
        if only is not None:
            parts: list[Piece] = [only["scheme"], self._get_secret(only["mask"], is_key)]
            return [part for part in parts if part != ""]
        pieces: list[Piece] = []
        at = 0
        for match in _MASK.finditer(text):
            begin, end = match.span()
            if match["mask"] is None:
                # Next to other text, the length of a mask is unknown. It shows the same number
                # of characters at both ends, at most that of the shorter one.
                shown = min(len(match["head"]), len(match["tail"]))
                begin, end = match.end("head") - shown, match.start("tail") + shown
            pieces += [text[at:begin], self._get_secret(text[begin:end], is_key)]
            at = end
        pieces.append(text[at:])
        return [piece for piece in pieces if piece != ""]

    def _get_secret(self, mask: str, is_key: bool) -> Secret:
        for known in self.found:
            if known.mask == mask:
                return known
        is_first = all(known.name != self._key_name for known in self.found)
        name = self._key_name if is_key and is_first else f"SECRET_{len(self.found) + is_first}"
        secret = Secret(name, mask)
        self.found.append(secret)
        return secret
