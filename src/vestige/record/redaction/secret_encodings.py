"""A registered secret as it may be written: everything that is looked for in its stead.

forms_of("a/b")            # itself, as JSON, Python, URLs and base64 write it
encoded(form)              # its bytes inside an encoded line, for the scanner
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

REGISTERED_MIN = 4
"""Characters. A shorter value ("no", "42") stands in so many texts that masking it would
destroy them and, by where the masks are, still tell what it was."""

_BASE64_SHIFTED_MIN = 8


def forms_of(value: str) -> set[str]:
    """A value as it is, and as JSON, Python, URLs and base64 write it."""
    import base64
    from urllib.parse import quote, quote_plus

    raw = value.encode(errors="surrogatepass")
    forms = {value, repr(value)[1:-1], quote(raw, safe=""), quote(raw), quote_plus(raw)}
    forms |= {form.replace("%2F", "%2f").replace("%3D", "%3d") for form in tuple(forms)}
    once = {value}
    for _ in range(3):
        once = {escaped for form in once for escaped in _json_forms(form)}
        forms |= once
    forms |= {base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()}
    forms |= {form.rstrip("=") for form in tuple(forms) if len(form.rstrip("=")) >= REGISTERED_MIN}
    if len(raw) >= _BASE64_SHIFTED_MIN:
        forms |= set(_base64_inside(raw))
    return forms


def _json_forms(text: str) -> set[str]:
    import json

    plain = json.dumps(text, ensure_ascii=False)[1:-1]
    return {plain, json.dumps(text)[1:-1], plain.replace("/", "\\/")}


def _base64_inside(raw: bytes) -> Iterator[str]:
    """What is sure to appear when the value is a part of something in base64, `user:value` say."""
    import base64

    for shift in (1, 2):
        coded = base64.b64encode(bytes(shift) + raw).decode().rstrip("=")
        # The first characters mix with what stands before, the last with what comes after.
        yield coded[shift + 1 : -1]


def encoded(form: str) -> bytes:
    """A form's bytes inside an encoded line."""
    return msgspec.json.encode(form.encode(errors="backslashreplace").decode())[1:-1]
