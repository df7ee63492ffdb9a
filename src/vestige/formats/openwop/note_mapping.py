"""Convert between notes of a run and OpenWOP annotations.

A note is an annotation with the signal `flag` and its text as `note`. The other signals are
written as the first line of a note, so that they are read everywhere and come back as they were:

    #rating 4            #label flaky            #correction "the answer is 42"            #flag
    too slow, but right  (the note)
"""

from __future__ import annotations

import json
from typing import Any, Final

from vestige.formats.openwop.times import render_time
from vestige.record.note import Note

SIGNALS: Final = ("rating", "correction", "label", "flag")
LOCAL: Final = "local"
"""The author of a note without a named one."""


def annotation_of(note: Note, node_id: str | None = None) -> dict[str, Any]:
    """A note as annotation.schema has it. `node_id`: of the node that it is about."""
    target = {"runId": note.run_id}
    if note.event_id is not None:
        target["eventId"] = note.event_id
    if node_id is not None:
        target["nodeId"] = node_id
    signal, text = parse_text(note.text)
    annotation: dict[str, Any] = {
        "annotationId": note.id,
        "target": target,
        "signal": signal,
        "actor": {"principalRef": note.author or LOCAL},
    }
    if text is not None:
        annotation["note"] = text
    return {**annotation, "createdAt": render_time(note.created_ns)}


def render_text(signal: dict[str, Any], text: str | None) -> str:
    """The text of a note that says the same as a signal and its note."""
    kind = signal.get("kind")
    if kind == "flag" or kind not in SIGNALS:
        return text or "#flag"
    value = signal.get(kind)
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON Schema takes 4.0 for 4
    is_plain = isinstance(value, str) and "\n" not in value and not value.startswith('"')
    text_value = value if kind == "label" and is_plain else json.dumps(value)
    first = f"#{kind} {text_value}"
    return first if text is None else f"{first}\n{text}"


def parse_text(text: str) -> tuple[dict[str, Any], str | None]:
    """(signal, note) of a note's text; any text is at least a flag."""
    first, newline, rest = text.partition("\n")
    word, _, text_value = first.removeprefix("#").partition(" ")
    note = rest if newline else None
    if first.startswith("#") and word in ("rating", "correction", "label"):
        value: Any = text_value
        if text_value.startswith('"') or word == "rating":
            try:
                value = json.loads(text_value)
            except ValueError:
                value = text_value if word != "rating" else None
        if word == "rating" and type(value) is int and 1 <= value <= 5:
            return {"kind": "rating", "rating": value}, note
        if word != "rating" and isinstance(value, str):
            return {"kind": word, word: value}, note
    return {"kind": "flag"}, None if text in ("", "#flag") else text
