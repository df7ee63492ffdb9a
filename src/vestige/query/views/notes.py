"""`notes`: comments that people or programs attached to a recorded run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from vestige.query import formatting
from vestige.query.text_layout import CommandAnswer, fit, quoted
from vestige.record.note import Note
from vestige.record.run import Run, SpanInfo

SHOWN_BESIDE = 2
"""Notes that `overview` and `span` show."""
TEXT_BESIDE = 120
TEXT_SHOWN = 2_000


@dataclass
class NotesAnswer(CommandAnswer):
    """All notes of a run, oldest first."""

    verb: ClassVar[str] = "notes"
    budget: ClassVar[int] = 800

    run: Run
    notes: Sequence[Note]

    def lines(self, budget: int) -> list[str]:
        info = self.run.info
        name = formatting.single_line(info.name, 60)
        if not self.notes:
            write = self.command("note", info.short_id, "what you saw")
            return [f"{info.short_id} {name}: no notes. Write one: {write}"]
        head = [f"{info.short_id} {name}: {formatting.pluralize(len(self.notes), 'note')}"]
        short = {span.id: span.short_id for span in self.run.spans}
        rows = [
            f"{number}. {self._format_note(note, short)}"
            for number, note in enumerate(self.notes, 1)
        ]
        full = self.command("notes", info.short_id, "--json")
        return fit(head, rows, [], budget, lambda n: f"… {n} more notes: {full}")

    def _format_note(self, note: Note, short: dict[str, str]) -> str:
        target = note.event_id or short.get(note.span_id or "", note.span_id)
        about = f" about {formatting.single_line(target, 60)}" if target else ""
        return (
            f"{formatting.timestamp(note.created_ns)} {_author(note)}{about}:"
            f" {quoted(note.text, TEXT_SHOWN)}"
        )

    def data(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "run_id": self.run.info.id,
            "notes": note_data(self.run.spans, self.notes),
        }


def note_data(spans: Sequence[SpanInfo], notes: Sequence[Note]) -> list[dict[str, Any]]:
    """Return notes as JSON data, with the short ids of their spans among `spans`."""
    short = {span.id: span.short_id for span in spans}
    return [
        {
            "id": note.id,
            "text": note.text,
            "created_at": formatting.timestamp(note.created_ns),
            "created_ns": note.created_ns,
            "span": short.get(note.span_id or ""),
            "span_id": note.span_id,
            "event_id": note.event_id,
            "author": note.author,
        }
        for note in notes
    ]


def note_lines(notes: Sequence[Note], again: Callable[[], str]) -> list[str]:
    """Return a line for each of the latest notes; `again` gives the command for all of them."""
    rows = [
        f"note: {quoted(note.text, TEXT_BESIDE)} ({_author(note)})"
        for note in notes[-SHOWN_BESIDE:]
    ]
    if len(notes) > SHOWN_BESIDE:
        rows.append(f"… {formatting.pluralize(len(notes) - SHOWN_BESIDE, 'more note')}: {again()}")
    return rows


def _author(note: Note) -> str:
    return formatting.single_line(note.author, 40) if note.author else "unknown author"
