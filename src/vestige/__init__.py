"""Vestige: the flight recorder and debugger for AI agents.

    import vestige

    recorder = vestige.Recorder()
    with recorder.run("triage") as run:
        with run.span("search", type="tool") as span: ...

    @vestige.trace
    def plan(goal): ...

    @vestige.tool
    def search(query): ...

    with vestige.open() as debugger:
        print(debugger.overview("r7"))

This import loads only msgspec and the standard library. Names that need more
(`LoggingHandler`, `open`, `auto`, `instrument_*`, `capture_http`) are loaded on first use.

PYTEST_DONT_REWRITE: pytest would rewrite a plugin's package, and warn if it is loaded already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vestige.emit.logger import Logger
from vestige.emit.no_op import current_span
from vestige.emit.span import Span
from vestige.errors import VestigeError
from vestige.process_recorder import child_environment, default_recorder
from vestige.record.redaction.masking import mask
from vestige.recorder import Recorder

if TYPE_CHECKING:
    from vestige._version import __version__
    from vestige.boot import auto
    from vestige.emit.hooks.logging_capture import LoggingHandler
    from vestige.emit.tools import tool, tool_call
    from vestige.emit.tracing import trace, traced_run
    from vestige.integrations.sdk_call_arguments import (
        instrument_anthropic,
        instrument_openai,
        uninstrument,
    )
    from vestige.transfer import open_path as open  # noqa: A004  # as gzip.open and others
    from vestige.wire.capture import capture_http, warm

__all__ = [
    "Logger",
    "LoggingHandler",
    "Recorder",
    "Span",
    "VestigeError",
    "__version__",
    "auto",
    "capture_http",
    "child_environment",
    "current_span",
    "default_recorder",
    "instrument_anthropic",
    "instrument_openai",
    "mask",
    "open",
    "tool",
    "tool_call",
    "trace",
    "traced_run",
    "uninstrument",
    "warm",
]


def __getattr__(name: str) -> Any:
    if name in ("trace", "traced_run", "tool", "tool_call"):
        from vestige.emit import tools, tracing

        found = globals()[name] = getattr(tools if name.startswith("tool") else tracing, name)
        return found
    if name == "__version__":
        from vestige._version import __version__

        return __version__
    if name == "auto":
        from vestige.boot import auto

        return auto
    if name == "LoggingHandler":
        from vestige.emit.hooks.logging_capture import LoggingHandler

        return LoggingHandler
    if name == "open":
        from vestige.transfer import open_path

        return open_path
    if name in ("instrument_anthropic", "instrument_openai", "uninstrument"):
        from vestige.integrations import sdk_call_arguments

        return getattr(sdk_call_arguments, name)
    if name in ("capture_http", "warm"):
        from vestige.wire import capture

        return getattr(capture, name)
    raise AttributeError(f"module 'vestige' has no attribute {name!r}")
