"""Read typed values from foreign JSON, with a default for anything unexpected.

Providers, proxies and hand-written servers differ in small ways, and a recording may be cut:
no reader of this folder may fail on a value of the wrong type.
"""

from __future__ import annotations

from typing import Any

from vestige._runtime.msgspec_or_fallback import msgspec

QUOTE_MAX = 60
"""Characters of a value that a sentence quotes."""


def as_dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def dicts(value: object) -> list[dict[str, Any]]:
    """Return the objects of an array."""
    return [item for item in as_list(value) if isinstance(item, dict)]


def as_str(value: object) -> str:
    return value if isinstance(value, str) else ""


def find_str(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def find_int(value: object) -> int | None:
    """Return a count; None for a negative number or a fraction."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and value >= 0 else None


def total(*counts: int | None) -> int | None:
    """Return the sum of the known counts; None if none is known."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def json_text(value: object) -> str:
    """Return arguments as JSON text. Text is unchanged; other values are encoded."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (ValueError, TypeError, RecursionError):  # another decoder's: lone surrogates, too deep
        return ""


def json_size(value: object) -> int:
    return len(json_text(value).encode(errors="replace"))


def join_texts(texts: list[str]) -> str:
    return "\n".join(text for text in texts if text)


def is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (ValueError, RecursionError):  # not JSON, lone surrogates, too deep
        return False
    return True


def quote(value: object) -> str:
    """Quote a value for a sentence, truncated if it is long."""
    text = repr(value[:QUOTE_MAX] if isinstance(value, str) else value)
    return text if len(text) <= QUOTE_MAX + 2 else text[:QUOTE_MAX] + "…"


def error_text(data: object) -> str | None:
    """Return the provider's message of an error body: `kind: message`."""
    if data is None:
        return None  # nearly always
    if isinstance(data, str):
        return data or None
    error = as_dict(data)
    message = find_str(error.get("message"))
    kinds = (error.get("status"), error.get("type"), error.get("code"))
    kind = next((str(k) for k in kinds if isinstance(k, str | int) and k), None)
    return ": ".join(part for part in (kind, message) if part) or None
