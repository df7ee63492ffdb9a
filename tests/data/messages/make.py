"""Make mini-swe-agent.traj.json with the real agent: python make.py FOLDER (needs mini-swe-agent).

The provider is a loopback server that answers with two commands; the last one submits.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TARGET = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
COMMANDS = [
    "echo 'print(1)' > a.py && ls",
    "cat missing.py",
    "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && echo fixed",
]


class Provider(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        done = sum(message["role"] == "assistant" for message in request["messages"])
        arguments = json.dumps({"command": COMMANDS[done]})
        function = {"name": "bash", "arguments": arguments}
        message = {
            "role": "assistant",
            "content": f"Step {done + 1}.",
            "tool_calls": [{"id": f"call_{done}", "type": "function", "function": function}],
        }
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        usage = {
            "prompt_tokens": 100 + done,
            "completion_tokens": 10,
            "total_tokens": 110 + done,
            "prompt_tokens_details": {"cached_tokens": 60},
        }
        body = json.dumps(
            {
                "id": f"answer-{done}",
                "object": "chat.completion",
                "created": 1_794_990_000 + done,
                "model": "gpt-4o-mini",
                "choices": [choice],
                "usage": usage,
            }
        ).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
threading.Thread(target=server.serve_forever, daemon=True).start()
with tempfile.TemporaryDirectory() as folder:
    os.environ |= {
        "MSWEA_CONFIGURED": "true",
        "MSWEA_GLOBAL_CONFIG_DIR": folder,
        "MSWEA_SILENT_STARTUP": "1",
        "OPENAI_API_KEY": "none",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.environments.local import LocalEnvironment
    from minisweagent.models.litellm_model import LitellmModel

    agent = DefaultAgent(
        LitellmModel(
            model_name="openai/gpt-4o-mini",
            model_kwargs={"api_base": f"http://127.0.0.1:{server.server_port}/v1"},
        ),
        LocalEnvironment(cwd=folder),
        system_template="You repair programs.",
        instance_template="Please repair: {{task}}",
        step_limit=10,
        cost_limit=3.0,
    )
    agent.run("the shop's order page is empty")
    document = agent.save(None)
    text = json.dumps(document, indent=1).replace(folder, "/work/shop")
    text = text.replace(str(server.server_port), "8000")
(TARGET / "mini-swe-agent.traj.json").write_text(text + "\n")
