"""The `grep` command: search text in bodies, attributes and log records.

Plain and JSON-escaped text both match (`"` and `\\"`, `é` and `\\u00e9`). Text that many bodies
share is one hit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from vestige.errors import UsageError
from vestige.query import formatting
from vestige.query.search.run_titles_and_results import read_run_texts
from vestige.query.text_layout import CommandAnswer, fit_page
from vestige.record.redaction.output_redaction import redact_text
from vestige.store.protocol import Hit, SearchQuery, SearchResult, Store

PARTS = ("attrs", "logs", "bodies")
"""The parts to search, in this order."""

HITS_MAX = 200
"""Hits collected for one answer. Its budget may show fewer."""

PATTERN_MAX = 1_000

NEAR = 200
"""Characters within which words are near each other."""
WORDS_MAX = 8
"""Words that are searched near each other; any further ones are not."""

SAME_TEXT = 40
"""Characters around a match that decide whether the next match is the same text."""

TITLES_MAX = 20
"""Runs whose titles are read for one answer."""
TITLE_SHOWN = 40


@dataclass(frozen=True, slots=True)
class GrepOptions:
    regex: bool = False
    ignore_case: bool = False
    parts: tuple[str, ...] = PARTS
    after: str | None = None
    words: bool = False
    """Search the words of the pattern near each other, in any order."""

    def arguments(self) -> list[str]:
        """Return the command-line options, without the cursor."""
        arguments = ["--regex"] if self.regex else []
        arguments += ["--words"] if self.words else []
        arguments += ["--ignore-case"] if self.ignore_case else []
        return arguments + (["--in", ",".join(self.parts)] if self.parts != PARTS else [])


@dataclass
class GrepAnswer(CommandAnswer):
    """Hits, and the cursor to continue from."""

    verb: ClassVar[str] = "grep"
    budget: ClassVar[int] = 1_000

    pattern: str
    short_id: str | None
    """The run that was searched; None if all were."""
    options: GrepOptions
    searched: SearchResult
    runs: Mapping[str, str] = field(default_factory=dict)
    """Title and date of runs by id, for people."""

    def lines(self, budget: int) -> list[str]:
        hits = self.searched.hits
        if not hits and self.searched.cursor is None:
            return [self._no_matches()]
        merged = merge_parents(hits)
        rows = [self._row(row) for row in merged]

        def more(left_out: int) -> str:
            at_least = "" if self.searched.cursor is None else " at least"
            command = self._continue(merged[len(rows) - left_out - 1].last.cursor)
            return f"…{at_least} {left_out} more matches: {command}"

        end = []
        if self.searched.cursor is not None:
            command = self._continue(self.searched.cursor)
            end = [f"… stopped: {self.searched.stopped}. Continue: {command}"]
        return fit_page([], rows, end, budget, more)

    def _row(self, row: HitRow) -> str:
        """Return a hit on one line; on a terminal with its run, and without escapes of JSON."""
        hit = row.hit
        if self.columns is None:
            return _format_hit(hit, row.others)
        run = "" if self.short_id else self.runs.get(hit.span_ref.run_id, "")
        return _format_hit(_unescape_hit(hit), row.others, run)

    def _continue(self, cursor: str) -> str:
        positional = [self.pattern, *([self.short_id] if self.short_id else [])]
        if self.pattern.startswith("-"):
            positional.insert(0, "--")
        return self.command("grep", *self.options.arguments(), "--after", cursor, *positional)

    def _no_matches(self) -> str:
        hints = []
        if not self.options.ignore_case:
            hints.append("--ignore-case")
        if self.options.parts != PARTS:
            hints.append("without --in")
        if self.short_id:
            hints.append("without the id, to search all runs")
        pattern = formatting.single_line(self.pattern, 80)
        scope = f"{', '.join(self.options.parts)} of {self.short_id or 'the store'}"
        if self.options.after:
            return f"No more matches for {pattern!r} in {scope}."
        hint = f" Try: {', '.join(hints)}." if hints else ""
        return f"No matches for {pattern!r} in {scope}.{hint}"

    def data(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "hits": [hit_data(hit) for hit in self.searched.hits],
            "next": self.searched.cursor,
        }


def hit_data(hit: Hit) -> dict[str, Any]:
    """Return a hit as JSON."""
    return {
        "run_id": hit.span_ref.run_id,
        "span_id": hit.span_ref.span_id,
        "short_id": hit.span_ref.short_id,
        "part": hit.part,
        "before": _to_printable(hit.before),
        "match": _to_printable(hit.match),
        "after": _to_printable(hit.after),
        "start_byte": hit.start_byte,
        "count": hit.count,
        "bodies": hit.bodies,
    }


def grep_answer(
    store: Store,
    pattern: str,
    run: tuple[str, str] | None = None,
    options: GrepOptions | None = None,
) -> GrepAnswer:
    """Search one run, given as (id, short id), or all runs."""
    options = options or GrepOptions()
    run_id, short_id = run or (None, None)
    query = build_search_query(pattern, options, run_id)
    searched = store.search(query, options.after, HITS_MAX)
    hits = [redact_hit(hit) for hit in searched.hits]
    titles = {} if run_id else _find_titles(store, hits)
    searched = msgspec.structs.replace(searched, hits=hits)
    return GrepAnswer(pattern, short_id, options, searched, titles)


def _find_titles(store: Store, hits: Sequence[Hit]) -> dict[str, str]:
    """Return the title and the date of the first runs of the hits, by id."""
    ids = list(dict.fromkeys(hit.span_ref.run_id for hit in hits))[:TITLES_MAX]
    runs = [run for run_id in ids for run in store.find_runs(run_id)[:1]]
    texts = read_run_texts(store, runs)
    return {
        run.id: f"{formatting.single_line(texts[run.id].title or run.name, TITLE_SHOWN)},"
        f" {(formatting.timestamp(run.started_ns) or '')[:10]}"
        for run in runs
    }


def redact_hit(hit: Hit) -> Hit:
    """Redact an excerpt as one text: a match may separate a key from its secret."""
    excerpt = hit.before + hit.match + hit.after
    redacted = redact_text(excerpt)
    if redacted == excerpt:
        return hit
    start = hit.before + hit.match
    if redacted.startswith(start):
        return msgspec.structs.replace(hit, after=redacted[len(start) :])
    end = hit.match + hit.after
    if redacted.endswith(end):
        return msgspec.structs.replace(hit, before=redacted[: len(redacted) - len(end)])
    return msgspec.structs.replace(hit, before="", match=redacted, after="")


def build_search_query(
    pattern: str, options: GrepOptions, run_id: str | None = None
) -> SearchQuery:
    compiled, literals = _compile(pattern, options)
    return SearchQuery(
        compiled, literals, options.ignore_case, run_id, options.parts, options.regex
    )


def _compile(pattern: str, options: GrepOptions) -> tuple[re.Pattern[str], tuple[str, ...]]:
    if not pattern or len(pattern) > PATTERN_MAX:
        raise UsageError(
            f"grep: the pattern has {len(pattern)} characters (expected 1 to {PATTERN_MAX})."
        )
    flags = re.IGNORECASE if options.ignore_case else re.NOFLAG
    if options.regex:
        try:
            return re.compile(pattern, flags), ()
        except (re.error, OverflowError, RecursionError) as error:
            shown = formatting.single_line(pattern, 80)
            raise UsageError(
                f"grep: invalid regular expression {shown!r} ({error})."
                " Without --regex it is searched as plain text."
            ) from error
    words = split_words(pattern) if options.words else [Word(pattern, is_phrase=True)]
    near = compile_near(words, options.ignore_case)
    return near.pattern, near.literals


@dataclass(frozen=True, slots=True)
class Word:
    """A word, which is searched at the beginning of words; or a phrase, which is anywhere."""

    text: str
    is_phrase: bool = False


def split_words(pattern: str) -> list[Word]:
    """Return the words and quoted phrases of a text."""
    found = _WORD.findall(pattern)
    words = [Word(phrase or word, bool(phrase)) for phrase, word in found]
    return list(dict.fromkeys(words))[:WORDS_MAX] or [Word(pattern, is_phrase=True)]


_WORD = re.compile(r'"([^"]+)"|([^\s"]+)')


@dataclass(frozen=True, slots=True)
class NearPattern:
    pattern: re.Pattern[str]
    literals: tuple[str, ...]
    """Literals of which every match contains one; empty if the database cannot search them."""


def compile_near(words: Sequence[Word], ignore_case: bool) -> NearPattern:
    """Compile a pattern that matches a word with all other words near after it."""
    each = [_spell(word) for word in words]
    alternatives = []
    for at, word in enumerate(each):
        others = each[:at] + each[at + 1 :]
        ahead = "".join(f"(?=(?s:.{{0,{NEAR}}}?){other})" for other in others)
        alternatives.append(word + ahead)
    longest = max((word.text for word in words), key=len)
    # The database can search literals, but not invalid UTF-8, and it folds the case of ASCII only.
    searchable = formatting.to_valid_utf8(longest) == longest and (
        not ignore_case or longest.isascii()
    )
    flags = re.IGNORECASE if ignore_case else re.NOFLAG
    literals = _spellings(longest) if searchable else ()
    return NearPattern(re.compile("|".join(alternatives), flags), literals)


def _spell(word: Word) -> str:
    """Return the expression for a word as it is, and as JSON escapes it."""
    forms = [re.escape(form) for form in _spellings(word.text)]
    if word.is_phrase or not (word.text[0].isascii() and word.text[0].isalnum()):
        return f"(?:{'|'.join(forms)})"
    # What comes before is tested after the word, so that the search begins with a literal. A word
    # also begins after an escaped line break, and at a capital inside a name.
    size = len(word.text)
    begins = (
        f"(?<![0-9A-Za-z](?s:.{{{size}}}))",
        f"(?<=\\\\[nrt](?s:.{{{size}}}))",
        f"(?-i:(?<=[0-9a-z][A-Z](?s:.{{{size - 1}}})))",
    )
    if len(forms) > 1:  # Escapes have other lengths.
        return f"(?:(?<![0-9A-Za-z])(?:{'|'.join(forms)}))"
    return f"{forms[0]}(?:{'|'.join(begins)})"


def _spellings(word: str) -> tuple[str, ...]:
    """Return a text as it is, and as JSON escapes it."""
    escaped = (json.dumps(word, ensure_ascii=False)[1:-1], json.dumps(word)[1:-1])
    return tuple(dict.fromkeys((word, *escaped)))


def parse_parts(text: str) -> tuple[str, ...]:
    """Parse a list such as `bodies,logs`. Return the parts in the order of `PARTS`."""
    names = {part.strip() for part in text.split(",") if part.strip()}
    if not names or not names <= set(PARTS):
        shown = formatting.single_line(text, 40)
        raise UsageError(
            f"--in: invalid value {shown!r} (expected some of {', '.join(PARTS)}, with commas)."
        )
    return tuple(part for part in PARTS if part in names)


@dataclass(slots=True)
class HitRow:
    """A hit, and how many spans after it have the same text in their attributes."""

    hit: Hit
    last: Hit
    others: int = 0


def merge_parents(hits: Sequence[Hit]) -> list[HitRow]:
    """Return one row for adjacent hits of one text: an error is an attribute of parents, too."""
    rows: list[HitRow] = []
    for hit in hits:
        if rows and _same_text(rows[-1].hit, hit):
            rows[-1].last = hit
            rows[-1].others += 1
        else:
            rows.append(HitRow(hit, hit))
    return rows


def _same_text(one: Hit, other: Hit) -> bool:
    def key(hit: Hit) -> tuple[str, str, str]:
        text = hit.before[-SAME_TEXT:] + hit.match + hit.after[: SAME_TEXT // 2]
        return hit.span_ref.run_id, hit.part, text

    return one.part == "attrs" and key(one) == key(other)


_ESCAPE = re.compile(r'\\(["\\/nrt])')
_ESCAPED = {"n": "\n", "r": "\n", "t": "\t"}


def format_match(hit: Hit) -> str:
    """Return a match with the text after it on one line, without escapes of JSON."""
    plain = _unescape_hit(hit)
    return f"«{_format_text(plain.match)}»{_format_text(plain.after)}"


def _unescape_hit(hit: Hit) -> Hit:
    excerpts = {name: _unescape(getattr(hit, name)) for name in ("before", "match", "after")}
    return msgspec.structs.replace(hit, **excerpts)


def _unescape(text: str) -> str:
    """Replace the short escapes of JSON, as far as an excerpt has them whole."""
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), text)


def _format_hit(hit: Hit, others: int = 0, run: str = "") -> str:
    before, match, after = (_format_text(part) for part in (hit.before, hit.match, hit.after))
    times = f" ×{hit.count}" if hit.count > 1 else ""
    shared = f" (in {hit.bodies} bodies)" if hit.bodies > 1 else ""
    at = f" @{hit.start_byte}" if hit.start_byte is not None else ""
    spans = f" (+{others} {'span' if others == 1 else 'spans'})" if others else ""
    place = f"{hit.span_ref.short_id} {hit.part}{at}{times}{shared}{spans}"
    return f'{place}{f" ({run})" if run else ""}: "{before}«{match}»{after}"'


def _format_text(text: str) -> str:
    # The bars keep `single_line` from stripping the spaces at both ends.
    return formatting.single_line(f"|{_to_printable(text)}|", 200)[1:-1]


def _to_printable(text: str) -> str:
    """Replace surrogates, which the store returns for invalid UTF-8."""
    return text.encode(errors="surrogateescape").decode(errors="replace")
