"""A small support agent, recorded with Vestige. It will not live to see its last tool return.

Run by demo.py, which kills it with SIGKILL in the middle of `charge_back`.
"""

from __future__ import annotations

import json
import os
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import vestige

recorder = vestige.Recorder()
# What you know to be secret, say so. What you forget, the recorder's own pass looks for.
API_KEY = recorder.secret(os.environ["DEMO_API_KEY"])


def ask_model(model: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """One call of the model, as a span of type `llm` with what was sent and what came back."""
    body = json.dumps({"model": model, "messages": messages})
    span = vestige.current_span().child("chat", type="llm", attributes={"model": model}, body=body)
    with span:
        request = urllib.request.Request(
            os.environ["DEMO_MODEL_URL"] + "/v1/chat/completions",
            body.encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {API_KEY}"},
        )
        span.log.debug("sending", headers=dict(request.header_items()))  # the planted secret
        with urllib.request.urlopen(request) as response:
            text = response.read().decode()
        answer = json.loads(text)
        usage = answer["usage"]
        span.end(
            body=text,
            attributes={
                "input_tokens": usage["prompt_tokens"],
                "output_tokens": usage["completion_tokens"],
                "finish_reason": answer["choices"][0]["finish_reason"],
            },
        )
    message: dict[str, Any] = answer["choices"][0]["message"]
    return message


@vestige.trace(type="tool")
def look_up_order(order_id: str) -> dict[str, Any]:
    time.sleep(0.1)
    return {"order_id": order_id, "paid": 129.0, "days_ago": 40, "card_token": API_KEY}


@vestige.trace(type="tool")
def ask_policy_agent(question: str) -> str:
    """A subagent in a thread of its own; its spans still land under this call."""
    found: list[str] = []

    def work() -> None:
        with vestige.current_span().child("policy agent"):
            answer = ask_model("tiny-policy", [{"role": "user", "content": question}])
            found.append(answer["content"])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found[0]


@vestige.trace(type="tool")
def charge_back(order_id: str, amount: float) -> str:
    vestige.current_span().log.warn("talking to the bank", order_id=order_id, amount=amount)
    Path(os.environ["DEMO_MARKER"]).write_text(str(os.getpid()))  # now demo.py kills us
    time.sleep(30)
    return "done"


TOOLS = {tool.__name__: tool for tool in (look_up_order, ask_policy_agent, charge_back)}


def main() -> None:
    with recorder.run("refund agent", conversation_id="customer-77") as run:
        messages = [{"role": "user", "content": "Where is my refund for order A-1042?"}]
        for turn in range(1, 9):
            with run.child(f"turn {turn}"):
                message = ask_model("large-agent", messages)
                messages.append(message)
                for call in message.get("tool_calls") or ():
                    function = call["function"]
                    result = TOOLS[function["name"]](**json.loads(function["arguments"]))
                    messages.append(
                        {"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)}
                    )


main()
