"""OpenWOP in tests: the published schemas, a run with secrets in every corner, and a server."""

from __future__ import annotations

import json
import re
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
from referencing import Registry, Resource

import vestige
from vestige.collector.loop import catch_up
from vestige.formats.protocol import RunToWrite
from vestige.home import Home
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import load_run_to_write

SCHEMAS = Path(__file__).parent.parent / "data" / "openwop"
MODES = ("mask", "omit", "hash")

SECRETS = {
    "inputs": "sk-ant-api03-inputinputinput0001",
    "message": "ghp_messagemessagemessage00000002",
    "attribute": "AKIAATTRIBUTE0000003",
    "error": "sk-proj-errorerrorerror00000004",
    "key": "xoxb-1234567890-keykeykey00005",
    "note": "glpat-notenotenotenote0006",
    "body": "hunter2-password-in-a-body-0007",
    "output": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJvdXRwdXQifQ.output0008signature",
    "name": "sk-proj-namenamenamename00000009",
}
MACHINE = ("10.20.30.40", "192.168.7.9", "db7.prod.internal", "/srv/app/secret-place")


_FORMATS = jsonschema.FormatChecker()
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


@_FORMATS.checks("date-time", ValueError)
def _is_time(value: object) -> bool:
    """RFC 3339, which `format: date-time` means."""
    if isinstance(value, str) and _TIME.fullmatch(value):
        datetime.fromisoformat(value.upper())
        return True
    return not isinstance(value, str)


@cache
def _validator(name: str, part: str = "") -> jsonschema.Draft202012Validator:
    documents = [json.loads(path.read_text()) for path in SCHEMAS.glob("*.json")]
    registry: Any = Registry().with_resources(
        [(each["$id"], Resource.from_contents(each)) for each in documents]
    )
    own = next(each for each in documents if each["$id"].endswith(f"/{name}.schema.json"))
    schema = {"$ref": own["$id"] + part}
    return jsonschema.Draft202012Validator(schema, registry=registry, format_checker=_FORMATS)


@cache
def _payload_schemas() -> dict[str, str]:
    schema = json.loads((SCHEMAS / "run-event-payloads.schema.json").read_text())
    found = schema["$defs"]["_typeIndex"]["properties"]
    return {kind: each["$ref"] for kind, each in found.items()}


def validate(name: str, value: Any) -> None:
    """Against a published schema, formats included."""
    _validator(name).validate(value)


def is_valid(name: str, value: Any) -> bool:
    return bool(_validator(name).is_valid(value))


def validate_event(event: Any) -> None:
    validate("run-event", event)
    _validator("run-event-payloads", _payload_schemas()[event["type"]]).validate(event["payload"])


def validate_bundle(bundle: Any) -> None:
    """The bundle, and each of its parts by the schema that it mirrors."""
    # A long one has the same few kinds over and over: its beginning and its end are looked at.
    lists = {name: [*bundle[name][:100], *bundle[name][100:][-50:]] for name in ("events", "spans")}
    validate("debug-bundle", {**bundle, **lists})
    validate("run-snapshot", bundle["run"])
    for event in lists["events"]:
        validate_event(event)
    for annotation in bundle["annotations"]:
        validate("annotation", annotation)


def record_everything(home: Home, name: str = "triage", *, fails: bool = False) -> str:
    """A run with every kind of event, secrets planted where they could stand; its id."""
    secrets = SECRETS
    with vestige.Recorder(home) as recorder:
        run = recorder.run(
            f"{name} {secrets['name']}",
            conversation_id="c-9",
            attributes={"team": "support", "hostname": MACHINE[2]},
            body={"q": "refund", "api_key": secrets["inputs"], "nested": {secrets["key"]: 1}},
        )
        try:
            with run:
                run.log.info(f"connecting to {MACHINE[0]} with {secrets['message']}", number=3)
                with run.span("plan", "step") as step:
                    _call_model(step)
                    _call_tool(step)
                with run.span("memory", "state", body={"done": 1, "password": secrets["body"]}):
                    pass
                run.log.warn("dsn postgres://app:pw@db7.prod.internal:5432/app is slow")
                if fails:
                    raise ConnectionError(f"{MACHINE[1]} refused, key {secrets['error']}")
        except ConnectionError:
            pass
    catch_up(home)
    return run.run_id


def _call_model(step: Any) -> None:
    attributes = {"model": "gpt-4o", "provider": "openai", "authorization": SECRETS["attribute"]}
    with step.span("gpt", "llm", attributes, body='[{"role":"user","content":"hi"}]') as call:
        call.set_attributes(input_tokens=1_000, output_tokens=100, cache_read_tokens=10)
        call.end(body="hello")


def _call_tool(step: Any) -> None:
    with step.span("search", "tool", {"tool_call_id": "call_7"}, body={"q": "x"}) as tool:
        tool.end(
            ValueError(f"no {MACHINE[3]}/x.txt, token {SECRETS['error']}"),
            body={"token": SECRETS["output"]},
        )


def source_of(home: Home, run_id: str) -> RunToWrite:
    """A stored run, on its way out. Its store stays open for as long as the test runs."""
    return load_run_to_write(SqliteStore.open(home.store, readonly=True), run_id)
