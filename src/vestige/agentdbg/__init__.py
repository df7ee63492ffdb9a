"""The AgentDbg API, recorded by Vestige: change one import and keep every file and tool.

    from vestige.agentdbg import record_tool_call, trace

    @trace
    def agent(question):
        record_tool_call("search", {"q": question}, result)

Names, signatures, settings and files are AgentDbg's: `runs/<run_id>/events.jsonl` and `run.json`
under AGENTDBG_DATA_DIR or ~/.agentdbg. The same runs are in the Vestige home. Other records of a
run (spans, HTTP requests) are in its directory, too.

Elsewhere: docs/guides/agentdbg.md explains the differences.
"""

from __future__ import annotations

from vestige._version import __version__
from vestige.agentdbg.record_calls import record_llm_call, record_state, record_tool_call
from vestige.agentdbg.tracing import has_active_run, trace, traced_run
from vestige.errors import AgentDbgGuardrailExceeded, AgentDbgLoopAbort

__all__ = [
    "AgentDbgGuardrailExceeded",
    "AgentDbgLoopAbort",
    "__version__",
    "has_active_run",
    "record_llm_call",
    "record_state",
    "record_tool_call",
    "trace",
    "traced_run",
]
