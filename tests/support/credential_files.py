"""Credential files of many tools, with places for values (secret_corpus.fill)."""

from __future__ import annotations

import json
from pathlib import Path

FILES: dict[str, str] = json.loads(
    (Path(__file__).parent.parent / "data" / "credential_files.json").read_text(encoding="utf-8")
)
"""Templates by the name of their file."""
