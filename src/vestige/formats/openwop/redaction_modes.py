"""How a value leaves: what was masked, in the words of a redaction mode; nothing of the machine.

    privacy = Privacy("mask", Machine(attributes))
    privacy.render({"q": "key sk-…redacted…f3"})       # b'{"q":"key [REDACTED]"}'

    mask          `[REDACTED]` in place of the secret
    omit          the field is left out; of a longer text, the secret
    hash          `sha256:` and a keyed hash, so that equal ones can be seen and guesses not tested
    passthrough   as it is; refused when there is something to hide

The one hard fact: what is stored was masked when it was recorded, so a secret itself is not there to
be hidden or hashed. Here its mask goes too, with the letters that it shows; and all goes once more
past the rules by which it was masked, for a store that was filled by another hand.
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
from vestige.formats.openwop.constants import OMITTED, REDACTED, Mode
from vestige.formats.openwop.host_details import HostDetails
from vestige.record.coercion import clean_text
from vestige.record.redaction.masking import MARK, unused_key
from vestige.record.redaction.redactor import Redactor

DEPTH_MAX: Final = 100
"""What is nested deeper goes out as text: others' readers recurse."""

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
"""Keys whose value a schema requires: they stay, without it."""
_ERRORS: Final = frozenset(("stack", "message", "error.stack", "error.message"))
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


_ERROR_HINTS: Final = (b'File \\"', b"\\n    at ", b'stack"', b'message"')


@cache
def redactor() -> Redactor:
    """One for the process: its scanner takes a while to be made."""
    return Redactor()


def _has_paths(raw: bytes) -> bool:
    """Whether there may be a path where none may stand: in an error, or in a stack."""
    return (b"/" in raw or b"\\\\" in raw) and any(hint in raw for hint in _ERROR_HINTS)


def _masked(value: Any, raw: bytes) -> tuple[Any, bytes]:
    """As the recorder masks it: the text as a whole, for a key may stand far from its secret."""
    text = raw.decode()
    masked = redactor().text(text)
    if masked == text:
        return value, raw
    try:
        return _decode(masked), masked.encode()
    except msgspec.DecodeError:
        value = redactor().value(value)
        return value, encode(value)


class Privacy:
    """One mode, for one run."""

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
            value, raw = _masked(value, raw)
        if _MARK in raw:
            self.refuse()
        elif not self._machine.is_in(raw) and not _has_paths(raw):
            return raw
        cleaned = self._walk(value, "", 0)
        return encode(None if cleaned is _GONE else cleaned)

    def refuse(self) -> None:
        """Nothing that has to be hidden goes out as it is."""
        if self.mode == "passthrough":
            raise SensitiveDataError(
                "redaction: passthrough is refused: this run holds sensitive data (expected mask, omit or hash)."
            )

    def _walk(self, value: Any, key: str, depth: int) -> Any:
        if isinstance(value, str):
            return self._string(value, key)
        if not isinstance(value, (dict, list)):
            return value
        if depth >= DEPTH_MAX:
            return self._string(encode(value).decode(), "")
        if isinstance(value, list):
            items = (self._walk(item, key, depth + 1) for item in value)
            return [item for item in items if item is not _GONE]
        cleaned: dict[str, Any] = {}
        numbers: dict[str, int] = {}
        for name, inner in value.items():
            new_name = self._string(name, "")
            new = self._walk(inner, name, depth + 1)
            if new_name is not _GONE and new is not _GONE:
                cleaned[unused_key(new_name, cleaned, numbers)] = new
        return cleaned

    def _string(self, text: str, key: str) -> Any:
        if MARK in text:
            if _MASKED_WHOLE.fullmatch(text):
                if self.mode == "omit":
                    return OMITTED if key in _NEEDED else _GONE
                return self._instead(text)
            text = _MASKED_PART.sub(lambda found: self._instead(found[0]), text)
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
    """Any JSON value, also with numbers and characters that the quick encoder refuses."""
    try:
        return _encode(value)
    except (OverflowError, UnicodeEncodeError, RecursionError, TypeError):
        return clean_text(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()
