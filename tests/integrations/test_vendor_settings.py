"""`vestige setup`: settings files are changed with a backup, and restored byte for byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vestige.errors import UnreadableError, UsageError
from vestige.integrations.vendors.settings_files import apply, render_change, undo
from vestige.integrations.vendors.telemetry_settings import TOOLS, Change, Places, list_changes


def changes_of(tool: str, folder: Path) -> list[Change]:
    places = Places(folder / "user", folder / "data", {})
    return list_changes(tool, places, "http://127.0.0.1:4318", "KEY")


@pytest.mark.parametrize("tool", TOOLS)
def test_new_files_are_removed_by_undo(tool: str, tmp_path: Path) -> None:
    changes = changes_of(tool, tmp_path)

    written = apply(changes, tmp_path / "receipt")

    assert [path.read_text() for path in written] == [render_change(each) for each in changes]
    assert all(path.stat().st_mode & 0o077 == 0 for path in written)
    undo(tmp_path / "receipt")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_other_settings_stay_and_the_file_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "user" / ".claude" / "settings.json"
    path.parent.mkdir(parents=True)
    original = b'{ "model": "opus",\n  "env": {"A": "1"} }'
    path.write_bytes(original)
    path.chmod(0o644)

    apply(changes_of("claude", tmp_path), tmp_path / "receipt")

    settings = json.loads(path.read_bytes())
    assert settings["model"] == "opus" and settings["env"]["A"] == "1"
    assert settings["env"]["OTEL_EXPORTER_OTLP_HEADERS"] == "authorization=Bearer KEY"
    with pytest.raises(UsageError, match="already set up"):
        apply(changes_of("claude", tmp_path), tmp_path / "receipt")
    undo(tmp_path / "receipt")
    assert path.read_bytes() == original
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_variable_replaces_its_old_line_only(tmp_path: Path) -> None:
    path = tmp_path / "user" / ".gemini" / ".env"
    path.parent.mkdir(parents=True)
    path.write_text("GEMINI_API_KEY=x\nOTEL_EXPORTER_OTLP_HEADERS=old")

    apply(changes_of("gemini", tmp_path), tmp_path / "receipt")

    assert path.read_text().splitlines() == [
        "GEMINI_API_KEY=x",
        'OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20KEY"',
    ]


def test_a_file_that_was_edited_since_is_not_overwritten(tmp_path: Path) -> None:
    (path,) = apply(changes_of("claude", tmp_path), tmp_path / "receipt")
    path.write_text('{"model": "haiku"}')

    with pytest.raises(UsageError, match="was edited since"):
        undo(tmp_path / "receipt")

    assert path.read_text() == '{"model": "haiku"}'


def test_settings_with_comments_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "user" / ".claude" / "settings.json"
    path.parent.mkdir(parents=True)
    path.write_text("// mine\n{}")

    with pytest.raises(UnreadableError, match="by hand"):
        apply(changes_of("claude", tmp_path), tmp_path / "receipt")

    assert path.read_text() == "// mine\n{}"
    assert not (tmp_path / "receipt").exists()


def test_nothing_to_undo_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to undo"):
        undo(tmp_path / "receipt")
