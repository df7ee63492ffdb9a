"""What looks for secrets is compiled once, kept, and never trusted when it is not ours."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from support.programs import SmallDisk
from vestige.home import Home
from vestige.record.redaction.hyperscan_database_cache import FILES_MAX, find_database
from vestige.record.redaction.hyperscan_database_cache import get_database as database
from vestige.record.redaction.prefilter_markers import all_markers
from vestige.record.redaction.redactor import Redactor
from vestige.record.redaction.secret_scanner import FIRST_STAGE_BYTES_MAX, Scanner
from vestige.recorder import Recorder

hyperscan = pytest.importorskip("hyperscan")

RULES = [b"(?i)api_key", rb"sk-[a-z0-9]{8}"]
KEYED = b'{"password":"hunter22"}'
SECRET = b'{"x":"the key is sk-abcd1234"}'


def finds(found: object, line: bytes) -> bool:
    hits: list[int] = []
    scratch = hyperscan.Scratch(found)
    found.scan(line, lambda which, *_: hits.append(which), scratch=scratch)  # type: ignore[attr-defined]
    return bool(hits)


def stored_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.hs"))


def spoiled(path: Path, change: str) -> None:
    data = path.read_bytes()
    if change == "torn":
        path.write_bytes(data[: len(data) // 2])
    elif change == "empty":
        path.write_bytes(b"")
    elif change == "last byte":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif change == "middle":
        path.write_bytes(data[:5000] + b"\xff" + data[5001:])
    elif change == "writable by others":
        path.chmod(0o666)
    else:
        path.rename(path.with_name("elsewhere"))
        path.symlink_to(path.with_name("elsewhere"))


def test_the_second_one_is_read_and_finds_the_same(tmp_path: Path) -> None:
    first = database(RULES, tmp_path)
    (path,) = stored_files(tmp_path)
    before = path.stat()
    second = database(RULES, tmp_path)
    assert path.stat().st_mtime_ns == before.st_mtime_ns, "it was written again"
    assert path.stat().st_mode & 0o777 == 0o600
    for found in (first, second):
        assert finds(found, SECRET)
        assert not finds(found, b'{"x":"nothing"}')


@pytest.mark.parametrize(
    "change", ["torn", "empty", "last byte", "middle", "writable by others", "a link"]
)
def test_a_file_that_is_not_as_we_left_it_is_not_used(tmp_path: Path, change: str) -> None:
    database(RULES, tmp_path)
    (path,) = stored_files(tmp_path)
    spoiled(path, change)
    assert finds(database(RULES, tmp_path), SECRET)
    assert not path.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o600, "it was made again"


def test_a_file_of_other_rules_under_the_same_name_is_not_used(tmp_path: Path) -> None:
    database([b"nothing of use"], tmp_path)
    (other,) = stored_files(tmp_path)
    database(RULES, tmp_path)
    (ours,) = set(stored_files(tmp_path)) - {other}
    os.replace(other, ours)
    assert finds(database(RULES, tmp_path), SECRET)


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path) -> None:
    assert finds(database(RULES, tmp_path / "not" / "there"), SECRET)
    assert not (tmp_path / "not").exists()


def test_a_disk_that_is_nearly_full_is_left_to_the_records(small_disk: SmallDisk) -> None:
    disk = small_disk("1m")

    assert finds(database(RULES, disk / "scanners"), SECRET)
    assert [path for path in disk.rglob("*") if path.is_file()] == []


def test_few_are_kept(tmp_path: Path) -> None:
    for number in range(FILES_MAX + 5):
        database([b"rule %d" % number], tmp_path)
    assert len(list(tmp_path.iterdir())) == FILES_MAX


@pytest.mark.slow
def test_no_registered_secret_is_kept(tmp_path: Path) -> None:
    """Neither one that is learned apart, nor many that are built into the whole."""
    redactor = Redactor(cache_folder=tmp_path)
    redactor.suspicious(bytes(FIRST_STAGE_BYTES_MAX))
    redactor.complete_scanner()
    redactor.add_secret("correct horse battery")
    assert redactor.suspicious(b'{"x":"correct horse battery"}')
    redactor.add_secrets(f"plum-{number:05}-orchard" for number in range(400))
    assert redactor.suspicious(b'{"x":"plum-00399-orchard"}')
    redactor.suspicious(bytes(FIRST_STAGE_BYTES_MAX))
    redactor.complete_scanner()
    redactor.add_keys(["sesame"])
    assert redactor.suspicious(b'{"sesame":"1"}')
    assert stored_files(tmp_path)
    everything = b"".join(path.read_bytes() for path in tmp_path.iterdir()).lower()
    assert b"horse" not in everything
    assert b"orchard" not in everything
    assert b"plum" not in everything


def completed(scanner: Scanner) -> Scanner:
    scanner.complete(scanner.compile())
    assert scanner.is_complete
    return scanner


@pytest.mark.slow
def test_a_scanner_from_disk_gives_the_same_answers_as_a_compiled_one(tmp_path: Path) -> None:
    lines = [b'{"a":"%s"}' % marker.literal for marker in all_markers()]
    lines += [b'{"prompt_tokens":12}', b'{"text":"plain words"}', b'{"password":"x"}', SECRET]
    fresh = completed(Scanner("hyperscan"))
    completed(Scanner("hyperscan", cache_folder=tmp_path))
    read = Scanner("hyperscan", cache_folder=tmp_path)
    assert read.is_complete, "it was not read from the cache"
    answers = [read.suspicious(line) for line in lines]
    assert answers == [fresh.suspicious(line) for line in lines]
    assert True in answers
    assert False in answers


def test_a_first_scanner_compiles_no_expressions(tmp_path: Path) -> None:
    """They take a tenth of a second, which the program would wait for."""
    scanner = Scanner("hyperscan", cache_folder=tmp_path)

    assert scanner.suspicious(KEYED)
    assert not scanner.suspicious(b'{"x":"nothing","prompt_tokens":3}')

    assert not scanner.is_complete
    assert find_database([marker.expression for marker in all_markers()], tmp_path) is None


@pytest.mark.slow
def test_a_scanner_is_completed_once_it_has_scanned_enough(tmp_path: Path) -> None:
    redactor = Redactor(cache_folder=tmp_path)
    redactor.suspicious(KEYED)
    redactor.complete_scanner()
    after_little = redactor.scanner.is_complete
    redactor.suspicious(b'{"x":"%s"}' % (b"plain " * (FIRST_STAGE_BYTES_MAX // 6)))
    redactor.complete_scanner()

    assert (after_little, redactor.scanner.is_complete) == (False, True)
    assert redactor.suspicious(KEYED)
    assert Scanner("hyperscan", cache_folder=tmp_path).is_complete, "the next process reads it"


@pytest.mark.slow
def test_completing_does_not_undo_what_was_learned_meanwhile(tmp_path: Path) -> None:
    scanner = Scanner("hyperscan", cache_folder=tmp_path)
    compiled = scanner.compile()
    scanner.learn_keys(["sesame"])
    scanner.complete(compiled)

    assert scanner.suspicious(b'{"sesame":"1"}')


@pytest.mark.slow
def test_a_recorder_completes_its_scanner_in_the_background(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Home, "scanners", tmp_path / "scanners")  # not those of all tests
    with Recorder(home) as recorder, recorder.run("work") as run:
        redactor = recorder.redactor
        assert redactor is not None
        at_first = redactor.scanner.is_complete
        for _ in range(FIRST_STAGE_BYTES_MAX // 1000):
            run.log.info("plain words " * 100)
        deadline = time.monotonic() + 60
        while not redactor.scanner.is_complete and time.monotonic() < deadline:
            time.sleep(0.05)
        in_the_end = redactor.scanner.is_complete

    assert (at_first, in_the_end) == (False, True)
    assert Scanner("hyperscan", cache_folder=recorder.home.scanners).is_complete
