"""Demo workflows that OpenWOP conformance suites can start.

    vestige server start --demo-workflows
    POST /v1/runs {"workflowId": "conformance-noop"}

Vestige is not a workflow engine: these are Python functions, recorded by the real recorder into a
temporary home. The records are then stored under the tenant of the request's key.
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
from vestige.settings import find_store
from vestige.store.open import open_store

Inputs = dict[str, Any]
COMPONENT: Final = "demo"


class WorkflowRequest(NamedTuple):
    """A request to start a workflow."""

    name: str
    inputs: Inputs
    traceparent: str | None = None


class DemoFailure(Exception):  # noqa: N818  # its name is in the record
    """The error of `conformance-failure`."""


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
    """Return the inputs, and record them as the workflow's variables."""
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


def start(home: Home, tenant: str | None, workflow: WorkflowRequest) -> tuple[str, str]:
    """Run a workflow to its end. Return the ids of the run and of its root span."""
    with tempfile.TemporaryDirectory(prefix="vestige-demo-") as folder:
        temporary = Home(Path(folder))
        run_id, root = _record(temporary, workflow)
        records = [record for record in _read_records(temporary) if record.run_id == run_id]
    with open_store(find_store(home)) as store:
        store.append(records, tenant=tenant or DEFAULT_TENANT)
        for writer in {record.writer for record in records}:
            store.end_writer(writer, "exit 0")
    return run_id, root


def _record(home: Home, workflow: WorkflowRequest) -> tuple[str, str]:
    traceparent = workflow.traceparent
    attributes = {} if traceparent is None else {"traceparent": traceparent}
    with Recorder(home, crash_hooks=False, level="debug", sample=1.0) as recorder:
        run = recorder.run(
            workflow.name, attributes=attributes, component=COMPONENT, body=workflow.inputs
        )
        try:
            with run:
                outputs = WORKFLOWS[workflow.name](run, workflow.inputs)
                run.end(body=outputs)
        except DemoFailure:
            pass  # the failure is recorded
        return run.run_id, run.id


def _read_records(home: Home) -> list[AnyRecord]:
    records: list[AnyRecord] = []
    for _, _, path in home.journal_files():
        data, offset = read_lines(path, 0)
        while data:
            records += parse_lines(data)[0]
            data, offset = read_lines(path, offset)
    return records
