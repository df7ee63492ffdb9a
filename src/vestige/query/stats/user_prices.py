"""Model prices of the user: `[prices]` in the config.toml of the home.

    load_user_prices(store)["my-model"].input         # dollars per million tokens

The file is read again when it changes, so a server sees new prices. For a store on a server it is
the file of the home that chose it. A store outside a home (an opened file or bundle) has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from vestige.home import Home
from vestige.providers.prices import NO_PRICES
from vestige.settings import ModelPrice, read_prices
from vestige.store.protocol import Store


def load_user_prices(store: Store) -> Mapping[str, ModelPrice]:
    """Return the user's prices by model. Raise SettingError if one is invalid."""
    path = store.path
    if path is None:
        return _read(Home(store.root)) if store.root is not None else NO_PRICES
    home = Home(path.parent)
    # A config.toml beside a copied store may belong to another tool.
    if path.name != home.store.name or not home.journal.is_dir():
        return NO_PRICES
    return _read(home)


def _read(home: Home) -> Mapping[str, ModelPrice]:
    try:
        stat = home.config.stat()
    except OSError:
        return NO_PRICES
    return _read_cached(home.root, stat.st_mtime_ns, stat.st_size, stat.st_ino)


@lru_cache(maxsize=16)
def _read_cached(root: Path, *_file_state: int) -> Mapping[str, ModelPrice]:
    return read_prices(Home(root))
