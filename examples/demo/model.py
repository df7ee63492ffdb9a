"""A stand-in for a model provider: a real HTTP server on loopback with scripted answers."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SCRIPT = [
    {"think_s": 0.4, "tool": "look_up_order", "arguments": {"order_id": "A-1042"}},
    {
        "think_s": 0.3,
        "tool": "ask_policy_agent",
        "arguments": {"question": "refund after 40 days?"},
    },
    {"think_s": 0.5, "tool": "charge_back", "arguments": {"order_id": "A-1042", "amount": 129.0}},
]


class Model(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        turn = sum(message["role"] == "assistant" for message in request["messages"])
        step = SCRIPT[min(turn, len(SCRIPT) - 1)]
        if request["model"] == "tiny-policy":
            step = {"think_s": 0.2, "text": "Refunds are allowed within 60 days."}
        time.sleep(step["think_s"])  # the model thinks
        answer = json.dumps(_answer(request, step)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        pass


def _answer(request: dict[str, Any], step: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": step.get("text")}
    if "tool" in step:
        message["tool_calls"] = [
            {
                "id": f"call_{len(request['messages'])}",
                "function": {"name": step["tool"], "arguments": json.dumps(step["arguments"])},
            }
        ]
    size = len(json.dumps(request["messages"]))
    return {
        "model": request["model"],
        "choices": [
            {"message": message, "finish_reason": "tool_calls" if "tool" in step else "stop"}
        ],
        "usage": {"prompt_tokens": size // 4, "completion_tokens": 24},
    }


def serve() -> str:
    """Start it in the background; its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"
