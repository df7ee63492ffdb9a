"""Quantiles of durations as a person reads them."""

from __future__ import annotations

from collections.abc import Mapping

from vestige.query import formatting
from vestige.store.histogram import quantile_ns


def format_quantile(histogram: Mapping[int, int], share: float) -> str:
    """Return a quantile as the upper bound that a histogram knows: `≤167.8ms`."""
    upper = formatting.duration(quantile_ns(histogram, share))
    return f"≤{upper}" if upper else "–"
