"""Vestige: the flight recorder and debugger for AI agents.

    import vestige

    recorder = vestige.Recorder()
    with recorder.run("triage") as run:
        with run.span("search", type="tool") as span: ...

    @vestige.trace
    def plan(goal): ...

    with vestige.open() as debugger:
        print(debugger.overview("r7"))

This import loads msgspec and the standard library, nothing else. What needs more
(`LoggingHandler`, `open`) loads when it is first asked for.

PYTEST_DONT_REWRITE: pytest would rewrite the package of a plugin, and warn where it is loaded already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vestige._version import __version__
from vestige.emit.ambient import trace, traced_run
from vestige.emit.logger import Logger
from vestige.emit.null import current_span
from vestige.emit.span import Span
from vestige.errors import VestigeError
from vestige.record.mask import mask
from vestige.recorder import Recorder, child_environment, default_recorder

if TYPE_CHECKING:
    from vestige.emit.logging_bridge import LoggingHandler
    from vestige.transfer import open_path as open  # noqa: A004  # as gzip.open and others

__all__ = [
    "Logger",
    "LoggingHandler",
    "Recorder",
    "Span",
    "VestigeError",
    "__version__",
    "child_environment",
    "current_span",
    "default_recorder",
    "mask",
    "open",
    "trace",
    "traced_run",
]


def __getattr__(name: str) -> Any:
    if name == "LoggingHandler":
        from vestige.emit.logging_bridge import LoggingHandler

        return LoggingHandler
    if name == "open":
        from vestige.transfer import open_path

        return open_path
    raise AttributeError(f"module 'vestige' has no attribute {name!r}")
