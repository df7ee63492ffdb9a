"""Where formats and stores meet: open anything that holds runs, take runs in, hand them out."""

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
