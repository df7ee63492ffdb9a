"""Notes in the store: beside a run, masked, bounded, and gone with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from vestige.errors import NotFoundError, UsageError
from vestige.limits import NAME_MAX, NOTE_MAX
from vestige.record.note import Note
from vestige.record.types import SpanClose, SpanOpen
from vestige.store.protocol import RetentionPolicy
from vestige.store.sqlite.sqlite_store import SqliteStore

RUN = "3d1957bd-0000-4000-8000-000000000001"
T0 = 1_763_229_905_000_000_000
SECRET = "sk-" + "ant-api03-" + "a1B2c3D4e5F6g7H8i9J0"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore.open(tmp_path / "store.db") as opened:
        opened.append(
            [
                SpanOpen(1, "w", 1, T0, RUN, "root", "agent", "run", "triage"),
                SpanClose(1, "w", 2, T0 + 1, RUN, "root", "ok", 1),
            ],
            tenant="acme",
        )
        yield opened


def note(id: str = "n1", text: str = "seen", at: int = 5, **more: str) -> Note:
    return Note(id=id, run_id=RUN, text=text, created_ns=at, **more)


def test_notes_come_back_as_they_were_oldest_first(store: SqliteStore) -> None:
    """And one that is there already stays as it is: taking a bundle in twice adds nothing."""
    late = note("n1", "second", 9, span_id="root", author="eva")
    early = note("n2", "first", 3, event_id="17")

    added = [store.add_note(each) for each in (late, early, note("n2", "changed"))]

    assert added == [True, True, False]
    assert store.notes(RUN) == [early, late]
    assert store.notes("unheard of") == []


def test_a_note_is_masked_before_it_is_kept(store: SqliteStore) -> None:
    """In every field, also where a long text is cut, and nowhere in the file."""
    long = "x" * (NOTE_MAX - 20) + " " + SECRET
    store.add_note(note("n1", f"key {SECRET}", author=SECRET, event_id=SECRET, span_id=SECRET))
    store.add_note(note("n2", long))
    store.add_note(note(SECRET, "id"))
    store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    assert SECRET[12:] not in str(store.notes(RUN))
    assert SECRET[12:].encode() not in store.path.read_bytes()


def test_a_note_is_bounded_and_of_plain_text(store: SqliteStore) -> None:
    """Whatever a file brought."""
    store.add_note(note("n" * 9999, "y" * 10 * NOTE_MAX, 2**80, author="z" * 9999))
    store.add_note(note("odd", "a\udcffb\0c", -5))
    odd, long = store.notes(RUN)

    assert len(long.text) == NOTE_MAX and len(long.id) == NAME_MAX
    assert len(long.author or "") == NAME_MAX
    assert odd.created_ns == 0 and "\udcff" not in odd.text
    with pytest.raises(UsageError, match="text is empty"):
        store.add_note(note("n3", " \n"))


def test_one_run_has_so_many_notes_at_most(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vestige.store.sqlite.notes.NOTES_MAX", 3)
    for number in range(3):
        store.add_note(note(str(number)))

    with pytest.raises(UsageError, match="has 3 notes"):
        store.add_note(note("4"))
    assert store.delete_note(RUN, "1") and not store.delete_note(RUN, "1")
    assert store.add_note(note("4"))


def test_a_tenant_writes_only_about_its_own_runs(store: SqliteStore) -> None:
    """Another's is as one that does not exist: the words are the same."""
    unheard = Note(id="x", run_id=RUN[:-1] + "9", text="x", created_ns=1)

    with pytest.raises(NotFoundError) as foreign:
        store.add_note(note(), "other")
    with pytest.raises(NotFoundError) as missing:
        store.add_note(unheard, "other")
    assert str(foreign.value).replace(RUN, "") == str(missing.value).replace(unheard.run_id, "")
    assert store.add_note(note(), "acme")
    assert not store.delete_note(RUN, "n1", "other")
    assert store.delete_note(RUN, "n1", "acme")


def test_notes_go_with_their_run(store: SqliteStore) -> None:
    store.add_note(note())

    store.prune(RetentionPolicy(86_400, None), T0 + 10 * 86_400 * 10**9)

    assert store._connection.execute("SELECT count(*) FROM notes").fetchone() == (0,)
