"""Parcels: what travels is complete, bounded and masked, and garbage in it is only counted."""

from __future__ import annotations

import gzip
import hashlib
import random
import zlib

import pytest

from vestige.errors import ParcelError, ParcelTooLargeError
from vestige.fleet.compression import pack, unpack
from vestige.fleet.shipment import Shipment, body_lines, end_line, open_shipment
from vestige.limits import BODY_INLINE_MAX, BODY_MAX, LINE_MAX, PARCEL_MAX, PARCEL_PACKED_MAX
from vestige.record.codec import render_line
from vestige.record.redaction.redactor import Redactor
from vestige.record.types import BodyInfo, Log

RUN = "3d1957bd-0000-4000-8000-000000000001"
WRITER = "00000000000000aa"
SECRET = "sk-ant-api03-" + "Zq8" * 20


def opened(*lines: bytes) -> Shipment:
    return open_shipment(b"".join(lines), Redactor())


def log(seq: int, message: str = "said", writer: str = WRITER, **more: object) -> bytes:
    return render_line(Log(1, writer, seq, 1_000, RUN, "agent", "info", message, **more))  # type: ignore[arg-type]


def spilled(seq: int, data: bytes) -> bytes:
    info = BodyInfo(spilled_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    return log(seq, body_info=info)


@pytest.mark.parametrize(
    "data",
    [
        "žluťoučký kůň ".encode() * 60_000,
        random.Random(7).randbytes(700_000),
        b"\x00\x01" * 400_000,
    ],
    ids=["text", "bytes", "control"],
)
def test_a_long_body_travels_beside_its_line_byte_for_byte(data: bytes) -> None:
    """Cut into parts anywhere, also inside a character; and as base64 where JSON would swell."""
    lines = [*body_lines(WRITER, 7, data), spilled(7, data)]

    parcel = opened(*lines)

    assert parcel.bodies == {(WRITER, 7): data}
    assert sum(map(len, lines)) < 1.4 * len(data) + 1_000
    assert max(map(len, lines)) <= LINE_MAX


def test_a_body_that_is_not_what_its_record_says_is_not_taken() -> None:
    """By its hash: then the store marks it as lost. A body without a record is dropped."""
    data = b"x" * 600_000

    parcel = opened(
        *body_lines(WRITER, 7, data[1:]), spilled(7, data), *body_lines(WRITER, 9, data)
    )

    assert parcel.bodies == {}
    assert len(parcel.records) == 1


def test_secrets_of_an_older_machine_are_masked_in_lines_bodies_kinds_and_faults() -> None:
    """The sender masks; here is the backstop, wherever text can stand."""
    data = (f"key: {SECRET} " + "x" * 300_000).encode()
    unknown = b'{"kind":"mood","v":9,"writer":"%s","seq":4,"run_id":"%s","said":{"a":["%s"]}}\n'

    parcel = opened(
        log(1, f"using {SECRET}"),
        log(2, attributes={"api_key": "hunter2-hunter2"}),
        *body_lines(WRITER, 3, data),
        spilled(3, data),
        unknown % (WRITER.encode(), RUN.encode(), SECRET.encode()),
        # Escaped, as no journal of ours writes it, and no scan of raw bytes would find it.
        log(5, "using X").replace(b"X", "".join(f"\\u{ord(c):04x}" for c in SECRET).encode()),
        end_line(WRITER, f"File with {SECRET}"),
    )

    everything = repr(parcel)
    assert len(parcel.records) == 5
    assert SECRET not in everything
    assert "hunter2-hunter2" not in everything
    assert everything.count("…redacted…") == 5
    assert parcel.bodies[WRITER, 3].count("…redacted…".encode()) == 1


def test_a_long_fault_is_cut_after_it_is_masked() -> None:
    """Else the first half of a secret would stand at its end."""
    redactor = Redactor()
    redactor.add_secret("correct horse battery staple")
    fault = "x" * (BODY_INLINE_MAX - 20) + " correct horse battery staple and more"

    (end,) = open_shipment(end_line(WRITER, fault), redactor).ends

    assert end.fault is not None
    assert len(end.fault) <= BODY_INLINE_MAX
    assert "correct horse" not in end.fault


def test_what_cannot_be_a_record_is_counted_and_costs_the_others_nothing() -> None:
    """A torn line, no JSON, a writer that is a path, an endless line, ids of megabytes."""
    parcel = opened(
        log(1),
        b'{"kind":"log","v":1,"wri\n',
        b"\xff\xfe\n",
        log(2, writer="../../../etc/passwd"),
        log(3, writer="0" * 5_000),
        log(4, "x" * LINE_MAX),
        log(5).replace(RUN.encode(), b"r" * 10_000),
        b'{"kind":"body-part","writer":7}\n',
        b"[" * 100_000 + b"\n",
        log(6),
        b'{"kind":"log"',
    )

    assert [record.seq for record in parcel.records] == [1, 6]
    assert parcel.malformed == 9


def test_a_record_of_a_newer_version_keeps_the_fields_that_are_not_known_here() -> None:
    """Forward compatible: what a newer agent says survives an older server."""
    parcel = opened(log(1).replace(b'"v":1', b'"v":2,"mood":"good"'), log(2))

    assert [getattr(record, "extra", None) for record in parcel.records] == [{"mood": "good"}, None]


@pytest.mark.parametrize("encoding", ["zstd", "gzip", "identity"])
def test_what_was_packed_is_unpacked(encoding: str) -> None:
    """Also in several frames: proxies and tools may join them."""
    make = {"zstd": pack, "gzip": gzip.compress, "identity": bytes}[encoding]
    data = random.Random(7).randbytes(100) * 50_000

    assert unpack(make(data), encoding) == data
    assert unpack(make(data) + make(b"more"), encoding) == data + b"more"
    assert unpack(b"", encoding) == b""


@pytest.mark.parametrize("encoding", ["zstd", "gzip"])
def test_a_parcel_of_a_million_empty_frames_is_refused_at_once(encoding: str) -> None:
    """Each costs a look at all that follow: together they would take hours."""
    frame = pack(b"") if encoding == "zstd" else gzip.compress(b"")

    with pytest.raises(ParcelError, match="frames"):
        unpack(frame * 1_000_000, encoding)


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["zstd", "gzip"])
def test_a_bomb_is_refused_once_it_is_too_long(encoding: str) -> None:
    """Some kilobytes that unfold to twice the bound are given up there, not held."""
    compressor = zlib.compressobj(wbits=31)
    step = bytes(16 * 1024 * 1024)
    if encoding == "gzip":
        bomb = b"".join(compressor.compress(step) for _ in range(8)) + compressor.flush()
    else:
        bomb = pack(step) * 8

    with pytest.raises(ParcelTooLargeError, match=str(PARCEL_MAX)):
        unpack(bomb, encoding)


@pytest.mark.parametrize("encoding", ["zstd", "gzip"])
@pytest.mark.parametrize("damage", ["torn", "garbage", "tail"])
def test_damage_is_an_error_of_one_line(encoding: str, damage: str) -> None:
    """Never a partial parcel: the sender has it whole, and sends it again."""
    packed = pack(b"x" * 10_000) if encoding == "zstd" else gzip.compress(b"x" * 10_000)
    data = {"torn": packed[:-5], "garbage": b"not packed at all", "tail": packed + b"garbage"}[
        damage
    ]

    with pytest.raises(ParcelError, match="parcel: ") as caught:
        unpack(data, encoding)

    assert "\n" not in str(caught.value)


def test_a_window_beyond_reason_and_an_unknown_encoding_are_refused() -> None:
    """A frame of zstd may ask for gigabytes of memory before it yields a byte."""
    window = b"\x28\xb5\x2f\xfd\x00\xa0" + b"\x01\x00\x00"  # asks for 1 GiB

    with pytest.raises(ParcelError):
        unpack(window, "zstd")
    with pytest.raises(ParcelError, match="br"):
        unpack(b"x", "br")
    with pytest.raises(ParcelTooLargeError):
        unpack(bytes(PARCEL_PACKED_MAX + 1), "identity")


@pytest.mark.slow
def test_the_longest_body_fits_a_parcel_even_when_nothing_compresses() -> None:
    """Else it could never be sent: the limits are made for each other."""
    data = random.Random(7).randbytes(BODY_MAX)

    lines = b"".join([*body_lines(WRITER, 1, data), spilled(1, data)])

    assert len(lines) <= PARCEL_MAX
    assert len(pack(lines)) <= PARCEL_PACKED_MAX
