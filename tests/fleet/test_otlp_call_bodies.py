"""Requests and responses that Claude Code sends as log events reach its model calls."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from vestige.fleet.server.otlp_ingest import open_spans, store_spans
from vestige.query.debugger import Debugger
from vestige.record.redaction.redactor import Redactor
from vestige.store.protocol import RunFilter, Store
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer.open_any_path import open_path

RECORDED = Path(__file__).parents[1] / "data" / "otlp" / "claude_code"
SUBAGENT = RECORDED / "subagent.jsonl"
REDACTOR = Redactor()

Delivery = tuple[str, dict[str, Any]]
"""A kind of request, and its document."""


def split(path: Path) -> list[Delivery]:
    """Return a request for each span and each log record of a file."""
    found: list[Delivery] = []
    for line in path.read_text().splitlines():
        document = json.loads(line)
        for outer, inner, records, kind in (
            ("resourceSpans", "scopeSpans", "spans", "otlp-traces-json"),
            ("resourceLogs", "scopeLogs", "logRecords", "otlp-logs-json"),
        ):
            for group in document.get(outer, ()):
                for scope in group[inner]:
                    for record in scope[records]:
                        part = {**group, inner: [{**scope, records: [record]}]}
                        found.append((kind, {outer: [part]}))
    return found


def send(store: Store, deliveries: list[Delivery], redactor: Redactor = REDACTOR) -> None:
    for kind, document in deliveries:
        spans = open_spans(json.dumps(document).encode(), kind, redactor)
        store_spans(store, spans, "default")


def read_calls(store: Store) -> list[tuple[Any, ...]]:
    """Return the model calls of the only run: their facts and their bodies."""
    (info,) = store.list_runs(RunFilter())
    calls = [span for span in store.load_run(info.id).spans if span.type == "llm"]
    texts = [
        [
            store.read_body(body.id) if body and body.id else None
            for body in (span.input, span.output)
        ]
        for span in calls
    ]
    return sorted(
        (span.id, span.attributes, *text) for span, text in zip(calls, texts, strict=True)
    )


@pytest.mark.parametrize("name", ["subagent", "failed_tool"])
@pytest.mark.parametrize("order", ["spans first", "log records first", "shuffled and repeated"])
def test_calls_are_the_same_as_those_of_a_file(tmp_path: Path, name: str, order: str) -> None:
    path = RECORDED / f"{name}.jsonl"
    with open_path(path) as debugger:
        expected = read_calls(debugger.store)
    deliveries = split(path)
    deliveries.sort(key=lambda each: each[0], reverse=order == "spans first")
    if order.startswith("shuffled"):
        deliveries += deliveries
        random.Random(7).shuffle(deliveries)
    with SqliteStore.open(tmp_path / "store.db") as store:
        send(store, deliveries)
        found = read_calls(store)
        (info,) = store.list_runs(RunFilter())
        with Debugger(store) as debugger:
            transcript = debugger.transcript(info.id).text(8_000)

    assert len(found) >= 2
    assert found == expected
    assert (info.input_tokens, info.output_tokens) == (len(found) * 2312, len(found) * 25)
    assert "All done." in transcript


def test_secrets_in_bodies_are_redacted(tmp_path: Path) -> None:
    key = "sk-ant-api03-" + "Zk4Qw9Lm2Xc7Vb5Nt8Yh3Rd6" * 3
    text = SUBAGENT.read_text().replace("child job: list the files", f"use {key} for it")
    path = tmp_path / "secret.jsonl"
    path.write_text(text)
    with SqliteStore.open(tmp_path / "store.db") as store:
        send(store, split(path))
        bodies = [body for call in read_calls(store) for body in call[2:]]

    assert all(key.encode() not in body for body in bodies)
    assert any("…redacted…".encode() in body for body in bodies)
