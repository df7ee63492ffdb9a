"""Receiving: parcels become rows once, under their tenant, and other machines' dead are stamped."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from support.recordings import LONG, record
from vestige._runtime.clock import SYSTEM
from vestige.collector.crash_detection import stamp_dead, stamp_silent
from vestige.collector.loop import hold
from vestige.errors import ParcelError
from vestige.fleet.client.ship_reader import ShipReader
from vestige.fleet.client.ship_state import Shipped
from vestige.fleet.compression import pack
from vestige.fleet.server.ingest_process import Intake
from vestige.fleet.server.receive import Delivery, Receipt, Receiver
from vestige.home import Home
from vestige.record.codec import render_line
from vestige.record.run import Run
from vestige.record.types import Log
from vestige.recorder import Recorder
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore

BINARY = b"\xff" * 300_000


def sent_by(home: Home) -> bytes:
    """All that a home would send, in one parcel."""
    return pack(b"".join(one.data for one in ShipReader(home, Shipped("")).iter_shipments()))


def runs_of(home: Home) -> dict[str, Run]:
    with SqliteStore.open(home.store, readonly=True) as store:
        infos = store.list_runs(RunFilter(with_implicit=True))
        return {info.id: store.load_run(info.id) for info in infos}


def receive(home: Home, *deliveries: Delivery) -> list[object]:
    with Receiver(home) as receiver:
        return list(receiver.ingest(deliveries))


@pytest.mark.slow
def test_a_parcel_taken_twice_is_there_once_with_its_long_bodies(
    home: Home, tmp_path: Path
) -> None:
    """Identity is (writer, seq), so a sender that heard no answer may send again."""
    there = Home(tmp_path / "there")
    run_id = record(home, request=LONG, answer=BINARY)
    delivery = Delivery(sent_by(home), "zstd", "acme")

    first, again = receive(there, delivery, delivery)
    (later,) = receive(there, delivery)

    assert isinstance(first, Receipt)
    assert first.new == first.records > 3
    assert isinstance(again, Receipt) and again.new == 0
    assert isinstance(later, Receipt) and later.new == 0
    run = runs_of(there)[run_id]
    assert run.info.outcome == "ok"
    assert run.info.span_count == 2
    assert run.spans[1].input is not None and run.spans[1].input.size_bytes == 300_000
    with SqliteStore.open(there.store, readonly=True, tenant="acme") as store:
        body = store.load_run(run_id).spans[1].output
        assert body is not None and body.id is not None
        assert store.read_body(body.id) == b"\xff" * 300_000
    with SqliteStore.open(there.store, readonly=True, tenant="default") as store:
        assert not store.has_run(run_id)


@pytest.mark.slow
def test_a_run_with_the_id_of_another_tenants_is_stored_under_its_own(
    home: Home, tmp_path: Path
) -> None:
    """One transaction for several parcels, and each is stored or refused by itself."""
    there = Home(tmp_path / "there")
    mine = record(home, "mine", request=LONG, answer=BINARY)
    receive(there, Delivery(sent_by(home), "zstd", "acme"))
    before = runs_of(there)[mine]
    thief = Home(tmp_path / "thief")
    with Recorder(thief, crash_hooks=False) as recorder:
        recorder.run("thief").end()
    stolen = b"".join(one.data for one in ShipReader(thief, Shipped("")).iter_shipments())
    its_run = next(iter(ShipReader(thief, Shipped("")).iter_shipments())).data.split(b'"run_id":"')[
        1
    ][:36]
    other = Home(tmp_path / "other")
    good = record(other, "good", request=LONG, answer=BINARY)

    stored, renamed, unreadable = receive(
        there,
        Delivery(sent_by(other), "zstd", "beta"),
        Delivery(pack(stolen.replace(its_run, mine.encode())), "zstd", "beta"),
        Delivery(b"garbage", "zstd", "beta"),
    )

    assert isinstance(stored, Receipt)
    assert isinstance(renamed, Receipt) and renamed.new == renamed.records > 0
    assert isinstance(unreadable, ParcelError)
    runs = runs_of(there)
    assert runs[mine] == before
    assert good in runs
    (its_own,) = (run_id for run_id, run in runs.items() if run.info.name == "thief")
    assert its_own != mine
    with SqliteStore.open(there.store, readonly=True, tenant="beta") as store:
        assert store.has_run(its_own) and not store.has_run(mine)


@pytest.mark.slow
def test_another_tenants_writer_cannot_be_spoken_for(home: Home, tmp_path: Path) -> None:
    """Else numbers that its owner has yet to send would be known already, and dropped."""
    there = Home(tmp_path / "there")
    run_id = record(home, request=LONG, answer=BINARY)
    parcel = sent_by(home)
    receive(there, Delivery(parcel, "zstd", "acme"))

    (outcome,) = receive(there, Delivery(parcel, "zstd", "beta"))
    (again,) = receive(there, Delivery(parcel, "zstd", "acme"))

    assert isinstance(outcome, Receipt) and outcome.new == outcome.records
    assert isinstance(again, Receipt) and again.new == 0
    with SqliteStore.open(there.store, readonly=True, tenant="beta") as store:
        assert not store.has_run(run_id)
        assert [store.load_run(each).info.name for each in store.run_ids()].count("agent") == 1


@pytest.mark.slow
def test_a_writer_elsewhere_is_not_dead_because_it_has_no_lock_here(
    home: Home, tmp_path: Path
) -> None:
    """Only its machine knows. Once that says so, it is stamped as it would be there."""
    there = Home(tmp_path / "there")
    recorder = Recorder(home, crash_hooks=False)
    run = recorder.run("agent")
    run.span("search", type="tool")
    receive(there, Delivery(sent_by(home), "zstd", "acme"))
    with hold(there) as collector:
        assert collector is not None
        collector.tick()
    alive = runs_of(there)[run.run_id]

    recorder._writer.journal.close()  # type: ignore[union-attr]  # dies without another word
    receive(there, Delivery(sent_by(home), "zstd", "acme"))
    with SqliteStore.open(there.store) as store:
        again = stamp_dead(there, store)

    assert alive.info.outcome == "running"
    stamped = runs_of(there)[run.run_id]
    with hold(home) as collector:
        assert collector is not None
        collector.tick()
    at_home = runs_of(home)[run.run_id]
    assert stamped.info.outcome == "interrupted"
    assert again == 0
    assert [log.message for log in stamped.logs] == [log.message for log in at_home.logs]
    assert [log.seq for log in stamped.logs] == [log.seq for log in at_home.logs]


@pytest.mark.slow
def test_a_machine_that_vanished_leaves_no_run_running_and_may_come_back(
    home: Home, tmp_path: Path
) -> None:
    """After a long silence its runs are interrupted; later records are stored and win."""
    there = Home(tmp_path / "there")
    recorder = Recorder(home, crash_hooks=False)
    run = recorder.run("agent")
    span = run.span("chat", type="llm")
    receive(there, Delivery(sent_by(home), "zstd", "acme"))
    now_ns, hour_ns = SYSTEM.now_ns(), 3600 * 10**9
    with SqliteStore.open(there.store) as store:
        counts = [stamp_silent(store, now_ns + hours * hour_ns) for hours in (0, 23, 25, 26)]
        stamp_dead(there, store)
    vanished = runs_of(there)[run.run_id]

    span.log.info("back again")
    span.end(attributes={"input_tokens": 5})
    run.end()
    recorder.close()
    (receipt,) = receive(there, Delivery(sent_by(home), "zstd", "acme"))
    back = runs_of(there)[run.run_id]

    assert counts == [0, 0, 1, 0]
    assert vanished.info.outcome == "interrupted"
    assert {one.status for one in vanished.spans} == {"interrupted"}
    (line,) = vanished.logs
    assert line.message == "its machine sent nothing for 24 h after llm chat"
    assert line.attributes["crash"] is False
    assert isinstance(receipt, Receipt) and receipt.new >= 3
    assert (back.info.outcome, back.info.input_tokens, back.info.error_count) == ("ok", 5, 0)
    assert {one.status for one in back.spans} == {"ok"}
    assert [log.message for log in back.logs] == ["back again"]  # the stamp is withdrawn


@pytest.mark.slow
def test_the_fault_of_a_process_elsewhere_becomes_the_body_of_its_stamp(
    home: Home, tmp_path: Path
) -> None:
    """faulthandler's stacks travel with the end."""
    there = Home(tmp_path / "there")
    recorder = Recorder(home, crash_hooks=False)
    run = recorder.run("agent")
    writer = recorder.writer
    home.fault_file(writer).write_text("Fatal Python error: Segmentation fault\n  File x\n")
    recorder._writer.journal.close()  # type: ignore[union-attr]

    receive(there, Delivery(sent_by(home), "zstd", "default"))

    (line,) = runs_of(there)[run.run_id].logs
    assert line.attributes["fault"] == "Fatal Python error: Segmentation fault"
    assert line.body is not None


def test_what_is_acknowledged_outlives_a_power_cut(home: Home) -> None:
    """WAL with synchronous NORMAL may lose the last commits then: this connection has FULL."""
    with Receiver(home) as receiver:
        (mode,) = receiver._store._connection.execute("PRAGMA synchronous").fetchone()

    assert mode == 2


@pytest.mark.slow
def test_a_local_program_that_joins_a_foreign_run_does_not_hold_up_the_collector(
    home: Home, tmp_path: Path
) -> None:
    """Its lines for that run are left out and counted; the others are taken in."""
    there = Home(tmp_path / "there")
    run_id = record(home, request=LONG, answer=BINARY)
    receive(there, Delivery(sent_by(home), "zstd", "acme"))
    with Recorder(there, crash_hooks=False) as recorder:
        own = recorder.run("own")
        joined = recorder.run("joined")
        own.end()
        joined.end()
    for path in there.journal.iterdir():
        path.write_bytes(path.read_bytes().replace(joined.run_id.encode(), run_id.encode()))

    with hold(there) as collector:
        assert collector is not None
        taken = collector.tick()

    assert taken.malformed == 2
    assert runs_of(there)[own.run_id].info.outcome == "ok"
    assert runs_of(there)[run_id].info.name == "agent"


@pytest.mark.parametrize("ended", [True, False])
def test_nothing_but_an_end_is_fine_too(home: Home, tmp_path: Path, ended: bool) -> None:
    """An empty parcel, or the end of a writer that was never heard of here."""
    data = b'{"kind":"writer-end","writer":"00000000000000aa"}\n' if ended else b""

    (outcome,) = receive(Home(tmp_path / "there"), Delivery(pack(data), "zstd", "default"))

    assert outcome == Receipt(0, 0, 0, 0)


@pytest.mark.slow
def test_numbers_full_of_holes_are_refused_and_backwards_ones_are_not(tmp_path: Path) -> None:
    """The set of numbers of a writer is read with every parcel: nobody may blow it up."""
    there = Home(tmp_path / "there")
    run_id = "3d1957bd-0000-4000-8000-000000000001"

    def lines(writer: str, numbers: Iterable[int]) -> bytes:
        made = (Log(1, writer, n, 1_000, run_id, "a", "info", "m") for n in numbers)
        return pack(b"".join(map(render_line, made)))

    backwards, holes = receive(
        there,
        Delivery(lines("00000000000000aa", range(5_000, 0, -1)), "zstd", "default"),
        Delivery(lines("00000000000000bb", range(200_000, 0, -2)), "zstd", "default"),
    )

    assert isinstance(backwards, Receipt) and backwards.new == 5_000
    assert isinstance(holes, ParcelError) and "missing" in str(holes)
    assert runs_of(there)[run_id].info.log_count == 5_000


@pytest.mark.slow
def test_who_does_not_wait_for_a_reply_any_more_keeps_nobody_else_waiting(home: Home) -> None:
    """A request whose client went away may be cancelled; the others are answered."""
    intake = Intake(home)
    intake.submit(pack(b""), "zstd", "default").cancel()
    reply = intake.submit(pack(b""), "zstd", "default").result(20)
    intake.close()

    assert reply.problem is None


@pytest.mark.slow
def test_a_store_that_was_put_away_takes_nothing_in_any_more(home: Home, tmp_path: Path) -> None:
    """An acknowledged parcel is in the home's store, not in a file that was deleted."""
    there = Home(tmp_path / "there")
    record(home, request=LONG, answer=BINARY)
    delivery = Delivery(sent_by(home), "zstd", "default")
    with Receiver(there) as receiver:
        receiver.ingest([delivery])
        for path in there.root.glob("store.db*"):
            path.unlink()

        (again,) = receiver.ingest([delivery])

        assert isinstance(again, Receipt)
        assert again.new == again.records > 3
        assert "agent" in {run.info.name for run in runs_of(there).values()}
