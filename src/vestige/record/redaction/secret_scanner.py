"""Decide quickly whether an encoded journal line may contain a secret.

    scanner = Scanner()
    scanner.suspicious(line)        # True: search the record (record/redaction/redactor.py)

A wrong yes costs a slow search; a no must never be wrong. The scanner looks for the markers of all
rules (record/redaction/prefilter_markers.py) and for registered values. No engine is imported
before a Scanner is created.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from vestige.record.redaction.masking import words_of
from vestige.record.redaction.prefilter_markers import all_markers, key_marker, literal_marker
from vestige.record.redaction.scan_engines import (
    FirstStage,
    Scan,
    build_scan,
    choose_engine,
    compile_expressions,
)

if TYPE_CHECKING:
    from pathlib import Path

SEPARATE_MAX = 128
"""Registered needles with their own database: the forms of about thirty secrets, built in 5 ms."""

NEEDLE_MAX = 64
"""Bytes of a needle that are searched for. Engines refuse long literals."""

FIRST_STAGE_BYTES_MAX = 128 * 1024
"""Bytes after which compiling all expressions costs less than the first stage does."""


class Scanner:
    """Find markers of secrets in encoded lines. Any thread may scan at any time.

    `suspicious` is replaced when the scanner learns something, so read it for each scan."""

    suspicious: Scan

    def __init__(
        self,
        engine: str | None = None,
        extra_keys: Iterable[str] = (),
        cache_folder: Path | None = None,
    ) -> None:
        """`cache_folder`: a folder for the compiled rules, for the next process."""
        self.engine = choose_engine(engine)
        self._cache_folder = cache_folder
        self._markers = (*all_markers(), *map(key_marker, filter(words_of, extra_keys)))
        self._needles: tuple[bytes, ...] = ()
        self._first_stage: FirstStage | None = None
        self._learned: Scan | None = None
        self._build_rules()
        self._combine()

    def _build_rules(self) -> None:
        built = build_scan(self.engine, self._markers, self._cache_folder)
        self._first_stage = built if isinstance(built, FirstStage) else None
        self._rules: Scan = built.scan if isinstance(built, FirstStage) else built

    def _combine(self) -> None:
        rules, learned = self._rules, self._learned
        if learned is None:
            self.suspicious = rules
        else:
            self.suspicious = lambda line: rules(line) or learned(line)

    def learn(self, needles: Iterable[bytes]) -> None:
        """Find these bytes from now on.

        A few needles have their own database, so that the program's thread does not have to wait
        for the large one."""
        self._needles = tuple(dict.fromkeys((*self._needles, *_shortest(needles))))
        if not self._needles:
            return
        # Ignoring case is precise enough: a hit only causes a search.
        markers = tuple(map(literal_marker, self._needles))
        if len(markers) <= SEPARATE_MAX:
            built = build_scan(self.engine, markers)
            assert not isinstance(built, FirstStage), "literals have one stage"
            self._learned = built
        else:
            self._needles, self._markers = (), self._markers + markers
            self._cache_folder = None  # The rules contain secrets from here on.
            self._build_rules()
            self._learned = None
        self._combine()

    def learn_keys(self, keys: Iterable[str]) -> None:
        """Find lines that may contain one of these keys from now on."""
        new = tuple(map(key_marker, filter(words_of, keys)))
        self._markers += tuple(marker for marker in new if marker not in self._markers)
        self._build_rules()
        self._combine()

    # --- the second stage ---------------------------------------------------------------

    @property
    def is_complete(self) -> bool:
        """True if the rules are in their fastest form."""
        return self._first_stage is None

    @property
    def should_complete(self) -> bool:
        """True if enough was scanned to make `complete` worth its time."""
        stage = self._first_stage
        return stage is not None and stage.scanned_bytes >= FIRST_STAGE_BYTES_MAX

    def compile(self) -> tuple[object, Scan]:
        """Compile the rules into their fastest form, for `complete`. Scans go on meanwhile."""
        return self._markers, compile_expressions(self._markers, self._cache_folder)

    def complete(self, compiled: tuple[object, Scan]) -> None:
        """Use the compiled rules, unless the scanner has learned something since."""
        markers, scan = compiled
        if markers is self._markers and not self.is_complete:
            self._rules, self._first_stage = scan, None
            self._combine()


def _shortest(needles: Iterable[bytes]) -> tuple[bytes, ...]:
    """Drop the needles that contain another one: the shorter one finds them too."""
    shortest: list[bytes] = []
    beginnings = {needle[:NEEDLE_MAX] for needle in needles}
    for needle in sorted(beginnings, key=lambda each: (len(each), each)):
        if not any(shorter in needle for shorter in shortest):
            shortest.append(needle)
    return tuple(shortest)
