"""Segments: written once, loaded once, whatever is repeated, damaged or refused in between."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.commands import vestige
from support.s3_server import serve_s3
from support.stored_runs import make_run, run_id_of, writer_of
from vestige.errors import StoreError, UnreadableError
from vestige.fleet.segments import segment_loader
from vestige.fleet.segments.segment_format import (
    StoredDelivery,
    decode_segment,
    encode_segment,
    make_delivery,
)
from vestige.fleet.segments.segment_loader import SegmentLoader
from vestige.fleet.segments.segment_storage import (
    DirectoryStorage,
    SegmentExistsError,
    SegmentStorage,
    make_key,
    open_storage,
)
from vestige.fleet.segments.segment_writer import SegmentReceiver
from vestige.fleet.server.otlp_ingest import Spans
from vestige.fleet.server.receive import Outcome, Receipt
from vestige.fleet.shipment import Shipment, WriterEnd
from vestige.home import Home
from vestige.record.types import KnownRecord, Unknown
from vestige.store.open import open_store
from vestige.store.protocol import RunFilter

WRITER = "00000000000000aa"


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, serve_s3(patch, "traces"):
        yield "s3://traces"


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for segments that is empty."""
    if request.param == "directory":
        return str(tmp_path / "segments")
    return f"{request.getfixturevalue('s3')}/{tmp_path.name}"


@pytest.fixture
def folder(tmp_path: Path) -> DirectoryStorage:
    return DirectoryStorage(tmp_path / "segments")


def make_shipment(*numbers: int) -> Shipment:
    return Shipment([record for number in numbers for record in make_run(number)])


def write(storage: SegmentStorage, *shipments: Shipment | Spans, tenant: str = "default") -> None:
    receiver = SegmentReceiver(storage)
    with receiver.transaction():
        for shipment in shipments:
            assert isinstance(run(receiver, shipment, tenant), Receipt)


def run(receiver: SegmentReceiver, opened: Shipment | Spans, tenant: str) -> Outcome:
    steps = receiver.store(opened, tenant)
    next(steps)
    with pytest.raises(StopIteration) as ended:
        next(steps)
    outcome: Outcome = ended.value.value
    return outcome


def load_all(home: Home, storage: SegmentStorage) -> int:
    loader = SegmentLoader(home, storage)
    new = 0
    try:
        while True:
            result = loader.load_batch()
            new += result.new
            if not result.is_full:
                return new
    finally:
        loader.close()


def span_counts(home: Home) -> dict[str, int]:
    with open_store(home.store, readonly=True) as store:
        return {info.id: info.span_count for info in store.list_runs(RunFilter())}


# --- contents -----------------------------------------------------------------------------------


def test_a_shipment_is_the_same_after_a_segment() -> None:
    unknown = Unknown(
        "span-mark", WRITER, 9, None, {"kind": "span-mark", "writer": WRITER, "seq": 9}
    )
    shipment = make_shipment(1, 2)
    shipment.records.append(unknown)
    shipment.bodies = {(WRITER, 9): b"\x00\xff long"}
    shipment.ends = [WriterEnd(WRITER, "stack")]

    (delivery,) = decode_segment(encode_segment([make_delivery(shipment, "acme")]))
    opened = delivery.open()

    assert delivery.tenant == "acme"
    assert opened == shipment


def test_spans_of_an_exporter_are_the_same_after_a_segment() -> None:
    records: list[KnownRecord] = [each for each in make_run(1) if not isinstance(each, Unknown)]
    spans = Spans({run_id_of(1): records}, {run_id_of(1): WRITER}, 0, "")

    (delivery,) = decode_segment(encode_segment([make_delivery(spans, "acme")]))

    assert delivery.open() == spans


def test_a_damaged_segment_or_one_of_a_newer_version_is_refused() -> None:
    data = encode_segment([make_delivery(make_shipment(1), "acme")])
    for damaged in (data[:-5], b"", b"text", data[:10] + b"\xff" + data[11:]):
        with pytest.raises(UnreadableError):
            decode_segment(damaged)
    with pytest.raises(UnreadableError, match="version 99 is newer"):
        decode_segment(encode_segment([StoredDelivery(99, "acme")]))


# --- where they are -----------------------------------------------------------------------------


def test_a_segment_is_written_once_and_never_changed(place: str) -> None:
    storage = open_storage(place)
    key = make_key(WRITER, 1)
    storage.put(key, b"first")
    storage.put(key, b"first")  # the answer to the first request was lost
    with pytest.raises(SegmentExistsError):
        storage.put(key, b"second")
    assert storage.find(key) == b"first"
    assert [(info.key, info.size_bytes) for info in storage.list_segments()] == [(key, 5)]


def test_segments_are_listed_until_they_are_deleted(place: str) -> None:
    storage = open_storage(place)
    assert storage.list_segments() == []
    keys = [make_key(WRITER, number) for number in (1, 2, 3)]
    for key in keys:
        storage.put(key, b"x")
    storage.put(f"rejected/{keys[0]}", b"y")
    assert sorted(info.key for info in storage.list_segments()) == keys
    assert storage.count_rejected() == 1
    storage.delete([*keys[:2], make_key(WRITER, 99)])
    assert [info.key for info in storage.list_segments()] == keys[2:]
    assert storage.find(keys[0]) is None


def test_files_that_are_no_segments_are_left_alone(
    tmp_path: Path, folder: DirectoryStorage
) -> None:
    folder.put(make_key(WRITER, 1), b"x")
    (tmp_path / "segments" / "notes.txt").write_text("mine")
    abandoned = tmp_path / "segments" / ".0011223344556677.part"
    abandoned.write_bytes(b"half")
    assert [info.key for info in folder.list_segments()] == [make_key(WRITER, 1)]
    assert abandoned.exists()  # a server may still be writing it
    os.utime(abandoned, (1, 1))
    folder.list_segments()
    assert not abandoned.exists()
    assert (tmp_path / "segments" / "notes.txt").read_text() == "mine"


@pytest.mark.slow
def test_a_bucket_that_does_not_exist_is_named(s3: str) -> None:
    with pytest.raises(StoreError, match=r"s3://absent/.*NoSuchBucket"):
        open_storage("s3://absent/x").put(make_key(WRITER, 1), b"x")


# --- from server to store -----------------------------------------------------------------------


def test_accepted_shipments_are_loaded_once(home: Home, place: str) -> None:
    storage = open_storage(place)
    write(storage, make_shipment(1), make_shipment(2))
    write(storage, make_shipment(2, 3))  # sent again, with more
    assert len(storage.list_segments()) == 2

    assert load_all(home, storage) == 21
    assert span_counts(home) == {run_id_of(number): 3 for number in (1, 2, 3)}
    assert storage.list_segments() == []


def test_a_loader_killed_before_it_deletes_stores_nothing_twice(
    home: Home, folder: DirectoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, make_shipment(1))

    def die(self: DirectoryStorage, keys: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(DirectoryStorage, "delete", die)
        load_all(home, folder)
    assert len(folder.list_segments()) == 1
    assert load_all(home, folder) == 0
    assert span_counts(home) == {run_id_of(1): 3}


def test_a_damaged_segment_is_set_aside_and_the_others_are_loaded(
    home: Home, folder: DirectoryStorage
) -> None:
    folder.put(make_key(WRITER, 1), b"damaged")
    write(folder, make_shipment(1))
    assert load_all(home, folder) == 7
    assert folder.count_rejected() == 1
    assert folder.find(f"rejected/{make_key(WRITER, 1)}") == b"damaged"


def test_a_segment_that_the_store_cannot_take_is_set_aside_alone(
    home: Home, folder: DirectoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, make_shipment(1))
    write(folder, make_shipment(2))
    store_once = SegmentLoader._store_once

    def fail_on_run_2(self: SegmentLoader, batch: list[tuple[str, list[StoredDelivery]]]) -> int:
        runs = {each.run_id for _, found in batch for one in found for each in one.records}
        if run_id_of(2) in runs:
            raise ValueError("a bug")
        return store_once(self, batch)

    monkeypatch.setattr(SegmentLoader, "_store_once", fail_on_run_2)
    loader = SegmentLoader(home, folder)
    for _ in range(segment_loader.TRIES_MAX - 1):  # a broken connection may look like a bug
        with pytest.raises(StoreError, match="ValueError: a bug"):
            loader.load_batch()
        assert folder.count_rejected() == 0
    (reason,) = loader.load_batch().reasons
    loader.close()
    assert reason.endswith("ValueError: a bug")
    assert span_counts(home) == {run_id_of(1): 3}
    assert (folder.count_rejected(), folder.list_segments()) == (1, [])


def test_a_store_that_is_unavailable_leaves_the_segments(
    home: Home, folder: DirectoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, make_shipment(1))
    monkeypatch.setenv("VESTIGE_STORE", "clickhouse://127.0.0.1:1/none")
    with pytest.raises(StoreError):
        load_all(home, folder)
    assert len(folder.list_segments()) == 1
    monkeypatch.delenv("VESTIGE_STORE")
    assert load_all(home, folder) == 7


def test_large_backlogs_are_loaded_in_bounded_batches(
    home: Home, folder: DirectoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_loader, "BATCH_RECORDS", 10)
    for number in range(1, 8):
        write(folder, make_shipment(number))
    loader = SegmentLoader(home, folder)
    first = loader.load_batch()
    loader.close()
    assert (first.segments, first.records, first.is_full) == (2, 14, True)
    assert load_all(home, folder) == 35


def test_shipments_are_refused_while_too_much_waits(home: Home, folder: DirectoryStorage) -> None:
    receiver = SegmentReceiver(folder, waiting_max=2)
    for number in (1, 2):
        with receiver.transaction():
            run(receiver, make_shipment(number), "default")
    with pytest.raises(StoreError, match=r"2 with .* wait for the loader"), receiver.transaction():
        run(receiver, make_shipment(3), "default")
    assert load_all(home, folder) == 14
    fresh = SegmentReceiver(folder, waiting_max=2)
    with fresh.transaction():
        run(fresh, make_shipment(3), "default")
    assert load_all(home, folder) == 7


def test_tenants_that_use_the_same_ids_stay_apart(home: Home, folder: DirectoryStorage) -> None:
    write(folder, make_shipment(1), tenant="acme")
    write(folder, make_shipment(1), tenant="beta")
    assert load_all(home, folder) == 14
    for tenant in ("acme", "beta"):
        with open_store(home.store, readonly=True, tenant=tenant) as store:
            (info,) = store.list_runs(RunFilter())
            assert info.span_count == 3


def test_the_end_of_a_writer_closes_its_open_spans(home: Home, folder: DirectoryStorage) -> None:
    shipment = Shipment(list(make_run(1, ended=False)), ends=[WriterEnd(writer_of(1))])
    write(folder, shipment)
    load_all(home, folder)
    with open_store(home.store, readonly=True) as store:
        assert store.load_run(run_id_of(1)).info.outcome == "interrupted"


def test_the_command_loads_what_is_there(home: Home, place: str) -> None:
    write(open_storage(place), make_shipment(1))
    command = ("store", "load", "--once", "--segments", place, "--home", home.root)
    assert vestige(*command).stdout == "loaded 1 segment, 7 new records\n"
    assert vestige(*command).stdout == "loaded 0 segments, 0 new records\n"
    assert span_counts(home) == {run_id_of(1): 3}
    missing = vestige("store", "load", "--once", "--home", home.root)
    assert (missing.exit_code, "no place is set" in missing.stderr) == (2, True)
