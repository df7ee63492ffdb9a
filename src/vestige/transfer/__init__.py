"""Where formats and stores meet: open anything that holds runs, take runs in, hand them out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vestige.lazy import names_in

if TYPE_CHECKING:
    from vestige.transfer.exporting import export_run, hash_key, run_to_write
    from vestige.transfer.importing import Imported, check_source, import_path, recover_source
    from vestige.transfer.noting import add_note
    from vestige.transfer.opening import is_source, open_ids, open_path, open_tenant, split_source

__all__ = [
    "Imported",
    "add_note",
    "check_source",
    "export_run",
    "hash_key",
    "import_path",
    "is_source",
    "open_ids",
    "open_path",
    "open_tenant",
    "recover_source",
    "run_to_write",
    "split_source",
]

# To open something is to load all that answers questions about it.
__getattr__ = names_in(
    __name__,
    {
        "Imported": "vestige.transfer.importing",
        "add_note": "vestige.transfer.noting",
        "check_source": "vestige.transfer.importing",
        "export_run": "vestige.transfer.exporting",
        "hash_key": "vestige.transfer.exporting",
        "import_path": "vestige.transfer.importing",
        "is_source": "vestige.transfer.opening",
        "open_ids": "vestige.transfer.opening",
        "open_path": "vestige.transfer.opening",
        "open_tenant": "vestige.transfer.opening",
        "recover_source": "vestige.transfer.importing",
        "run_to_write": "vestige.transfer.exporting",
        "split_source": "vestige.transfer.opening",
    },
)
