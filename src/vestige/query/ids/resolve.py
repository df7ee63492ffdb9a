"""Resolve an id, an id of another tool, or pasted text to a run or span.

    resolve(store, "r7.s12")                        # a span
    resolve(store, "toolu_01A", want="run")         # the run of the span that has this attribute
    resolve(store, "r7#3")                          # snapshot 3 of r7
    resolve(store, "GET /runs/5d1e... failed")      # the id inside the text
    resolve(store, "INFO shop: stock is low")       # the span that logged or printed this

An ambiguous id raises AmbiguousIdError with the candidates.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from vestige.errors import AmbiguousIdError, NotFoundError
from vestige.query import formatting
from vestige.query.ids.pasted_line_lookup import find_log_spans
from vestige.query.search.grep import GrepOptions, build_search_query
from vestige.record.run import Run, RunInfo, SpanInfo
from vestige.store.protocol import RunFilter, SpanRef, Store

Want = Literal["run", "span", "any"]

STATES: Final = ("snapshot", "state")
"""Types of spans that hold the state of a session or an agent."""

CANDIDATES_SHOWN = 50
NEAREST_AMONG = 5_000
"""Newest runs to compare a misspelt id with."""
WORDS_TRIED = 12
"""Words of pasted text to look up."""

_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_IN_TEXT = re.compile(rf"{_UUID}|\br\d+\.s\d+\b|[\w.:-]*\d[\w.:-]*|\w+[_-][\w-]+")
_SNAPSHOT = re.compile(r"([^\s#]*)#(\d{1,9})")
_RESPONSE_ID = re.compile(r"(?:chatcmpl-|cmpl-|msg_|resp_|gen-)[\w-]{4,200}")
_SHORT = re.compile(r"r\d+(\.s\d+)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Target:
    """The run or span that an id resolved to."""

    kind: Literal["run", "span", "conversation", "attribute", "line"]
    run: RunInfo
    span_id: str | None
    how: str
    """The kind of id: `run id`, `span id`, `latest of 3 runs of this conversation`, ..."""


def find_run(store: Store, text: str | None) -> RunInfo:
    """Return the run with this id or prefix; without text, the latest run."""
    if text is None:
        return _latest(store)
    text = formatting.to_valid_utf8(text)
    found = store.find_runs(text)
    if len(found) == 1:
        return found[0]
    if found:
        raise _ambiguous_runs(text, found)
    raise NotFoundError(_not_found_message(store, text, "run"))


def resolve(store: Store, text: str | None, want: Want = "any") -> Target:
    """Return the run or span that `text` names, or that an id in it names."""
    if text is None or not text.strip():
        return Target("run", _latest(store), None, "latest run")
    text = formatting.to_valid_utf8(text.strip())
    if (snapshot := _SNAPSHOT.fullmatch(text)) is not None:
        return _find_snapshot(store, snapshot[1], int(snapshot[2]))
    target = _find_by_id(store, text, want) or _find_by_foreign_id(store, text, want)
    if target is None and not _SHORT.fullmatch(text):
        target = _find_in_text(store, text, want) or _find_by_log_line(store, text, want)
    if target is None:
        raise NotFoundError(_not_found_message(store, text, want))
    return target


def _latest(store: Store) -> RunInfo:
    latest = store.list_runs(RunFilter(limit=1)) or store.list_runs(
        RunFilter(limit=1, with_implicit=True)
    )
    if not latest:
        raise NotFoundError("no runs recorded yet. Record one: `vestige run -- COMMAND`.")
    return latest[0]


# --- ids of Vestige -------------------------------------------------------------------------


def _find_by_id(store: Store, text: str, want: Want, *, exact: bool = False) -> Target | None:
    runs = list(store.find_runs(text))
    if len(runs) == 1 and (runs[0].id == text.lower() or _SHORT.fullmatch(text)):
        return Target("run", runs[0], None, "run id")
    spans = list(store.find_spans(text))
    if exact:
        runs = []
        spans = [span for span in spans if text.lower() in (span.span_id, span.short_id)]
    if len(runs) == 1 and not spans:
        return Target("run", runs[0], None, "prefix of a run id")
    if spans and not runs:
        is_exact = text.lower() in (spans[0].span_id, spans[0].short_id)
        how = "span id" if is_exact else "prefix of a span id"
        return _single_target(store, text, spans, want, "span", how)
    if not runs:
        return None
    if not spans:
        raise _ambiguous_runs(text, runs)
    lines = [*map(_run_line, runs), *map(_span_line, spans)]
    raise _ambiguous(text, "runs and spans match. Give more characters", lines)


def _single_target(
    store: Store,
    text: str,
    refs: Sequence[SpanRef],
    want: Want,
    kind: Literal["span", "attribute"],
    how: str,
) -> Target:
    """Return the only span, or the run that has all of them if `want` is a run."""
    if len(refs) > 1 and (want != "run" or len({ref.run_id for ref in refs}) > 1):
        problem = "spans have this value" if kind == "attribute" else "spans match"
        raise _ambiguous(text, f"{problem}. Give one of these ids", [*map(_span_line, refs)])
    (run,) = store.find_runs(refs[0].run_id)
    return Target(kind, run, refs[0].span_id if len(refs) == 1 else None, how)


def _find_snapshot(store: Store, run_text: str, index: int) -> Target:
    """Resolve `r7#3` to the span of a snapshot. Without a run, use the latest."""
    info = resolve(store, run_text, "run").run if run_text else _latest(store)
    span = get_state(store.load_run(info.id), index)
    return Target("span", info, span.id, f"snapshot {index}")


def states_by_index(run: Run) -> dict[int, SpanInfo]:
    """Return snapshots and states by the number in `r7#n`: their recorded index, or their order."""
    states: dict[int, SpanInfo] = {}
    for span in run.spans:
        if span.type in STATES:
            recorded = span.attributes.get("index")
            index = len(states)
            if type(recorded) is int and 0 <= recorded < 10**9:
                index = recorded
            states[index if index not in states else max(states) + 1] = span
    return dict(sorted(states.items()))


def get_state(run: Run, index: int) -> SpanInfo:
    states = states_by_index(run)
    if index not in states:
        known = f"{len(states)}, from #{min(states)} to #{max(states)}" if states else "none"
        raise NotFoundError(
            f"{run.info.short_id}#{index}: snapshot not found (the run has {known})."
        )
    return states[index]


# --- ids of other tools ---------------------------------------------------------------------


def _find_by_foreign_id(store: Store, text: str, want: Want) -> Target | None:
    runs = store.list_runs(RunFilter(conversation_id=text, with_implicit=True))
    if runs:
        how = "conversation id"
        if len(runs) > 1:
            how = f"latest of {len(runs)} runs of this conversation"
        return Target("conversation", runs[0], None, how)
    refs = store.find_attribute(text, CANDIDATES_SHOWN)
    if refs:
        return _single_target(store, text, refs, want, "attribute", "value of an attribute")
    if _RESPONSE_ID.fullmatch(text):
        return _find_by_response_id(store, text, want)
    return None


def _find_by_response_id(store: Store, text: str, want: Want) -> Target | None:
    """Find the model call that received the response with this id of a provider."""
    query = build_search_query(text, GrepOptions(parts=("bodies",)))
    hits = [
        hit
        for hit in store.search(query, None, CANDIDATES_SHOWN).hits
        if hit.part == "output" and hit.before[-1:] in ('"', "'") and hit.after[:1] in ('"', "'")
    ]
    refs = {hit.span_ref.span_id: hit.span_ref for hit in hits}
    # A client's span contains the span of the HTTP call, and steps repeat the answer.
    calls = [ref for ref in refs.values() if ref.type == "llm"] or list(refs.values())
    if len({ref.run_id for ref in calls}) == 1:
        calls = calls[-1:]
    how = "id of a response"
    return _single_target(store, text, calls, want, "attribute", how) if calls else None


def _find_in_text(store: Store, text: str, want: Want) -> Target | None:
    """Find an id inside a URL or a line: an id of Vestige first, then one of another tool."""
    words = list(dict.fromkeys(_id_candidates(text)))[:WORDS_TRIED]
    words = [word for word in words if word != text]
    finders: tuple[Callable[[str], Target | None], ...] = (
        lambda word: _find_by_id(store, word, want, exact=True),
        lambda word: _find_by_foreign_id(store, word, want),
    )
    for find in finders:
        targets: dict[tuple[str, str | None], Target] = {}
        for word in words:
            target = find(word)
            if target is not None:
                targets.setdefault((target.run.id, target.span_id), target)
        # Text that names a run and one of its spans means the span.
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


def _find_by_log_line(store: Store, text: str, want: Want) -> Target | None:
    refs = find_log_spans(store, text)
    if not refs:
        return None
    if len({ref.run_id for ref in refs}) > 1:
        lines = list(dict.fromkeys(_span_line(ref) for ref in refs))
        raise _ambiguous(text, "spans logged this, the latest first. Give one of these ids", lines)
    (run,) = store.find_runs(refs[0].run_id)
    span_id = refs[0].span_id if len(refs) == 1 and want != "run" else None
    return Target("line", run, span_id, "logged line")


def _id_candidates(text: str) -> Iterator[str]:
    """Yield the words that look like an id, UUIDs first."""
    matches = [match.group().strip(".:-") for match in _IN_TEXT.finditer(text[:4000])]
    yield from (word for word in matches if re.fullmatch(_UUID, word))
    yield from (word for word in matches if len(word) >= 6 or "." in word)


# --- errors ---------------------------------------------------------------------------------


def _ambiguous_runs(text: str, runs: Sequence[RunInfo]) -> AmbiguousIdError:
    error = _ambiguous(text, "runs match. Give more characters", [*map(_run_line, runs)])
    error.candidates[:] = [run.id for run in runs]
    return error


def _ambiguous(text: str, problem: str, lines: list[str]) -> AmbiguousIdError:
    shown = lines[:CANDIDATES_SHOWN]
    rest = f"\n  … {len(lines) - len(shown)} more" if len(lines) > len(shown) else ""
    count = f"{len(lines)}{'+' if len(lines) >= CANDIDATES_SHOWN else ''}"
    return AmbiguousIdError(
        f"{formatting.single_line(text, 80)!r}: {count} {problem}:\n  " + "\n  ".join(shown) + rest,
        [line.partition(" ")[0] for line in shown],
    )


def _run_line(run: RunInfo) -> str:
    return f"{run.short_id} {run.id} {formatting.single_line(run.name, 40)}"


def _span_line(ref: SpanRef) -> str:
    kind, name = formatting.single_line(ref.type, 20), formatting.single_line(ref.name, 40)
    return f"{ref.short_id} {ref.span_id or ref.run_id} {kind} {name}"


def _not_found_message(store: Store, text: str, want: Want) -> str:
    noun = {"run": "Run", "span": "Span", "any": "Run or span"}[want]
    return f"{noun} {formatting.single_line(text, 80)!r} not found. {_suggest(store, text)}"


def _suggest(store: Store, text: str) -> str:
    ids = store.run_ids()[-NEAREST_AMONG:]
    if not ids:
        return "No runs are recorded yet."
    near = difflib.get_close_matches(text.lower()[:80], [*ids, *(run[:8] for run in ids)], 3, 0.5)
    if near:
        return f"Nearest: {', '.join(near)}."
    if len(runs := store.find_runs(text.partition(".")[0]) if _SHORT.fullmatch(text) else ()) == 1:
        spans = formatting.pluralize(runs[0].span_count, "span")
        return f"{runs[0].short_id} has {spans}: `vestige show {runs[0].short_id}`."
    return "List runs: `vestige list`."
