"""Open, name and end runs: the active one and the implicit one.

A traced run is an ordinary run of a recorder, in the journal of the home; `LiveRun` also writes
its records into a run directory. So the active run is that of the current span, and threads,
tasks and forks inherit it like any span.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any

from vestige._runtime.clock import SYSTEM
from vestige.agentdbg import settings as settings_module
from vestige.agentdbg.guardrails import Guardrails
from vestige.agentdbg.live_run import LIVE, LiveRun, extra_keys
from vestige.agentdbg.settings import Settings, read_settings
from vestige.emit import context
from vestige.emit.exception_attributes import status_of
from vestige.emit.span import Span
from vestige.record.coercion import clean_text
from vestige.record.json_render import json_text
from vestige.recorder import Recorder

COMPONENT = "agent"

_recorder: Recorder | None = None
_recorder_home: str | None = None
_implicit: LiveRun | None = None
_lock = threading.RLock()


def recorder() -> Recorder:
    """The recorder of all traced runs. It samples nothing away: a run directory is whole."""
    global _recorder, _recorder_home
    home = os.environ.get("VESTIGE_HOME")
    known = _recorder
    if known is not None and _serves(known, home):
        return known
    with _lock:
        known = _recorder
        if known is not None and _serves(known, home):  # another thread was first
            return known
        _recorder, _recorder_home = Recorder(sample=1.0), home
        # Registered after the recorder's own handler, because the last one is called first.
        atexit.unregister(_end_open_runs)
        atexit.register(_end_open_runs)
        return _recorder


def _serves(known: Recorder, home: str | None) -> bool:
    return home == _recorder_home and not (known._closed and known.enabled)


def active() -> LiveRun | None:
    """Return the run that this code is part of."""
    span = context.SPAN.get()
    return None if span is None else LIVE.get(span.run_id)


def parent_span() -> Span | None:
    """Return the span in which a record of this code belongs."""
    span = context.SPAN.get()
    if span is not None:
        return span
    if threading.current_thread() is not threading.main_thread():
        # A thread that was there before the run: of one open run it is a part, of two a guess.
        only = [live for live in LIVE.values() if live is not _implicit]
        if len(only) == 1:
            return only[0].root
    if _implicit is not None and _implicit.run_id in LIVE:
        return _implicit.root
    return _implicit_run() if settings_module.wants_implicit_run() else None


def open_run(name: str, settings: Settings, limits: Guardrails) -> Span:
    """Open a run: its root span and its directory. Falsy if recording is off."""
    source = recorder()
    if source._closed:
        return source.run(name)
    if keys := extra_keys(settings):
        source._writer.redactor.add_keys(keys)
    live: list[LiveRun] = []

    def begin(run_id: str) -> None:
        live.append(LiveRun(run_id, settings, limits, source))

    root = source.run(name, attributes=_process(source, settings), component=COMPONENT, on_id=begin)
    live[0].root = root
    return root


def end_run(root: Span, error: BaseException | None = None) -> None:
    """End a run, with the `error` that left it, if any.

    An exceeded limit fails it even if the exception was caught.
    """
    live = LIVE.get(root.run_id)
    if live is not None and live.root is not root:
        live = None
    if error is None and live is not None:
        error = live.broken
    if isinstance(error, GeneratorExit):
        # The consumer of a generator stopped early: the run did not fail.
        root.end(attributes={"closed_early": True})
    elif error is not None and status_of(error) == "ok":
        root.end(attributes={"exit_code": 0})  # sys.exit(0)
    else:
        root.end(error)


def default_name(function: Callable[..., Any] | None) -> str:
    """`path:function - YYYY-MM-DD HH:MM`, in local time; `run - ...` without a function."""
    minute = datetime.fromtimestamp(SYSTEM.now_ns() // 1_000_000_000).strftime("%Y-%m-%d %H:%M")
    if function is None:
        return f"run - {minute}"
    called = getattr(function, "__name__", None) or type(function).__name__
    code = getattr(function, "__code__", None)
    path = getattr(code, "co_filename", "") or ""
    if path and not path.startswith("<"):
        try:
            path = os.path.relpath(path)
        except (OSError, ValueError):  # a working directory that is gone; another drive
            pass
    return clean_text(f"{path}:{called} - {minute}" if path else f"{called} - {minute}")


def run_name(explicit: Any, function: Callable[..., Any] | None) -> str:
    """Return the name from the environment, else from the program, else one from the place and
    time."""
    return settings_module.run_name() or (str(explicit) if explicit else default_name(function))


def _process(source: Recorder, settings: Settings) -> dict[str, Any]:
    words = [clean_text(str(word)) for word in getattr(sys, "argv", None) or sys.orig_argv[1:]]
    if settings.redact:
        words = source.redact_argv(words)
    try:
        folder = clean_text(os.getcwd())
    except OSError:
        folder = ""
    return {
        "python": sys.version.split()[0],
        "platform": sys.platform,
        "cwd": folder,
        "argv": json_text(words, 8_000),
    }


# --- the implicit run, and the end of the process ------------------------------------------------


def _implicit_run() -> Span | None:
    """Return the run for records outside any run: one per process, until it exits."""
    global _implicit
    with _lock:
        if _implicit is None or _implicit.run_id not in LIVE:
            found = read_settings()
            root = open_run(settings_module.run_name() or "implicit", found, found.guardrails)
            _implicit = LIVE.get(root.run_id)
        return None if _implicit is None else _implicit.root


def _end_open_runs() -> None:
    """Finish the implicit run at exit, and mark other open runs as not ended."""
    for live in list(LIVE.values()):
        root = live.root
        if root is None:
            continue
        death = live._recorder._writer.self_reporter.death
        if live is _implicit or live.broken is not None:
            end_run(root, death)
        else:
            root.end(status="interrupted")


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
