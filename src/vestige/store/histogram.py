"""Histograms of durations, in logarithmic buckets: four per power of two.

Quantiles are known to about 10 %, and histograms of two days can be added.
"""

from __future__ import annotations

from collections.abc import Mapping


def bucket(duration_ns: int) -> int:
    """Return the bucket of a duration: its power of two, and a quarter of that."""
    length = duration_ns.bit_length()
    return length * 4 + ((duration_ns >> (length - 3)) & 3) if length > 2 else duration_ns


def bucket_upper_ns(number: int) -> int:
    """Return the longest duration of a bucket."""
    if number < 12:
        return number
    length, quarter = divmod(number, 4)
    return ((4 + quarter + 1) << (length - 3)) - 1


def quantile_ns(histogram: Mapping[int, int], share: float) -> int | None:
    """Return the duration that `share` of all did not exceed (the bucket's upper edge)."""
    total = sum(histogram.values())
    if not total:
        return None
    threshold = share * total
    count = 0
    for number in sorted(histogram):
        count += histogram[number]
        if count >= threshold:
            return bucket_upper_ns(number)
    return bucket_upper_ns(max(histogram))
