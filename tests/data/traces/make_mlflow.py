"""Make mlflow.json with MLflow: python make_mlflow.py FOLDER (needs mlflow)."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import mlflow
from mlflow.entities import SpanType

TARGET = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
ANSWER = {"role": "assistant", "content": "It is late."}


@mlflow.trace(span_type=SpanType.TOOL, name="find_order")
def find_order(id: int) -> str:
    if id == 13:
        raise ValueError("no such order")
    return f"order {id}: late"


@mlflow.trace(span_type=SpanType.CHAT_MODEL, name="chat")
def chat(messages: list[dict[str, str]], model: str) -> dict[str, Any]:
    span = mlflow.get_current_active_span()
    usage = {"input_tokens": 120, "output_tokens": 18, "total_tokens": 138}
    span.set_attribute("mlflow.chat.tokenUsage", usage)
    span.set_attribute("mlflow.llm.model", model)
    return {"model": model, "choices": [{"index": 0, "message": ANSWER, "finish_reason": "stop"}]}


@mlflow.trace(span_type=SpanType.AGENT, name="shop")
def shop(question: str) -> str:
    find_order(7)
    try:
        find_order(13)
    except ValueError:
        pass
    answer = chat([{"role": "user", "content": question}], "gpt-4o-mini")
    return str(answer["choices"][0]["message"]["content"])


with tempfile.TemporaryDirectory() as folder:
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    shop("Where is order 7?")
    trace = mlflow.get_trace(mlflow.get_last_active_trace_id(), flush=True)
    document = json.loads(trace.to_json())
for span in document["data"]["spans"]:
    for event in span["events"]:  # paths of this machine
        event["attributes"]["exception.stacktrace"] = "Traceback ..."
(TARGET / "mlflow.json").write_text(json.dumps(document, indent=1) + "\n")
