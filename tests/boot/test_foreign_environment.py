"""`vestige run` with a Python in whose environment Vestige is not installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.programs import load
from vestige.home import Home
from vestige.record.run import Run

VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")


def find_python(version: str) -> str | None:
    """Return an interpreter of this version, and not the shim of a version manager."""
    candidates = [shutil.which(f"python{version}")]
    candidates += map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for candidate in filter(None, candidates):
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        answer = subprocess.run(
            [candidate, "-c", code], capture_output=True, text=True, check=False
        )
        if answer.stdout.strip() == version:
            return candidate
    return None


def make_environment(version: str, folder: Path) -> str:
    python = find_python(version)
    if python is None:
        pytest.skip(f"Python {version} is not installed")
    command = [python, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return str(folder / "bin" / "python")


def record(home: Home, *command: str, cwd: Path) -> tuple[subprocess.CompletedProcess[str], Run]:
    tool = str(Path(sys.executable).with_name("vestige"))
    run = [tool, "run", "--home", str(home.root), "--", *command]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=cwd)
    runs = [each for each in load(home) if any(span.type == "process" for span in each.spans)]
    return done, runs[-1]


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_bare_python_is_recorded_and_finds_nothing_new(
    home: Home, tmp_path: Path, version: str
) -> None:
    program = tmp_path / "agent.py"
    program.write_text(
        """
import logging, sys
try:
    import msgspec
except ImportError:
    print("no msgspec")
print(any("site-packages" in path and path.startswith(sys.base_prefix) for path in sys.path))
print("ghp_" + "a1B2c3D4e5F6" * 3, "and", 42)
logging.warning("watch out")
raise KeyError("missing")
"""
    )
    python = make_environment(version, tmp_path / "environment")
    plain = subprocess.run([python, str(program)], capture_output=True, text=True, check=False)
    done, run = record(home, python, str(program), cwd=tmp_path)
    assert (done.stdout, done.returncode) == (plain.stdout, plain.returncode)
    assert "no msgspec" in done.stdout
    messages = [log.message for log in run.logs]
    assert any("watch out" in message for message in messages)
    assert any("and 42" in message for message in messages)
    assert "a1B2c3D4e5F6" * 3 not in repr(run)
    assert any(span.attributes.get("error.type") == "KeyError" for span in run.spans) or any(
        log.attributes.get("error.type") == "KeyError" for log in run.logs
    )


@pytest.mark.slow
def test_a_module_of_the_program_named_vestige_is_not_shadowed(home: Home, tmp_path: Path) -> None:
    (tmp_path / "vestige.py").write_text("def greet():\n    return 'my own module'\n")
    program = tmp_path / "main.py"
    program.write_text("import vestige\nprint(vestige.greet(), vestige.__file__)\n")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    python = make_environment(version, tmp_path / "environment")
    done, run = record(home, python, str(program), cwd=tmp_path)
    assert done.stdout == f"my own module {tmp_path / 'vestige.py'}\n"
    assert [log.message for log in run.logs if "my own module" in log.message]


@pytest.mark.slow
def test_where_vestige_is_installed_that_version_records(home: Home, tmp_path: Path) -> None:
    code = "import sys; print(sys.modules['vestige'].__file__)"
    done, run = record(home, sys.executable, "-c", code, cwd=tmp_path)
    import vestige

    assert done.stdout.strip() == os.path.realpath(str(vestige.__file__))
    assert any("vestige" in log.message for log in run.logs)
