"""Bodies of records in a bundle that anybody may have made: found wherever they are, each part
unpacked once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from support.wink_samples import seed_members, write_zip
from vestige.errors import BundleCorruptedError
from vestige.formats.wink import embedded_bodies, read_run
from vestige.formats.wink.embedded_bodies import Recipe, Unpacker
from vestige.formats.wink.read import ZipContent
from vestige.limits import BUNDLE_ENTRY_MAX, BUNDLE_TOTAL_MAX
from vestige.record.codec import encode
from vestige.record.types import VERSION, BodyInfo, KnownRecord, SpanClose, SpanOpen

RUN_ID = "3d1957bd-7105-4b04-b132-afe8fc31203e"
WRITER, ROOT, FILE = "a" * 16, "1" * 16, "2" * 16


class Counted(ZipContent):
    """Knows how often the lines of a member were unpacked."""

    count = 0

    def lines(self, name: str, sha256: str | None = None) -> Iterator[tuple[int, bytes]]:
        self.count += name == "snapshots.jsonl"
        return super().lines(name, sha256)


def make_bundle(path: Path, **more: bytes) -> Path:
    members = seed_members()
    manifest = json.loads(members["manifest.json"])
    for name in more:
        manifest["components"][name] = {"path": f"vestige/{name}.ndjson"}
    for component in manifest["components"].values():
        component.pop("size_bytes", None)
    members |= {f"vestige/{name}.ndjson": data for name, data in more.items()}
    return write_zip(path, members | {"manifest.json": json.dumps(manifest).encode()})


def test_states_that_come_again_are_unpacked_once(tmp_path: Path) -> None:
    """An agent that goes back and forth between two states refers to two lines in turn."""
    states = [b'{"version":"1","number":%d}' % number for number in range(3)]
    digests = [hashlib.sha256(state).hexdigest() for state in states]
    recipes = [
        Recipe(digest, len(state), member="snapshots.jsonl", line=number)
        for number, (digest, state) in enumerate(zip(digests, states, strict=True), 1)
    ]
    path = make_bundle(tmp_path / "x.wink", bodies=b"\n".join(map(msgspec.json.encode, recipes)))
    members = {"snapshots.jsonl": b"\n".join(states)}
    content = Counted(_changed(path, members))
    bodies = Unpacker(content)

    found = [bodies.read(digests[number]) for number in (2, 0, 2, 1, 0)]

    assert found == [states[number] for number in (2, 0, 2, 1, 0)]
    assert content.count == 1


def _changed(path: Path, changes: dict[str, bytes]) -> Path:
    import zipfile

    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    return write_zip(path, members | changes)


def test_a_body_that_is_no_base64_though_it_says_so_is_text(tmp_path: Path) -> None:
    records: list[KnownRecord] = [
        SpanOpen(VERSION, WRITER, 1, 1, RUN_ID, ROOT, "c", "run", "r"),
        SpanOpen(VERSION, WRITER, 2, 2, RUN_ID, FILE, "c", "file", "f", ROOT, None, {"path": "x"}),
        SpanClose(VERSION, WRITER, 3, 3, RUN_ID, FILE, "ok", 0, {}, "abc", BodyInfo("base64")),
    ]
    path = make_bundle(tmp_path / "x.wink", records=encode(records))

    found = list(read_run(path).records)

    assert [one.body for one in found if isinstance(one, SpanClose) and one.span_id == FILE] == [
        "abc"
    ]


def test_bodies_that_are_made_of_the_same_pieces_over_and_over_are_bounded(tmp_path: Path) -> None:
    """Each is within its bound, and a file of some kilobytes would be unpacked for hours."""
    recipes = [
        Recipe(f"{number:064x}", BUNDLE_ENTRY_MAX, ranges=[(0, BUNDLE_ENTRY_MAX)])
        for number in range(BUNDLE_TOTAL_MAX // BUNDLE_ENTRY_MAX + 1)
    ]
    path = make_bundle(tmp_path / "x.wink", bodies=b"\n".join(map(msgspec.json.encode, recipes)))

    with pytest.raises(BundleCorruptedError, match="bytes of bodies in all"):
        Unpacker(ZipContent(path))


def test_bodies_of_more_pieces_than_memory_holds_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Empty stretches add nothing to a size, and a line of them packs to nothing."""
    monkeypatch.setattr(embedded_bodies, "BUNDLE_PIECES_MAX", 1_000)
    wide = [Recipe("a" * 64, 0, ranges=[(0, 0)] * 2_000)]
    many = [Recipe(f"{number:064x}", 0) for number in range(1_001)]

    for number, recipes in enumerate((wide, many)):
        bodies = b"\n".join(map(msgspec.json.encode, recipes))
        path = make_bundle(tmp_path / f"{number}.wink", bodies=bodies)
        with pytest.raises(BundleCorruptedError, match="more than 1000 bodies and their pieces"):
            Unpacker(ZipContent(path))


def test_one_body_that_many_records_refer_to_is_read_so_often_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small file would be unpacked, hashed and masked for hours; the records themselves are
    kept.
    """
    body = b"x" * 1_000
    digest = hashlib.sha256(body).hexdigest()
    monkeypatch.setattr(embedded_bodies, "BUNDLE_TOTAL_MAX", 10 * len(body))
    info = BodyInfo(spilled_bytes=len(body), sha256=digest)
    records: list[KnownRecord] = [
        SpanOpen(VERSION, WRITER, 1, 1, RUN_ID, ROOT, "c", "run", "r"),
        *(
            SpanOpen(
                VERSION,
                WRITER,
                2 + number,
                2,
                RUN_ID,
                f"{number:016x}",
                "c",
                "llm",
                "l",
                ROOT,
                body_info=info,
            )
            for number in range(50)
        ),
    ]
    # It may say that it is small.
    recipe = msgspec.json.encode(Recipe(digest, 1, member="files/workspace/x"))
    made = make_bundle(tmp_path / "x.wink", records=encode(records), bodies=recipe)
    source = read_run(_with_file(made, body))

    found = list(source.records)

    filled = [one for one in found if isinstance(one, SpanOpen) and one.type == "llm" and one.body]
    assert len(found) >= 51
    assert len(filled) == 11
    assert [problem.rule for problem in source.problems] == ["body-beyond"]


def _with_file(path: Path, body: bytes) -> Path:
    """The one file of the bundle is another."""
    import zipfile

    with zipfile.ZipFile(path) as archive:
        manifest = json.loads(archive.read("manifest.json"))
    manifest["components"]["files"]["total_size_bytes"] = len(body)
    return _changed(
        path, {"files/workspace/x": body, "manifest.json": json.dumps(manifest).encode()}
    )
