"""`vestige server ship`: what one machine records is on the server, once, whatever happens."""

from __future__ import annotations

import http.server
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.programs import run_in
from support.recordings import LONG, record
from support.ship_server import Serving, runs_in, ship, start_ship
from vestige.collector.loop import catch_up
from vestige.collector.outbox import bound_outbox, is_shipped, read_lost
from vestige.errors import ShipError
from vestige.fleet.api_keys import Keys
from vestige.fleet.client.ship import hold_ship, stop_shipping
from vestige.fleet.client.ship_client import ServerReply, ShipClient
from vestige.fleet.client.ship_reader import ShipReader
from vestige.fleet.client.ship_state import Shipped, write_shipped
from vestige.fleet.server.id_collisions import ORIGINAL_ID
from vestige.home import Home
from vestige.limits import PARCEL_BYTES, SHIP_PAUSE_S, SHIP_TRIES

AGENT = """
import vestige
with vestige.Recorder().run("agent") as run:
    for n in range(20):
        run.span("ask", type="tool", body=f"q{n}").end(body="a" * 50)
    run.span("long", type="tool", body="x" * 400_000).end()
    run.log.info("done")
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One server for all tests that do not stop it; each has runs of its own in it."""
    server = Serving(tmp_path_factory.mktemp("server") / "home")
    server.key()
    server.start()
    yield server
    server.stop()


def test_a_first_ship_says_what_it_does_not_send(shared: Serving, home: Home) -> None:
    """Journals that the collector was done with before are gone: that must not look like all of
    it.
    """
    early = record(home, request=LONG)
    catch_up(home)
    late = record(home, request=LONG)
    key = shared.key()

    code, _, output = ship(home, shared.url, key)
    again = ship(home, shared.url, key)

    assert code == 0 and late in shared.runs() and early not in shared.runs()
    assert "runs recorded before the first ship are not sent" in output
    assert again[2] == ""


def test_an_agent_on_another_machine_is_seen_on_the_server(shared: Serving, home: Home) -> None:
    """Records, bodies, long bodies, outcome; under the tenant of the key."""
    assert run_in(home, AGENT).returncode == 0
    key = shared.key("acme")

    code, out, _ = ship(home, shared.url, key)
    again = ship(home, shared.url, key)

    catch_up(home)
    here = {run.info.id: run for run in runs_in(home).values()}
    there = shared.runs()
    assert code == 0 and out.startswith("Sent ")
    assert again[:2] == (0, "Sent 0 records (0 bytes), 0 new on the server\n")
    for run_id, run in here.items():
        copy = there[run_id]
        assert shared.tenant_of(run_id) == "acme"
        assert copy.info.outcome == run.info.outcome
        assert copy.info.span_count == run.info.span_count
        assert [(span.id, span.status, span.end_seq) for span in copy.spans] == [
            (span.id, span.status, span.end_seq) for span in run.spans
        ]
        assert [span.input and span.input.size_bytes for span in copy.spans] == [
            span.input and span.input.size_bytes for span in run.spans
        ]


@pytest.mark.slow
def test_the_signal_that_killed_an_agent_is_known_on_the_server(
    shared: Serving, home: Home
) -> None:
    """The stamp there is the stamp here: same line, same numbers."""
    first, _, _ = ship(home, shared.url, shared.key())  # from now on this home is shipped
    source = AGENT.replace(
        'run.log.info("done")', "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    )
    run_in(home, source, command=(sys.executable, "-m", "vestige", "run", "--", sys.executable))

    code, _, problems = ship(home, shared.url, shared.key())

    assert (first, code) == (0, 0), problems
    catch_up(home)
    here, there = runs_in(home), shared.runs()
    lines = [log for run in here.values() for log in run.logs if "unexpectedly" in log.message]
    assert any("SIGKILL" in line.message for line in lines)
    for run_id, run in here.items():
        assert [(log.seq, log.message) for log in there[run_id].logs] == [
            (log.seq, log.message) for log in run.logs
        ]


def test_a_collector_beside_a_ship_keeps_what_was_not_sent(shared: Serving, home: Home) -> None:
    """It moves finished files to the outbox; once sent they go, and with them their traces."""
    key = shared.key()
    ship(home, shared.url, key)
    run_id = record(home, request=LONG)

    catch_up(home)
    left = sorted(path.name.partition(".")[0][:3] for path in home.outbox.iterdir())
    code, _, _ = ship(home, shared.url, key)

    assert len(left) == 2  # a journal and a long body
    assert code == 0
    span = shared.runs()[run_id].spans[1]
    assert span.input is not None and span.input.size_bytes == 300_000 and span.input.id is not None
    assert list(home.outbox.iterdir()) == []
    assert list(home.bodies.iterdir()) == []


def test_without_a_ship_the_collector_keeps_nothing(home: Home) -> None:
    """A home that was never shipped, or is not any more, has no outbox."""
    record(home, request=LONG)

    catch_up(home)

    assert not is_shipped(home)
    assert not home.outbox.exists()


def test_a_ship_that_never_comes_back_does_not_fill_the_disk(shared: Serving, home: Home) -> None:
    """Beyond the bound the oldest go, and the next ship says how much was lost."""
    key = shared.key()
    ship(home, shared.url, key)
    for _ in range(3):
        record(home, request=LONG)
        catch_up(home)

    lost = bound_outbox(home, total_max=650_000)
    code, _, problems = ship(home, shared.url, key)

    assert 300_000 <= lost < 400_000  # a body, and the journal beside it if that is older
    assert code == 0
    assert f"{lost} bytes were deleted unsent" in problems
    assert read_lost(home) == 0


def test_stop_forgets_what_waits(shared: Serving, home: Home) -> None:
    """Then the collector deletes again, as before."""
    ship(home, shared.url, shared.key())
    record(home, request=LONG)
    catch_up(home)
    command = [sys.executable, "-m", "vestige", "ship", "--stop", "--home", str(home.root)]

    result = subprocess.run(command, capture_output=True, text=True)

    assert result.returncode == 0
    assert list(home.outbox.iterdir()) == []
    assert not is_shipped(home)


def test_stop_is_refused_while_somebody_ships(shared: Serving, home: Home) -> None:
    """Who sends writes down what was sent: the home would be a shipped one again."""
    record(home, request=LONG)
    link = ShipClient(shared.url, shared.key())
    with hold_ship(home, link, print) as lock:
        assert lock is not None
        with pytest.raises(ShipError, match="End it first"):
            stop_shipping(home)
        lock.run(lambda seconds: True, once=True)
        while_it_ships = is_shipped(home)
    stop_shipping(home)

    assert while_it_ships
    assert not is_shipped(home)


def test_remove_deletes_finished_journals_once_they_were_sent(shared: Serving, home: Home) -> None:
    """For machines that keep no store of their own."""
    run_id = record(home, request=LONG)

    code, _, _ = ship(home, shared.url, shared.key(), "--remove")

    assert code == 0
    assert run_id in shared.runs()
    assert home.journal_files() == []
    assert list(home.bodies.iterdir()) == []


def test_two_homes_may_be_shipped_at_once_and_one_home_only_by_one(
    shared: Serving, home: Home, tmp_path: Path
) -> None:
    """Two ships of one home would send everything twice: the second says so and goes."""
    other = Home(tmp_path / "other")
    run_ids = {record(home, request=LONG), record(other, request=LONG)}
    key = shared.key()
    ships = [start_ship(each, shared.url, key) for each in (home, other)]
    for each in ships:
        assert each.stderr is not None
        assert "Shipping" in each.stderr.readline()

    code, _, problems = ship(home, shared.url, key)
    for each in ships:
        each.send_signal(signal.SIGTERM)
    ends = [each.communicate(timeout=120) and each.returncode for each in ships]

    assert (code, ends) == (1, [0, 0])
    assert problems.endswith("another process is shipping this data directory already.\n")
    for each in (home, other):
        assert ship(each, shared.url, key)[0] == 0  # whatever the signal cut short
    assert run_ids <= shared.runs().keys()


def test_a_run_with_the_id_of_another_tenants_run_is_stored_as_a_run_of_its_own(
    shared: Serving, home: Home, tmp_path: Path
) -> None:
    """The sender is not shown that the id is in use, and neither tenant's run changes."""
    first = Home(tmp_path / "first")
    taken = record(first, request=LONG)
    ship(first, shared.url, shared.key("acme"))
    joined = record(home, request=LONG)
    for path in home.journal.iterdir():
        path.write_bytes(path.read_bytes().replace(joined.encode(), taken.encode()))

    code, _, problems = ship(home, shared.url, shared.key("beta"))

    assert (code, problems.count("tenant")) == (0, 0)
    assert shared.tenant_of(taken) == "acme"
    assert shared.runs()[taken].info.span_count == 2
    (own,) = [
        run
        for run in shared.runs().values()
        if any(span.attributes.get(ORIGINAL_ID) == taken for span in run.spans)
    ]
    assert shared.tenant_of(own.info.id) == "beta"
    assert own.info.span_count == 2


def test_a_wrong_or_revoked_key_stops_with_a_clear_error(shared: Serving, home: Home) -> None:
    """Trying again would not help; and the key is not repeated in what is said."""
    record(home, request=LONG)
    key = shared.key()
    reader = shared.key("default", "runs:read")
    Keys(shared.home).revoke(key.split("_")[1])

    wrong = ship(home, shared.url, "vstg_00000000_" + "A" * 43)
    revoked = ship(home, shared.url, key)
    unfit = ship(home, shared.url, reader)

    for code, _, problems in (wrong, revoked, unfit):
        assert code == 1
        assert "the key is refused (40" in problems
        assert len(problems.splitlines()) == 1
    assert "runs:write" in unfit[2]
    assert key not in revoked[2]


class Polite(http.server.BaseHTTPRequestHandler):
    """A web server that has a page for every question, and keeps nothing."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>Welcome</html>")

    def log_message(self, *_: object) -> None:
        pass


def test_a_friendly_answer_of_somebody_else_is_no_acknowledgement(home: Home) -> None:
    """Only a server that says how many records it keeps has them: else they stay here."""
    record(home, request=LONG)
    with http.server.HTTPServer(("127.0.0.1", 0), Polite) as elsewhere:
        threading.Thread(target=elsewhere.serve_forever, daemon=True).start()
        before = [path.name for _, _, path in home.journal_files()]
        code, _, problems = ship(
            home, f"http://127.0.0.1:{elsewhere.server_port}", "vstg_key", "--remove"
        )
        elsewhere.shutdown()

    assert code == 1
    assert "Is it the address of a `vestige server start`?" in problems
    assert [path.name for _, _, path in home.journal_files()] == before != []


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://example", "not a server's URL"),
        ("http://vestige.example", "plain HTTP sends the key"),
        ("https://me:pw@vestige.example", "too many parts"),
        ("http://127.0.0.1:99999", "not a valid URL"),
        ("not a url", "not a server's URL"),
        ("https://a..b", "not a valid URL"),
        (f"https://{'a' * 64}.example", "not a valid URL"),
        ("https://vestige.example/ü", "invalid path"),
        ("https://vestige.example/a b", "invalid path"),
    ],
)
def test_an_address_that_makes_no_sense_is_a_usage_error(
    home: Home, url: str, message: str
) -> None:
    """One line, exit code 2, nothing written."""
    code, _, problems = ship(home, url, "vstg_key")

    assert code == 2
    assert message in problems
    assert len(problems.splitlines()) == 1
    assert not home.shipped.exists()


def test_a_key_is_needed_and_never_taken_from_an_argument(home: Home, tmp_path: Path) -> None:
    """From the environment or a file that holds one."""
    missing = ship(home, "http://127.0.0.1:1", "")
    empty = tmp_path / "key"
    empty.write_text("two words\n")
    unfit = ship(home, "http://127.0.0.1:1", "", "--key-file", str(empty))

    assert (missing[0], unfit[0]) == (2, 2)
    assert "no access key" in missing[2]
    assert "not an access key" in unfit[2]


@pytest.mark.slow
def test_a_server_that_is_down_for_a_while_gets_everything_once_it_is_back(
    home: Home, tmp_path: Path
) -> None:
    """The ship waits and tries again; the agent and its journals notice nothing."""
    server = Serving(tmp_path / "server")
    key = server.key()
    first = record(home, request=LONG)
    shipping = start_ship(home, server.url, key)
    assert shipping.stderr is not None
    assert "Shipping" in shipping.stderr.readline()
    assert "cannot be reached" in shipping.stderr.readline()
    second = record(home, request=LONG)

    server.start()
    try:
        assert "reachable again; sending" in shipping.stderr.readline()
        server.stop()
        third = record(home, request=LONG)
        assert "will try again" in shipping.stderr.readline()
        server.start()
        assert "reachable again; sending" in shipping.stderr.readline()
        shipping.send_signal(signal.SIGTERM)
        shipping.communicate(timeout=120)
    finally:
        server.stop()

    assert shipping.returncode == 0
    assert {first, second, third} <= server.runs().keys()


def test_once_gives_up_on_a_server_that_is_not_there_and_loses_nothing(home: Home) -> None:
    """After some tries, with growing pauses; the next one sends it all."""
    record(home, request=LONG)
    reports: list[str] = []
    pauses: list[float] = []

    def keep_on(seconds: float) -> bool:
        pauses.append(seconds)  # and no time passes
        return True

    with (
        hold_ship(home, ShipClient("http://127.0.0.1:1", "vstg_key"), reports.append) as lock,
        pytest.raises(ShipError, match="Nothing is lost"),
    ):
        assert lock is not None
        lock.run(keep_on, once=True)

    assert len(reports) == 1 and "will try again" in reports[0]
    assert len(pauses) == SHIP_TRIES - 1
    assert all(0.5 * SHIP_PAUSE_S * 2**n <= pause for n, pause in enumerate(pauses))
    assert len(home.journal_files()) == 1


def test_a_connection_that_the_server_closed_meanwhile_is_no_failure() -> None:
    """Servers close what is idle: it is opened again, and the parcel is sent again."""
    taken: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer_one_each() -> None:
            for _ in range(2):
                connection, _ = listening.accept()
                with connection:
                    request = b""
                    while request[-3:] not in (b"one", b"two"):
                        request += connection.recv(65536)
                    taken.append(request)
                    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

        server = threading.Thread(target=answer_one_each)
        server.start()
        link = ShipClient(f"http://127.0.0.1:{listening.getsockname()[1]}", "key")

        statuses = [link.send(b"one").status, link.send(b"two").status]
        server.join()

    assert statuses == [200, 200]
    assert [request[-3:] for request in taken] == [b"one", b"two"]


def test_a_ship_that_is_told_to_stop_ends_after_the_parcel_under_way(
    shared: Serving, home: Home
) -> None:
    """However much waits: offsets are kept, and the next one goes on from there."""
    record(home, request=LONG)
    record(home, request=LONG)
    link = ShipClient(shared.url, shared.key())

    with hold_ship(home, link, print) as lock:
        assert lock is not None
        lock._bytes_max = 1  # a parcel for each line
        first = lock.run(lambda seconds: False).records
    with hold_ship(home, link, print) as lock:
        assert lock is not None
        rest = lock.run(lambda seconds: True, once=True)

    assert first == 1
    assert rest.records == rest.new > 5


def test_what_is_too_large_for_something_on_the_way_is_sent_in_smaller_parcels(
    shared: Serving, home: Home
) -> None:
    """A proxy may allow less than the server: halved until it passes; at last without a body."""
    run_id = record(home, request=random.Random(7).randbytes(200_000).hex())
    reports: list[str] = []
    link = Narrow(shared.url, shared.key())

    with hold_ship(home, link, reports.append) as lock:
        assert lock is not None
        sent = lock.run(lambda seconds: True, once=True)

    run = shared.runs()[run_id]
    assert sent.too_large == 1
    assert reports == ["a body is too large for the server: sent without it."]
    assert run.info.outcome == "ok"
    assert run.spans[1].input is not None and run.spans[1].input.id is None


class Narrow(ShipClient):
    """With something between that lets through 600 bytes."""

    def send(self, packed: bytes) -> ServerReply:
        if len(packed) > 600:
            return ServerReply(413, {}, None)
        return super().send(packed)


class Measured(ShipClient):
    """With a proxy between that passes a number of bytes, and counts them."""

    bytes_max = 600
    passed = 0

    def send(self, packed: bytes) -> ServerReply:
        if len(packed) > self.bytes_max:
            return ServerReply(413, {}, None)
        self.passed += 1
        return super().send(packed)


def test_the_ends_of_many_writers_are_sent_in_parcels_that_fit(shared: Serving, home: Home) -> None:
    """Each with what its process said at its end: together they may be more than a server takes."""
    home.make()
    link = Measured(shared.url, shared.key())
    writers = [f"{n:016x}" for n in range(8)]
    write_shipped(home, Shipped(link.url, writers=list(writers)))  # all else was sent before
    for number, writer in enumerate(writers):
        home.fault_file(writer).write_text(random.Random(number).randbytes(150).hex())
    reports: list[str] = []

    with hold_ship(home, link, reports.append) as lock:
        assert lock is not None
        sent = lock.run(lambda seconds: True, once=True)

    assert sent.too_large == 0
    assert reports == []
    assert link.passed > 1


@pytest.mark.slow
def test_the_ends_of_many_writers_are_gathered_up_to_the_bound(home: Home) -> None:
    home.make()
    shipped = Shipped("https://vestige.example", writers=[f"{n:016x}" for n in range(50)])
    for writer in shipped.writers:
        home.fault_file(writer).write_text("x" * 200_000)

    parcels = list(ShipReader(home, shipped).iter_shipments())

    assert [writer for one in parcels for writer in one.ends] == shipped.writers
    assert max(len(one.data) for one in parcels) <= PARCEL_BYTES
