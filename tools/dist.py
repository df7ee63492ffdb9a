"""Build sdist and wheel into dist/, check them, and try the wheel in a fresh environment.

    make dist

The version comes from src/vestige/_version.py. A release is published by the workflow in
examples/github/release.yml, which runs this script first.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"


def main() -> int:
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT))
    files = sorted(DIST.iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *map(str, files))
    (wheel,) = DIST.glob("*.whl")
    with tempfile.TemporaryDirectory() as folder:
        try_wheel(wheel, Path(folder))
    for file in files:
        print(f"{file.name}: {file.stat().st_size / 1e6:.1f} MB")
    return 0


def try_wheel(wheel: Path, folder: Path) -> None:
    """Install the wheel in a fresh environment, call every console script, and record a run."""
    venv.create(folder / "env", with_pip=True)
    programs = folder / "env" / "bin"
    run(str(programs / "pip"), "install", "-q", str(wheel))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for script in project["scripts"]:
        run(str(programs / script), "--version", cwd=folder)
        run(str(programs / script), "--help", cwd=folder, quiet=True)
    vestige, home = str(programs / "vestige"), ("--home", str(folder / "home"))
    run(
        vestige, "run", *home, "--", str(programs / "python"), "-c", "print('recorded')", cwd=folder
    )
    run(vestige, "list", *home, cwd=folder)


def run(*command: str, cwd: Path = ROOT, quiet: bool = False) -> None:
    print("$", *command, flush=True)
    subprocess.run(command, check=True, cwd=cwd, stdout=subprocess.DEVNULL if quiet else None)


if __name__ == "__main__":
    sys.exit(main())
