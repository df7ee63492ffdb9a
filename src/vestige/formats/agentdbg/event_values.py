"""A body or attribute as the value that an event carries: AgentDbg's markers, bounded strings.

Records come here redacted. Masked values in them become `__REDACTED__`, and only then are
long strings cut: a cut never leaves half a secret. Most bodies are short JSON without a mask:
these are put into the event as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from vestige.formats.agentdbg.file_structs import REDACTED, TRUNCATED
from vestige.record.redaction.masking import MARK, unused_key

MAX_FIELD_BYTES = 20_000
"""AgentDbg's own default for `max_field_bytes`."""

DEPTH_MAX = 100
"""Deeper values are truncated, because other readers recurse."""

_MASKED_WHOLE = re.compile(rf"(?s).{{0,3}}{MARK}.{{0,3}}")
_MASKED_PART = re.compile(rf"[\w.~+-]{{0,3}}{MARK}[\w.~+-]{{0,3}}")
"""Inside a text, with the ends of the secret that its mask shows."""
_MASKED_MARKER = f"__{MARK}__"
_OPENINGS = ("{", "[")
_decode = msgspec.json.Decoder().decode


class Shaper:
    """Shorten and redact values for an event.

    `hides` returns whether the complete value of a key is hidden, beyond the recorder's redaction.
    """

    def __init__(
        self, max_field_bytes: int = MAX_FIELD_BYTES, hides: Callable[[str], bool] | None = None
    ) -> None:
        self._max_bytes = max_field_bytes
        self._hides = hides

    def body(self, text: str, *, plain: bool = False, json: bool = False) -> Any:
        """A body: its JSON value where it is an object or array, else a string.

        `plain`: a string even if it looks like JSON. `json`: JSON also if it is a scalar.
        """
        if plain or not (json or text.startswith(_OPENINGS) or text.lstrip().startswith(_OPENINGS)):
            return self.string(text)
        try:
            # Decoded also where it stays as it is: of JSON with a number that no reader can hold
            # (1e999) the decoder alone knows.
            value = _decode(text.encode())
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return self.string(text)
        if (
            self._hides is None
            and MARK not in text
            and "\n" not in text
            and (len(text) if text.isascii() else len(text.encode())) <= self._max_bytes
            and (len(text) <= 2 * DEPTH_MAX or text.count("[") + text.count("{") <= DEPTH_MAX)
        ):
            return msgspec.Raw(text.strip())
        return self.value(value)

    def value(self, value: Any, depth: int = 0) -> Any:
        """Return a JSON value with its strings in the form of the format, and bounded in depth."""
        if isinstance(value, str):
            return self.string(value)
        if isinstance(value, (dict, list)) and depth >= DEPTH_MAX:
            return TRUNCATED
        if isinstance(value, dict):
            return self._object(value, depth)
        if isinstance(value, list):
            return [self.value(inner, depth + 1) for inner in value]
        return value

    def _object(self, value: dict[str, Any], depth: int) -> dict[str, Any]:
        hides = self._hides
        shaped: dict[str, Any] = {}
        numbers: dict[str, int] = {}
        for key, inner in value.items():
            hidden = hides is not None and inner is not None and hides(key)
            new = REDACTED if hidden else self.value(inner, depth + 1)
            shaped[unused_key(self.string(key), shaped, numbers)] = new
        return shaped

    def string(self, value: Any) -> str:
        """Return a value as text of limited length, with AgentDbg's marker for redacted values."""
        text: str = value if type(value) is str else "" if value is None else str(value)
        if MARK in text:
            text = text.replace(_MASKED_MARKER, REDACTED)  # their marker, masked on its way in
            text = REDACTED if _MASKED_WHOLE.fullmatch(text) else _MASKED_PART.sub(REDACTED, text)
        most = self._max_bytes
        if len(text) * 4 <= most or most <= 0:
            return text
        raw = text.encode(errors="backslashreplace")
        if len(raw) <= most:
            return text
        return raw[: max(0, most - len(TRUNCATED))].decode(errors="ignore") + TRUNCATED
