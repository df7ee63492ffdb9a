"""`notes`: what people, or programs, said about a run afterwards. They are no part of what happened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from vestige.query import formatting
from vestige.query.text_layout import CommandAnswer, fit, quoted
from vestige.record.note import Note
from vestige.record.run import Run, SpanInfo

SHOWN_BESIDE = 2
"""Notes that `overview` and `span` show beside everything else."""
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
        rows = [self._tell(note, short) for note in self.notes]
        whole = self.command("notes", info.short_id, "--json")
        return fit(head, rows, [], budget, lambda n: f"… {n} more notes: {whole}")

    def _tell(self, note: Note, short: dict[str, str]) -> str:
        about = note.event_id or short.get(note.span_id or "", note.span_id)
        told = f" about {formatting.single_line(about, 60)}" if about else ""
        return (
            f"{formatting.timestamp(note.created_ns)} {_author(note)}{told}:"
            f" {quoted(note.text, TEXT_SHOWN)}"
        )

    def data(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "run_id": self.run.info.id,
            "notes": note_data(self.run.spans, self.notes),
        }


def note_data(spans: Sequence[SpanInfo], notes: Sequence[Note]) -> list[dict[str, Any]]:
    """With the short ids of those of the spans that they are about."""
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
    """For another answer: the latest, in a line each. `again`: the command that shows them all."""
    rows = [
        f"note: {quoted(note.text, TEXT_BESIDE)} ({_author(note)})"
        for note in notes[-SHOWN_BESIDE:]
    ]
    if len(notes) > SHOWN_BESIDE:
        rows.append(f"… {formatting.pluralize(len(notes) - SHOWN_BESIDE, 'more note')}: {again()}")
    return rows


def _author(note: Note) -> str:
    return formatting.single_line(note.author, 40) if note.author else "somebody"
