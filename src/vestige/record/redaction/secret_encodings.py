"""The forms in which a registered secret may be written. The search covers all of them.

forms_of("a/b")            # itself, as JSON, Python, URLs and base64 write it
encoded(form)              # its bytes inside an encoded line, for the scanner
"""

from __future__ import annotations

from collections.abc import Iterator

from vestige._runtime.msgspec_or_fallback import msgspec

REGISTERED_MIN = 4
"""Characters. A shorter value ("no", "42") is in most texts: masking it would destroy them, and
the positions of the masks would reveal it."""

_BASE64_SHIFTED_MIN = 8


def forms_of(value: str) -> set[str]:
    """Return a value as it is, and as JSON, Python, URLs and base64 write it."""
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
    """Yield the text that is in any base64 of a text with the value inside (`user:value`)."""
    import base64

    for shift in (1, 2):
        coded = base64.b64encode(bytes(shift) + raw).decode().rstrip("=")
        # The first characters also encode the text before, the last the text after.
        yield coded[shift + 1 : -1]


def encoded(form: str) -> bytes:
    """Return the bytes of a form inside an encoded line."""
    return msgspec.json.encode(form.encode(errors="backslashreplace").decode())[1:-1]
