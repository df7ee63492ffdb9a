"""Notes on runs, and the findings of checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from vestige.record.finding import Finding
from vestige.record.note import Note
from vestige.record.run import RunInfo


class CheckResult(msgspec.Struct, frozen=True):
    """The findings of one check on a run. The check passed if there are none."""

    name: str
    version: int
    findings: Sequence[Finding]


class NoteSummary(msgspec.Struct, frozen=True):
    """The notes on one run, for a list of runs."""

    count: int
    latest: str
    """The text of the latest note."""


class NoteStore(Protocol):
    """The methods that store and read notes and findings."""

    def add_note(self, note: Note, tenant: str | None = None) -> bool:
        """Store a redacted note. Return False if a note with this id exists.

        Raise NotFoundError if there is no such run, or if it is not one of `tenant`.
        """

    def edit_note(self, run_id: str, note_id: str, text: str, tenant: str | None = None) -> bool:
        """Replace the text of a note, redacted. Return False if there is no such note."""

    def delete_note(self, run_id: str, note_id: str, tenant: str | None = None) -> bool:
        """Delete a note. Return False if there is no such note."""

    def notes(self, run_id: str) -> Sequence[Note]:
        """Return the notes on a run, oldest first."""

    def summarize_notes(self, run_ids: Sequence[str]) -> Mapping[str, NoteSummary]:
        """Return the number of notes and the latest one, by id of the runs that have any."""

    def store_findings(self, run: RunInfo, results: Sequence[CheckResult]) -> None:
        """Store the results of checks on a finished run, unless it changed after it was read."""

    def check_results(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[CheckResult]]:
        """Return the results that `store_findings` stored, by run id."""
