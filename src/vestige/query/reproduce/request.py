"""A recorded request as a program that sends it again: a shell script with curl, or Python.

    reproduce(run, span, store.read_body, "curl")       # needs bash or sh, and curl
    reproduce(run, span, store.read_body, "python")     # needs Python, nothing else

The body is the recorded one, byte for byte. A secret was masked before it was written, so each
mask becomes an environment variable: the same mask is the same variable, the one that
authorises the call has the provider's usual name (`OPENAI_API_KEY`), others are `SECRET_1`, ...

Headers that belong to one connection or one encoding of the body are left out; the client
that sends makes its own. A request of which a part is missing is refused: it would be another.

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
_OWN_HEADERS = frozenset(
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
"""Of one connection: the client that sends says its own."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_URL = re.compile(r"(?i)https?://[^\s\x00-\x1f\x7f]+")
_ENCODED_DOTS = re.compile("%E2%80%A6", re.IGNORECASE)
_EDGE = r"[^\s\"'&;=,:/@\\…<>(){}\[\]]{0,3}"
_IN_TEXT = f"(?P<head>{_EDGE}){MARK}(?P<tail>{_EDGE})"


def _alone(character: str) -> str:
    """A mask with nothing beside it shows as much at both ends, whatever it shows."""
    ends = (character * shown for shown in (3, 2, 1, 0))
    return "|".join(f"{end}{MARK}{end}" for end in ends)


_IN_STRING = _alone(r'[^"\\\n]')
_MASK = re.compile(f'(?<=")(?P<alone>{_IN_STRING})(?=")|{_IN_TEXT}')
_WHOLE = re.compile(rf"(?P<scheme>(?:\w+[ \t]+)?)(?P<alone>{_alone('.')})")


@dataclass(frozen=True, slots=True)
class Secret:
    """A place where a secret stood: the variable that holds it now."""

    name: str
    mask: str


Piece = str | Secret
"""Text as it was (bytes that are no UTF-8 as lone surrogates), or a secret."""


@dataclass(slots=True)
class Request:
    """What is to be sent."""

    title: str
    method: str
    url: list[Piece]
    headers: list[tuple[str, list[Piece]]]
    body: list[Piece]
    secrets: list[Secret]
    notes: list[str] = field(default_factory=list)


def reproduce(run: Run, span: SpanInfo, read_body: ReadBody, format: str) -> str:
    """The script. UsageError: no such format, or no request; NotFoundError: not all of it is kept."""
    from vestige.query.reproduce.render import render_curl, render_python

    if format not in FORMATS:
        raise UsageError(
            f"format: {formatting.single_line(format, 40)!r} is none for one request (expected {' or '.join(FORMATS)})."
        )
    request = read_request(run, span, read_body)
    return render_curl(request) if format == "curl" else render_python(request)


def read_request(run: Run, span: SpanInfo, read_body: ReadBody) -> Request:
    """The request that a span recorded."""
    method, url = span.attributes.get("method"), span.attributes.get("url")
    url = _ENCODED_DOTS.sub("…", url) if isinstance(url, str) else None
    if url is None or not _URL.fullmatch(url):
        raise UsageError(
            f"{span.short_id}: no HTTP request (expected a span with `method` and `url`, as `vestige run` "
            f"records model calls). See `vestige span {span.short_id}`."
        )
    body = _read_body(span, read_body)
    headers, notes = _read_headers(span)
    method = method if isinstance(method, str) and _TOKEN.fullmatch(method) else "POST"
    secrets = _Secrets(_key_name(span, url))
    for text in (*(headers.get(name, "") for name in _AUTH_HEADERS), url):
        secrets.split(text, is_key=True)  # first, so that the usual name means the key
    return Request(
        title=f"{method} {formatting.single_line(url, 200)}: {span.short_id} of run {run.info.short_id}",
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
    if (
        ref.id is not None
        and ref.cut is None
        and not (isinstance(sent, int) and sent > ref.size_bytes)
    ):
        try:
            return read_body(ref.id, 0, None)
        except VestigeError as error:
            why = str(error)
    else:
        why = ref.cut or ("it is lost" if ref.id is None else f"{sent} bytes were sent")
    raise NotFoundError(
        f"{span.short_id}: its request was not kept whole ({formatting.single_line(why, 200)}), so it cannot be sent "
        f"again. See `vestige body {span.short_id} --in`."
    )


# --- headers --------------------------------------------------------------------------------------


def _read_headers(span: SpanInfo) -> tuple[dict[str, str], list[str]]:
    """Headers by lower-case name, without those that are not ours to repeat, and what to say."""
    told = dict(_told_headers(span.attributes))
    notes = [] if told else ["No headers were recorded: add what the server needs."]
    coded = span.attributes.get("request.encoding")
    size = span.input.size_bytes if span.input is not None else 0
    is_decoded = coded is not None and span.attributes.get("request.wire_bytes") != size
    if is_decoded and "content-encoding" in told:
        del told["content-encoding"]
        notes.append(
            f"The body was sent as {formatting.single_line(str(coded), 40)}; here it is not."
        )
    kept = {
        name: value
        for name, value in told.items()
        if name not in _OWN_HEADERS and _TOKEN.fullmatch(name) and value.isprintable()
    }
    return kept, notes


def _told_headers(attributes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """One attribute with all of them as a JSON object, or an attribute for each."""
    together = attributes.get("request.headers")
    if isinstance(together, str):
        try:
            found = msgspec.json.decode(together)
        except (msgspec.DecodeError, ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            yield from ((name.lower(), _value(value)) for name, value in found.items())
    for key, value in attributes.items():
        for prefix in ("request.header.", "http.request.header."):
            if key.startswith(prefix):
                yield key.removeprefix(prefix).lower(), _value(value)


def _value(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


# --- secrets --------------------------------------------------------------------------------------


def _key_name(span: SpanInfo, url: str) -> str:
    provider = str(span.attributes.get("provider", "")).lower()
    if provider not in KEY_NAMES:
        host = url.partition("://")[2].partition("/")[0].rpartition("@")[2].partition(":")[0]
        provider = next((p for end, p in _HOSTS.items() if host.lower().endswith(end)), "")
    return KEY_NAMES.get(provider, OTHER_KEY_NAME)


class _Secrets:
    """Gives each mask its variable."""

    def __init__(self, key_name: str) -> None:
        self._key_name = key_name
        self.found: list[Secret] = []

    def split(self, text: str, *, is_key: bool = False) -> list[Piece]:
        """Text with a secret in each mask's place."""
        whole = _WHOLE.fullmatch(text)
        if whole is not None:
            parts: list[Piece] = [whole["scheme"], self._secret(whole["alone"], is_key)]
            return [part for part in parts if part != ""]
        pieces: list[Piece] = []
        at = 0
        for match in _MASK.finditer(text):
            begin, end = match.span()
            if match["alone"] is None:  # beside other text, the shorter end tells how much is shown
                shown = min(len(match["head"]), len(match["tail"]))
                begin, end = match.end("head") - shown, match.start("tail") + shown
            pieces += [text[at:begin], self._secret(text[begin:end], is_key)]
            at = end
        pieces.append(text[at:])
        return [piece for piece in pieces if piece != ""]

    def _secret(self, mask: str, is_key: bool) -> Secret:
        for known in self.found:
            if known.mask == mask:
                return known
        is_first = all(known.name != self._key_name for known in self.found)
        name = self._key_name if is_key and is_first else f"SECRET_{len(self.found) + is_first}"
        secret = Secret(name, mask)
        self.found.append(secret)
        return secret
