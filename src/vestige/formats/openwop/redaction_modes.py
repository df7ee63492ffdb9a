"""Apply a redaction mode to values that leave, and remove details of the host.

    privacy = Privacy("mask", Machine(attributes))
    privacy.render({"q": "key sk-…redacted…f3"})       # b'{"q":"key [REDACTED]"}'

    mask          `[REDACTED]` in place of the secret
    omit          the field is left out; of a longer text, the secret
    hash          `sha256:` and a keyed hash, so that equal ones can be seen and guesses not tested
    passthrough   unchanged; refused if the run contains secrets

Stored values were redacted when they were recorded, so the store has no secret to hide or hash.
This module replaces the mask too, with the letters that it shows. It also applies the redaction
rules again, for stores that another program has filled.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from functools import cache
from typing import Any, Final

import msgspec

from vestige.errors import SensitiveDataError
from vestige.formats.openwop.constants import OMITTED, REDACTED, SPAN_KEYS, Mode
from vestige.formats.openwop.host_redaction import HostDetails
from vestige.record.coercion import clean_text
from vestige.record.redaction.masking import MARK, unused_key
from vestige.record.redaction.redactor import Redactor

DEPTH_MAX: Final = 100
"""Deeper values are exported as text, because other readers recurse."""

_MARK: Final = MARK.encode()
_SHOWN: Final = r"[^\s\"'\\,;(){}\[\]<>]{0,3}"
_MASKED_WHOLE: Final = re.compile(
    rf"(?s)(?:(?i:bearer|basic|token|digest|apikey|negotiate|bot)[ \t]+)?.{{0,3}}{MARK}.{{0,3}}"
)
_MASKED_PART: Final = re.compile(rf"{_SHOWN}{MARK}{_SHOWN}")
_NEEDED: Final = frozenset(
    (
        "runId",
        "workflowId",
        "code",
        "message",
        "nodeId",
        "typeId",
        "agentId",
        "toolName",
        "callId",
        "provider",
        "model",
        "level",
        "note",
        "principalRef",
        "annotationId",
        "name",
        "spanId",
        "chunk",
        "correction",
        "label",
    )
)
"""Keys that a schema requires: they stay, without their value."""
_FREE: Final = frozenset(
    (
        "inputs",
        "outputs",
        "outcome",
        "variables",
        "attributes",
        "fields",
        "value",
    )
)
"""Keys of the document whose values a program recorded, with keys of its own."""
_FIXED: Final = frozenset(
    (
        "type",
        "status",
        "level",
        "timestamp",
        "startedAt",
        "endedAt",
        "completedAt",
        "createdAt",
        "kind",
        "spanId",
        "parentSpanId",
        "traceId",
    )
)
"""Keys of the document whose values are times, or words of the specification."""
_CREDENTIAL: Final = re.compile(
    r"(?<![A-Za-z0-9])cred[_-](?=[\w.~:-]{0,200}[0-9A-Z])[A-Za-z0-9][\w.~:-]{5,500}", re.ASCII
)
"""A reference to a credential that is held elsewhere. With a capital or a digit in it:
`cred_store_path` is the name of a variable."""
_CREDENTIAL_HINT: Final = "cred"
_HIDDEN: Final = (
    (MARK, _MASKED_WHOLE, _MASKED_PART),
    (_CREDENTIAL_HINT, _CREDENTIAL, _CREDENTIAL),
)
"""Values that are never exported: a hint, and expressions for a complete text and for a part."""
_ERRORS: Final = frozenset(("stack", "message", "error.stack", "error.message"))
_encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


_ERROR_HINTS: Final = (b'File \\"', b"\\n    at ", b'stack"', b'message"')


@cache
def redactor() -> Redactor:
    """Return the process's redactor, whose scanner is slow to build."""
    return Redactor()


def _has_paths(raw: bytes) -> bool:
    """Check for paths in errors and stacks, where none are allowed."""
    return (b"/" in raw or b"\\\\" in raw) and any(hint in raw for hint in _ERROR_HINTS)


def mask_values(value: Any, counts: dict[str, int] | None = None) -> Any:
    """Redact the values of a document as the recorder does. Its own keys never change.

    Recorded values (`_FREE`) are scanned as one text, because a key may be far from its secret.
    """
    counts = {} if counts is None else counts
    if isinstance(value, list):
        return [mask_values(item, counts) for item in value]
    if not isinstance(value, dict):
        return redactor().value(value, counts)
    masked = {}
    for name, inner in value.items():
        if _is_free(name, inner):
            masked[name] = _mask_whole(inner, counts)
        elif isinstance(inner, (dict, list)):
            masked[name] = mask_values(inner, counts)
        else:
            (masked[name],) = redactor().value({name: inner}, counts).values()
    return masked


def _is_free(name: str, value: Any) -> bool:
    """Check whether this key of the document contains a program's own data."""
    is_own = isinstance(value, dict) and value.keys() <= SPAN_KEYS
    return name in _FREE and not is_own


def _mask_whole(value: Any, counts: dict[str, int]) -> Any:
    if not isinstance(value, (dict, list)):
        return redactor().value(value, counts)
    text = encode(value).decode()
    masked = redactor().text(text, counts)
    if masked == text:
        return value
    try:
        return decode(masked)
    except msgspec.DecodeError:
        return redactor().value(value)


class Privacy:
    """A redaction mode for a run."""

    def __init__(self, mode: Mode, machine: HostDetails, key: bytes = b"") -> None:
        self.mode = mode
        self._machine = machine
        self._key = key

    @property
    def applied(self) -> bool:
        """Derived, so that the pair which the text calls malformed cannot be built."""
        return self.mode != "passthrough"

    def render(self, value: Any) -> bytes:
        """A JSON value as it may leave, encoded. Most hold nothing, and are encoded once."""
        raw = encode(value)
        if redactor().suspicious(raw):
            value = mask_values(value)
            raw = encode(value)
        if _MARK in raw:
            self.refuse()
        elif not (self._machine.is_in(raw) or _has_paths(raw) or _CREDENTIAL_HINT.encode() in raw):
            return raw
        cleaned = self._walk(value, "", 0, free=False)
        return encode(None if cleaned is _GONE else cleaned)

    def refuse(self) -> None:
        """Refuse to export anything that must be redacted."""
        if self.mode == "passthrough":
            raise SensitiveDataError(
                "redaction: passthrough is refused: this run holds sensitive data (expected mask, "
                "omit or hash)."
            )

    def _walk(self, value: Any, key: str, depth: int, *, free: bool) -> Any:
        """`free`: inside a recorded value, whose keys belong to the program."""
        if isinstance(value, str):
            return value if key in _FIXED and not free else self._string(value, key)
        if not isinstance(value, (dict, list)):
            return value
        if depth >= DEPTH_MAX:
            return self._string(encode(value).decode(), "")
        if isinstance(value, list):
            items = (self._walk(item, key, depth + 1, free=free) for item in value)
            return [item for item in items if item is not _GONE]
        cleaned: dict[str, Any] = {}
        numbers: dict[str, int] = {}
        for name, inner in value.items():
            new_name = self._string(name, "") if free else name
            new = self._walk(inner, name, depth + 1, free=free or _is_free(name, inner))
            if new_name is not _GONE and new is not _GONE:
                cleaned[unused_key(new_name, cleaned, numbers)] = new
        return cleaned

    def _string(self, text: str, key: str) -> Any:
        for hidden, full, part in _HIDDEN:
            if hidden not in text or not part.search(text):
                continue
            self.refuse()
            if full.fullmatch(text):
                if self.mode == "omit":
                    return OMITTED if key in _NEEDED else _GONE
                return self._instead(text)
            text = part.sub(lambda found: self._instead(found[0]), text)
        if key in _ERRORS or 'File "' in text or "\n    at " in text:
            text = self._machine.error(text)
        cleaned = self._machine.text(text)
        if cleaned != text:
            self.refuse()
        return cleaned or (OMITTED if key in _NEEDED and text else cleaned)

    def _instead(self, masked: str) -> str:
        if self.mode == "omit":
            return ""
        if self.mode == "hash":
            return "sha256:" + hmac.new(self._key, masked.encode(), hashlib.sha256).hexdigest()
        return REDACTED


_GONE: Final = object()


def encode(value: Any) -> bytes:
    """Encode any JSON value, also with numbers and characters that the quick encoder refuses."""
    try:
        return _encode(value)
    except (OverflowError, UnicodeEncodeError, RecursionError, TypeError):
        return clean_text(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()
