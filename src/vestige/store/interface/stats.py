"""Sums of runs, spans, tokens and durations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

GROUPS: Final = ("name", "model", "tool", "component", "type", "day")
"""The groupings of rollups. A day counts runs; its tokens are those of its model calls."""

USAGE_KEYS: Final = ("input_tokens", "output_tokens", "cost_usd")
"""Attributes with which a model call reports its usage."""


class Sum(msgspec.Struct):
    """The sums of one group."""

    key: str
    count: int = 0
    errors: int = 0
    duration_ns: int = 0
    histogram: Counter[int] = msgspec.field(default_factory=Counter)
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


class ModelSum(msgspec.Struct, frozen=True):
    """The tokens of a group's calls to one model, from which its cost is computed."""

    key: str
    model: str
    count: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int


class RecordedSum(NamedTuple):
    """Calls to one model, and the cost that the program recorded for them."""

    calls: ModelSum
    cost_usd: float | None


class LatestCall(msgspec.Struct, frozen=True):
    """A run with its number of model calls, and the request body of the last one."""

    run_id: str
    outcome: str
    turns: int
    body: int | None
    size_bytes: int


class StatsReader(Protocol):
    """The methods that read sums."""

    def sum_rollups(self, by: str, since_day: str | None) -> Sequence[Sum]:
        """Sum the rollups by a group of `GROUPS`."""

    def sum_models(self, by: str, since_day: str | None) -> Sequence[ModelSum]:
        """Sum the tokens of model calls by group and model. Outer spans repeat them."""

    def find_first_day(self) -> str | None:
        """Return the first day that has rollups."""

    def sum_hours(self, since_ns: int) -> Mapping[int, Sum]:
        """Sum stored runs by the hour since the epoch."""

    def sum_hour_models(self, since_ns: int) -> Sequence[ModelSum] | None:
        """Sum model calls by hour and model. Return None if there are too many spans."""

    def sum_model_calls(self, run_ids: Sequence[str]) -> Sequence[RecordedSum]:
        """Return sums of model calls by run and model, with the cost if the program recorded it.

        Calls with a recorded cost are summed separately from the others. A call inside another
        that has usage (an HTTP call inside a client's span) is the same call, and counts once.
        """

    def read_latest_calls(self, since_ns: int | None, runs_max: int) -> Sequence[LatestCall]:
        """Return the latest runs with model calls, newest first; fewer if they are very long."""

    def count_tool_calls(self, run_ids: Iterable[str]) -> Mapping[str, tuple[int, int]]:
        """Return the calls and the successful calls of each tool. Open calls count as calls."""

    def read_prompt_assemblies(self, run_ids: Iterable[str], limit: int) -> Sequence[int]:
        """Return the body ids of prompt segments, the latest first."""

    def read_responses(self, run_ids: Iterable[str], limit: int, size_max: int) -> Sequence[int]:
        """Return the body ids of model responses up to a size, the latest first."""


def to_count(value: object) -> int:
    """Return a token count, or 0 if the value is not a valid count."""
    return value if type(value) is int and 0 < value < 2**53 else 0
