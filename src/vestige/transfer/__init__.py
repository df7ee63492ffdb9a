"""Where formats and stores meet: open anything that holds runs, take runs in, hand them out."""

from vestige.transfer.exporting import export_run
from vestige.transfer.importing import Imported, import_path
from vestige.transfer.opening import is_source, open_pair, open_path

__all__ = ["Imported", "export_run", "import_path", "is_source", "open_pair", "open_path"]
