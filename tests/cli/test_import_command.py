"""`vestige import` with several paths."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from support.commands import vestige

DATA = Path(__file__).parents[1] / "data"
MESSAGES = json.dumps([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}])


def test_a_path_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path) -> None:
    missing, unreadable = tmp_path / "missing.json", tmp_path / "photo.bin"
    unreadable.write_bytes(b"\x89PNG")
    good = tmp_path / "chat.json"
    good.write_text(MESSAGES)

    done = vestige("import", missing, unreadable, good, "--home", tmp_path / "home")

    assert done.exit_code == 1
    assert f"{missing}: no such file or directory." in done.stderr
    assert f"{unreadable}: unsupported format" in done.stderr
    assert done.stdout.splitlines() == [f"Imported 1 run from {good}"]


def test_the_exit_code_is_that_of_the_first_if_none_can_be_read(tmp_path: Path) -> None:
    missing, unreadable = tmp_path / "missing.json", tmp_path / "photo.bin"
    unreadable.write_bytes(b"\x89PNG")

    home = ("--home", tmp_path / "home")
    assert vestige("import", missing, unreadable, *home).exit_code == 2
    assert vestige("import", unreadable, missing, *home).exit_code == 3


def test_the_files_below_a_folder_are_imported(tmp_path: Path) -> None:
    folder = tmp_path / "exports"
    (folder / "monday").mkdir(parents=True)
    (folder / "monday" / "chat.json").write_text(MESSAGES)
    (folder / "tuesday").mkdir()
    (folder / "tuesday" / "other.json").write_text(MESSAGES.replace("yo", "hello"))
    (folder / "photo.bin").write_bytes(b"\x89PNG")

    home = ("--home", tmp_path / "home")
    done = vestige("import", folder, *home)

    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"Imported 2 runs from {folder}"]
    again = vestige("import", folder, *home)
    assert again.stdout.splitlines() == [f"Imported 0 runs from {folder} (2 already present)"]


def test_a_folder_with_files_of_several_formats_is_imported_whole(tmp_path: Path) -> None:
    """Also if one of the formats reads folders."""
    folder = tmp_path / "exports"
    folder.mkdir()
    (folder / "chat.json").write_text(MESSAGES)
    shutil.copy(DATA / "atif" / "v1.0.json", folder)

    done = vestige("import", folder, "--home", tmp_path / "home")

    assert done.stdout.splitlines() == [f"Imported 2 runs from {folder}"]


def test_a_folder_without_readable_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "photo.bin").write_bytes(b"\x89PNG")

    done = vestige("import", tmp_path / "photos", "--home", tmp_path / "home")

    assert done.exit_code == 3
    assert f"{tmp_path / 'photos'}: unsupported format" in done.stderr
