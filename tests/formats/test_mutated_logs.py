"""Damaged files of every format: records or a clear error, and never a traceback."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest

from support.agent_logs import DATA
from support.mutations import mutate
from vestige.errors import UnreadableError, VestigeError
from vestige.formats import get_format
from vestige.limits import MIB
from vestige.store.open import open_store
from vestige.transfer import import_path
from vestige.transfer.import_runs import find_format
from vestige.transfer.temp_store import load_runs

SAMPLES = [
    "claude_code/projects",
    "codex/sessions",
    "codex/traces",
    "gemini_cli/tmp",
    "opencode/opencode.db",
    "goose/sessions.db",
    "cline/sessions",
    "openhands/conversations",
    "atif/v1.2-times.json",
    "atif/v1.7-sub-agent.json",
    "atif/v1.8-audio.json",
    "messages/mini-swe-agent.traj.json",
    "inspect/delegating.json",
    "inspect/orders.eval",
    "traces/langfuse-observations.jsonl",
    "traces/langfuse-trace.json",
    "traces/mlflow.json",
    "traces/patronus.json",
    "traces/phoenix-client.jsonl",
    "traces/phoenix-frame.jsonl",
]
FEW, MANY = 6, 250
"""Damaged copies of each sample; `MANY` take minutes."""


def copy_damaged(sample: str, seed: int, folder: Path) -> Path:
    """Copy a sample, and damage one of its files, or several."""
    pick = Random(f"{sample} {seed}")
    source, target = DATA / sample, folder / "damaged" / Path(sample).name
    target.parent.mkdir(parents=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)
    files = [target] if target.is_file() else [path for path in target.rglob("*") if path.is_file()]
    for path in pick.sample(sorted(files), min(len(files), pick.choice([1, 1, 3]))):
        mutate(path, pick)
    return target


def check_import(path: Path, folder: Path) -> None:
    """Import a file twice. It may be refused, and the second time adds nothing."""
    with open_store(folder / "store.db") as store:
        try:
            first = list(import_path(store, path))
            again = list(import_path(store, path))
        except VestigeError as error:
            assert path.name in str(error)
            return
        if all(result.run_id is not None for result in first):
            assert [result.records for result in again] == [0] * len(first)


@pytest.mark.slow
@pytest.mark.parametrize("sample", SAMPLES)
def test_a_damaged_file_is_read_or_refused(sample: str, tmp_path: Path) -> None:
    for seed in range(FEW):
        check_import(copy_damaged(sample, seed, tmp_path / str(seed)), tmp_path / str(seed))


@pytest.mark.full
@pytest.mark.parametrize("sample", SAMPLES)
def test_many_damaged_files_are_read_or_refused(sample: str, tmp_path: Path) -> None:
    for seed in range(FEW, MANY):
        folder = tmp_path / str(seed)
        check_import(copy_damaged(sample, seed, folder), folder)
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("sample", "old", "new"),
    [
        ("atif/v1.8-audio.json", b'"source": "user"', b'"source": ["user"]'),
        ("inspect/delegating.json", b'"event": "model"', b'"event": ["model"]'),
        ("inspect/delegating.json", b'"event":"model"', b'"event":["model"]'),
    ],
)
def test_a_list_in_place_of_a_name_is_skipped(
    sample: str, old: bytes, new: bytes, tmp_path: Path
) -> None:
    path = tmp_path / Path(sample).name
    path.write_bytes((DATA / sample).read_bytes().replace(old, new))
    found = find_format(path)
    assert found is not None
    assert list(found[1].read_run(path).records)


@pytest.mark.parametrize(
    ("sample", "pattern"),
    [("codex/traces", "payloads/*.json"), ("claude_code/projects", "*.meta.json")],
)
def test_invalid_utf_8_beside_a_session_is_not_an_error(
    sample: str, pattern: str, tmp_path: Path
) -> None:
    target = tmp_path / "copy"
    shutil.copytree(DATA / sample, target)
    paths = list(target.rglob(pattern))
    for path in paths:
        path.write_bytes(b'{"x": "\xff\xfe"}')
    assert paths
    reader = get_format(sample.partition("/")[0])
    for run in reader.find_runs(target):
        assert list(reader.read_run(run).records)


def test_a_session_without_a_complete_entry_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "5a3a2b1c-0000-4000-8000-000000000001.jsonl"
    path.write_bytes(b'{"type":"user","sessionId":"x","message":"' + b"a" * 100_000)
    with pytest.raises(UnreadableError, match="last line is incomplete"):
        load_runs(path)


def test_a_compressed_rollout_has_a_largest_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vestige._runtime.zstd import zstd

    monkeypatch.setattr("vestige.formats.line_reader.DECOMPRESSED_FILE_MAX", 2 * MIB)
    rollout = next((DATA / "codex/sessions").rglob("*.jsonl"))
    bomb = tmp_path / f"{rollout.name}.zst"
    bomb.write_bytes(zstd.compress(rollout.read_bytes() + bytes(40 * MIB)))
    with open_store(tmp_path / "store.db") as store:
        (result,) = import_path(store, bomb)
    assert result.run_id is None
    assert "too large (expected at most 2 MiB when decompressed)" in str(result.problems[-1])
