"""Bugs of the catalogue that are whole programs: crashes, queues, tools, verifiers.

Each is a program that does it if its argument is `bug`, run under `vestige run`. The span that is
to be found carries the attribute `planted`.
"""

from __future__ import annotations

import sys
import textwrap

from support.bug import Bug, Planted
from support.planted_bugs import evidence_of
from support.programs import run_in
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
        attributes = dict(keys, target_conversation_id=f"c-{{number}}")
        with run.span("put", type="queue.enqueue", attributes=attributes) as put:
            pass
        def deliver(conversation_id, planted=False):
            attributes = dict(keys, conversation_id=conversation_id)
            with run.span("deliver", type="queue.deliver", attributes=attributes) as span:
                span.add_link(put)
                if planted:
                    span.set_attributes(planted=True)
        {delivery}
"""

MODEL = """
TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {
    "type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}}}]
MESSAGES = [{"role": "user", "content": "Search for refunds, please."}]
FUNCTION = {"name": "search", "arguments": '{"q": "refund"}'}
CALL = {"id": "call_1", "type": "function", "function": FUNCTION}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "3 found"}

def think(run, message, finish, **attributes):
    body = json.dumps({"model": "gpt-4o", "messages": MESSAGES, "tools": TOOLS})
    attributes["model"] = "gpt-4o"
    with run.span("chat", type="llm", attributes=attributes, body=body) as span:
        span.end(body=json.dumps({"object": "chat.completion", "model": "gpt-4o",
            "choices": [{"index": 0, "message": message, "finish_reason": finish}]}))

def search(run):
    attributes = {"tool_call_id": "call_1"}
    with run.span("search", type="tool", attributes=attributes, body='{"q": "refund"}') as span:
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
        turn = {"role": "assistant", "content": None, "tool_calls": [CALL]}
        think(run, turn, "tool_calls")
        search(run)
        MESSAGES += [turn, RESULT]
        think(run, {"role": "assistant", "content": "There are 3."}, "stop")
"""
)

MANY_DELIVERIES = (
    MODEL
    + """
with recorder.run("agent") as run:
    turn = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    think(run, turn, "tool_calls")
    search(run)
    MESSAGES += [turn]
    MESSAGES += [RESULT] * (3 if BUG else 1)
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


def dying(death: str) -> str:
    return DYING.format(death=textwrap.indent(textwrap.dedent(death), "    ").strip())


OUT_OF_MEMORY = """
used = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
resource.setrlimit(resource.RLIMIT_AS, (used + 2**26, used + 2**26))
bytearray(2**30)
"""

TWICE = QUEUE.format(
    delivery='deliver(f"c-{number}"); BUG and number == 1 and deliver(f"c-{number}", planted=True)'
)
ELSEWHERE = QUEUE.format(
    delivery='wrong = BUG and number == 2; deliver("c-0" if wrong else f"c-{number}", wrong)'
)


def program_bug(name: str, how: str, kind: str, program: str, evidence_min: int) -> Bug:
    def plant(home: Home, bug: bool) -> Planted:
        run_in(home, BEGIN + program, "bug" if bug else "well", command=VESTIGE_RUN)
        with evidence_of(home) as evidence:
            marked = [span.id for span in evidence.run.spans if span.attributes.get("planted")]
        return Planted(marked[0] if marked else "nothing is planted")

    # That the verifier failed is measured; that the agent did not is a conclusion.
    basis = "hypothesis" if program == VERIFIER else "measured"
    return Bug(name, how, kind, plant, evidence_min=evidence_min, basis=basis)


PROGRAMS = [
    program_bug(*row)
    for row in (
        (
            "crash: SIGKILL",
            "the process kills itself inside a tool",
            "crash/SIGKILL",
            dying("os.kill(os.getpid(), signal.SIGKILL)"),
            2,
        ),
        (
            "crash: SIGSEGV",
            "a tool reads address 0",
            "crash/SIGSEGV",
            dying("ctypes.string_at(0)"),
            2,
        ),
        ("crash: os._exit", "a tool leaves with status 3", "crash/exit", dying("os._exit(3)"), 2),
        (
            "crash: out of memory",
            "a tool wants 1 GiB under a limit",
            "crash/oom",
            dying(OUT_OF_MEMORY),
            2,
        ),
        (
            "crash: uncaught exception",
            "a tool raises KeyError",
            "crash/uncaught",
            dying("raise KeyError('no such order')"),
            2,
        ),
        ("message delivered twice", "a queue delivers one again", "delivery/twice", TWICE, 3),
        (
            "message in the wrong conversation",
            "a queue delivers to another conversation",
            "delivery/wrong-conversation",
            ELSEWHERE,
            2,
        ),
        (
            "tool call as text",
            "the model writes the call as JSON text",
            "call-as-text",
            AS_TEXT,
            1,
        ),
        (
            "one execution, many deliveries",
            "the history holds one result three times",
            "duplicate-result/deliveries",
            MANY_DELIVERIES,
            2,
        ),
        (
            "verifier failure taken for agent failure",
            "the verifier's program does not exist",
            "infrastructure/verifier",
            VERIFIER,
            1,
        ),
    )
]
