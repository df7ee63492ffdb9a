"""Demo workflows: a few Python functions that run through the real recorder.

A recorder is no workflow engine. These are here so that conformance suites can start runs:

    vestige serve --demo-workflows
    POST /v1/runs {"workflowId": "conformance-noop"}

A run is recorded in a home of its own, as any program's would be, and taken from there into the
store under the tenant of whoever asked for it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from vestige.emit.span import Span
from vestige.formats.openwop.constants import NODE_ID
from vestige.home import Home
from vestige.journal.reader import read_lines
from vestige.record.codec import parse_lines
from vestige.record.tenant import DEFAULT_TENANT
from vestige.record.types import AnyRecord
from vestige.recorder import Recorder
from vestige.store.sqlite.sqlite_store import SqliteStore

Inputs = dict[str, Any]
COMPONENT: Final = "demo"


class Started(NamedTuple):
    """What was asked for."""

    workflow: str
    inputs: Inputs
    traceparent: str | None = None


class DemoFailure(Exception):  # noqa: N818  # its name is in the record
    """What `conformance-failure` fails with."""


def _noop(run: Span, inputs: Inputs) -> Inputs:
    with run.span("noop", "step"):
        return {}


def _multi_node(run: Span, inputs: Inputs) -> Inputs:
    for name in ("a", "b", "c"):
        with run.span(name, "step", {NODE_ID: name}, body=inputs or None) as node:
            node.log.info(f"{name} is done")
            node.end(body={"node": name})
    return {"nodes": 3}


def _identity(run: Span, inputs: Inputs) -> Inputs:
    """What goes in comes out, and is the workflow's variables."""
    with run.span("identity", "step", body=inputs) as node:
        node.end(body=inputs)
    with run.span("variables", "state", body=inputs):
        pass
    return inputs


def _failure(run: Span, inputs: Inputs) -> Inputs:
    with run.span("fail", "step", {"error.code": "fixture_failure"}):
        raise DemoFailure("this workflow always fails")


WORKFLOWS: Final[dict[str, Callable[[Span, Inputs], Inputs]]] = {
    "conformance-noop": _noop,
    "conformance-multi-node": _multi_node,
    "conformance-identity": _identity,
    "conformance-failure": _failure,
}


def start(home: Home, tenant: str | None, asked: Started) -> tuple[str, str]:
    """Run it, to its end; the ids of the run and of its root span."""
    with tempfile.TemporaryDirectory(prefix="vestige-demo-") as folder:
        own = Home(Path(folder))
        run_id, root = _record(own, asked)
        records = [record for record in _records(own) if record.run_id == run_id]
    with SqliteStore.open(home.store) as store:
        store.append(records, tenant=tenant or DEFAULT_TENANT)
        for writer in {record.writer for record in records}:
            store.end_writer(writer, "exit 0")
    return run_id, root


def _record(own: Home, asked: Started) -> tuple[str, str]:
    told = {} if asked.traceparent is None else {"traceparent": asked.traceparent}
    with Recorder(own, last_words=False, level="debug", sample=1.0) as recorder:
        run = recorder.run(asked.workflow, attributes=told, component=COMPONENT, body=asked.inputs)
        try:
            with run:
                outputs = WORKFLOWS[asked.workflow](run, asked.inputs)
                run.end(body=outputs)
        except DemoFailure:
            pass  # recorded: that is what it is for
        return run.run_id, run.id


def _records(own: Home) -> list[AnyRecord]:
    found: list[AnyRecord] = []
    for _, _, path in own.journal_files():
        data, offset = read_lines(path, 0)
        while data:
            found += parse_lines(data)[0]
            data, offset = read_lines(path, offset)
    return found
