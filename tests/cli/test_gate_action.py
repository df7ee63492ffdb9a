"""The composite action for GitHub: its script runs the gate, and its comment is updated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml

from vestige.home import Home

ROOT = Path(__file__).parents[2]


class _Comments(BaseHTTPRequestHandler):
    """The part of GitHub's API that lists, adds and changes comments."""

    comments: list[dict[str, object]]

    def do_GET(self) -> None:
        self._answer(self.comments if self.path.endswith("page=1") else [])

    def do_POST(self) -> None:
        self.comments.append({"id": len(self.comments) + 1, **self._read()})
        self._answer(self.comments[-1])

    def do_PATCH(self) -> None:
        number = int(self.path.rpartition("/")[2])
        self.comments[number - 1].update(self._read())
        self._answer(self.comments[number - 1])

    def _read(self) -> dict[str, object]:
        assert self.headers["Authorization"] == "Bearer of-the-workflow"
        found: dict[str, object] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return found

    def _answer(self, data: object) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(data).encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_the_comment_is_written_once_and_then_updated(tmp_path: Path) -> None:
    _Comments.comments = [{"id": 1, "body": "a person's comment"}]
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Comments)
    Thread(target=server.serve_forever, daemon=True).start()
    env = {
        **os.environ,
        "GITHUB_API_URL": f"http://127.0.0.1:{server.server_port}",
        "GITHUB_REPOSITORY": "team/agent",
        "NUMBER": "7",
        "TOKEN": "of-the-workflow",
    }
    report = tmp_path / "gate.md"
    for verdict in ("failed", "passed"):
        report.write_text(f"<!-- vestige-gate -->\n### Gate {verdict}\n")
        script = [sys.executable, str(ROOT / "tools" / "update_comment.py"), str(report)]
        subprocess.run(script, env=env, check=True, timeout=60)
    server.shutdown()

    assert [comment["body"] for comment in _Comments.comments] == [
        "a person's comment",
        "<!-- vestige-gate -->\n### Gate passed\n",
    ]


def test_a_comment_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    """The report may be missing, and the token of a fork may not comment."""
    env = {
        **os.environ,
        "GITHUB_API_URL": "http://127.0.0.1:9",
        "GITHUB_REPOSITORY": "team/agent",
        "NUMBER": "7",
        "TOKEN": "of-the-workflow",
    }
    report = tmp_path / "gate.md"
    for message in ("there is no report", "the comment was not written"):
        script = [sys.executable, str(ROOT / "tools" / "update_comment.py"), str(report)]
        done = subprocess.run(script, env=env, capture_output=True, text=True, timeout=60)
        report.write_text("<!-- vestige-gate -->\n### Gate failed\n")

        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("::warning title=Vestige gate::") and message in done.stdout


@pytest.mark.slow
def test_the_script_of_the_action_runs_the_gate(home: Home, tmp_path: Path) -> None:
    """Empty inputs are no options, and a failing command fails the step."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    (script,) = [step["run"] for step in action["runs"]["steps"] if step.get("id") == "gate"]
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "VESTIGE_HOME": str(home.root),
        "TRIALS": "1",
        "BASELINE": "",
        "POLICY": "",
    }

    codes = [
        subprocess.run(
            ["bash", "-c", script],
            env={**env, "COMMAND": command, "IGNORE": ignored},
            cwd=tmp_path,
            timeout=120,
            capture_output=True,
        ).returncode
        for command, ignored in (
            ("echo 'two words'", ""),
            ("exit 5", "more-time command-failed"),
            ("exit 5", ""),
        )
    ]

    assert codes == [0, 0, 1]
    assert "command-failed" in (tmp_path / "vestige-gate.md").read_text()
