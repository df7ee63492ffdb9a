"""Send one signed POST about a broken rule.

The header `X-Vestige-Signature` is `sha256=` and the HMAC-SHA256 of the body, in hex, with the
secret in VESTIGE_WEBHOOK_SECRET. There is one attempt, so that a receiver gets it at most once.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from typing import Any, Final
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from vestige.errors import UsageError

SECRET_VARIABLE: Final = "VESTIGE_WEBHOOK_SECRET"  # noqa: S105  # a variable's name
TIMEOUT_S: Final = 10


def validate_url(url: str) -> str:
    """Return the URL. Raise UsageError if it cannot be used."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"webhook: {url!r} is not a web address (expected https://HOST/PATH).")
    if not os.environ.get(SECRET_VARIABLE):
        raise UsageError(f"webhook: no secret to sign with. Set {SECRET_VARIABLE}.")
    return url


def send_webhook(url: str, event: dict[str, Any]) -> str | None:
    """Send an event. Return why it could not be delivered, else None."""
    body = json.dumps(event, ensure_ascii=False, sort_keys=True).encode()
    secret = os.environ.get(SECRET_VARIABLE, "").encode()
    signature = hmac.new(secret, body, hashlib.sha256).hexdigest()
    request = Request(  # `validate_url` allows only http and https
        url,
        data=body,
        method="POST",
        headers={
            "Content-Type": "application/json",
            "X-Vestige-Signature": f"sha256={signature}",
        },
    )
    try:
        with urlopen(request, timeout=TIMEOUT_S):  # see above
            return None
    except (URLError, OSError, ValueError) as error:
        return str(getattr(error, "reason", error))
