"""What the store holds in clear, by whatever gap, leaves through no door."""

from __future__ import annotations

import base64
import gzip
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

import vestige
from support import commands
from vestige.home import Home
from vestige.mcp.server import call
from vestige.query.command_tools import TOOLS
from vestige.record.redaction.output_redaction import redact_body, redact_lines, redact_values
from vestige.server.routes.live import _event

SHAPED = "sk-proj-Zk3Jq8Lm2Np5Rt7Vx9Bc1Df4Gh6Jk8Lm0Qw"
OTHER = "gh" + "p_Zk3Jq8Lm2Np5Rt7Vx9Bc1Df4Gh6Jk8Lm0Qw1"
KEYED = "hunter2-is-not-enough"
ANSWER = f"Refund approved with {SHAPED}, thank you."
ARGUMENTS = json.dumps({"api_key": KEYED, "limit": 5})
PARTS = (SHAPED[6:-6], OTHER[6:-6], KEYED[4:-4])
"""Without the ends that a mask shows."""


def streamed() -> str:
    def event(delta: Any, finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return f"data: {json.dumps({'id': 'c-1', 'model': 'm', 'choices': [choice]})}\n\n"

    call = {"index": 0, "id": "call_1", "function": {"name": "login", "arguments": ""}}
    texts = [event({"content": ANSWER[at : at + 3]}) for at in range(0, len(ANSWER), 3)]
    calls = [
        event({"tool_calls": [{"index": 0, "function": {"arguments": ARGUMENTS[at : at + 3]}}]})
        for at in range(0, len(ARGUMENTS), 3)
    ]
    begin = event({"tool_calls": [call]})
    return "".join([*texts, begin, *calls, event({}, "tool_calls"), "data: [DONE]\n\n"])


@pytest.fixture
def leaky(home: Home) -> Home:
    """A home whose recorder redacted nothing."""
    request = {"model": "m", "messages": [{"role": "user", "content": f"use {OTHER}"}]}
    url = {"url": "http://x/v1/chat/completions", "method": "POST", "provider": "openai"}
    with (
        vestige.Recorder(home, redact=False) as recorder,
        recorder.run("agent", conversation_id="c-1") as run,
    ):
        run.log.info(f"got {OTHER}", api_key=KEYED, note=f"token {SHAPED}")
        with run.span("chat", type="llm", attributes=url, body=json.dumps(request)) as span:
            span.end(body=streamed(), attributes={"model": "m", "input_tokens": 3})
        with run.span(f"login {OTHER}", type="tool", body=ARGUMENTS) as span:
            span.end(body=f'{{"session": "{OTHER}"}}')
    return home


def leaks(text: str) -> list[str]:
    return [part for part in PARTS if part in text]


def invoke(*arguments: str) -> str:
    done = commands.vestige(*arguments)
    assert done.exit_code in (0, 1), done.output
    return done.output


COMMANDS = [
    ["list"],
    ["show", "r2"],
    ["overview", "r2"],
    ["check", "r2"],
    ["transcript", "r2"],
    ["outline", "r2"],
    ["span", "r2.s2"],
    ["span", "r2.s3"],
    ["body", "r2.s2", "--in"],
    ["body", "r2.s3", "--out"],
    ["why", "r2.s2"],
    ["segments", "r2.s2"],
    ["stats"],
    ["grep", "use"],
    ["grep", "got"],
    ["sql", "SELECT * FROM logs"],
    ["sql", "SELECT * FROM spans"],
    ["diff", "r2.s2", "r2.s3"],
]


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_prints_what_the_store_holds_in_clear(leaky: Home, command: list[str]) -> None:
    text = invoke(*command)
    data = invoke(*command, "--json")

    assert text
    json.loads(data)
    assert leaks(text) + leaks(data) == []


def test_the_transcript_shows_the_answer_redacted(leaky: Home) -> None:
    assert "Refund approved with sk-…redacted…0Qw, thank you." in invoke("transcript", "r2")
    assert (
        "Refund approved with sk-…redacted…0Qw, thank you."
        in call(leaky, "transcript", {"id": "r2"})[0]
    )


@pytest.mark.slow
def test_no_tool_of_the_mcp_server_gives_it_out(leaky: Home) -> None:
    values: dict[str, Any] = {
        "id": "r2",
        "a": "r2.s2",
        "b": "r2.s3",
        "pattern": "approved",
        "query": "SELECT * FROM spans",
        "by": "tool",
        "good": "is:ok",
        "bad": "is:ok",
    }
    answered = 0
    for tool in TOOLS:
        required = {one.name for one in tool.all_parameters if one.required} | {"id"}
        names = {one.name for one in tool.all_parameters} & required
        arguments = {name: values[name] for name in names if name in values}
        if tool.name in ("span", "segments", "body"):
            arguments["id"] = "r2.s2"
        text, is_error = call(leaky, tool.name, arguments)
        answered += not is_error
        assert leaks(text) == [], tool.name
    assert answered > 12


@pytest.mark.parametrize("format", ["otlp", "openwop", "agentdbg", "wink", "html"])
def test_no_export_holds_it_and_each_is_valid(leaky: Home, tmp_path: Path, format: str) -> None:
    target = tmp_path / {"otlp": "r.jsonl", "wink": "r.wink", "html": "r.html"}.get(format, "r.out")
    invoke("export", "r2", "--format", format, "-o", str(target))

    assert leaks(_content(target)) == []
    if format != "html":
        assert commands.vestige("validate", target).exit_code == 0


def test_a_request_as_a_script_holds_it_in_no_language(leaky: Home) -> None:
    for language in ("curl", "python"):
        script = invoke("export", "r2.s2", "--format", language)
        assert leaks(script) == [] and "…redacted…" in script


def _content(path: Path) -> str:
    if path.is_dir():
        return "".join(_content(each) for each in path.rglob("*") if each.is_file())
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return "".join(
                archive.read(name).decode(errors="replace") for name in archive.namelist()
            )
    text = path.read_text(errors="replace")
    blocks = re.findall(r'data-answers="\w+"[^>]*>([^<]+)<', text)
    return text + "".join(gzip.decompress(base64.b64decode(each)).decode() for each in blocks)


def test_a_live_event_is_redacted() -> None:
    event = _event("log", {"message": f"got {OTHER}"}, "1-1-1")

    assert leaks(event.decode()) == [] and b"got ghp" in event


def test_keys_and_structure_stay_and_clean_values_are_the_same_objects() -> None:
    """Only a key that is itself a secret is masked: types and attributes are keys of answers."""
    value = {"a": [1, None, {"sk-proj-is-a-key": True, OTHER: "x"}], "b": ("y", 1.5)}
    assert redact_values(value) == {
        "a": [1, None, {"sk-proj-is-a-key": True, "ghp…redacted…Qw1": "x"}],
        "b": ("y", 1.5),
    }
    clean = {"rows": [{"name": "x", "tokens": 5}] * 3}
    assert redact_values(clean) is clean
    body = streamed().replace(SHAPED[:3], "").encode()
    assert json.loads(
        json.dumps(redact_values({"password": KEYED, "n": {"token_count": "5"}}))
    ) == {
        "password": "hun…redacted…ugh",
        "n": {"token_count": "5"},
    }
    assert redact_body(b"\x00\xff plain") == b"\x00\xff plain" and redact_body(body) != body
    assert redact_lines(["a", f"b {OTHER}", "c"]) == ["a", "b ghp…redacted…Qw1", "c"]


def test_values_that_are_no_json_are_redacted_all_the_same() -> None:
    odd = {"half": "\ud800", "secret text": f"\ud800 {OTHER}", "set": {1, 2}}

    assert leaks(repr(redact_values(odd))) == []
