"""Replacement ids for records whose run or writer has the id of another tenant's.

Ids are unique in a store, and senders choose them. A refusal would show a tenant which ids others
use, and would let one tenant take another's ids in advance. So the records are stored under ids
that are derived from the tenant and the original id, the same in every request.

    rename_collisions(store, records, tenant)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from vestige.formats.protocol import derived_uuid, derived_writer
from vestige.record.otlp_sequence_numbers import external_writer, is_external_writer
from vestige.record.types import AnyRecord, SpanOpen, SpanUpdate, Unknown
from vestige.store.protocol import Store

ORIGINAL_ID: Final = "sent.run_id"
"""Attribute of a run's root span: the id under which the run was sent."""

_TRIES_MAX: Final = 100


class Renamed(msgspec.Struct):
    """New ids by original id."""

    runs: dict[str, str]
    writers: dict[str, str]


def rename_collisions(
    store: Store, records: Sequence[AnyRecord], tenant: str, writers: Iterable[str] = ()
) -> Renamed:
    """Change the ids of records in place where they are another tenant's.

    `writers` are further writers that the request names.
    """
    names = {record.writer for record in records} | set(writers)
    foreign_runs, foreign_writers = store.find_foreign_ids(
        {record.run_id for record in records if record.run_id}, names, tenant
    )
    renamed = Renamed(
        {run_id: _find_free(store, run_id, tenant, _derive_run) for run_id in foreign_runs},
        {name: _find_free(store, name, tenant, _derive_writer) for name in foreign_writers},
    )
    if renamed.runs or renamed.writers:
        for record in records:
            _rename(record, renamed)
    return renamed


def _rename(record: AnyRecord, renamed: Renamed) -> None:
    record.writer = renamed.writers.get(record.writer, record.writer)
    original = record.run_id
    if original is not None and original in renamed.runs:
        record.run_id = renamed.runs[original]
        if isinstance(record, SpanOpen) and record.type == "run" and record.parent_id is None:
            record.attributes = {**record.attributes, ORIGINAL_ID: original}
    if isinstance(record, Unknown):
        ids = {"writer": record.writer, "run_id": record.run_id}
        record.fields = {key: ids.get(key, value) for key, value in record.fields.items()}
    if isinstance(record, SpanOpen | SpanUpdate) and record.links:
        record.links = [
            msgspec.structs.replace(link, run_id=renamed.runs.get(link.run_id, link.run_id))
            if link.run_id is not None
            else link
            for link in record.links
        ]


def _find_free(store: Store, original: str, tenant: str, derive: Callable[[str, str], str]) -> str:
    """Return the first derived id that is not another tenant's; the original if there is none."""
    for number in range(_TRIES_MAX):
        derived = derive(original, f"{tenant}\0{number}")
        foreign = store.find_foreign_ids([derived], [derived], tenant)
        if not foreign[0] and not foreign[1]:
            return derived
    return original


def _derive_run(original: str, salt: str) -> str:
    return derived_uuid("tenant", salt, original)


def _derive_writer(original: str, salt: str) -> str:
    name = derived_writer("tenant", f"{salt}\0{original}")
    return external_writer(name) if is_external_writer(original) else name


__all__ = ["ORIGINAL_ID", "Renamed", "rename_collisions"]
