"""Find which literals a long text contains, with one pass of hyperscan.

    find = build_literal_search(("ghp_", "sk-ant-"))      # None without hyperscan
    find(text)                                            # numbers of the literals in the text

One pass takes less time than one search for each literal when there are hundreds of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vestige.record.redaction.scanner_cache import get_literal_database

LiteralSearch = Callable[[str], list[int]]


def build_literal_search(literals: Sequence[str]) -> LiteralSearch | None:
    """Return a function that finds ASCII literals in a text; None if there is no engine."""
    try:
        import hyperscan

        database = get_literal_database([(each.encode(), False) for each in literals], None)
        pool: list[Any] = [hyperscan.Scratch(database)]
    except Exception:  # noqa: BLE001  # without the engine, each literal is searched for
        return None
    scan = database.scan

    def find(text: str) -> list[int]:
        numbers: list[int] = []
        try:
            scratch = pool.pop()
        except IndexError:  # another thread, or a signal handler, is in the middle of a scan
            scratch = hyperscan.Scratch(database)
        # Unpaired surrogates are no literals, and keep the bytes around them in place.
        scan(text.encode("utf-8", "surrogatepass"), _append, 0, numbers, scratch)
        pool.append(scratch)
        return sorted(set(numbers))

    return find


def _append(number: int, _start: int, _end: int, _flags: int, numbers: list[int]) -> None:
    numbers.append(number)
