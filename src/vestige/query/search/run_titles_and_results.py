"""The title, task and result of listed runs, read from the ends of each run.

The task is the input of the run or of its first agent, else the first text of the user in its
first request. The result is the output of the run, else the text of its last answer. At most four
bodies of a run are read, and none that is large: a list must stay fast.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from vestige.errors import VestigeError
from vestige.query import formatting
from vestige.record.redaction.output_redaction import redact_text
from vestige.record.run import BodyRef, RunInfo
from vestige.store.protocol import RunFilter, RunInputsOutputs, Store

BODY_MAX: Final = 256 * 1024
"""Bytes of a body that is read for a list."""
TOTAL_MAX: Final = 16 * 1024 * 1024
"""Bytes of all bodies that are read for 50 runs."""
TEXT_MAX: Final = 300
SEARCHED_MAX: Final = 1_000
"""Newest runs whose texts are searched."""
CACHED_MAX: Final = 5_000
"""Ended runs whose texts are kept in memory."""
_CHUNK: Final = 50
_BEFORE_SHORTENING: Final = 2_000
"""Characters that are redacted, so that no part of a secret is left at the end of a text."""
_GENERIC: Final = re.compile(
    r"(?:main|__main__|process_item|run|invoke|agent|task|app|script|default|unnamed|trace|session"
    r"|python[\d.]*|.*\.(?:py|[cm]?[jt]s|sh)|<module>|-c"
    r"|claude|codex|gemini|opencode|node|npx|bun)\Z",
    re.I,
)


@dataclass(frozen=True, slots=True)
class RunText:
    """A run in words; each is None if it is not known."""

    title: str | None = None
    task: str | None = None
    result: str | None = None


_cache: dict[tuple[str, RunInfo], RunText] = {}


def is_generic(name: str) -> bool:
    """Return True for a name that does not tell one run of a program from another."""
    return _GENERIC.match(name.strip()) is not None


def read_run_texts(store: Store, runs: Sequence[RunInfo]) -> dict[str, RunText]:
    """Return the texts of runs by id. Those of ended runs are read once."""
    place = str(store.path)
    cached = {run.id: text for run in runs if (text := _cache.get((place, run))) is not None}
    unknown = [run for run in runs if run.id not in cached]
    found: dict[str, RunText] = {}
    for begin in range(0, len(unknown), _CHUNK):
        found |= _read_unknown(store, unknown[begin : begin + _CHUNK])
    if len(_cache) + len(found) > CACHED_MAX:
        _cache.clear()
    for run in unknown:
        if run.outcome != "running":
            _cache[place, run] = found[run.id]
    return {run.id: cached.get(run.id) or found[run.id] for run in runs}


def find_runs_named(store: Store, patterns: Sequence[re.Pattern[str]]) -> list[str]:
    """Return the newest runs whose name, title, task and result match all the patterns."""
    runs = store.list_runs(RunFilter(with_implicit=True, limit=SEARCHED_MAX))
    texts = read_run_texts(store, runs)
    found: list[str] = []
    for run in runs:
        each = texts[run.id]
        shown = "\n".join(filter(None, (run.name, each.title, each.task, each.result)))
        if all(pattern.search(shown) for pattern in patterns):
            found.append(run.id)
    return found


def _read_unknown(store: Store, runs: Sequence[RunInfo]) -> dict[str, RunText]:
    ends = store.read_run_inputs_outputs([run.id for run in runs])
    bodies = _read_bodies(store, ends.values())
    found: dict[str, RunText] = {}
    for run in runs:
        each = ends.get(run.id)
        task = _find_task(each, bodies) if each is not None else ""
        result = _find_result(each, bodies) if each is not None else ""
        title = _find_title(task) if task and is_generic(run.name) else None
        found[run.id] = RunText(title or None, _shorten(task) or None, _shorten(result) or None)
    return found


def _read_bodies(store: Store, ends: Iterable[RunInputsOutputs]) -> dict[int, str]:
    sizes: dict[int, int] = {}
    total = 0
    for each in ends:
        for body_id, size_bytes in each.bodies():
            if body_id not in sizes and size_bytes <= BODY_MAX:
                total += size_bytes
                if total > TOTAL_MAX:
                    break
                sizes[body_id] = size_bytes
    try:
        return {
            body_id: raw.decode(errors="replace") for body_id, raw in store.read_bodies(list(sizes))
        }
    except VestigeError:
        return {}  # A damaged body must not prevent the list; `doctor` reports it.


def _find_title(task: str) -> str:
    from vestige.query.trajectory.headline import make_title

    return _shorten(make_title(task[:20_000]))


def _find_task(ends: RunInputsOutputs, bodies: Mapping[int, str]) -> str:
    for body in (ends.input, ends.agent_input):
        text = _get_text(body, bodies)
        if text.strip():
            from vestige.query.trajectory.headline import extract_task

            if task := extract_task(text).strip():
                return task
    text = _get_text(ends.request, bodies)
    if not text:
        return ""
    from vestige.providers.parsing import parse_request
    from vestige.query.trajectory.message_items import read_role

    request = parse_request(text, None)
    for message in request.messages if request is not None else ():
        if read_role(message.role) == "user" and message.text.strip():
            return message.text
    return ""


def _find_result(ends: RunInputsOutputs, bodies: Mapping[int, str]) -> str:
    text = _get_text(ends.output, bodies)
    if text.strip():
        return text
    text = _get_text(ends.response, bodies)
    if not text:
        return ""
    from vestige.providers.parsing import parse_response

    response = parse_response(text, None)
    if response is None:
        return ""
    return response.text or response.error or ""


def _get_text(body: BodyRef | None, bodies: Mapping[int, str]) -> str:
    return "" if body is None or body.id is None else bodies.get(body.id, "")


def _shorten(text: str) -> str:
    """Put a text on one line, redacted before it is shortened."""
    line = " ".join(text[:_BEFORE_SHORTENING].split())
    return formatting.single_line(redact_text(line), TEXT_MAX) if line else ""
