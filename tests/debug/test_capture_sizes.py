"""How much a capture takes: counted in bytes, in a process of its own."""

from __future__ import annotations

import json

import pytest

from support.programs import RunProgram

MEASURE = """
import json, logging, os, sys
from pathlib import Path
from vestige.debug import *

def memory(what):
    for line in open("/proc/self/status"):
        if line.startswith(what):
            return int(line.split()[1]) * 1024

session = Session()
builder = DebugBundleBuilder(session=session, agent=AgentInfo("a", "b", "c"))
log = logging.getLogger("app")

def tools():
    for number in range(300):
        result = (f"result {number} " * 300)[:2048]
        session.dispatcher.dispatch(
            ToolInvoked(
                name="t", params={"q": number}, result=result, session_id=session.session_id
            )
        )

def lines():
    for number in range(100_000):
        log.info("message %d", number, extra={"event": "e", "context": {"call": number}})

# Once, so that what is imported on first use is not counted as the capture's.
other = DebugBundleBuilder(session=Session(), agent=AgentInfo("a", "b", "c"))
with other.capture():
    log.info("x", extra={"context": {"a": [1]}})
other.finalize().export("warm.wink")

before = memory("VmRSS")
with builder.capture():
    {"tools": tools, "lines": lines}[sys.argv[1]]()
bundle = builder.finalize()
spool = builder._capture.spool.home.root
spool_bytes = sum(path.stat().st_size for path in spool.rglob("*") if path.is_file())
path = bundle.export("out.wink")
loaded = DebugBundle.load(path)
print(json.dumps({
    "memory": memory("VmHWM") - before,
    "spool": spool_bytes,
    "snapshots": loaded.manifest.component("snapshots").entry_count,
    "snapshot_bytes": loaded.manifest.component("snapshots").size_bytes,
    "logs": loaded.manifest.component("logs").entry_count,
}))
"""


@pytest.mark.slow
def test_a_snapshot_per_tool_call_is_not_quadratic(run_program: RunProgram) -> None:
    """300 tool calls with 2 kB results and a snapshot each: over 90 MB of snapshots, from a spool
    below 5 MB, with less than 50 MB of memory."""
    done = run_program(MEASURE, "tools", timeout_s=120)
    found = json.loads(done.stdout)

    assert found["snapshots"] == 302
    assert found["snapshot_bytes"] > 90_000_000
    assert found["spool"] < 5_000_000
    assert found["memory"] < 50_000_000


@pytest.mark.full  # 6 s of CPU
def test_a_hundred_thousand_log_records_are_all_there(run_program: RunProgram) -> None:
    """The count is exact, and memory does not grow with it."""
    done = run_program(MEASURE, "lines", timeout_s=120)
    found = json.loads(done.stdout)

    assert found["logs"] == 100_000
    assert found["memory"] < 60_000_000
