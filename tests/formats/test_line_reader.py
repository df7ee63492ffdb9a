"""Lines of foreign logs: what can be decoded is, whatever its encoding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.formats.line_reader import JsonLines, Problems


class Line(msgspec.Struct):
    text: Any = None


def test_a_line_in_another_encoding_is_read_with_replaced_characters(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes('{"text": "café"}\n'.encode("latin-1") + b'{"text": "tea"}\n')
    problems = Problems(str(path))

    texts = [entry.text for _, _, entry in JsonLines(Line).read(path, problems)]

    assert texts == ["caf\ufffd", "tea"]
    assert problems.list == []
