"""The public names, and what one `import vestige` costs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import vestige

LOADED = """
import sys
before = set(sys.modules)
import vestige
import json
print(json.dumps(sorted(set(sys.modules) - before - {"json"})))
"""


def loaded_by_import() -> set[str]:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{LOADED}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stdout))


def test_all_equals_reality() -> None:
    """Every name in __all__ is there, sorted, and no public name is missing from it."""
    public = {
        name
        for name, value in vars(vestige).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("vestige.")
    }

    assert public <= set(vestige.__all__)
    assert all(getattr(vestige, name) is not None for name in vestige.__all__)
    assert vestige.__all__ == sorted(vestige.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    """The lazy names do not swallow others."""
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        vestige.nonsense  # noqa: B018


def test_import_loads_msgspec_and_the_standard_library_only() -> None:
    """The hot path imports no sqlite3, zipfile, asyncio, http, socket; nor the scanner."""
    top = {name.partition(".")[0] for name in loaded_by_import()}

    # msgspec itself uses typing_extensions where it happens to be installed.
    foreign = top - set(sys.stdlib_module_names) - {"typing_extensions"}
    assert foreign == {"vestige", "msgspec"}
    forbidden = {"sqlite3", "zipfile", "asyncio", "http", "socket", "hyperscan", "logging", "click"}
    assert top & forbidden == set()


def test_only_the_producing_side_is_loaded() -> None:
    """Neither collector nor store nor commands."""
    loaded = loaded_by_import()

    heavy = (
        "vestige.collector",
        "vestige.store",
        "vestige.query",
        "vestige.cli",
        "vestige.server",
        "vestige.mcp",
        "vestige.collector_process",
    )
    assert not [name for name in loaded if name.startswith(heavy)]


def test_the_package_is_typed() -> None:
    """py.typed is where type checkers look for it."""
    from importlib.resources import files

    assert files("vestige").joinpath("py.typed").is_file()
