"""Hand a run out in another format: read from the store, written all or nothing."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from vestige._runtime.clock import SYSTEM
from vestige.errors import UnreadableError, UsageError
from vestige.formats import get_format, openwop
from vestige.formats.protocol import RunToWrite
from vestige.home import Home
from vestige.query.stats.user_prices import load_user_prices
from vestige.record.run import RunInfo
from vestige.record.types import Attributes
from vestige.store.protocol import Store


def export_run(
    store: Store,
    run_id: str,
    format: str,
    target: Path,
    redaction: str | None = None,
    key: bytes = b"",
) -> Path:
    """Write a stored run to, or into, a path; the path that was made.

    `redaction`: how masked secrets are written, for a format that has several ways. `key`: of hashes.
    """
    writer = get_format(format)
    # A bundle of limited size holds few of a long run's lines.
    source = run_to_write(
        store, run_id, with_lines=format != "openwop" or redaction == "passthrough"
    )
    if redaction is None:
        return writer.write_run(source, target)
    if format != "openwop":
        raise UsageError(
            f"--redaction: {format} has one way to write masked secrets. Leave it out."
        )
    if redaction not in openwop.MODES:
        raise UsageError(
            f"--redaction: {redaction!r} is not known (expected {', '.join(openwop.MODES)})."
        )
    return openwop.write_run(source, target, redaction, key)


def run_to_write(store: Store, run_id: str, *, with_lines: bool = True) -> RunToWrite:
    """A stored run with all that travels with it. Without lines, they are read one at a time."""
    run = store.load_run(run_id, with_lines=with_lines)
    told = _process(store, run.info), store.notes(run_id), None if with_lines else store.read_log
    return RunToWrite(run, store.read_body, *told, prices=load_user_prices(store))


def _process(store: Store, run: RunInfo) -> Attributes:
    """The process that recorded a run describes itself in a run of its own."""
    if run.process_run is None or not store.has_run(run.process_run):
        return {}
    for span in store.load_run(run.process_run).spans:
        if span.type == "process":
            return span.attributes
    return {}


def hash_key(home: Home) -> bytes:
    """The key of a home's hashes, made when it is first needed: the same secret hashes the same in
    all that a home gives out, and nobody else can test a guess."""
    path = home.hash_key
    try:
        if not path.exists():
            half = path.with_name(f".{path.name}.{os.getpid()}.{SYSTEM.writer_id()}")
            with open(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(os.urandom(32))
            with contextlib.suppress(FileExistsError):
                os.link(half, path)  # whoever is first: there is one key
            half.unlink()
        key = path.read_bytes()
    except OSError as error:
        raise UnreadableError(
            f"{path}: cannot be read or made ({error.strerror}). Mend its folder, or use mask."
        ) from None
    if len(key) < 16:
        raise UnreadableError(f"{path}: too short for a key. Remove it; a new one is made.")
    return key
