"""Open anything that contains runs; import, export and validate runs in all formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vestige._runtime.import_hooks import lazy_exports

if TYPE_CHECKING:
    from vestige.transfer.export import export_run, load_run_to_write, read_hash_key
    from vestige.transfer.import_runs import ImportResult, check_source, import_path, recover_source
    from vestige.transfer.open_any_path import (
        is_source,
        open_ids,
        open_path,
        open_tenant,
        split_source,
    )
    from vestige.transfer.write_note import add_note

__all__ = [
    "ImportResult",
    "add_note",
    "check_source",
    "export_run",
    "import_path",
    "is_source",
    "load_run_to_write",
    "open_ids",
    "open_path",
    "open_tenant",
    "read_hash_key",
    "recover_source",
    "split_source",
]

# Lazy, because these modules import the query package, which loads slowly.
__getattr__ = lazy_exports(
    __name__,
    {
        "ImportResult": "vestige.transfer.import_runs",
        "add_note": "vestige.transfer.write_note",
        "check_source": "vestige.transfer.import_runs",
        "export_run": "vestige.transfer.export",
        "read_hash_key": "vestige.transfer.export",
        "import_path": "vestige.transfer.import_runs",
        "is_source": "vestige.transfer.open_any_path",
        "open_ids": "vestige.transfer.open_any_path",
        "open_path": "vestige.transfer.open_any_path",
        "open_tenant": "vestige.transfer.open_any_path",
        "recover_source": "vestige.transfer.import_runs",
        "load_run_to_write": "vestige.transfer.export",
        "split_source": "vestige.transfer.open_any_path",
    },
)
