"""Write a run as an AgentDbg run directory: all or nothing, without overwriting another.

<target>/<run id>/run.json          as AgentDbg writes it when a run has ended
                  events.jsonl      the events (formats/agentdbg/from_records.py)
                  vestige.ndjson    the records: steps, logs, exact bodies (sidecar_records.py)
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from vestige.errors import UsageError
from vestige.formats.agentdbg.constants import FORMAT, root_span_id
from vestige.formats.agentdbg.file_structs import (
    EVENTS_FILE,
    RUN_FILE,
    SIDECAR_FILE,
    render_event,
    render_run,
)
from vestige.formats.agentdbg.from_records import Mapper
from vestige.formats.agentdbg.sidecar_records import render_footer, render_record
from vestige.formats.protocol import RunToWrite, derived_writer
from vestige.formats.run_to_records import run_to_records
from vestige.record.run_id import file_name_of
from vestige.record.types import VERSION, KnownRecord, SpanClose, SpanOpen


def write_run(source: RunToWrite, target: Path) -> Path:
    """Write a run into a folder of runs, which is created if needed. Return the run's directory."""
    name = file_name_of(source.run.info.id)
    made = target / name
    if made.exists() or made.is_symlink():
        raise UsageError(f"{made}: is there already. Remove it, or choose another target.")
    unfinished = target / f".{name}.{os.getpid()}.unfinished"
    try:
        target.mkdir(parents=True, exist_ok=True)
        unfinished.mkdir(mode=0o700)
    except OSError as error:
        raise UsageError(f"{target}: cannot be written ({error.strerror}).") from None
    try:
        _write(source, unfinished)
        os.rename(unfinished, made)
    except OSError as error:
        raise UsageError(f"{made}: cannot be written ({error.strerror}).") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return made


def _write(source: RunToWrite, folder: Path) -> None:
    run_id = source.run.info.id
    writer = derived_writer(FORMAT, run_id)
    mapper = Mapper(run_id, process=source.process)
    digest = hashlib.sha256()
    with (
        open(folder / EVENTS_FILE, "wb") as events,
        open(folder / SIDECAR_FILE, "wb") as sidecar,
    ):
        for record, is_stored in _with_root(source, run_to_records(source, writer)):
            for event in mapper.take(record):
                line = render_event(event)
                events.write(line)
                digest.update(line)
            if is_stored:
                sidecar.write(render_record(record))
        sidecar.write(render_footer(run_id, digest.hexdigest()))
    (folder / RUN_FILE).write_bytes(render_run(mapper.run_file()))


def _with_root(
    source: RunToWrite, records: Iterator[KnownRecord]
) -> Iterator[tuple[KnownRecord, bool]]:
    """Return the records inside a new root span if theirs is missing: the format requires one."""
    info = source.run.info
    has_root = any(span.type == "run" and span.parent_id is None for span in source.run.spans)
    if not has_root:
        yield (
            SpanOpen(
                VERSION,
                "",
                0,
                info.started_ns,
                info.id,
                root_span_id(info.id),
                "vestige",
                "run",
                info.name,
            ),
            False,
        )
    for record in records:
        yield record, True
    if not has_root and info.outcome != "running":
        took_ns = max(0, info.last_ns - info.started_ns)
        yield (
            SpanClose(
                VERSION, "", 0, info.last_ns, info.id, root_span_id(info.id), info.outcome, took_ns
            ),
            False,
        )
