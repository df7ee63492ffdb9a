"""Export a stored run to another format, completely or not at all."""

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
from vestige.record.redaction.output_redaction import redact_body, redact_log, redact_run
from vestige.record.run import LogInfo, RunInfo
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
    """Write a stored run to a file or folder. Return the path that was created.

    `redaction`: how redacted secrets are written, for formats that have several ways.
    `key`: the key of hashed secrets.
    """
    writer = get_format(format)
    # An openwop bundle has a limited size and contains few logs of a long run.
    with_logs = format != "openwop" or redaction == "passthrough"
    source = load_run_to_write(store, run_id, with_logs=with_logs)
    if redaction is None:
        return writer.write_run(source, target)
    if format != "openwop":
        raise UsageError(f"--redaction: not available for {format}. Leave it out.")
    if redaction not in openwop.MODES:
        raise UsageError(
            f"--redaction: {redaction!r} is unknown (expected {', '.join(openwop.MODES)})."
        )
    return openwop.write_run(source, target, redaction, key)


def load_run_to_write(store: Store, run_id: str, *, with_logs: bool = True) -> RunToWrite:
    """Load a run with its notes, process and prices. Without logs, each is read when needed.

    Everything passes the last redaction here, so formats hash what they write.
    """
    run = redact_run(store.load_run(run_id, with_logs=with_logs))

    def read_body(body_id: int) -> bytes:
        return redact_body(store.read_body(body_id))

    def read_log(row: int) -> LogInfo:
        return redact_log(store.read_log(row))

    return RunToWrite(
        run,
        read_body,
        _read_process(store, run.info),
        store.notes(run_id),
        None if with_logs else read_log,
        prices=load_user_prices(store),
    )


def _read_process(store: Store, run: RunInfo) -> Attributes:
    """Return the attributes of the process that recorded a run, from the run of the process."""
    if run.process_run is None or not store.has_run(run.process_run):
        return {}
    for span in store.load_run(run.process_run).spans:
        if span.type == "process":
            return span.attributes
    return {}


def read_hash_key(home: Home) -> bytes:
    """Return the key for hashed secrets of a home, which is created when it is first needed.

    A secret has the same hash in all exports of a home, and nobody else can verify a guess.
    """
    path = home.hash_key
    try:
        if not path.exists():
            partial = path.with_name(f".{path.name}.{os.getpid()}.{SYSTEM.writer_id()}")
            with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(os.urandom(32))
            with contextlib.suppress(FileExistsError):  # another process was first
                os.link(partial, path)
            partial.unlink()
        key = path.read_bytes()
    except OSError as error:
        raise UnreadableError(
            f"{path}: cannot be read or created ({error.strerror})."
            " Make its folder writable, or use the mode mask."
        ) from None
    if len(key) < 16:
        raise UnreadableError(f"{path}: too short for a key. Delete it to create a new key.")
    return key
