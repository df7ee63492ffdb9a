"""The MCP server, driven by the official client over stdio and HTTP."""

from __future__ import annotations

import inspect
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import click
import pytest
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from mcp import ClientSession, StdioServerParameters
from support.commands import vestige
from vestige.cli.main import cli
from vestige.errors import UsageError
from vestige.home import Home
from vestige.mcp.server import call, install_hint, serve_http
from vestige.mcp.tools import LISTED, VIEWS, select_query
from vestige.query.command_tools import TOOLS, check_arguments, get_tool
from vestige.query.debugger import Debugger
from vestige.query.diff.diff_targets import diff_answer
from vestige.query.token_budget import count_tokens

AGENT = """
import json, os, signal, sys
from vestige import Recorder

recorder = Recorder()
recorder.logger("billing").surface(
    text="An invoice that is sent twice has two deliver spans.",
    span_types=["deliver"],
    queries={"failed": "SELECT name FROM spans WHERE status = 'error'"},
)
log = recorder.logger("billing")
fails = sys.argv[1] == "fail"
request = {"model": "m-1", "messages": [{"role": "user", "content": "charge the card"}]}
with recorder.run("triage", conversation_id="c-9") as run:
    body = json.dumps(request)
    with run.span("chat", type="llm", attributes={"model": "m-1"}, body=body) as span:
        span.end(attributes={"input_tokens": 120, "output_tokens": 30}, body="calling charge")
    body = '{"amount": 5}'
    tool = run.span("charge", type="tool", attributes={"tool_call_id": "call_7"}, body=body)
    if fails:
        run.log.error("card refused")
        error = ValueError("card refused")
        tool.end(error=error)
        raise error
    else:
        tool.end(body="paid")
    if sys.argv[1] == "die":
        run.span("send mail", type="tool")
        os.kill(os.getpid(), signal.SIGKILL)
"""
RUNS = {"good": "ok", "fail": "error", "die": "interrupted"}
EXAMPLES: dict[str, dict[str, Any]] = {
    "doctor": {},
    "list": {"failed": True, "since": "1h"},
    "overview": {"id": "FAIL"},
    "check": {"id": "DIE"},
    "why": {"id": "CHARGE"},
    "show": {"id": "DIE", "no_fold": True, "from": 0},
    "transcript": {"id": "FAIL"},
    "outline": {"id": "FAIL"},
    "segments": {"id": "ASK"},
    "state": {"id": "GOOD"},
    "files": {"id": "GOOD"},
    "span": {"id": "CHARGE"},
    "notes": {"id": "FAIL"},
    "body": {"id": "CHARGE", "in": True, "bytes": "0:40"},
    "grep": {"pattern": "card +refused", "regex": True, "in": "attrs,logs"},
    "diff": {"a": "GOOD", "b": "FAIL"},
    "stats": {"by": "tool"},
    "trends": {"since": "1d"},
    "compare": {"a": ["FAIL"], "b": ["GOOD"]},
    "groups": {},
    "sql": {"query": "SELECT name FROM spans WHERE type = 'tool' ORDER BY id"},
    "schema": {},
    "help": {"component": "billing"},
}
SAYS = {
    "doctor": "crashed",
    "list": "triage",
    "overview": "triage",
    "check": "",
    "why": "charge",
    "show": "send mail",
    "transcript": "charge",
    "outline": "charge",
    "segments": "message:user",
    "state": "0 snapshots",
    "files": "0 files",
    "span": "card refused",
    "notes": "no notes",
    "body": "amount",
    "grep": "refused",
    "diff": "charge",
    "stats": "charge",
    "trends": "3 runs",
    "compare": "",
    "groups": "",
    "sql": "send mail",
    "schema": "spans",
    "help": "sent twice",
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Three runs of one agent: a good one, one that failed, and one that was killed."""
    folder = tmp_path_factory.mktemp("mcp")
    program = folder / "agent.py"
    program.write_text(textwrap.dedent(AGENT), encoding="utf-8")
    for how in RUNS:
        subprocess.run(
            [sys.executable, str(program), how],
            env=_environment(folder / "home"),
            capture_output=True,
            timeout=120,
        )
    return Home(folder / "home")


@pytest.fixture(scope="module")
def ids(recorded: Home) -> dict[str, str]:
    """The short ids that the examples stand for."""
    done = vestige("list", "--json", "--home", recorded.root)
    by_outcome = {run["outcome"]: run["short_id"] for run in json.loads(done.stdout)["runs"]}
    found = {how.upper(): by_outcome[outcome] for how, outcome in RUNS.items()}
    show = ["show", found["FAIL"], "--json", "--home", str(recorded.root)]
    spans = json.loads(vestige(*show).stdout)["spans"]
    (found["ASK"],) = [span["short_id"] for span in spans if span["name"] == "chat"]
    (found["CHARGE"],) = [span["short_id"] for span in spans if span["name"] == "charge"]
    return found


def _environment(home: Path) -> dict[str, str]:
    variables = {name: text for name, text in os.environ.items() if not name.startswith("VESTIGE_")}
    return {**variables, "VESTIGE_HOME": str(home)}


def _with_ids(value: Any, ids: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _with_ids(one, ids) for key, one in value.items()}
    if isinstance(value, list):
        return [_with_ids(one, ids) for one in value]
    return ids.get(value, value) if isinstance(value, str) else value


Talk = Callable[[ClientSession], Awaitable[Any]]


def over_stdio(home: Home, talk: Talk) -> Any:
    """Talk to a server that the client starts, as clients do."""
    command = ["-m", "vestige", "mcp", "--home", str(home.root)]

    async def main() -> Any:
        server = StdioServerParameters(
            command=sys.executable, args=command, env=_environment(home.root)
        )
        with anyio.fail_after(60), open(os.devnull, "w") as errors:
            async with (
                stdio_client(server, errlog=errors) as streams,
                ClientSession(streams[0], streams[1]) as session,
            ):
                await session.initialize()
                return await talk(session)

    return anyio.run(main)


def _text(result: Any) -> str:
    (content,) = result.content
    return str(content.text)


# --- the real client ----------------------------------------------------------------------------


def test_every_tool_answers_a_real_client(recorded: Home, ids: dict[str, str]) -> None:
    """The verbs over a home with a good, a failed and a killed run: text, within its budget."""

    async def talk(session: ClientSession) -> dict[str, Any]:
        listed = {tool.name for tool in (await session.list_tools()).tools}
        assert listed == {tool.name for tool in LISTED}
        assert set(EXAMPLES) == {tool.name for tool in TOOLS}
        return {
            name: await session.call_tool(name, _with_ids(arguments, ids))
            for name, arguments in EXAMPLES.items()
        }

    answers = over_stdio(recorded, talk)
    texts = {name: _text(answer) for name, answer in answers.items()}

    assert {name: texts[name] for name, answer in answers.items() if answer.is_error} == {}
    assert {name: texts[name] for name in texts if SAYS[name] not in texts[name]} == {}
    assert {name for name in texts if count_tokens(texts[name]) > 2_100} == set()


def test_tools_say_that_they_only_read_and_when_to_use_them(recorded: Home) -> None:
    async def talk(session: ClientSession) -> Any:
        return await session.list_tools()

    for tool in over_stdio(recorded, talk).tools:
        assert tool.annotations.read_only_hint is True, tool.name
        assert tool.annotations.open_world_hint is False, tool.name
        for part in ("Use when: ", "Do not use: ", "Example: {"):
            assert part in tool.description, tool.name
        assert tool.input_schema["additionalProperties"] is False


def test_wrong_arguments_come_back_as_results_that_teach(recorded: Home) -> None:
    """No protocol error and no traceback: the client's model reads it, and tries again."""

    async def talk(session: ClientSession) -> list[Any]:
        return [
            await session.call_tool("overview", {"idd": "r1"}),
            await session.call_tool("show", {"id": "r1", "depth": "two"}),
            await session.call_tool("overveiw", {"id": "r1"}),
            await session.call_tool("overview", {"id": "r999"}),
            await session.call_tool("sql", {"query": "DELETE FROM runs"}),
            await session.call_tool("help", {"component": "biling"}),
            await session.call_tool("list", {}),
        ]

    unknown, kind, tool, nothing, write, component, alive = over_stdio(recorded, talk)

    assert unknown.is_error and "nearest: id" in _text(unknown)
    assert kind.is_error and 'depth: "two" does not fit (expected a whole number from 0)' in _text(
        kind
    )
    assert tool.is_error and "Nearest: overview." in _text(tool)
    assert nothing.is_error and "not found" in _text(nothing)
    assert write.is_error and "read" in _text(write)
    assert component.is_error and "billing" in _text(component)
    assert not alive.is_error
    for result in (unknown, kind, tool, nothing, write, component):
        assert "Traceback" not in _text(result) and "pydantic" not in _text(result)


def test_the_playbook_is_a_prompt(recorded: Home) -> None:
    async def talk(session: ClientSession) -> tuple[Any, Any, Any, str]:
        listed = await session.list_prompts()
        debug = await session.get_prompt("debug", {"id": "r7"})
        instrument = await session.get_prompt("instrument")
        with pytest.raises(MCPError) as refused:
            await session.get_prompt("nonsense")
        return listed, debug, instrument, str(refused.value)

    listed, debug, instrument, refused = over_stdio(recorded, talk)

    assert [prompt.name for prompt in listed.prompts] == ["debug", "instrument"]
    text = debug.messages[0].content.text
    assert "cause span" in text and text.endswith("Debug: r7\n")
    assert "Mask your own secrets" in instrument.messages[0].content.text
    assert "expected debug or instrument" in refused


@pytest.mark.slow
def test_what_is_recorded_while_serving_is_seen_by_the_next_call(home: Home) -> None:
    """Each call ingests journals; a home that does not exist yet does not end the server."""

    async def talk(session: ClientSession) -> tuple[Any, Any]:
        before = await session.call_tool("list", {})
        program = "import vestige\nwith vestige.Recorder().run('late'): pass"
        await anyio.run_process([sys.executable, "-c", program], env=_environment(home.root))
        return before, await session.call_tool("list", {})

    before, after = over_stdio(home, talk)

    assert before.is_error and "no data directory" in _text(before)
    assert not after.is_error and "late" in _text(after)


def test_calls_at_once_are_all_answered(recorded: Home) -> None:
    """Clients ask in parallel; each call has a connection of its own."""

    async def talk(session: ClientSession) -> list[Any]:
        answers = []

        async def ask(name: str) -> None:
            answers.append(await session.call_tool(name, {}))

        async with anyio.create_task_group() as group:
            for name in ("list", "schema", "doctor", "stats") * 3:
                group.start_soon(ask, name)
        return answers

    answers = over_stdio(recorded, talk)

    assert len(answers) == 12
    assert [_text(answer) for answer in answers if answer.is_error] == []


def test_stdout_carries_the_protocol_and_nothing_else(recorded: Home) -> None:
    """Line by line JSON-RPC, also after nonsense on our input, until it closes."""
    messages = [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        },
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "doctor", "arguments": {}},
        },
        {
            "jsonrpc": "2.0",
            "id": 3,
            "method": "tools/call",
            "params": {"name": "list", "arguments": {"x": 1}},
        },
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "vestige", "mcp", "--home", str(recorded.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        lines = []
        for message in messages:
            server.stdin.write(json.dumps(message) + "\n")
            server.stdin.flush()
            if "id" in message:
                lines.append(server.stdout.readline())
        server.stdin.close()
        lines += server.stdout.readlines()
        status = server.wait(120)

    answers = [json.loads(line) for line in lines]
    assert [answer["id"] for answer in answers] == [1, 2, 3]
    assert {answer["jsonrpc"] for answer in answers} == {"2.0"}
    assert answers[0]["result"]["instructions"].startswith("Vestige holds recorded runs")
    assert answers[2]["result"]["isError"] is True
    assert status == 0


# --- HTTP ---------------------------------------------------------------------------------------


@pytest.fixture
def http_server(recorded: Home) -> Iterator[str]:
    """A server on a free port of this machine, and its address."""
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "vestige",
            "mcp",
            "--http",
            "127.0.0.1:0",
            "--home",
            str(recorded.root),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stderr is not None and server.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+/mcp", server.stderr.readline())
        assert found
        try:
            yield found[0]
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(120)

            assert server.stdout.read() == ""
            assert server.returncode == 0


def test_the_same_tools_over_http(http_server: str, ids: dict[str, str]) -> None:
    async def main() -> tuple[Any, Any]:
        with anyio.fail_after(30):
            async with (
                streamable_http_client(http_server) as streams,
                ClientSession(streams[0], streams[1]) as session,
            ):
                await session.initialize()
                return await session.list_tools(), await session.call_tool("doctor", {})

    listed, answer = anyio.run(main)

    assert [tool.name for tool in listed.tools] == [tool.name for tool in LISTED]
    assert not answer.is_error and "1 crashed" in _text(answer)


def test_a_page_in_a_browser_cannot_reach_it_under_another_name(http_server: str) -> None:
    """DNS rebinding: a name that an attacker made point to this machine is refused."""
    request = urllib.request.Request(
        http_server,
        data=b"{}",
        headers={"Host": "evil.example", "Content-Type": "application/json"},
    )

    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=10)

    assert refused.value.code == 421


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "example.org"])  # noqa: S104  # refused
def test_only_this_machine_is_served(recorded: Home, host: str) -> None:
    """There is no login: every client may read every run."""
    with pytest.raises(UsageError, match="only this machine"):
        serve_http(recorded, host, 0)


# --- arguments, without a process -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "arguments", "taught"),
    [
        ("overview", {}, "id is missing (expected a text"),
        ("overview", {"id": " "}, 'id: " " does not fit (expected a text)'),
        ("overview", {"id": 7}, "id: 7 does not fit (expected a text)"),
        ("overview", {"id": "r1", "budget": 99_999}, "expected a whole number from 50 to 50000"),
        ("overview", {"id": "r1", "budget": True}, "budget: true does not fit"),
        ("list", {"fialed": True}, "nearest: failed"),
        ("list", {"failed": "yes"}, "expected true or false"),
        ("list", {"qqq": 1}, "expected one of: filter, failed"),
        ("stats", {"by": "colour"}, "expected one of name, model, tool, component, type, day"),
        ("list", {"since": "soon"}, 'since: "soon" does not fit (expected a duration such as 90s'),
        ("body", {"id": "r1.s1", "lines": "9:3"}, "expected a:b with 1 <= a <= b"),
        ("grep", {"pattern": "x", "in": "heads"}, "expected some of attrs, logs, bodies"),
        ("show", {"from": ["r1.s2"]}, "expected a number or a text"),
        ("compare", {"a": "r1", "b": ["r2"]}, 'a: "r1" does not fit (expected a list of texts)'),
        ("compare", {"a": [], "b": ["r2"]}, "a: [] does not fit"),
        ("grep", {"pattern": "x\x1b[31m" * 50, "idd": "\x1b[31m"}, "nearest: id"),
    ],
)
def test_a_wrong_argument_is_told_what_is_right(
    recorded: Home, tool: str, arguments: dict[str, Any], taught: str
) -> None:
    text, is_error = call(recorded, tool, arguments)

    assert is_error
    assert taught in text
    assert f"Example: {json.dumps(get_tool(tool).example)}" in text
    assert "\x1b" not in text and "\n" not in text


def test_arguments_reach_the_verb_in_its_own_words() -> None:
    """Null is as good as left out: some clients send every argument that there is."""
    show = check_arguments(get_tool("show"), {"id": "r1", "from": 1.5, "to": "r1.s9", "type": None})
    body = check_arguments(get_tool("body"), {"id": "r1.s2", "lines": "3:9", "bytes": "7:"})
    found = check_arguments(get_tool("grep"), {"pattern": "x", "in": "logs,attrs"})

    assert show == {"id": "r1", "from_": 1.5, "to": "r1.s9"}
    assert body == {"id": "r1.s2", "lines": (3, 9), "bytes": (7, None)}
    assert found == {"pattern": "x", "where": ("attrs", "logs")}
    assert check_arguments(get_tool("list"), {"since": "2h"}) == {"since": 7200.0}


def test_examples_are_right_and_every_argument_is_one_of_the_verb() -> None:
    """What the tools promise is what the debugger takes."""
    for tool in TOOLS:
        check_arguments(tool, tool.example)
        if tool.name in ("doctor", "help"):
            continue
        taken = set(inspect.signature(getattr(Debugger, tool.name)).parameters)
        if "options" in taken:
            assert tool.name == "diff"
            taken |= set(inspect.signature(diff_answer).parameters)
        taken |= {"no_fold"} if "fold" in taken else set()
        taken |= {"in", "out"} if "part" in taken else set()

        assert {one.to or one.name for one in tool.parameters} - taken == set(), tool.name


def test_the_tools_that_find_causes_come_first() -> None:
    assert [tool.name for tool in LISTED[:6]] == [
        "overview",
        "check",
        "why",
        "show",
        "body",
        "grep",
    ]
    assert len(LISTED) <= 15
    assert {tool.name for tool in TOOLS} >= {tool.name for tool in LISTED}


def test_every_unlisted_query_is_an_option_of_a_listed_tool() -> None:
    """And keeps its name for clients that have it in their configuration."""
    unlisted = {tool.name for tool in TOOLS} - {tool.name for tool in LISTED}
    reached = {select_query("show", {"view": view})[0].name for view in VIEWS}
    reached |= {
        select_query(name, {flag: True})[0].name
        for name, flag in (("span", "prompt"), ("stats", "trends"), ("sql", "schema"))
    }

    assert unlisted <= reached
    assert {select_query(name, {})[0].name for name in unlisted} == unlisted


def test_a_view_is_answered_like_the_query_of_its_name(recorded: Home, ids: dict[str, str]) -> None:
    by_view = call(recorded, "show", {"id": ids["FAIL"], "view": "transcript"})
    by_name = call(recorded, "transcript", {"id": ids["FAIL"]})
    wrong = call(recorded, "show", {"id": ids["FAIL"], "view": "transcript", "errors": True})
    tables = call(recorded, "sql", {"schema": True, "query": "spans"})

    assert by_view == by_name and not by_view[1]
    assert wrong[1] and "'errors' is not an argument of transcript" in wrong[0]
    assert not tables[1] and "spans" in tables[0]


OWN_TOOLS = {"view", "follow", "at", "against", "prompt", "trends", "schema"}
"""Options that lead to another view. Each of these views is a tool by itself."""

FOR_TERMINALS = {"home", "on", "json", "raw", "output", "tree", "policy"}
"""Options about the data directory, files and terminals, which a tool does not have."""


def test_every_option_of_a_command_is_an_argument_of_its_tool() -> None:
    """An answer's next command is a call: `--before-after` is `before_after`.

    But for where to look (`--home`, `--on`): one server answers for one home.
    """
    for tool in TOOLS:
        options = {
            max(one.opts, key=len).removeprefix("--").replace("-", "_")
            for one in cli.commands[tool.name].params
            if isinstance(one, click.Option)
        }
        here = {one.name for one in tool.all_parameters}

        assert options - here - FOR_TERMINALS - OWN_TOOLS == set(), tool.name
        assert here.isdisjoint({"home", "on"}), tool.name


def test_why_without_an_id_is_asked_of_the_latest_run(recorded: Home) -> None:
    """As on the command line: after a crash the user has no id yet."""
    text, is_error = call(recorded, "why", {})

    assert not is_error and "crash/" in text


def test_a_path_is_not_taken_for_an_id_of_this_home(recorded: Home) -> None:
    """The next steps of its answer would be taken for this home's."""
    call(recorded, "list", {})  # now there is a store
    text, is_error = call(recorded, "show", {"id": str(recorded.store)})

    assert is_error and "vestige mcp --home PATH" in text


def test_sql_asks_no_bundle_elsewhere_on_the_machine(recorded: Home) -> None:
    """A client may read the home that is served, and no other file."""
    arguments = {"query": "SELECT 1", "on": str(recorded.store)}
    text, is_error = call(recorded, "sql", arguments)

    assert is_error and "'on' is not an argument of sql" in text


def test_a_bug_of_ours_is_told_and_does_not_end_the_session(
    recorded: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("vestige.mcp.server._ask", lambda *_: 1 / 0)

    text, is_error = call(recorded, "schema", None)

    assert is_error and text.startswith("error: schema: a bug in vestige (ZeroDivisionError).")
    printed = capsys.readouterr()
    assert printed.out == "" and "Traceback" in printed.err


# --- the command ----------------------------------------------------------------------------------


def test_the_install_hint_is_configuration_that_works(recorded: Home) -> None:
    """Every JSON block parses, and the command in it is one that exists, with full paths."""
    text = install_hint(recorded)

    blocks = [json.loads(block) for block in re.findall(r"(?ms)^\{.*?^\}", text)]
    assert [list(block) for block in blocks] == [["mcpServers"], ["mcpServers"], ["servers"]]
    entry = blocks[0]["mcpServers"]["vestige"]
    assert Path(entry["command"]).is_absolute() and entry["args"][-1] == str(recorded.root)
    assert "http://127.0.0.1:8765/mcp" in install_hint(recorded, ("127.0.0.1", 8765))


def test_a_bad_address_is_refused(home: Home) -> None:
    for address in ("nonsense", "127.0.0.1", ":80", "127.0.0.1:99999", "0.0.0.0:8765"):
        done = vestige("mcp", "--http", address)

        assert done.exit_code == 2, address


def test_help_and_the_hint_do_not_load_mcp(home: Home) -> None:
    """It takes most of a second: only serving does."""
    program = (
        "import sys\nfrom vestige.cli.main import cli\n"
        "cli(['mcp', '--install-hint'], standalone_mode=False)\n"
        "packages = {name.partition('.')[0] for name in sys.modules}\n"
        "sys.exit(bool(packages & {'mcp', 'mcp_types', 'pydantic'}))"
    )

    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.DEVNULL)

    assert done.returncode == 0
