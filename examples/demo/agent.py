"""A small support agent. It will not live to see its last tool return.

No recording code but its tools: `vestige run` sees the model calls as they leave the HTTP client.
Run by demo.py, which kills it with SIGKILL in the middle of `charge_back`.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import httpx2

import vestige

API_KEY = os.environ["DEMO_API_KEY"]
client = httpx2.Client(
    base_url=os.environ["DEMO_MODEL_URL"],
    headers={"Authorization": f"Bearer {API_KEY}"},
    timeout=60,
)


def ask_model(model: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """One call of the model."""
    response = client.post("/v1/chat/completions", json={"model": model, "messages": messages})
    message: dict[str, Any] = response.raise_for_status().json()["choices"][0]["message"]
    return message


@vestige.tool
def look_up_order(order_id: str) -> dict[str, Any]:
    time.sleep(0.1)  # a database would take as long
    # The planted secret: a tool that returns what it should not.
    return {"order_id": order_id, "paid": 129.0, "days_ago": 40, "card_token": API_KEY}


@vestige.tool
def ask_policy_agent(question: str) -> str:
    """A subagent in a thread of its own; its spans still land under this call."""
    found: list[str] = []

    def work() -> None:
        answer = ask_model("tiny-policy", [{"role": "user", "content": question}])
        found.append(answer["content"])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found[0]


@vestige.tool
def charge_back(order_id: str, amount: float) -> str:
    Path(os.environ["DEMO_MARKER"]).write_text(str(os.getpid()))  # now demo.py kills us
    time.sleep(30)  # the bank answers slowly: time enough to be killed
    return "done"


TOOLS = {tool.__name__: tool for tool in (look_up_order, ask_policy_agent, charge_back)}


def main() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Where is my refund for order A-1042?"}
    ]
    for _ in range(8):
        message = ask_model("large-agent", messages)
        messages.append(message)
        for call in message.get("tool_calls") or ():
            function = call["function"]
            result = TOOLS[function["name"]](**json.loads(function["arguments"]))
            messages.append(
                {"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)}
            )


main()
