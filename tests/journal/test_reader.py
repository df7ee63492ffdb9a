"""The journal's reader trusts one thing only: a newline."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vestige.journal.reader import read_lines
from vestige.limits import BATCH_BYTES, LINE_MAX
from vestige.record.codec import parse_lines


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "app.ndjson"


def test_a_line_still_being_written_waits_for_the_next_read(journal: Path) -> None:
    """A torn tail is neither returned nor skipped: once finished, it is read whole."""
    journal.write_bytes(b'{"n":1}\n{"n":2}\n{"n":')
    lines, offset = read_lines(journal, 0)
    with journal.open("ab") as file:
        file.write(b"3}\n")
    rest, end = read_lines(journal, offset)

    assert lines == b'{"n":1}\n{"n":2}\n'
    assert rest == b'{"n":3}\n'
    assert end == journal.stat().st_size


def test_nothing_new_reads_as_nothing(journal: Path) -> None:
    """The offset stays."""
    journal.write_bytes(b"a\n")

    assert read_lines(journal, 2) == (b"", 2)


def test_a_file_that_is_absent_or_has_shrunk_reads_as_empty(journal: Path) -> None:
    """It was deleted or replaced; that is not an error of the reader."""
    assert read_lines(journal, 7) == (b"", 7)
    journal.write_bytes(b"a\n")
    assert read_lines(journal, 7) == (b"", 7)


def test_a_line_longer_than_any_of_ours_is_passed_over_whole(journal: Path) -> None:
    """It comes back as bytes that parse as nothing, and what follows is read."""
    journal.write_bytes(b"x" * (BATCH_BYTES + 5) + b"\nnext\n")

    lines, offset = read_lines(journal, 0)
    rest, _ = read_lines(journal, offset)

    assert len(lines) == LINE_MAX + 2
    assert parse_lines(lines) == ([], 1)
    assert rest == b"next\n"


def test_a_long_line_without_an_end_waits(journal: Path) -> None:
    """Its end may still come."""
    journal.write_bytes(b"x" * (BATCH_BYTES + 5))

    assert read_lines(journal, 0) == (b"", 0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    lines=st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=20),
    torn=st.binary(max_size=10).map(lambda line: line.replace(b"\n", b"")),
    bytes_max=st.integers(40, 200),
)
def test_every_complete_line_is_read_once_in_order(
    journal: Path, lines: list[bytes], torn: bytes, bytes_max: int
) -> None:
    """However small the steps are."""
    content = b"".join(line + b"\n" for line in lines)
    journal.write_bytes(content + torn)

    read, offset = b"", 0
    while True:
        data, after = read_lines(journal, offset, bytes_max)
        read += data
        if after == offset:
            break
        offset = after

    assert read == content
    assert offset == len(content)
