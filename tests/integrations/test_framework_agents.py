"""Agents of many frameworks under `vestige run`: their trees, bytes, output, findings and replay.

Three run with pinned releases. The others, and these three again, run with the newest releases in
environments of their own (`make test-full`); the table that they print is in the docs.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from support import frameworks
from support.frameworks import Provider, Recording
from vestige.home import Home


class Agent(NamedTuple):
    """An agent in tests/data/frameworks, and what its tree must contain."""

    file: str
    packages: tuple[str, ...]
    agents: tuple[str, ...]
    handoffs: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    """Findings besides the failed tool, about what the framework itself logs."""
    has_traceback: bool = False
    """Whether the framework sends tracebacks to the model, which differ in a replay of tools."""
    has_contents: bool = False
    """Whether agents have their task and their result, which the framework's spans do not have."""
    returns_errors: bool = False
    """Whether its tool returns an error as a result, as the framework recommends."""
    guide: str = ""
    """The page that shows its tree."""


PINNED = {
    "langchain": Agent(
        "langchain_agent.py",
        ("langchain", "langchain-openai", "langgraph"),
        ("refund_agent",),
        guide="langchain.md",
    ),
    "openai_agents": Agent(
        "openai_agents.py",
        ("openai-agents",),
        ("Triage agent", "Refund agent"),
        ("Refund agent",),
        ("error/reported",),
        guide="openai-agents.md",
    ),
    "pydantic_ai": Agent(
        "pydantic_ai_agent.py",
        ("pydantic-ai-slim[openai]",),
        ("refund_agent",),
        guide="pydantic-ai.md",
    ),
}
NEWEST = {
    **PINNED,
    "langgraph": Agent(
        "langgraph_stream.py", ("langchain", "langchain-openai", "langgraph"), ("refund_agent",)
    ),
    "langgraph-own-graph": Agent(
        "langgraph_own_graph.py", ("langchain", "langchain-openai", "langgraph"), ()
    ),
    "pydantic_ai-deps": Agent(
        "pydantic_ai_deps.py", ("pydantic-ai-slim[openai]",), ("clerk",), has_contents=True
    ),
    "crewai": Agent("crewai_crew.py", ("crewai",), ("Refund clerk", "Writer"), guide="crewai.md"),
    "smolagents": Agent(
        "smolagents_code.py", ("smolagents[openai]",), ("refund_agent",), guide="smolagents.md"
    ),
    "smolagents-tools": Agent(
        "smolagents_tools.py",
        ("smolagents[openai]",),
        ("refund_agent",),
        allowed=("cache/prefix-changed",),  # true: it rewrites a message that was sent before
    ),
    "llama_index": Agent(
        "llama_index_agent.py",
        ("llama-index-core", "llama-index-llms-openai"),
        ("refund_agent",),
        guide="llama-index.md",
    ),
    "llama_index-handoff": Agent(
        "llama_index_handoff.py",
        ("llama-index-core", "llama-index-llms-openai"),
        ("triage_agent", "refund_agent"),
        ("refund_agent",),
    ),
    "dspy": Agent(
        "dspy_react.py",
        ("dspy",),
        ("ReAct",),
        allowed=("stalled-step",),  # true on a busy machine: its first step imports LiteLLM
        has_traceback=True,
        guide="dspy.md",
    ),
    "autogen": Agent(
        "autogen_team.py",
        ("autogen-agentchat", "autogen-ext[openai]"),
        ("refund_clerk", "writer"),
        has_contents=True,
        guide="autogen.md",
    ),
    "autogen-swarm": Agent(
        "autogen_swarm.py",
        ("autogen-agentchat", "autogen-ext[openai]"),
        ("triage", "clerk", "archive"),
        ("transfer_to_clerk",),
        has_contents=True,
    ),
    "ag2": Agent("ag2_agent.py", ("ag2[openai]",), ("refund_agent",), guide="ag2.md"),
    "adk": Agent(
        "adk_transfer.py",
        ("google-adk", "litellm", "mcp"),  # LiteLLM imports mcp for each call with tools
        ("triage_agent", "refund_agent"),
        ("transfer_to_agent",),
        returns_errors=True,
        guide="google-adk.md",
    ),
    "adk-agent-tool": Agent(
        "adk_agent_tool.py",
        ("google-adk", "litellm", "mcp"),
        ("desk", "front", "refund_agent", "both", "letter", "note"),
    ),
    "strands": Agent(
        "strands_agent.py", ("strands-agents[openai]",), ("refund_agent",), guide="strands.md"
    ),
    "agent_framework": Agent(
        "agent_framework_agent.py",
        ("agent-framework-core", "agent-framework-openai"),
        ("refund_agent",),
        allowed=("error/reported",),
        has_contents=True,
        guide="agent-framework.md",
    ),
    "agent_framework-stream": Agent(
        "agent_framework_stream.py",
        ("agent-framework-core", "agent-framework-openai"),
        ("desk", "desk"),
        allowed=("error/reported",),
        has_contents=True,
    ),
    "agent_framework-handoff": Agent(
        "agent_framework_handoff.py",
        ("agent-framework-core", "agent-framework-openai", "agent-framework-orchestrations"),
        ("triage_agent", "refund_agent"),
        ("refund_agent",),
        allowed=("error/reported",),
        has_contents=True,
    ),
}


class Loop(NamedTuple):
    """A program without agents of a Python framework, whose tools are in the tree all the same."""

    file: str
    packages: tuple[str, ...]
    finding: str = "tool/failed"
    prefix: str = ""
    """Beginning of the names of its tools."""
    ignored: tuple[str, ...] = ()
    """What differs in each of its requests."""
    allowed: tuple[str, ...] = ()


LOOPS = {
    "litellm": Loop("litellm_loop.py", ("litellm", "mcp"), "tool/soft-error"),
    "mcp": Loop("mcp_loop.py", ("mcp>=2", "openai"), allowed=("error/reported",)),
    "claude_agent_sdk": Loop(
        "claude_sdk.py", ("claude-agent-sdk",), prefix="mcp__shop__", ignored=("uuid",)
    ),
}
MODULES = {"langchain": "langchain", "openai_agents": "agents", "pydantic_ai": "pydantic_ai"}


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    with frameworks.start_provider(tmp_path_factory.mktemp("provider")) as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("name", PINNED)
def test_an_agent_of_a_framework_has_its_tree(home: Home, provider: Provider, name: str) -> None:
    if importlib.util.find_spec(MODULES[name]) is None:
        pytest.skip(f"{name} is not installed (the dependency group `test` has it)")
    check_agent(PINNED[name], home, provider, sys.executable)


@pytest.mark.full
@pytest.mark.parametrize("name", NEWEST)
def test_an_agent_of_the_newest_release_has_its_tree(
    home: Home, provider: Provider, tmp_path: Path, name: str
) -> None:
    """Nothing of Vestige is installed in the environment of the agent."""
    agent = NEWEST[name]
    python = frameworks.make_environment(tmp_path / "environment", agent.packages)
    if python is None:
        pytest.skip(f"{', '.join(agent.packages)} cannot be installed here")
    check_agent(agent, home, provider, python)


@pytest.mark.full
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_of_the_newest_release_has_its_tools(
    home: Home, provider: Provider, tmp_path: Path, name: str
) -> None:
    loop = LOOPS[name]
    python = frameworks.make_environment(tmp_path / "environment", loop.packages)
    if python is None:
        pytest.skip(f"{', '.join(loop.packages)} cannot be installed here")
    plain = frameworks.run_plain(python, loop.file, provider)
    provider.digests()
    recording = frameworks.record_agent(home, python, loop.file, provider)
    assert recording.output == plain
    assert recording.digests == provider.digests()
    tools = recording.of_type("tool")
    assert [span.name for span in tools] == [loop.prefix + name for name in frameworks.TOOLS]
    assert all(span.input is not None and span.output is not None for span in tools)

    text = frameworks.check(home, recording.run)
    found = frameworks.find_findings(text)
    failed = [span for _, code, span in found if code == loop.finding]
    assert failed == [tools[1].short_id.rpartition(".")[2]], text
    others = {code for severity, code, _ in found if severity in ("error", "warning")}
    assert others - {loop.finding, *loop.allowed} == set(), text

    options = [word for rule in loop.ignored for word in ("--ignore", rule)]
    run = recording.run
    replayed = frameworks.replay_agent(home, run, python, loop.file, provider, *options)
    assert plain.strip() in replayed
    assert provider.digests() == []


def check_agent(agent: Agent, home: Home, provider: Provider, python: str) -> None:
    plain = frameworks.run_plain(python, agent.file, provider)
    provider.digests()
    recording = frameworks.record_agent(home, python, agent.file, provider)
    assert recording.output == plain
    assert recording.digests == provider.digests()
    check_tree(agent, recording)
    check_findings(agent, recording, frameworks.check(home, recording.run))
    replayed = frameworks.replay_agent(home, recording.run, python, agent.file, provider)
    assert plain.strip() in replayed
    assert provider.digests() == []
    if not agent.has_traceback:
        folder = home.root.parent / "tools-fail"
        stdout, stderr = frameworks.replay_tools(home, recording.run, python, agent.file, folder)
        assert plain.strip() in stdout, stderr
        tools = [span.name for span in recording.of_type("tool")]
        agents = [name for name in tools if name in agent.agents]  # agents called as tools
        count = len(tools)
        assert f"replayed {count - len(agents)} of {count} recorded tool calls." in stderr
        assert ("these tools ran" in stderr) is bool(agents)


def check_tree(agent: Agent, recording: Recording) -> None:
    faults = [log for log in recording.run.logs if log.message.startswith("misuse or failure")]
    assert faults == [], "an integration raised"
    if agent.guide:
        assert frameworks.make_tree(recording.run) == frameworks.read_guide(agent.guide)
    assert [span.name for span in recording.of_type("agent")] == list(agent.agents)
    assert [span.name for span in recording.of_type("handoff")] == list(agent.handoffs)
    others = ("finish", *agent.agents)  # an agent may be called as a tool
    tools = [span for span in recording.of_type("tool") if span.name not in others]
    assert tuple(span.name for span in tools) == frameworks.TOOLS
    assert all(span.input is not None for span in tools)
    assert all(span.output is not None for span in tools if span.status == "ok")
    if not agent.returns_errors:
        assert [span.status for span in tools] == ["ok", "error", "ok", "ok"]
        assert "503 from rates.internal" in str(tools[1].attributes)
    if agent.has_contents:
        assert all(span.input is not None for span in recording.of_type("agent"))
        assert recording.of_type("agent")[-1].output is not None
    spans = {span.id: span for span in recording.run.spans}
    for span in recording.run.spans:
        if span.type == "llm":
            parent = spans[span.parent_id or ""]
            assert parent.type in ("agent", "step"), (
                "each model call is inside the framework's step"
            )


def check_findings(agent: Agent, recording: Recording, text: str) -> None:
    found = frameworks.find_findings(text)
    by_short_id = {span.short_id.rpartition(".")[2]: span for span in recording.run.spans}
    expected = "tool/soft-error" if agent.returns_errors else "tool/failed"
    failed = [by_short_id[span] for _, code, span in found if code == expected]
    assert [span.name for span in failed] == ["get_exchange_rate"], text
    others = {code for severity, code, _ in found if severity in ("error", "warning")}
    assert others - {"tool/failed", *agent.allowed} == set(), text
