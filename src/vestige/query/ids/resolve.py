"""Find what a person has at hand: an id, its beginning, a short id, another tool's id, a log line.

    resolve(store, "r7.s12")                        # a span
    resolve(store, "toolu_01A", want="run")         # the run of the span that has this attribute
    resolve(store, "r7#3")                          # its snapshot 3
    resolve(store, "GET /runs/5d1e... failed")      # the id inside the text
    resolve(store, "INFO shop: stock is low")       # where that was logged, or printed

Never a guess: an id that fits several things is refused, with the list of them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from vestige.errors import AmbiguousIdError, NotFoundError
from vestige.query import formatting
from vestige.query.ids.find_log_line import places_of_line
from vestige.record.run import Run, RunInfo, SpanInfo
from vestige.store.protocol import RunFilter, SpanRef, Store

Want = Literal["run", "span", "any"]

STATES: Final = ("snapshot", "state")
"""Types of spans that hold what a session or an agent knew."""

CANDIDATES_SHOWN = 50
NEAREST_AMONG = 5_000
"""Runs, newest first, that a misspelt id is compared with."""
WORDS_TRIED = 12
"""Of a pasted line."""

_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_IN_TEXT = re.compile(rf"{_UUID}|\br\d+\.s\d+\b|[\w.:-]*\d[\w.:-]*|\w+[_-][\w-]+")
_SNAPSHOT = re.compile(r"([^\s#]*)#(\d{1,9})")
_SHORT = re.compile(r"r\d+(\.s\d+)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Target:
    """What an id means."""

    kind: Literal["run", "span", "conversation", "attribute", "line"]
    run: RunInfo
    span_id: str | None
    how: str
    """In words: `run id`, `span id`, `latest of 3 runs of this conversation`, ..."""


def find_run(store: Store, text: str | None) -> RunInfo:
    """The one run that `text` is the id of; without text, the latest."""
    if text is None:
        return _latest(store)
    text = formatting.to_valid_utf8(text)
    found = store.find_runs(text)
    if len(found) == 1:
        return found[0]
    if found:
        raise _ambiguous_runs(text, found)
    raise NotFoundError(
        f"{formatting.single_line(text, 80)!r}: no such run. {_nearest(store, text)}"
    )


def resolve(store: Store, text: str | None, want: Want = "any") -> Target:
    """The one thing that `text` means. Text that holds an id among other words is searched for it."""
    if text is None or not text.strip():
        return Target("run", _latest(store), None, "latest run")
    text = formatting.to_valid_utf8(text.strip())
    if (snapshot := _SNAPSHOT.fullmatch(text)) is not None:
        return _by_snapshot(store, snapshot[1], int(snapshot[2]))
    target = _by_id(store, text, want) or _by_foreign_id(store, text, want)
    if target is None and not _SHORT.fullmatch(text):
        target = _by_pasted(store, text, want) or _by_line(store, text, want)
    if target is None:
        thing = {"run": "run", "span": "span", "any": "run or span"}[want]
        raise NotFoundError(
            f"{formatting.single_line(text, 80)!r}: no such {thing}. {_nearest(store, text)}"
        )
    return target


def _latest(store: Store) -> RunInfo:
    latest = store.list_runs(RunFilter(limit=1)) or store.list_runs(
        RunFilter(limit=1, with_implicit=True)
    )
    if not latest:
        raise NotFoundError("no runs recorded yet. Record one: `vestige run -- COMMAND`.")
    return latest[0]


# --- our own ids ----------------------------------------------------------------------------


def _by_id(store: Store, text: str, want: Want, *, exact: bool = False) -> Target | None:
    runs = list(store.find_runs(text))
    if len(runs) == 1 and (runs[0].id == text.lower() or _SHORT.fullmatch(text)):
        return Target("run", runs[0], None, "run id")
    spans = list(store.find_spans(text))
    if exact:
        runs = []
        spans = [span for span in spans if text.lower() in (span.span_id, span.short_id)]
    if len(runs) == 1 and not spans:
        return Target("run", runs[0], None, "beginning of a run id")
    if spans and not runs:
        how = (
            "span id"
            if text.lower() in (spans[0].span_id, spans[0].short_id)
            else "beginning of a span id"
        )
        return _one_place(store, text, spans, want, "span", how)
    if not runs:
        return None
    if not spans:
        raise _ambiguous_runs(text, runs)
    lines = [*map(_run_line, runs), *map(_place_line, spans)]
    raise _ambiguous(text, "things begin so. Give more characters", lines)


def _one_place(
    store: Store,
    text: str,
    places: Sequence[SpanRef],
    want: Want,
    kind: Literal["span", "attribute"],
    how: str,
) -> Target:
    """One span, or several of the one run that was asked for."""
    if len(places) > 1 and (want != "run" or len({place.run_id for place in places}) > 1):
        fits = "spans have it" if kind == "attribute" else "spans begin so"
        raise _ambiguous(text, f"{fits}. Give one of these ids", [*map(_place_line, places)])
    (run,) = store.find_runs(places[0].run_id)
    return Target(kind, run, places[0].span_id if len(places) == 1 else None, how)


def _by_snapshot(store: Store, run_text: str, index: int) -> Target:
    """`r7#3`: the state of a run's session at its snapshot 3; without a run, of the latest."""
    info = resolve(store, run_text, "run").run if run_text else _latest(store)
    span = get_state(store.load_run(info.id), index)
    return Target("span", info, span.id, f"snapshot {index}")


def states_of(run: Run) -> dict[int, SpanInfo]:
    """Snapshots and states by the number that `r7#n` names them by: their own, or their place."""
    found: dict[int, SpanInfo] = {}
    for span in run.spans:
        if span.type in STATES:
            own = span.attributes.get("index")
            index = own if type(own) is int and 0 <= own < 10**9 else len(found)
            found[index if index not in found else max(found) + 1] = span
    return dict(sorted(found.items()))


def get_state(run: Run, index: int) -> SpanInfo:
    found = states_of(run)
    if index not in found:
        told = (
            f"It has {len(found)}, from #{min(found)} to #{max(found)}" if found else "It has none"
        )
        raise NotFoundError(f"{run.info.short_id}#{index}: no such snapshot. {told}.")
    return found[index]


# --- ids of others --------------------------------------------------------------------------


def _by_foreign_id(store: Store, text: str, want: Want) -> Target | None:
    runs = store.list_runs(RunFilter(conversation_id=text, with_implicit=True))
    if runs:
        how = "conversation id"
        if len(runs) > 1:
            how = f"latest of {len(runs)} runs of this conversation"
        return Target("conversation", runs[0], None, how)
    places = store.find_attribute(text, CANDIDATES_SHOWN)
    if places:
        return _one_place(store, text, places, want, "attribute", "value of an attribute")
    return None


def _by_pasted(store: Store, text: str, want: Want) -> Target | None:
    """Ids inside a URL or a line: ours first, then what others call theirs."""
    found = list(dict.fromkeys(_words_of(text)))[:WORDS_TRIED]
    found = [word for word in found if word != text]
    ours: Callable[[str], Target | None] = lambda word: _by_id(store, word, want, exact=True)  # noqa: E731
    for look in (ours, lambda word: _by_foreign_id(store, word, want)):
        targets: dict[tuple[str, str | None], Target] = {}
        for word in found:
            target = look(word)
            if target is not None:
                targets.setdefault((target.run.id, target.span_id), target)
        # A line that names a run and one of its spans means the span.
        spans = [target for target in targets.values() if target.span_id is not None]
        narrowed = [
            target
            for target in targets.values()
            if target.span_id is not None or all(span.run.id != target.run.id for span in spans)
        ]
        if len(narrowed) > 1:
            lines = [
                f"{target.span_id or ''} {_run_line(target.run)}".strip() for target in narrowed
            ]
            raise _ambiguous(text, "ids in this text. Give one of them", lines)
        if narrowed:
            target = narrowed[0]
            return Target(target.kind, target.run, target.span_id, f"{target.how}, in the text")
    return None


def _by_line(store: Store, text: str, want: Want) -> Target | None:
    """Where a pasted line was said."""
    places = places_of_line(store, text)
    if not places:
        return None
    if len({place.run_id for place in places}) > 1:
        lines = list(dict.fromkeys(_place_line(place) for place in places))
        raise _ambiguous(text, "places said that, the latest first. Give one of these ids", lines)
    (run,) = store.find_runs(places[0].run_id)
    span_id = places[0].span_id if len(places) == 1 and want != "run" else None
    return Target("line", run, span_id, "where this line was said")


def _words_of(text: str) -> Iterator[str]:
    """What looks like an id, the telling kinds first."""
    matches = [match.group().strip(".:-") for match in _IN_TEXT.finditer(text[:4000])]
    yield from (word for word in matches if re.fullmatch(_UUID, word))
    yield from (word for word in matches if len(word) >= 6 or "." in word)


# --- when it is not one thing ---------------------------------------------------------------


def _ambiguous_runs(text: str, runs: Sequence[RunInfo]) -> AmbiguousIdError:
    error = _ambiguous(text, "runs begin so. Give more characters", [*map(_run_line, runs)])
    error.candidates[:] = [run.id for run in runs]
    return error


def _ambiguous(text: str, what: str, lines: list[str]) -> AmbiguousIdError:
    shown = lines[:CANDIDATES_SHOWN]
    rest = f"\n  … {len(lines) - len(shown)} more" if len(lines) > len(shown) else ""
    count = f"{len(lines)}{'+' if len(lines) >= CANDIDATES_SHOWN else ''}"
    return AmbiguousIdError(
        f"{formatting.single_line(text, 80)!r}: {count} {what}:\n  " + "\n  ".join(shown) + rest,
        [line.partition(" ")[0] for line in shown],
    )


def _run_line(run: RunInfo) -> str:
    return f"{run.short_id} {run.id} {formatting.single_line(run.name, 40)}"


def _place_line(place: SpanRef) -> str:
    kind, name = formatting.single_line(place.type, 20), formatting.single_line(place.name, 40)
    return f"{place.short_id} {place.span_id or place.run_id} {kind} {name}"


def _nearest(store: Store, text: str) -> str:
    ids = store.run_ids()[-NEAREST_AMONG:]
    if not ids:
        return "No runs are recorded yet."
    near = difflib.get_close_matches(text.lower()[:80], [*ids, *(run[:8] for run in ids)], 3, 0.5)
    if near:
        return f"Nearest: {', '.join(near)}."
    if len(runs := store.find_runs(text.partition(".")[0]) if _SHORT.fullmatch(text) else ()) == 1:
        has = formatting.pluralize(runs[0].span_count, "span")
        return f"{runs[0].short_id} has {has}: `vestige show {runs[0].short_id}`."
    return "See `vestige list` for what there is."
