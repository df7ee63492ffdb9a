"""The tokens and the cost of an investigation, estimated before each request is sent.

    spending = Spending(tokens_max=25_000, cost_max=1.0, price_tokens=...)
    output_max = spending.grant(spending.estimate(parts), 800)   # 0: the request is not sent
    spending.add(parts, usage, output_max)

All tokens of all requests count, so a history that is sent again counts again, as it is charged.
The estimate of a request is the provider's count of the previous one, plus a high estimate of the
parts that are new.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from vestige.providers.chat_types import Usage

REMOVED_SHARE: Final = 0.25
"""Share of the estimate by which a part that is left out lowers the next one."""

_WORDS: Final = re.compile(
    r"(?P<word>[A-Z]?[a-z]+|[A-Z]+)|(?P<digits>[0-9]+)|(?P<blank>[ \t\n\r]+)"
    r"|(?P<repeated>([!-/:-@\[-`{-~])\5*)|(?P<other>[^\x00-\x7f]+)|[\x00-\x1f\x7f]",
)

PriceTokens = Callable[[Usage], float | None]


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text, rather too high than too low.

    Tokenizers split at changes between letters, digits and marks. So ids and base64 take a token
    for one or two characters, prose for four.

    >>> estimate_tokens("The refund failed."), estimate_tokens("3f9a2b")
    (7, 6)
    """
    count = 0
    for found in _WORDS.finditer(text):
        kind, size = found.lastgroup, found.end() - found.start()
        if kind == "word":
            count += math.ceil(size / 4)
        elif kind == "digits":
            count += math.ceil(size / 3)
        elif kind == "blank":
            count += 0 if size == 1 else math.ceil(size / 8)
        elif kind == "other":
            count += math.ceil(len(found[0].encode(errors="replace")) / 2)
        else:
            count += math.ceil(size / 8)
    return count


@dataclass
class Spending:
    """The tokens and dollars that were spent, and their limits."""

    tokens_max: int
    cost_max: float | None
    price_tokens: PriceTokens
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0
    """None: the model has no known price."""
    _known: Counter[str] = field(default_factory=Counter, repr=False)
    """The parts of the last request that the provider counted."""
    _known_tokens: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        if self.price_tokens(Usage(input_tokens=1, output_tokens=1)) is None:
            self.cost_usd = None

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def left(self) -> int:
        return self.tokens_max - self.tokens

    def estimate(self, parts: Sequence[str]) -> int:
        """Estimate the tokens that the provider will count for a request of these parts."""
        counted = Counter(parts)
        added = sum(estimate_tokens(part) for part in (counted - self._known).elements())
        removed = sum(estimate_tokens(part) for part in (self._known - counted).elements())
        return self._known_tokens + added - int(removed * REMOVED_SHARE)

    def grant(self, input_tokens: int, output_max: int) -> int:
        """Return how many tokens an answer may have, at most `output_max`. 0 or less: none."""
        granted = min(output_max, self.left - input_tokens)
        if granted > 0 and self.cost_usd is not None and self.cost_max is not None:
            granted = min(granted, self._affordable_output(input_tokens, granted))
        return granted

    def _affordable_output(self, input_tokens: int, granted: int) -> int:
        """Return how many output tokens the rest of the money pays for."""
        room = (self.cost_max or 0.0) - (self.cost_usd or 0.0)
        input_cost = self._price(input_tokens, 0)
        full_cost = self._price(input_tokens, granted)
        if full_cost <= room:
            return granted
        per_token = (full_cost - input_cost) / granted
        return int((room - input_cost) / per_token) if per_token > 0 else 0

    def _price(self, input_tokens: int, output_tokens: int) -> float:
        usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
        return self.price_tokens(usage) or 0.0

    def add(self, parts: Sequence[str], usage: Usage, output_max: int) -> None:
        """Add an answered request. Counts that were not reported are the estimated ones."""
        read, written = usage.input_tokens, usage.output_tokens
        if read is None or read <= 0:
            read = self.estimate(parts)
        else:
            self._known, self._known_tokens = Counter(parts), read
        if written is None or written < 0:
            written = output_max
        self.requests += 1
        self.input_tokens += read
        self.output_tokens += written
        if self.cost_usd is not None:
            counts = Usage(
                input_tokens=read,
                output_tokens=written,
                cache_read_tokens=usage.cache_read_tokens,
                cache_write_tokens=usage.cache_write_tokens,
            )
            self.cost_usd += self.price_tokens(counts) or 0.0

    def data(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "tokens_max": self.tokens_max,
            "cost_usd": None if self.cost_usd is None else round(self.cost_usd, 6),
            "cost_max_usd": self.cost_max,
        }
