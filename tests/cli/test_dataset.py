"""`vestige dataset`: examples with labels, split by task, without secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from vestige.cli.main import cli

DATA = Path(__file__).parent.parent / "data"


def _call(*args: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(arg) for arg in args])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with four runs of two tasks, and one that delegates."""
    folder = tmp_path_factory.mktemp("home")
    found = _call("import", DATA / "inspect", "--home", folder)
    assert found.exit_code == 0, found.output
    return folder


def _read(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_bytes().splitlines()]


def test_runs_become_examples_with_labels(home: Path, tmp_path: Path) -> None:
    done = _call("dataset", "-o", tmp_path / "out", "--test", "0", "--home", home)
    assert done.exit_code == 0, done.output
    assert "6 examples (6 train, 0 test)" in done.output
    examples = _read(tmp_path / "out", "train.jsonl")
    assert len({example["id"] for example in examples}) == 6
    by_name = {example["metadata"]["name"]: example for example in examples}
    failed = by_name["orders thirteen"]
    assert failed["labels"]["scores"]["includes"] == "I"
    assert failed["labels"]["notes"][0]["author"] == "inspect"
    assert [finding["kind"] for finding in failed["labels"]["findings"]] == ["tool/failed"]
    assert failed["messages"][-1] == {"role": "assistant", "content": "I do not know."}
    facts = json.loads((tmp_path / "out/dataset.json").read_text())
    assert (facts["runs"], facts["train"], facts["test"]) == (5, 6, 0)


def test_steps_are_examples_with_the_history_before_them(home: Path, tmp_path: Path) -> None:
    options = ["--unit", "steps", "--test", "0"]
    done = _call("dataset", "name:thirteen", *options, "-o", tmp_path / "out", "--home", home)
    assert done.exit_code == 0, done.output
    first, second, *_ = _read(tmp_path / "out", "train.jsonl")
    assert [message["role"] for message in first["messages"]] == ["system", "user"]
    assert first["completion"]["tool_calls"][0]["function"]["name"] == "find_order"
    assert first["labels"]["failed_tools"] == ["find_order"]
    assert second["completion"]["content"] == "I do not know."
    assert second["labels"] == {"status": "ok"}


@pytest.mark.slow
def test_runs_of_one_task_are_on_one_side_and_stay_there(home: Path, tmp_path: Path) -> None:
    sides: dict[str, set[str]] = {}
    for number in range(8):
        folder = tmp_path / str(number)
        _call("dataset", "-o", folder, "--test", "0.5", "--seed", number, "--home", home)
        again = tmp_path / f"again {number}"
        _call("dataset", "-o", again, "--test", "0.5", "--seed", number, "--home", home)
        tasks = {}
        for name in ("train.jsonl", "test.jsonl"):
            assert (folder / name).read_bytes() == (again / name).read_bytes()
            for example in _read(folder, name):
                task = example["metadata"]["name"].partition(" (epoch")[0]
                assert tasks.setdefault(task, name) == name
                sides.setdefault(task, set()).add(name)
    assert set(map(len, sides.values())) == {2}, "some seed puts each task on either side"


def test_an_existing_folder_or_an_empty_filter_is_an_error(home: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    there = _call("dataset", "-o", tmp_path / "there", "--home", home)
    assert (there.exit_code, "already exists" in there.output) == (2, True)
    none = _call("dataset", "name:nothing", "-o", tmp_path / "out", "--home", home)
    assert (none.exit_code, "no run matches" in none.output) == (2, True)
    assert not (tmp_path / "out").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_anthropic_messages_and_private_files(home: Path, tmp_path: Path) -> None:
    _call("dataset", "-o", tmp_path / "out", "--shape", "anthropic", "--test", "1", "--home", home)
    example = next(e for e in _read(tmp_path / "out", "test.jsonl") if "system" in e)
    assert example["messages"][0]["content"][0]["type"] == "text"
    assert (tmp_path / "out").stat().st_mode & 0o077 == 0
