"""The engines of the secret scanner: hyperscan, ahocorasick, the standard library.

    scan = build_scan("ahocorasick", markers)
    scan(line)                        # True: the line has a marker

All three give the same results. Hyperscan compiles all expressions into one database, which takes
0.1 s. Until that is done (`compile_expressions`, or a file of an earlier process), it searches
only for literals, and `FirstStage` confirms the hits with the standard library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from vestige._runtime.re_compat import re
from vestige.errors import UsageError
from vestige.record.redaction.prefilter_markers import Marker, literals

if TYPE_CHECKING:
    from pathlib import Path

Scan = Callable[[bytes], bool]
Search = Callable[..., object]

ENGINES: Final = ("hyperscan", "ahocorasick", "re")


def choose_engine(prefer: str | None) -> str:
    """Return the quickest engine that is installed, or the preferred one."""
    if prefer is not None and prefer not in ENGINES:
        raise UsageError(f"scanner: no engine {prefer!r} (one of {', '.join(ENGINES)}).")
    for name in (prefer,) if prefer else ENGINES:
        try:
            if name == "hyperscan":
                import hyperscan  # noqa: F401
            elif name == "ahocorasick":
                import ahocorasick_rs  # noqa: F401
        except ImportError:
            if prefer:
                raise
            continue
        return name
    raise AssertionError("the standard library is always there")


def build_scan(
    engine: str, markers: tuple[Marker, ...], cache_folder: Path | None = None
) -> Scan | FirstStage:
    """Return a function that finds these markers. `FirstStage`: a faster one can be compiled."""
    if engine == "ahocorasick":
        return _ahocorasick_scan(markers)
    if engine == "re":
        return _standard_scan(markers)
    if all(marker.plain for marker in markers):
        return _literal_scan(markers)
    return _cached_expressions(markers, cache_folder) or FirstStage(markers, cache_folder)


# --- hyperscan ------------------------------------------------------------------------------


class FirstStage:
    """Search for literals with hyperscan, and confirm each hit with the standard library.

    Literals compile ten times faster than expressions, and most lines have none of them. A line
    with a literal takes longer than with all expressions compiled, so these are compiled after
    some data (`scanned_bytes`)."""

    def __init__(self, markers: tuple[Marker, ...], cache_folder: Path | None) -> None:
        import hyperscan

        from vestige.record.redaction.hyperscan_database_cache import (
            get_database,
            get_literal_database,
        )

        by_literal = literals(markers)
        unhinted = [marker.expression for marker in markers if not marker.literal]
        self.scanned_bytes = 0
        self._markers = list(by_literal.values())
        literal_database = get_literal_database(list(by_literal), cache_folder)
        unhinted_database = get_database(unhinted, cache_folder)
        find_literals, find_unhinted = literal_database.scan, unhinted_database.scan

        def make_scratches() -> tuple[Any, Any]:
            return hyperscan.Scratch(literal_database), hyperscan.Scratch(unhinted_database)

        pool = [make_scratches()]

        def has_marker(line: bytes) -> bool:
            self.scanned_bytes += len(line)
            numbers: list[int] = []
            try:
                scratches = pool.pop()
            except IndexError:
                scratches = make_scratches()
            try:
                find_literals(line, _append, 0, numbers, scratches[0])
                if not (numbers and self._is_confirmed(numbers, line)):
                    find_unhinted(line, _stop, 0, None, scratches[1])
                    pool.append(scratches)
                    return False
            except Exception:  # noqa: BLE001  # a match ends the scan; an error is not a no
                pass
            pool.append(scratches)
            return True

        self.scan: Scan = has_marker

    def _is_confirmed(self, numbers: list[int], line: bytes) -> bool:
        found = [marker for number in numbers for marker in self._markers[number]]
        if any(marker.plain for marker in found):
            return True
        expressions = dict.fromkeys(marker.expression for marker in found)
        return any(_compiled(expression)(line) for expression in expressions)


def compile_expressions(markers: tuple[Marker, ...], cache_folder: Path | None) -> Scan:
    """Compile all expressions into one database. It takes 0.1 s without the GIL."""
    from vestige.record.redaction.hyperscan_database_cache import get_database

    return _database_scan(get_database(_expressions(markers), cache_folder))


def _cached_expressions(markers: tuple[Marker, ...], cache_folder: Path | None) -> Scan | None:
    from vestige.record.redaction.hyperscan_database_cache import find_database

    database = find_database(_expressions(markers), cache_folder)
    return None if database is None else _database_scan(database)


def _expressions(markers: Iterable[Marker]) -> list[bytes]:
    return list(dict.fromkeys(marker.expression for marker in markers))


def _literal_scan(markers: tuple[Marker, ...]) -> Scan:
    from vestige.record.redaction.hyperscan_database_cache import get_literal_database

    # Not cached: these are registered secrets.
    return _database_scan(get_literal_database(list(literals(markers)), None))


def _database_scan(database: Any) -> Scan:
    import hyperscan

    # A scratch serves one scan at a time. A pool, not one per thread: a signal handler
    # that emits in the middle of a scan is a second scan in the same thread.
    pool: list[Any] = [hyperscan.Scratch(database)]
    take, give, scan = pool.pop, pool.append, database.scan

    def has_marker(line: bytes) -> bool:
        try:
            scratch = take()
        except IndexError:
            scratch = hyperscan.Scratch(database)
        try:
            scan(line, _stop, 0, None, scratch)
        except Exception:  # noqa: BLE001  # a match ends the scan; an error is not a no
            give(scratch)
            return True
        give(scratch)
        return False

    return has_marker


def _stop(*_: object) -> bool:
    return True


def _append(number: int, _start: int, _end: int, _flags: int, numbers: list[int]) -> None:
    numbers.append(number)


class LiteralSearch:
    """Find which of many ASCII literals a text contains.

    One pass of hyperscan takes a twentieth of the time of a search for each literal, but its
    database takes ten milliseconds to build. So it is built for the first long text, or after some
    short ones."""

    def __init__(self, literals: Sequence[str], long_text: int) -> None:
        """`long_text`: characters, of one or several texts, that are worth building a database."""
        self._literals = literals
        self._slow_max = long_text
        self._searched = 0
        self._find_once: Callable[[str], list[int]] | None = None

    def find(self, text: str) -> list[int]:
        """Return the numbers of the literals in a text, in order."""
        if self._find_once is not None:
            return self._find_once(text)
        self._searched += len(text)
        if self._searched >= self._slow_max:
            # A signal handler that interrupts the build must not start it again: with a timer that
            # is faster than the build, each handler would be interrupted by the next.
            self._find_once = self._find_each
            self._find_once = _build_literal_search(self._literals) or self._find_each
        return self._find_each(text)

    def _find_each(self, text: str) -> list[int]:
        return [number for number, each in enumerate(self._literals) if each in text]


def _build_literal_search(literals: Sequence[str]) -> Callable[[str], list[int]] | None:
    """Return a function that finds the numbers of literals in one pass; None without hyperscan."""
    try:
        import hyperscan

        from vestige.record.redaction.hyperscan_database_cache import get_literal_database

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


# --- the other engines ----------------------------------------------------------------------


def _ahocorasick_scan(markers: tuple[Marker, ...]) -> Scan:
    import ahocorasick_rs

    by_literal, unhinted = _confirmations(markers), _unhinted_searches(markers)
    find = ahocorasick_rs.BytesAhoCorasick(
        list(by_literal), implementation=ahocorasick_rs.Implementation.DFA
    ).find_matches_as_indexes
    confirm = list(by_literal.values())

    def has_marker(line: bytes) -> bool:
        for number, start, _ in find(line.lower(), overlapping=True):
            if confirm[number](line, start):
                return True
        return any(search(line) for search in unhinted)

    return has_marker


def _standard_scan(markers: tuple[Marker, ...]) -> Scan:
    by_literal, unhinted = _confirmations(markers), _unhinted_searches(markers)
    by_head: dict[bytes, list[tuple[bytes, Confirm]]] = {}
    for literal, confirm in by_literal.items():
        by_head.setdefault(literal[:_HEAD], []).append((literal, confirm))
    lengths = sorted({len(head) for head in by_head})
    find = re.compile(_any_of(by_head)).search

    def has_marker(line: bytes) -> bool:
        lowered = line.lower()
        found = find(lowered)
        while found:
            start = found.start()
            for length in lengths:
                for literal, confirm in by_head.get(lowered[start : start + length], ()):
                    if lowered.startswith(literal, start) and confirm(line, start):
                        return True
            found = find(lowered, start + 1)
        return any(search(line) for search in unhinted)

    return has_marker


def _any_of(literals: Iterable[bytes]) -> bytes:
    """Return an expression that matches where any of these literals starts.

    Literals with the same beginning share it: the search reads most characters once, and not
    once for each literal."""
    by_first: dict[bytes, list[bytes]] = {}
    for literal in literals:
        if not literal:
            return b""  # The beginning is itself a literal, and enough.
        by_first.setdefault(literal[:1], []).append(literal[1:])
    branches = [re.escape(first) + _any_of(rest) for first, rest in by_first.items()]
    return branches[0] if len(branches) == 1 else b"(?:" + b"|".join(branches) + b")"


Confirm = Callable[[bytes, int], bool]

_HEAD = 4
"""Bytes of each literal that the standard library searches for: whole ones compile in 50 ms."""

_REACH_BEFORE = 48
_REACH_AFTER = 80
"""The maximum distance of a match of a bounded expression from its literal."""


@cache
def _compiled(expression: bytes) -> Search:
    return re.compile(expression, re.DOTALL).search


def _unhinted_searches(markers: tuple[Marker, ...]) -> list[Search]:
    """Return searches for the markers that have no literal."""
    return [_search_after(marker) for marker in markers if not marker.literal]


def _search_after(marker: Marker) -> Search:
    common, search = marker.common, _compiled(marker.expression)
    return lambda line: common in line and search(line)


def _confirmations(markers: tuple[Marker, ...]) -> dict[bytes, Confirm]:
    """Return a function for each literal that confirms a hit at a position."""
    grouped: dict[bytes, list[Marker]] = {}
    for marker in markers:
        if marker.literal:
            grouped.setdefault(marker.literal, []).append(marker)
    return {literal: _confirmation(found) for literal, found in grouped.items()}


def _confirmation(markers: list[Marker]) -> Confirm:
    if any(marker.plain for marker in markers):
        return lambda line, start: True
    expressions = list(dict.fromkeys(marker.expression for marker in markers))

    def confirm(line: bytes, start: int) -> bool:
        # Compiled at the first hit: most literals never occur, and all take 60 ms.
        low, high = max(0, start - _REACH_BEFORE), start + _REACH_AFTER
        return any(
            _compiled(each)(line, low, high if _is_bounded(each) else len(line))
            for each in expressions
        )

    return confirm


@cache
def _is_bounded(expression: bytes) -> bool:
    return re.search(rb"[*+]|,\}", expression) is None
