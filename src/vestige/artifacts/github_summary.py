"""A step summary for GitHub: the failed cases of a suite.

write_step_summary(suite.path, suite.cases)      # does nothing outside of GitHub Actions
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.artifacts.text_sanitizer import single_line
from vestige.formats.artifacts.write import read_cases
from vestige.record.coercion import truncate

if TYPE_CHECKING:
    from vestige.formats.artifacts.trace_events import CaseResult

VARIABLE = "GITHUB_STEP_SUMMARY"
_CASES_SHOWN = 50
_MESSAGE_SHOWN = 300
"""GitHub refuses a summary above 1 MiB, and more failures would not be read."""


def render_step_summary(folder: Path, cases: Sequence[CaseResult] | None = None) -> str:
    """Return Markdown: counts, then the failed cases with their first message."""
    cases_read, counts = read_cases(folder)
    last = {case.name: case for case in (cases_read if cases is None else cases)}
    failing = [case for case in last.values() if case.outcome in ("fail", "unknown")]
    lines = [
        f"### {_plain(folder.parent.name)}: {len(failing)} of {len(last)} cases failed",
        "",
        f"{counts.passed} assertions passed, {counts.fail} failed, {counts.skip} skipped. "
        f"Bundle: `{folder.parent.name}/{folder.name}`.",
    ]
    if failing:
        lines += ["", "| case | outcome | message |", "| --- | --- | --- |"]
    for case in failing[:_CASES_SHOWN]:
        message = case.failures[0] if case.failures else ""
        lines.append(f"| {_plain(case.name)} | {case.outcome} | {_plain(message)} |")
    if len(failing) > _CASES_SHOWN:
        lines += ["", f"... and {len(failing) - _CASES_SHOWN} more."]
    if failing:
        lines += ["", "Run them again: `vestige bundle repro` with the folder of the bundle."]
    return "\n".join(lines) + "\n\n"


def write_step_summary(
    folder: Path,
    cases: Sequence[CaseResult] | None = None,
    environment: Mapping[str, str] | None = None,
) -> bool:
    """Append the summary to the file that GitHub names. Returns False without such a file."""
    path = (os.environ if environment is None else environment).get(VARIABLE)
    if not path:
        return False
    try:
        with open(path, "a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(render_step_summary(folder, cases))
    except OSError:
        return False  # a summary that cannot be written fails no suite
    return True


def _plain(text: str) -> str:
    """Escape Markdown and HTML, and put the text on one line."""
    text = truncate(single_line(text), _MESSAGE_SHOWN)
    for char, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(char, escaped)
    return "".join(f"\\{char}" if char in "\\`*_[]|~#@!" else char for char in text)
