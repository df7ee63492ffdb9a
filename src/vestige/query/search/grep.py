"""`grep`: text in bodies, attributes and log lines, one hit a line.

What is looked for is found as it was meant and as JSON writes it (`"` as `\\"`, `é` as
`\\u00e9`), in any script. A text that many bodies share is one hit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from vestige.errors import UsageError
from vestige.query import formatting
from vestige.query.text_layout import CommandAnswer, fit_page
from vestige.store.protocol import Hit, SearchQuery, SearchResult, Store

PARTS = ("attrs", "logs", "bodies")
"""In the order in which they are searched."""

HITS_MAX = 200
"""Collected for one answer; its budget shows fewer."""

PATTERN_MAX = 1_000


@dataclass(frozen=True, slots=True)
class GrepOptions:
    regex: bool = False
    ignore_case: bool = False
    parts: tuple[str, ...] = PARTS
    after: str | None = None

    def words(self) -> list[str]:
        """As a command has them; without the cursor."""
        found = ["--regex"] if self.regex else []
        found += ["--ignore-case"] if self.ignore_case else []
        return [*found, *(["--in", ",".join(self.parts)] if self.parts != PARTS else [])]


@dataclass
class GrepAnswer(CommandAnswer):
    """Hits, and where to go on."""

    verb: ClassVar[str] = "grep"
    budget: ClassVar[int] = 1_000

    pattern: str
    short_id: str | None
    """The run that was searched; None: all."""
    options: GrepOptions
    searched: SearchResult

    def lines(self, budget: int) -> list[str]:
        hits = self.searched.hits
        if not hits and self.searched.cursor is None:
            return [self._nothing()]
        rows = [_say(hit) for hit in hits]

        def more(left_out: int) -> str:
            known = "" if self.searched.cursor is None else " at least"
            again = self._again(hits[len(rows) - left_out - 1].cursor)
            return f"…{known} {left_out} more hits: {again}"

        end = []
        if self.searched.cursor is not None:
            end = [
                f"… stopped: {self.searched.stopped}. Go on: {self._again(self.searched.cursor)}"
            ]
        return fit_page([], rows, end, budget, more)

    def _again(self, cursor: str) -> str:
        own = [self.pattern, *([self.short_id] if self.short_id else [])]
        return self.command("grep", *self.options.words(), "--after", cursor, *_dashed(own))

    def _nothing(self) -> str:
        where = self.short_id or "the store"
        rest = " after that" if self.options.after else ""
        hints = []
        if not self.options.ignore_case:
            hints.append("--ignore-case")
        if self.options.parts != PARTS:
            hints.append("without --in")
        if self.short_id:
            hints.append("without the id: in all runs")
        told = f" Try: {', '.join(hints)}." if hints and not rest else ""
        return f"No hits{rest} for {formatting.single_line(self.pattern, 80)!r} in {', '.join(self.options.parts)} of {where}.{told}"

    def data(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "hits": [
                {
                    "run_id": hit.span_ref.run_id,
                    "span_id": hit.span_ref.span_id,
                    "short_id": hit.span_ref.short_id,
                    "part": hit.part,
                    "before": _whole(hit.before),
                    "match": _whole(hit.match),
                    "after": _whole(hit.after),
                    "start_byte": hit.start_byte,
                    "count": hit.count,
                    "bodies": hit.bodies,
                }
                for hit in self.searched.hits
            ],
            "next": self.searched.cursor,
        }


def grep_answer(
    store: Store,
    pattern: str,
    run: tuple[str, str] | None = None,
    options: GrepOptions | None = None,
) -> GrepAnswer:
    """`run`: its id and short id."""
    options = options or GrepOptions()
    searched = store.search(
        wanted(pattern, options, run[0] if run else None), options.after, HITS_MAX
    )
    return GrepAnswer(pattern, run[1] if run else None, options, searched)


def runs_with(store: Store, text: str) -> tuple[str, ...]:
    """Runs with this text in a body, in any case: of the newest bodies, as many as a search reads."""
    if not text or len(text) > PATTERN_MAX:
        return ()
    options = GrepOptions(ignore_case=True, parts=("bodies",))
    hits = store.search(wanted(text, options), None, HITS_MAX).hits
    return tuple(dict.fromkeys(hit.span_ref.run_id for hit in hits))


def wanted(pattern: str, options: GrepOptions, run_id: str | None = None) -> SearchQuery:
    """What a store is asked for."""
    compiled, literals = _compile(pattern, options)
    return SearchQuery(
        compiled, literals, options.ignore_case, run_id, options.parts, options.regex
    )


def _compile(pattern: str, options: GrepOptions) -> tuple[re.Pattern[str], tuple[str, ...]]:
    if not pattern or len(pattern) > PATTERN_MAX:
        raise UsageError(f"grep: a pattern has 1 to {PATTERN_MAX} characters.")
    flags = re.IGNORECASE if options.ignore_case else re.NOFLAG
    if options.regex:
        try:
            return re.compile(pattern, flags), ()
        except (re.error, OverflowError, RecursionError) as error:
            raise UsageError(
                f"grep: {formatting.single_line(pattern, 80)!r} is no regular expression ({error})."
                " Without --regex it is searched for as it stands."
            ) from error
    forms = dict.fromkeys(
        [pattern, json.dumps(pattern, ensure_ascii=False)[1:-1], json.dumps(pattern)[1:-1]]
    )
    # A byte that is no text is in no name, message or attribute, and the database takes none.
    vague = formatting.to_valid_utf8(pattern) != pattern or (
        options.ignore_case and not pattern.isascii()
    )
    literals = () if vague else tuple(forms)
    return re.compile("|".join(map(re.escape, forms)), flags), literals


def parse_parts(text: str) -> tuple[str, ...]:
    """`bodies,logs`, in the order in which they are searched."""
    named = {part.strip() for part in text.split(",") if part.strip()}
    if not named or not named <= set(PARTS):
        shown = formatting.single_line(text, 40)
        raise UsageError(f"--in {shown!r}: expected some of {', '.join(PARTS)}, with commas.")
    return tuple(part for part in PARTS if part in named)


def _say(hit: Hit) -> str:
    before, match, after = (_shown(part) for part in (hit.before, hit.match, hit.after))
    times = f" x{hit.count}" if hit.count > 1 else ""
    shared = f" (in {hit.bodies} bodies)" if hit.bodies > 1 else ""
    at = f" @{hit.start_byte}" if hit.start_byte is not None else ""
    return f'{hit.span_ref.short_id} {hit.part}{at}{times}{shared}: "{before}«{match}»{after}"'


def _shown(text: str) -> str:
    """One line, without the edges stripped: the parts stand beside each other."""
    return formatting.single_line(f"|{_whole(text)}|", 200)[1:-1]


def _whole(text: str) -> str:
    """Bytes that are no text came as surrogates; nobody can print those."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


def _dashed(own: Sequence[str]) -> list[str]:
    """A pattern that begins with a dash is no option."""
    return ["--", *own] if own[0].startswith("-") else list(own)
