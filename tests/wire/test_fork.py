"""Forks: recorded answers up to a step, then a change and the real provider."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.programs import load, run_in
from support.provider_answers import chat, chat_stream
from support.provider_calls import calls_in
from support.provider_server import Reply, Seen, Server
from vestige.errors import UsageError
from vestige.home import Home
from vestige.record.run import RunInfo
from vestige.wire.replaying.request_edits import apply_changes, parse_change

AGENT = """
import sys, httpx

url = sys.argv[1]
messages = [{"role": "system", "content": "be careless"}, {"role": "user", "content": "pay 3"}]
for step in range(5):
    body = {"model": "m", "messages": messages}
    answer = httpx.post(url + "/v1/chat/completions", json=body).json()
    if "error" in answer:
        sys.exit(answer["error"]["message"])
    messages += [answer["choices"][0]["message"], {"role": "user", "content": f"step {step}"}]
print(messages[-2]["content"])
sys.exit(0 if "careful" in messages[-2]["content"] else 1)
"""

CLIENTS = """
import asyncio, subprocess, sys
import aiohttp, httpx, openai, requests

url = sys.argv[1]
path = url + "/v1/chat/completions"

def body(text, **more):
    return {"model": "m", "messages": [{"role": "user", "content": text}], **more}

if len(sys.argv) > 2:
    answer = requests.post(path, json=body("child")).json()
    print("child", answer["choices"][0]["message"]["content"])
    sys.exit()
client = openai.OpenAI(base_url=url + "/v1", api_key="CANARYkey4711")
print(client.chat.completions.create(**body("first")).choices[0].message.content)

async def main():
    async with httpx.AsyncClient() as client:
        both = [client.post(path, json=body(f"parallel {n}")) for n in range(3)]
        for answer in await asyncio.gather(*both):
            print(answer.json()["choices"][0]["message"]["content"])
    async with aiohttp.ClientSession() as session:
        async with session.post(path, json=body("aiohttp")) as answer:
            print((await answer.json())["choices"][0]["message"]["content"])

asyncio.run(main())
print(requests.post(path, json=body("requests")).json()["choices"][0]["message"]["content"])
for event in client.chat.completions.create(**body("streamed"), stream=True):
    if event.choices and event.choices[0].delta.content:
        print(event.choices[0].delta.content)
sys.stdout.flush()
subprocess.run([sys.executable, __file__, url, "child"], check=True)
"""


def by_content(seen: Seen) -> Reply:
    """Answer with the first and the last message, so that another request gets another answer."""
    request = json.loads(seen.body)
    messages = request["messages"]
    text = f"{request['model']}: {messages[0]['content']} / {messages[-1]['content']}"
    return chat_stream([text]) if request.get("stream") else chat(text)


def vestige_command(home: Home, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vestige", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "VESTIGE_HOME": str(home.root)},
        cwd=home.root.parent,
    )


def record(home: Home, source: str, server: Server) -> list[str]:
    """Record a program as r1. Return the command that runs it again."""
    run = (sys.executable, "-m", "vestige", "run", "--", sys.executable)
    run_in(home, source, server.url, command=run)
    return ["--", sys.executable, str(home.root.parent / "program.py"), server.url]


def overview(home: Home, id: str) -> dict[str, Any]:
    return dict(json.loads(vestige_command(home, "overview", id, "--json").stdout))


def latest_replay(home: Home) -> RunInfo:
    """Return the latest run that `vestige replay` made."""
    runs = [run for run in load(home) if any("replay.run" in span.attributes for span in run.spans)]
    return runs[-1].info


@pytest.mark.slow
def test_a_fork_answers_from_the_record_up_to_its_step_and_a_changed_prompt_decides(
    home: Home,
) -> None:
    """No request is sent before step 3, and a fork of the fork replays with the same changes."""
    with Server(by_content) as server:
        command = record(home, AGENT, server)
        third = calls_in(home)[2].span.short_id
        server.seen.clear()
        own_id = third.partition(".")[2]  # Of the run that is forked, not of the latest one.
        plain = vestige_command(home, "replay", "r1", "--until", own_id, *command)
        plain_sent = len(server.seen)
        server.seen.clear()
        change = ("--set", "messages[0].content=be careful")
        fork = vestige_command(home, "replay", "r1", "--until", third, *change, *command)
        prompts = [json.loads(each.body)["messages"][0]["content"] for each in server.seen]
        fork_run = latest_replay(home)
        at = [call for call in calls_in(home) if call.request][-2].span.short_id
        server.seen.clear()
        second = vestige_command(
            home, "replay", fork_run.short_id, "--until", at, "--set", "model=other", *command
        )
        second_sent = [json.loads(each.body) for each in server.seen]
        second_run = latest_replay(home)
        misspelt = vestige_command(
            home, "replay", "r1", "--until", third, "--set", "tempreature=0", *command
        )
        program = home.root.parent / "program.py"
        program.write_text(AGENT.replace("careless", "cautious"), encoding="utf-8")
        other = vestige_command(home, "replay", "r1", "--until", third, *command)
        program.write_text(AGENT, encoding="utf-8")

    assert (plain.returncode, plain_sent) == (1, 3), plain.stderr
    assert "replayed 2 of 2 recorded calls before" in plain.stderr
    assert (fork.returncode, prompts) == (0, ["be careful"] * 3), fork.stderr
    assert fork.stdout == "m: be careful / step 3\n"
    assert second.stdout == "other: be careful / step 3\n", second.stderr
    assert [each["model"] for each in second_sent] == ["other"] * 2
    assert "--set tempreature: the request does not have it, so it is added" in misspelt.stderr
    assert "first difference at byte" in other.stderr
    assert "The program asks something else than in the recording" in other.stderr
    # Without the provider: both forks are answered from their records.
    for run, stdout in ((fork_run, fork.stdout), (second_run, second.stdout)):
        again = vestige_command(home, "replay", run.short_id, *command)
        assert (again.returncode, again.stdout) == (0, stdout), again.stderr
        assert "replayed 5 of 5 recorded calls" in again.stderr
    shown = overview(home, fork_run.short_id)["lineage"]
    assert (shown["run"], shown["forked_at"]) == ("r1", third)
    text = vestige_command(home, "overview", fork_run.short_id).stdout
    assert f"forked from r1 at {third}: vestige diff r1 {fork_run.short_id}" in text
    # The calls may be in the run of the process, beside that of the command.
    runs = [run for run in load(home) if any(span.type == "llm" for span in run.spans)]
    ids = (runs[0].info.short_id, runs[2].info.short_id)
    assert "be careless" in vestige_command(home, "diff", *ids).stdout


@pytest.mark.full
def test_a_fork_covers_parallel_calls_streams_clients_and_child_processes(home: Home) -> None:
    """Forked at the call through aiohttp: four calls are replayed, and all others are sent."""
    with Server(by_content) as server:
        command = record(home, CLIENTS, server)
        calls = {
            json.loads(call.request)["messages"][0]["content"]: call for call in calls_in(home)
        }
        server.seen.clear()
        change = ("--set", "messages[0].content=changed", "--set", "temperature=0.5")
        aiohttp = vestige_command(
            home, "replay", "r1", "--until", calls["aiohttp"].span.short_id, *change, *command
        )
        sent = [json.loads(each.body) for each in server.seen]
        server.seen.clear()
        requests = vestige_command(
            home, "replay", "r1", "--until", calls["requests"].span.short_id, *change, *command
        )
        child = vestige_command(
            home, "replay", "r1", "--until", calls["child"].span.short_id, *change, *command
        )
        last_sent = json.loads(server.seen[-1].body)
        parallel = vestige_command(
            home, "replay", "r1", "--until", calls["parallel 1"].span.short_id, *command
        )

    assert len(calls) == 8
    assert aiohttp.returncode == 0, aiohttp.stderr
    assert "replayed 4 of 4 recorded calls before" in aiohttp.stderr
    assert [each["messages"][0]["content"] for each in sent] == [
        "changed",
        "requests",
        "streamed",
        "child",
    ]
    assert [each.get("temperature") for each in sent] == [0.5, 0.5, 0.5, 0.5]
    assert "m: changed / changed" in aiohttp.stdout
    assert "m: changed / changed" in requests.stdout, requests.stderr
    assert "child m: changed / changed" in child.stdout, child.stderr
    assert "replayed 7 of 7 recorded calls" in child.stderr
    assert last_sent["messages"][0]["content"] == "changed"
    assert parallel.returncode == 0, parallel.stderr
    assert "m: streamed / streamed" in parallel.stdout


@pytest.mark.full
def test_twenty_forks_of_one_run_are_equal(home: Home) -> None:
    with Server(by_content) as server:
        command = record(home, AGENT, server)
        third = calls_in(home)[2].span.short_id
        server.seen.clear()
        change = ("--set", "messages[0].content=be careful", "--trials", "10")
        trials = vestige_command(home, "replay", "r1", "--until", third, *change, *command)
        bodies = [each.body for each in server.seen]

    assert trials.returncode == 0, trials.stderr
    assert trials.stdout == "m: be careful / step 3\n" * 10 + "m: be careless / step 3\n" * 10
    assert bodies[:30] == bodies[:3] * 10
    assert bodies[30:] == bodies[30:33] * 10
    assert "with the change: 10 of 10 succeeded" in trials.stderr
    assert "without it: 0 of 10 succeeded" in trials.stderr
    assert f"the change at {third} decided the outcome in all forks" in trials.stderr


def change(text: str, body: Any) -> Any:
    recorded = json.dumps(body).encode()
    return json.loads(apply_changes(recorded, [parse_change(text, recorded)]))


BODY = {"model": "m", "messages": [{"role": "system", "content": "a"}, {"content": "b"}], "n": 1}


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("model=gpt-5", ["model"], "gpt-5"),
        ("model=5", ["model"], "5"),
        ("n=5", ["n"], 5),
        ("temperature=0", ["temperature"], 0),
        ("messages[0].content=x=y", ["messages", 0, "content"], "x=y"),
        ("messages[-1].content=x", ["messages", 1, "content"], "x"),
        ('messages[2]:={"role": "user"}', ["messages", 2], {"role": "user"}),
        ("model:=null", ["model"], None),
    ],
)
def test_a_change_sets_text_or_json(text: str, path: list[Any], value: Any) -> None:
    found = change(text, BODY)
    for step in path:
        found = found[step]
    assert found == value


def test_a_change_reads_a_file_and_leaves_other_values_alone(tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("Be careful.\n", encoding="utf-8")
    recorded = json.dumps(BODY).encode()
    parsed = parse_change(f"messages[0].content=@{file}", recorded)
    later = json.dumps({"messages": [{"role": "system", "content": "another"}]}).encode()

    assert parsed.value == "Be careful.\n"
    assert apply_changes(later, [parsed], lambda actual, before: actual == before) == later
    assert b"careful" in apply_changes(recorded, [parsed], lambda actual, before: False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model", "not a change"),
        ("messages[7].content=x", "messages has 2 items"),
        ("messages.content=x", "messages is a list"),
        ("model.name=x", "model is a value"),
        ("tools.x=1", "the request has no 'tools' (it has model, messages, n)"),
        ("n:=[", "the value is not JSON"),
        ("model=@/does/not/exist", "cannot be read"),
    ],
)
def test_a_wrong_change_says_what_is_there(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=r"--set") as error:
        change(text, BODY)
    assert message in str(error.value)
