"""Unit tests of the viewer's pure code, which are written in TypeScript (web/tests)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.slow
def test_the_unit_tests_of_the_viewer_pass() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/web.py"), "test"],
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert done.returncode == 0, done.stdout + done.stderr
