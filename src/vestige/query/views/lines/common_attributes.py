"""Attributes that a line of a run can leave out: equal on all spans, or derivable from the line.

common = find_common(run.spans)            # {"app": "shop"}: shown once, in the head
is_redundant(span, "tool_name", "search")  # True for a tool span named `search`
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from vestige.query import formatting
from vestige.record.run import SpanInfo
from vestige.record.types import Scalar

COMMON_SHARE: Final = 0.9
"""Share of the spans from which on an attribute is shown once for all of them."""
SPANS_MIN: Final = 4
"""In shorter runs an equal value is a coincidence."""
SHOWN: Final = 6
VALUE_SHOWN: Final = 40

REPEATED_KINDS: Final = frozenset(["openinference.span.kind", "traceloop.span.kind", "span.kind"])
_NAMES: Final = frozenset(
    ["tool_name", "tool.name", "gen_ai.tool.name", "gen_ai.operation.name", "agent.name"]
)
TOKEN_TOTALS: Final = frozenset(
    ["llm.token_count.total", "token_count.total", "total_tokens", "gen_ai.usage.total_tokens"]
)
_MATCHED: Final = frozenset(["tool_call.matched", "tool_call_id", "tool_call.span"])
"""Attributes about the matching of a tool span with its request; `span` shows them."""


def find_common(spans: Sequence[SpanInfo]) -> dict[str, Scalar]:
    """Return the attributes that more than 90 % of the spans have with the same value."""
    return find_common_attributes([span.attributes for span in spans])


def find_common_attributes(spans: Sequence[Mapping[str, Scalar]]) -> dict[str, Scalar]:
    """Return the same for the attributes of each span."""
    if len(spans) < SPANS_MIN:
        return {}
    # A common attribute is on at least one of any few spans, so these name all candidates.
    few = spans[: len(spans) // 10 + 1]
    keys = {key for own in few for key in own}
    counts: dict[str, Counter[tuple[type, Scalar]]] = {key: Counter() for key in keys}
    for own in spans:
        for key, value in own.items():
            if key in keys:
                counts[key][type(value), value] += 1
    common: dict[str, Scalar] = {}
    for key in sorted(keys):
        ((_, value), count) = counts[key].most_common(1)[0]
        if count > COMMON_SHARE * len(spans):
            common[key] = value
    return common


def find_repeated_attributes(spans: Sequence[Mapping[str, Scalar]]) -> dict[str, Scalar]:
    """Return the attributes that at least half of the spans have, all with one value."""
    counts: Counter[str] = Counter(key for own in spans for key in own)
    if len(spans) < SPANS_MIN:
        return {}
    often = {key for key, count in counts.items() if 2 * count >= len(spans)}
    values: dict[str, set[tuple[type, Scalar]]] = {key: set() for key in often}
    for own in spans:
        for key in often & own.keys():
            values[key].add((type(own[key]), own[key]))
    return {key: value for key, found in values.items() if len(found) == 1 for _, value in found}


def render_common(common: Mapping[str, Scalar]) -> str:
    """Return the common attributes as a line of the head; empty if there are none."""
    shown = [
        f"{formatting.single_line(key, 40)}={formatting.value(value, VALUE_SHOWN)}"
        for key, value in common.items()
    ]
    if not shown:
        return ""
    more = f" +{len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    return f"all spans: {' '.join(shown[:SHOWN])}{more}"


def is_redundant(span: SpanInfo, key: str, value: Scalar) -> bool:
    """Return True for an attribute that repeats the type, the name or the tokens of its line."""
    if key in REPEATED_KINDS or key in TOKEN_TOTALS or key in _MATCHED:
        return key != "tool_call_id" or "tool_call.matched" in span.attributes
    if key in _NAMES:
        return isinstance(value, str) and value in span.name
    return False
