"""The bug catalogue: each bug planted by a program that runs for real, through recorder, journal,
collector and store; found with the right kind, the right cause and evidence; and the same
program without the bug gives no such finding. `pytest -s` prints the table.

Bugs of requests and caches: test_catalogue_llm.py.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from planted import all_findings, evidence_of

from conftest import RunProgram
from vestige.home import Home

VESTIGE_RUN = (sys.executable, "-m", "vestige", "run", "--", sys.executable)

BEGIN = """
import json, os, sys
import vestige
BUG = sys.argv[1] == "bug"
recorder = vestige.Recorder()
"""

DYING = """
import ctypes, resource, signal
def die():
    {death}

with recorder.run("agent") as run:
    with run.span("chat", type="llm"):
        pass
    with run.span("search", type="tool") as span:
        span.set_attributes(planted=True)
        if BUG:
            die()
"""

QUEUE = """
with recorder.run("agent", conversation_id="c-1") as run:
    for number in range(3):
        keys = dict(message_id=f"m-{{number}}", source_conversation_id="c-1")
        with run.span("put", type="queue.enqueue", attributes=dict(keys, target_conversation_id=f"c-{{number}}")) as put:
            pass
        def deliver(conversation_id, planted=False):
            with run.span("deliver", type="queue.deliver", attributes=dict(keys, conversation_id=conversation_id)) as span:
                span.add_link(put)
                if planted:
                    span.set_attributes(planted=True)
        {delivery}
"""

MODEL = """
TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {
    "type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}}}]
MESSAGES = [{"role": "user", "content": "Search for refunds, please."}]
CALL = {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": '{"q": "refund"}'}}

def think(run, message, finish, **attributes):
    body = json.dumps({"model": "gpt-4o", "messages": MESSAGES, "tools": TOOLS})
    with run.span("chat", type="llm", attributes=dict(model="gpt-4o", **attributes), body=body) as span:
        span.end(body=json.dumps({"object": "chat.completion", "model": "gpt-4o",
            "choices": [{"index": 0, "message": message, "finish_reason": finish}]}))

def search(run):
    with run.span("search", type="tool", attributes={"tool_call_id": "call_1"}, body='{"q": "refund"}') as span:
        span.end(body="3 found")
"""

AS_TEXT = (
    MODEL
    + """
with recorder.run("agent") as run:
    if BUG:
        text = '{"name": "search", "arguments": {"q": "refund"}}'
        think(run, {"role": "assistant", "content": text}, "stop", planted=True)
    else:
        asked = {"role": "assistant", "content": None, "tool_calls": [CALL]}
        think(run, asked, "tool_calls")
        search(run)
        MESSAGES += [asked, {"role": "tool", "tool_call_id": "call_1", "content": "3 found"}]
        think(run, {"role": "assistant", "content": "There are 3."}, "stop")
"""
)

MANY_DELIVERIES = (
    MODEL
    + """
with recorder.run("agent") as run:
    asked = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    think(run, asked, "tool_calls")
    search(run)
    MESSAGES += [asked]
    MESSAGES += [{"role": "tool", "tool_call_id": "call_1", "content": "3 found"}] * (3 if BUG else 1)
    think(run, {"role": "assistant", "content": "There are 3."}, "stop", planted=True)
"""
)

VERIFIER = """
import subprocess
with recorder.run("agent") as run:
    with run.span("write answer", type="tool"):
        pass
    try:
        with run.span("verify", type="test") as span:
            span.set_attributes(planted=True)
            subprocess.run(["no-such-verifier" if BUG else "false"], check=True)
    except (OSError, subprocess.CalledProcessError):
        run.end(status="error")     # either way, the task counts as failed
"""


@dataclass(frozen=True)
class Bug:
    """One entry: a program that does it if its argument is `bug`. The span that is to be found
    carries the attribute `planted`."""

    name: str
    kind: str
    program: str
    evidence_min: int = 1


def dying(death: str) -> str:
    return DYING.format(death=textwrap.indent(textwrap.dedent(death), "    ").strip())


OUT_OF_MEMORY = """
used = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
resource.setrlimit(resource.RLIMIT_AS, (used + 2**26, used + 2**26))
bytearray(2**30)
"""

BUGS = [
    Bug("SIGKILL", "crash/SIGKILL", dying("os.kill(os.getpid(), signal.SIGKILL)"), 2),
    Bug("SIGSEGV", "crash/SIGSEGV", dying("ctypes.string_at(0)"), 2),
    Bug("os._exit", "crash/exit", dying("os._exit(3)"), 2),
    Bug("out of memory", "crash/oom", dying(OUT_OF_MEMORY), 2),
    Bug("uncaught exception", "crash/uncaught", dying("raise KeyError('no such order')"), 2),
    Bug(
        "message delivered twice",
        "delivery/twice",
        QUEUE.format(
            delivery='deliver(f"c-{number}"); '
            'BUG and number == 1 and deliver(f"c-{number}", planted=True)'
        ),
        3,
    ),
    Bug(
        "message in the wrong conversation",
        "delivery/wrong-conversation",
        QUEUE.format(
            delivery='wrong = BUG and number == 2; deliver("c-0" if wrong else f"c-{number}", wrong)'
        ),
        2,
    ),
    Bug("tool call as text", "call-as-text", AS_TEXT),
    Bug("one execution, many deliveries", "duplicate-result/deliveries", MANY_DELIVERIES, 2),
    Bug("verifier failure taken for agent failure", "infrastructure/verifier", VERIFIER),
]

_table: list[str] = []


@pytest.fixture(scope="module", autouse=True)
def _printed() -> Iterator[None]:
    yield
    print("\n" + "\n".join(_table))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_planted_bug_is_found_with_its_cause(
    home: Home, run_program: RunProgram, bug: Bug
) -> None:
    run_program(BEGIN + bug.program, "bug", command=VESTIGE_RUN)
    found = all_findings(home)
    (match,) = [finding for finding in found if finding.kind == bug.kind]
    with evidence_of(home) as evidence:
        (planted,) = [span for span in evidence.run.spans if span.attributes.get("planted")]
        known = set(evidence.spans)
    _table.append(
        f"{bug.name:<42} {match.kind:<30} {match.severity:<8} {match.confidence:<5} "
        f"{match.command:<22} {match.message[:90]}"
    )

    assert match.cause == planted.id
    assert planted.id in match.evidence and len(match.evidence) >= bug.evidence_min
    assert set(match.evidence) <= known
    assert match.severity == "error"
    assert [f.kind for f in found if f.severity == "error"] == [bug.kind]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_same_program_without_the_bug_has_no_such_finding(
    home: Home, run_program: RunProgram, bug: Bug
) -> None:
    run_program(BEGIN + bug.program, "well", command=VESTIGE_RUN)

    assert [finding.kind for finding in all_findings(home) if finding.severity != "hint"] == []
