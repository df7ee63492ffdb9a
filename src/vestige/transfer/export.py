"""Export a stored run to another format, completely or not at all."""

from __future__ import annotations

from pathlib import Path

from vestige.errors import UsageError
from vestige.formats import get_format, messages, openwop
from vestige.formats.protocol import RunToWrite
from vestige.home import Home
from vestige.query.stats.user_prices import load_user_prices
from vestige.record.redaction.output_redaction import redact_body, redact_log, redact_run
from vestige.record.run import LogInfo, RunInfo
from vestige.record.types import Attributes
from vestige.store.protocol import Store
from vestige.transfer.key_files import read_or_create_key


def export_run(
    store: Store,
    run_id: str,
    format: str,
    target: Path,
    redaction: str | None = None,
    key: bytes = b"",
    shape: str | None = None,
) -> Path:
    """Write a stored run to a file or folder. Return the path that was created.

    `redaction`: how redacted secrets are written, for formats that have several ways.
    `key`: the key of hashed secrets. `shape`: whose messages the format messages has.
    """
    writer = get_format(format)
    if shape is not None and format != "messages":
        raise UsageError(f"--shape: not available for {format}. Leave it out.")
    # An openwop bundle has a limited size and contains few logs of a long run.
    with_logs = format != "openwop" or redaction == "passthrough"
    source = load_run_to_write(store, run_id, with_logs=with_logs)
    if shape is not None:
        return messages.write_run(source, target, shape)  # type: ignore[arg-type]  # checked there
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
    return read_or_create_key(home.hash_key, "Make its folder writable, or use the mode mask.")
