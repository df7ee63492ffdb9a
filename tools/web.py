"""Check, format or test the sources of the viewer with Biome, TypeScript and Vitest.

    python tools/web.py check      format, lint and types, as `make check` does
    python tools/web.py format     rewrite web/ in place
    python tools/web.py test       unit tests

Node comes from PyPI, as for the page itself (hatch_build.py). Packages are in build/web-tools.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import hatch_build  # noqa: E402  # not a package: a build hook beside pyproject.toml

SOURCE = ROOT / "web"
BIOME = "@biomejs/biome/bin/biome"


def main(action: str) -> None:
    with hatch_build.exclusive(ROOT / "build"):
        node = hatch_build.install(SOURCE, ROOT / "build" / "web-tools")
        if action == "format":
            node.run(BIOME, "check", "--write", ".", folder=SOURCE)
        elif action == "test":
            node.run("vitest/vitest.mjs", "run")
        else:
            node.run(BIOME, "check", "--error-on-warnings", ".", folder=SOURCE)
            node.run("typescript/bin/tsc", "--noEmit", "-p", "tests")


if __name__ == "__main__":
    if sys.argv[1:] not in (["check"], ["format"], ["test"]):
        sys.exit("tools/web.py: expected check, format or test.")
    try:
        main(sys.argv[1])
    except RuntimeError as error:
        sys.exit(str(error))
