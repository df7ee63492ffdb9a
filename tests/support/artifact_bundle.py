"""A copy of a real bundle that a test may damage. Its inventory stays correct by default.

bundle = BrokenBundle(tmp_path, "seed_logs_screens")
bundle.edit("meta.json", lambda meta: meta.pop("git"))
bundle.rules()        # {"key-missing"}
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vestige.formats.artifacts.read import DirectoryTree
from vestige.formats.artifacts.validate import check_bundle
from vestige.formats.artifacts.validation_rules import Profile
from vestige.formats.protocol import Problem

DATA = Path(__file__).parent.parent / "data" / "artifacts"


class BrokenBundle:
    def __init__(self, folder: Path, name: str = "seed_logs_screens") -> None:
        self.root = folder / name
        shutil.copytree(DATA / name, self.root, symlinks=True)

    def problems(self, profile: Profile = "seed") -> list[Problem]:
        return check_bundle(DirectoryTree(self.root), profile)[1]

    def rules(self, profile: Profile = "seed") -> set[str]:
        return {problem.rule for problem in self.problems(profile)}

    def path(self, name: str) -> Path:
        return self.root / name

    def read(self, name: str) -> Any:
        return json.loads(self.path(name).read_bytes())

    def bundle(self, change: Callable[[Any], Any]) -> None:
        """Change bundle.json itself."""
        value = self.read("bundle.json")
        change(value)
        self.path("bundle.json").write_text(json.dumps(value), encoding="utf-8")

    def entry(self, name: str, **values: Any) -> None:
        """Change how a file is listed."""

        def change(bundle: Any) -> None:
            found = next(entry for entry in bundle["files"] if entry["path"] == name)
            found.update(values)

        self.bundle(change)

    def edit(self, name: str, change: Callable[[Any], Any]) -> None:
        """Change a JSON file, and list it as it is now."""
        value = self.read(name)
        change(value)
        self.write(name, json.dumps(value).encode())

    def write(self, name: str, data: bytes) -> None:
        """A file's bytes, listed as they are; a new one is added to the list, and to its index."""
        place = self.path(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        self.list(name)

    def list(self, name: str) -> None:
        data = self.path(name).read_bytes()
        facts = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}

        def change(bundle: Any) -> None:
            for entry in bundle["files"]:
                if entry["path"] == name:
                    entry.update(facts)
                    return
            bundle["files"].append({"path": name, **facts, "kind": "opaque", "schema": None})

        self.bundle(change)

    def unlist(self, name: str) -> None:
        self.bundle(
            lambda bundle: bundle.update(
                files=[entry for entry in bundle["files"] if entry["path"] != name]
            )
        )

    def lines(self, change: Callable[[list[Any]], Any], name: str = "trace/events.jsonl") -> None:
        """Change the events of a trace."""
        events = [json.loads(line) for line in self.path(name).read_bytes().splitlines()]
        change(events)
        self.write(name, b"".join(json.dumps(event).encode() + b"\n" for event in events))
