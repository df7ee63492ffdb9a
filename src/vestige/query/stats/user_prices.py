"""What the user says that models cost: `[prices]` in the config.toml of the home that is asked.

    own_prices(store)["my-model"].input         # dollars for a million tokens

Read anew when the file changes, so that a server knows of it. A store that is in no home (a file, a
bundle that was opened) has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from vestige.home import Home
from vestige.providers.prices import NO_PRICES
from vestige.settings import ModelPrice, read_prices
from vestige.store.protocol import Store


def own_prices(store: Store) -> Mapping[str, ModelPrice]:
    """By model. Raises SettingError for what makes no sense."""
    path = getattr(store, "path", None)
    if not isinstance(path, Path):
        return NO_PRICES
    home = Home(path.parent)
    try:
        found = home.config.stat()
    except OSError:
        return NO_PRICES
    # Another tool's config.toml may stand beside a store that was copied somewhere.
    if path.name != home.store.name or not home.journal.is_dir():
        return NO_PRICES
    return _read(home.root, found.st_mtime_ns, found.st_size, found.st_ino)


@lru_cache(maxsize=16)
def _read(root: Path, *_state: int) -> Mapping[str, ModelPrice]:
    return read_prices(Home(root))
