"""What bodies take on disk, and how fast they go in and out.

Growing conversations, as agents send them: each request repeats the tools, the
system prompt and all messages so far. Against us: gzip of each whole body (the
peer), and each distinct message compressed once with no rows at all (the floor;
for speed, SHA-256 of the bytes).
Ours is the SQLite file after VACUUM, with ids, hashes and indexes.

    PYTHONPATH=src python bench/storage.py
"""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from vestige.store.compression import compress
from vestige.store.sqlite.bodies import packed_bodies
from vestige.store.sqlite.bodies.body_store import ROWS, TABLES, Bodies

CONVERSATIONS = 36
TURNS_MAX = 50
GZIPPED = 9
"""Conversations that are really gzipped, which is slow; the others are as large."""

SMALLER_THAN_GZIP = {10: 5.0, 25: 8.75, 50: 15.0}
"""How many times smaller we want to be; a goal for 10 and 50 turns, and a line between them."""

PUT_TIMES_GZIP = 5.0
READ_TIMES_GUNZIP = 1.0
"""Speed against the peer's in the same run: bare MB/s move by a factor of two from run to run."""

Row = dict[str, Any]
MB = 1_000_000
NOW_NS = 1_763_229_905_123_456_789


class Prose:
    """Text with the statistics of prose, so that it compresses like prose.

    Words are made of syllables, few are frequent, and a message comes back to its
    own subject. At 2 KB it shrinks 2.2x with zstd; Markdown manuals, code and
    licences that we measured shrink 1.8x to 2.6x.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        syllables = [
            a + b + c for a in "bcdfglmnprst" for b in "aeiou" for c in ("", "n", "r", "st")
        ]
        self.words = [
            "".join(self.random.choices(syllables, k=self.random.choice((1, 1, 2, 2, 3))))
            for _ in range(6000)
        ]
        self.ranks = list(itertools.accumulate(1 / (rank + 3) for rank in range(6000)))

    def text(self, size_bytes: int) -> str:
        count = size_bytes // 6
        words = self.random.choices(self.words, cum_weights=self.ranks, k=count)
        subject = self.random.sample(self.words, 40)
        return " ".join(self._word(word, subject) for word in words)[:size_bytes]

    def _word(self, word: str, subject: list[str]) -> str:
        if self.random.random() < 0.3:
            word = self.random.choice(subject)
        return word + self.random.choice((".", ",", "\n")) if self.random.random() < 0.12 else word


def make_conversation(prose: Prose, shared: dict[str, Any], turns: int) -> Iterator[bytes]:
    """The request bodies of one conversation, turn by turn."""
    messages = []
    for turn in range(turns):
        size = prose.random.randint(1000, 3000)
        if turn:
            messages.append({"role": "assistant", "content": prose.text(size)})
        messages.append({"role": "user", "content": prose.text(4000 - size)})
        yield json.dumps({**shared, "messages": messages, "stream": True}).encode()


def make_shared(prose: Prose) -> dict[str, Any]:
    """A system prompt of some 4 KB and tools of some 8 KB."""
    tools = [
        {
            "name": f"tool_{n}",
            "description": prose.text(350),
            "input_schema": {
                "type": "object",
                "properties": {
                    f"argument_{m}": {"type": "string", "description": prose.text(60)}
                    for m in range(4)
                },
                "required": ["argument_0"],
            },
        }
        for n in range(10)
    ]
    return {"model": "m-1", "max_tokens": 4096, "system": prose.text(4000), "tools": tools}


def write_store(path: Path, bodies: Iterable[bytes]) -> tuple[list[int], float]:
    """Ids, and the seconds to put them in: one transaction for each 64 bodies."""
    db = sqlite3.connect(path, isolation_level=None)
    # The tables of bodies alone: what else a store holds is not compared here.
    tenant = "ALTER TABLE bodies ADD COLUMN tenant INTEGER NOT NULL DEFAULT 0;"
    db.executescript(
        f"PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; {TABLES} {tenant} {ROWS} "
        f"{packed_bodies.TABLES}"
    )
    store = Bodies(db)
    ids = []
    begun = time.perf_counter()
    for number, body in enumerate(bodies):
        if number % 64 == 0:
            db.execute("COMMIT") if number else None
            db.execute("BEGIN IMMEDIATE")
        ids.append(store.put(body, NOW_NS + number))
    db.execute("COMMIT")
    seconds = time.perf_counter() - begun
    db.execute("VACUUM")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    return ids, seconds


def read_store(path: Path, ids: list[int], expected: list[bytes]) -> float:
    """The seconds to read every body back; each is compared."""
    db = sqlite3.connect(path)
    store = Bodies(db)
    seconds = 0.0
    for body_id, body in zip(ids, expected, strict=True):
        begun = time.perf_counter()
        data = store.read(body_id)
        seconds += time.perf_counter() - begun
        assert data == body
    db.close()
    return seconds


def distinct_bytes(bodies: Iterable[bytes]) -> int:
    """Each distinct message, and each other member, compressed once."""
    seen: dict[str, int] = {}
    for body in bodies:
        request = json.loads(body)
        for part in [*request.pop("messages"), *request.items()]:
            text = json.dumps(part)
            if text not in seen:
                seen[text] = len(compress(text.encode())[1])
    return sum(seen.values())


def measure() -> list[Row]:
    """One row for each size of conversation, then for the speed in and out."""
    prose = Prose(seed=7)
    shared = make_shared(prose)
    conversations = [
        list(make_conversation(prose, shared, TURNS_MAX)) for _ in range(CONVERSATIONS)
    ]
    sample = [body for bodies in conversations[:GZIPPED] for body in bodies]
    zipped, zip_speed = _timed(lambda body: gzip.compress(body, 6), sample)
    _, unzip_speed = _timed(gzip.decompress, zipped, sum(map(len, sample)))
    _, hash_speed = _timed(lambda body: hashlib.sha256(body).digest(), sample)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for turns, times in SMALLER_THAN_GZIP.items():
            # Turn by turn over all conversations: as many agents at once would send them.
            bodies = [body for turn in range(turns) for body in (c[turn] for c in conversations)]
            path = Path(folder) / f"{turns}.db"
            ids, put_seconds = write_store(path, bodies)
            raw = sum(map(len, bodies))
            ours = path.stat().st_size
            peer = sum(len(z) for at, z in enumerate(zipped) if at % TURNS_MAX < turns)
            peer *= CONVERSATIONS / GZIPPED
            rows.append(
                {
                    "name": f"bodies of {turns} turns on disk ({raw / MB:.0f} MB raw)",
                    "ours": ours / MB,
                    "floor": distinct_bytes(c[turns - 1] for c in conversations) / MB,
                    "peer": peer / MB,
                    "target": peer / times / MB,
                    "met": ours * times <= peer,
                    "unit": "MB",
                }
            )
        # Conversation by conversation, as an export reads.
        order = sorted(range(len(ids)), key=lambda at: at % CONVERSATIONS)
        read_seconds = read_store(path, [ids[at] for at in order], [bodies[at] for at in order])
    put_speed, read_speed = raw / MB / put_seconds, raw / MB / read_seconds
    rows.append(_speed("putting bodies", put_speed, hash_speed, zip_speed, PUT_TIMES_GZIP))
    rows.append(_speed("reading bodies", read_speed, None, unzip_speed, READ_TIMES_GUNZIP))
    return rows


def _timed(
    step: Callable[[bytes], bytes], items: list[bytes], size_bytes: int = 0
) -> tuple[list[bytes], float]:
    """The results, and MB/s of the plain text."""
    begun = time.perf_counter()
    results = [step(item) for item in items]
    seconds = time.perf_counter() - begun
    return results, (size_bytes or sum(map(len, items))) / MB / seconds


def _speed(name: str, ours: float, floor: float | None, peer: float, times: float) -> Row:
    row = {"name": name, "ours": ours, "floor": floor, "peer": peer, "target": peer * times}
    return {**row, "met": ours >= peer * times, "unit": "MB/s"}


def main() -> None:
    for row in measure():
        numbers = "  ".join(
            f"{key} {row[key]:8.2f}" if row[key] is not None else f"{key}        -"
            for key in ("ours", "floor", "peer", "target")
        )
        smaller = row["unit"] == "MB"
        times = row["peer"] / row["ours"] if smaller else row["ours"] / row["peer"]
        print(
            f"{row['name']:45} {numbers} {row['unit']:5} {'met' if row['met'] else 'MISSED':6} "
            f"{times:5.1f}x"
        )


if __name__ == "__main__":
    main()
