"""Compressed files of any format are opened like the plain ones."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from backports import zstd

from support.agent_logs import DATA, imported, load_runs
from vestige.errors import UnreadableError
from vestige.limits import MIB
from vestige.store.open import open_store
from vestige.transfer import check_source, compressed_file, import_path, is_source, open_path

FILES = [
    next((DATA / "atif").glob("v1.0*.json")),
    next((DATA / "messages").glob("*.json")),
    next((DATA / "inspect").glob("*.eval")),
    next((DATA / "gemini_cli").rglob("*.jsonl")),
    DATA / "opencode" / "opencode.db",
]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_compressed_file_is_the_same_run(path: Path, suffix: str, tmp_path: Path) -> None:
    folder = tmp_path / path.parent.name
    folder.mkdir()
    compressed = folder / (path.name + suffix)
    compress = gzip.compress if suffix == ".gz" else zstd.compress
    compressed.write_bytes(compress(path.read_bytes()))
    status = path.stat()
    os.utime(compressed, ns=(status.st_atime_ns, status.st_mtime_ns))

    assert is_source(str(compressed))
    with imported(tmp_path, path) as store:
        before = load_runs(store)
        results = list(import_path(store, compressed))
        assert results and all(result.records == 0 for result in results)
        assert all(str(compressed) in str(result.path) for result in results)
        assert load_runs(store) == before


def test_a_damaged_or_endless_file_is_an_error_with_its_own_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressed_file, "DECOMPRESSED_FILE_MAX", MIB)
    damaged, bomb, torn = (tmp_path / f"{name}.json.gz" for name in ("damaged", "bomb", "torn"))
    damaged.write_bytes(b"\x1f\x8bnothing")
    bomb.write_bytes(gzip.compress(b" " * 3 * MIB))
    torn.write_bytes(gzip.compress(FILES[0].read_bytes())[:-200])
    (tmp_path / "bad.json.zst").write_bytes(b"\x28\xb5\x2f\xfdnothing")
    with open_store(tmp_path / "store.db") as store:
        for path in (damaged, bomb, tmp_path / "bad.json.zst"):
            with pytest.raises(UnreadableError, match=path.name):
                list(import_path(store, path))
            with pytest.raises(UnreadableError, match=path.name):
                check_source(path)
    with pytest.raises(UnreadableError, match=r"torn\.json\.gz"), open_path(torn):
        pass


def test_a_link_is_not_decompressed(tmp_path: Path) -> None:
    real = tmp_path / "real.json.gz"
    real.write_bytes(gzip.compress(FILES[0].read_bytes()))
    link = tmp_path / "link.json.gz"
    link.symlink_to(real)
    assert is_source(str(real))
    assert not is_source(str(link))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "session.jsonl"
    os.mkfifo(pipe)
    assert not is_source(str(pipe))
    expected = pytest.raises(UnreadableError, match=r"session\.jsonl")
    with open_store(tmp_path / "store.db") as store, expected:
        list(import_path(store, pipe))
