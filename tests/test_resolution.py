"""The newest releases of other packages can be installed beside Vestige."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent / "pyproject.toml"
PYTHON = "3.12"
"""The version that all of these packages support."""
PACKAGES = [
    "crewai",
    "chainlit",
    "langflow",
    "semantic-kernel",
    "langchain-mcp-adapters",
    "fastmcp<3",
]

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def uv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the resolver from PyPI."""
    folder = tmp_path_factory.mktemp("uv")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), "uv"],
        capture_output=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"pip cannot install uv: {done.stderr[-300:]!r}")
    return folder / "bin" / "uv"


def resolve(uv: Path, requirements: list[str]) -> dict[str, str]:
    """Return the version of each package that the requirements need."""
    options = ["-q", "--no-header", "--no-annotate", "--python-version", PYTHON]
    done = subprocess.run(
        [str(uv), "pip", "compile", *options, "-"],
        input="\n".join(requirements),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(re.findall(r"(?m)^([\w.-]+)(?:\[[^\]]*\])?==(\S+)", done.stdout))


@pytest.mark.parametrize("package", PACKAGES)
def test_the_newest_release_is_installed_beside_vestige(uv: Path, package: str) -> None:
    dependencies = tomllib.loads(PROJECT.read_text())["project"]["dependencies"]
    name = re.split(r"[<>=]", package)[0]

    alone, beside = resolve(uv, [package]), resolve(uv, [package, *dependencies])

    assert beside[name] == alone[name]
    assert beside.get("mcp") == alone.get("mcp")
