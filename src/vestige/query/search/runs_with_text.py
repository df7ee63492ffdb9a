"""Find the runs that contain the words of a filter, and where.

found = add_runs_with_text(store, terms)
store.search_runs(RunFilter(terms=found.terms)); found.hits[run_id]
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from vestige.query.search.grep import (
    HITS_MAX,
    PARTS,
    PATTERN_MAX,
    NearPattern,
    Word,
    compile_near,
    redact_hit,
)
from vestige.query.search.run_titles_and_results import find_runs_named
from vestige.store.protocol import Hit, SearchQuery, Store, Term

PAGES_MAX: Final = 10
"""Pages of hits that are read to find all runs with a text."""

_ID_PREFIX: Final = re.compile(r"[0-9a-fA-F]{4,}[0-9a-fA-F-]{4,}")
"""The beginning of a recorded id, which is searched as the id of a run, too."""


@dataclass(frozen=True, slots=True)
class RunsWithText:
    """The runs that contain a text."""

    named: Sequence[str] = ()
    """Runs with the text in their name, title, task or result, or with this id."""
    hits: Mapping[str, Hit] = field(default_factory=dict)
    """A match of each run in its bodies, attributes or log records, by run id."""
    is_complete: bool = True
    """False if only the newest part of the store was searched."""

    def ids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.named, *self.hits]))


@dataclass(frozen=True, slots=True)
class SearchedTerms:
    """The terms of a filter with the runs that contain them."""

    terms: tuple[Term, ...]
    hits: Mapping[str, Hit]
    """A match by run id, redacted; none if the name, title, task or result of the run matches."""


def add_runs_with_text(store: Store, terms: Sequence[Term]) -> SearchedTerms:
    """Add to the terms `text` and `words` the runs that contain them."""
    searched: list[Term] = []
    hits: dict[str, Hit] = {}
    named: set[str] = set()
    for term in terms:
        if term.key not in ("text", "words"):
            searched.append(term)
            continue
        if term.key == "text":
            found = find_runs_with_phrase(store, str(term.value))
        else:
            words = term.value if isinstance(term.value, tuple) else (str(term.value),)
            found = find_runs_with_words(store, words)
        partial = term.key == "words" and not found.is_complete
        searched.append(replace(term, also=found.ids(), partial=partial))
        if not term.negated:
            named |= set(found.named)
            hits = {**found.hits, **hits}
    shown = {run: redact_hit(hit) for run, hit in hits.items() if run not in named}
    return SearchedTerms(tuple(searched), shown)


def find_runs_with_phrase(store: Store, phrase: str) -> RunsWithText:
    """Return the runs with a phrase in a body, title or result, ignoring case, among the newest.

    A body that several runs share is a match of one of them (store/sqlite/read/search.py).
    """
    if not phrase or len(phrase) > PATTERN_MAX:
        return RunsWithText()
    pattern = compile_near([Word(phrase, is_phrase=True)], ignore_case=True)
    hits, is_complete = _find_hits(store, pattern, ("bodies",))
    return RunsWithText(find_runs_named(store, [pattern.pattern]), hits, is_complete)


def find_runs_with_words(store: Store, words: Sequence[str]) -> RunsWithText:
    """Return the newest runs that have words near each other in one text, or in their title."""
    if not all(words) or sum(map(len, words)) > PATTERN_MAX:
        return RunsWithText()
    each = [Word(word) for word in words]
    shown = [compile_near([word], ignore_case=True).pattern for word in each]
    named = find_runs_named(store, shown)
    hits, is_complete = _find_hits(store, compile_near(each, ignore_case=True), PARTS)
    if len(words) == 1 and _ID_PREFIX.fullmatch(words[0]):
        named += [run.id for run in store.find_runs(words[0])]
    return RunsWithText(named, hits, is_complete)


def _find_hits(
    store: Store, near: NearPattern, parts: tuple[str, ...]
) -> tuple[dict[str, Hit], bool]:
    """Return the first hit of each run, and whether the search is complete."""
    query = SearchQuery(near.pattern, near.literals, True, None, parts, once_per_run=True)
    found: dict[str, Hit] = {}
    cursor = None
    for _ in range(PAGES_MAX):
        result = store.search(query, cursor, HITS_MAX)
        for hit in result.hits:
            found.setdefault(hit.span_ref.run_id, hit)
        cursor = result.cursor
        if cursor is None:
            break
    return found, cursor is None
