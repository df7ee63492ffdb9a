"""Files in UTF-16 and UTF-32: an error that names the encoding."""

from __future__ import annotations

import codecs
import json
from pathlib import Path

import pytest

from support.commands import vestige

MESSAGES = json.dumps([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}])


@pytest.mark.parametrize("verb", ["import", "show", "ui", "transcript"])
@pytest.mark.parametrize(
    ("data", "name"),
    [
        (MESSAGES.encode("utf-16"), "UTF-16"),
        (codecs.BOM_UTF16_BE + MESSAGES.encode("utf-16-be"), "UTF-16"),
        (MESSAGES.encode("utf-16-le"), "UTF-16LE"),
        (MESSAGES.encode("utf-16-be"), "UTF-16BE"),
        (MESSAGES.encode("utf-32"), "UTF-32"),
    ],
)
def test_a_wide_encoding_is_named_with_the_command_that_converts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, name: str, verb: str
) -> None:
    monkeypatch.setenv("VESTIGE_HOME", str(tmp_path / "home"))
    path = tmp_path / "chat.json"
    path.write_bytes(data)
    done = vestige(verb, path)
    assert done.exit_code in (2, 3)
    assert f"encoded as {name} (expected UTF-8)" in done.stderr
    assert f"iconv -f {name} -t UTF-8 {path}" in done.stderr


def test_the_converted_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    path.write_bytes(MESSAGES.encode("utf-16").decode("utf-16").encode())
    assert "yo" in vestige("transcript", path).stdout


@pytest.mark.parametrize("data", [b"", b"\0" * 64, b"MZ\0\0{", b"plain text"])
def test_other_files_are_not_taken_for_text_in_another_encoding(
    tmp_path: Path, data: bytes
) -> None:
    path = tmp_path / "chat.json"
    path.write_bytes(data)
    done = vestige("import", path)
    assert "unsupported format" in done.stderr
    assert "encoded as" not in done.stderr
