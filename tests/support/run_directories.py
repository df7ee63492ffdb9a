"""AgentDbg run directories as tests look at them: read, and held to the published schemas."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema

SCHEMAS = Path(__file__).parent.parent / "data" / "agentdbg" / "schemas"


@dataclass(frozen=True)
class RunDir:
    path: Path
    run: dict[str, Any]
    events: list[dict[str, Any]]

    @property
    def types(self) -> list[str]:
        return [event["event_type"] for event in self.events]

    def of(self, event_type: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event_type"] == event_type]


def read_rundirs(data_dir: Path, *, valid: bool = True) -> list[RunDir]:
    """Every run of a data directory, by name; strict JSON, and valid by default."""
    found = []
    for path in sorted((data_dir / "runs").iterdir()):
        run = strict_json((path / "run.json").read_text(encoding="utf-8"))
        lines = (path / "events.jsonl").read_text(encoding="utf-8").splitlines()
        found.append(RunDir(path, run, [strict_json(line) for line in lines]))
    if valid:
        for each in found:
            check_valid(each)
    return sorted(found, key=lambda each: str(each.run["run_name"]))


def only_rundir(data_dir: Path) -> RunDir:
    (found,) = read_rundirs(data_dir)
    return found


def strict_json(text: str) -> Any:
    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def check_valid(found: RunDir) -> None:
    """Against the published schemas, formats included."""
    _validator("run").validate(found.run)
    for event in found.events:
        _validator("event").validate(event)


@functools.cache
def _validator(name: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    return jsonschema.Draft202012Validator(schema, format_checker=checker)
