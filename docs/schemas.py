"""The JSON Schemas of the formats that Vestige writes, from its own types: schemas/ in the
repository.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from vestige.formats.agentdbg import file_structs

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def _agentdbg(title: str, kind: type[Any]) -> str:
    schema = {"$schema": DRAFT, "title": title, **msgspec.json.schema(kind)}
    return json.dumps(schema, ensure_ascii=False, indent=2) + "\n"


SCHEMAS: dict[str, Callable[[], str]] = {
    "agentdbg/event.schema.json": lambda: _agentdbg(
        "AgentDbg v0.1: a line of events.jsonl", file_structs.Event
    ),
    "agentdbg/run.schema.json": lambda: _agentdbg("AgentDbg v0.1: run.json", file_structs.RunFile),
}
