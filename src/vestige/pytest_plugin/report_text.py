"""Text of pytest reports: pure functions over reports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import TracebackType
from typing import Any

_OF_SUBTESTS = r"contains \d+ failed subtests?"
"""The message of pytest for a test with failed subtests."""

_FILES = {"stdout": "stdout.txt", "stderr": "stderr.txt", "log": "captured.log"}


def message_of(report: Any) -> str:
    """Return the failure message without the traceback. Setup and teardown are named."""
    crash = getattr(getattr(report, "longrepr", None), "reprcrash", None)
    message = getattr(crash, "message", None) or _last_line(text_of(report))
    when = getattr(report, "when", "call")
    return f"{when}: {message}" if when in ("setup", "teardown") else str(message)


def _last_line(text: str) -> str:
    """Return the last line of a failure as the terminal shows it, without its mark."""
    return text.strip().rpartition("\n")[2].removeprefix("E  ").strip()


def trace_of(error: BaseException) -> TracebackType | None:
    """Its traceback without the frames by which pytest, with the hooks of plugins, came to the test
    or the fixture."""
    begin = at = error.__traceback__
    while at is not None and at.tb_next is not None:
        if _package(at) == "pluggy":
            begin = at.tb_next
        at = at.tb_next
    while begin is not None and begin.tb_next is not None and _package(begin) == "_pytest":
        begin = begin.tb_next
    return begin


def _package(trace: TracebackType) -> str:
    return str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0]


def text_of(report: Any) -> str:
    """The whole failure, as the terminal shows it."""
    return str(getattr(report, "longreprtext", "") or getattr(report, "longrepr", "") or "")


def reason_of(report: Any) -> str:
    """Return the reason of a skip or an expected failure."""
    expected = getattr(report, "wasxfail", None)
    if expected is not None:
        return f"xfail: {expected}" if expected else "xfail"
    longrepr = report.longrepr
    if isinstance(longrepr, tuple) and len(longrepr) == 3:
        return str(longrepr[2]).removeprefix("Skipped: ")
    return str(longrepr or "")


def message_of_pass(report: Any) -> str:
    """Empty, unless it is a subtest's, or it was expected to fail."""
    if getattr(report, "context", None) is not None:
        return subtest_of(report) or ""
    expected = getattr(report, "wasxfail", None)
    return "" if expected is None else f"xpass: {expected}"


def subtest_of(report: Any) -> str | None:
    """Return the name of a subtest; None if the report is the test's own."""
    context = getattr(report, "context", None)
    if context is None:
        return None
    described = [f"[{context.msg}]"] if context.msg is not None else []
    if context.kwargs:
        arguments = ", ".join(f"{name}={value}" for name, value in context.kwargs.items())
        described.append(f"({arguments})")
    return " ".join(described) or "(<subtest>)"


def is_of_subtests(report: Any) -> bool:
    """Check whether a test fails only because of its subtests, whose error is plain text."""
    longrepr = getattr(report, "longrepr", None)
    return isinstance(longrepr, str) and re.fullmatch(_OF_SUBTESTS, longrepr) is not None


def files_of(report: Any, failure: bool = True) -> Iterator[tuple[str, str]]:
    """Yield name and content of the files of a failure: its text, output and logs."""
    text = text_of(report)
    if text and failure:
        yield "failure.txt", text
    for kind, name in _FILES.items():
        parts = [
            (title, content)
            for title, content in getattr(report, "sections", ())
            if title.startswith(f"Captured {kind} ") and content
        ]
        if len(parts) == 1:
            yield name, parts[0][1]
        elif parts:
            yield name, "\n".join(f"--- {title} ---\n{content}" for title, content in parts)
