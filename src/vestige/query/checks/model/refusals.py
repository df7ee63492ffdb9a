"""Reasons for which a provider refuses a request that is valid.

    classify_refusal(529, "overloaded_error: Overloaded")              -> "overloaded"
    classify_refusal(400, "maximum context length is 128000 tokens")   -> "too-long"

The status decides where it is specific. Frameworks often keep only the text of the error.
"""

from __future__ import annotations

import re
from typing import Final

_STATUSES: Final = {
    401: "not-allowed",
    403: "not-allowed",
    407: "not-allowed",
    408: "timeout",
    429: "rate-limited",
    504: "timeout",
    529: "overloaded",
}
_TEXTS: Final = (
    (
        "too-long",
        r"context.{0,12}(?:length|window)|maximum.{0,20}tokens|prompt is too long|too many tokens"
        r"|input is too long|reduce the length|token limit|string too long",
    ),
    (
        "policy",
        r"usage polic|content.?(?:policy|filter|management)|safety|flagged|violat|moderation"
        r"|responsible.?ai|invalid_prompt|PROHIBITED_CONTENT|harm",
    ),
    (
        "quota",
        r"insufficient.?quota|exceeded your current quota|billing|credit balance|payment"
        r"|spend(?:ing)? limit|out of credits|quota.{0,20}exceeded",
    ),
    (
        "rate-limited",
        r"rate.?limit|too many requests|requests per (?:minute|day)|tokens per min|throttl|\b429\b",
    ),
    ("overloaded", r"overload|\b529\b|server is busy|at capacity|capacity exceeded"),
    (
        "not-allowed",
        r"api.?key|unauthori[sz]ed|authenticat|permission|forbidden|access denied|\b40[13]\b",
    ),
    ("timeout", r"timed? ?out|timeout|deadline exceeded"),
    (
        "not-reached",
        r"connect(?:ion)?error|connection (?:error|refused|reset|aborted)|could not connect"
        r"|name or service not known"
        r"|network is unreachable|getaddrinfo|temporary failure in name|ssl|remote end closed",
    ),
)
_PATTERNS: Final = tuple((kind, re.compile(text, re.IGNORECASE)) for kind, text in _TEXTS)
TEXT_MAX: Final = 2_000


def classify_refusal(status: object, text: str) -> str | None:
    """Return the reason of a refusal; None if the request's content may be at fault."""
    by_text = next((kind for kind, found in _PATTERNS if found.search(text[:TEXT_MAX])), None)
    if type(status) is int:
        if by_text in ("quota", "too-long", "policy"):
            return by_text  # more exact than 429, 400 or 403
        if status in _STATUSES:
            return _STATUSES[status]
        if status >= 500:
            return (
                by_text if by_text in ("overloaded", "rate-limited", "timeout") else "server-error"
            )
        if 400 <= status < 500 and by_text in ("not-allowed", "rate-limited", "overloaded"):
            return by_text
        return None
    return by_text
