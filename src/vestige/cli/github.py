"""Findings for a GitHub workflow: annotations on the log, and a summary of the step.

https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vestige.formats.protocol import Problem, ValidationResult


def annotate(problem: Problem) -> str:
    """One workflow command, on one line."""
    properties = {"file": problem.file, "title": problem.rule}
    line = re.match(r"line (\d+)", problem.place)
    if line is not None:
        properties["line"] = line[1]
    told = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    where = f"{problem.place}: " if problem.place else ""
    message = f"{where}{problem.message} {problem.hint}".strip()
    return f"::{problem.severity} {told}::{_data(message)}"


def write_summary(results: Iterable[tuple[str, ValidationResult]]) -> None:
    """Append to the summary of the step, where there is one: the verdicts, and the failing cases."""
    target = os.environ.get("GITHUB_STEP_SUMMARY")
    if not target:
        return
    with open(target, "a", encoding="utf-8", errors="backslashreplace") as file:
        for format, checked in results:  # noqa: A001  # the word for it
            verdict = "valid" if checked.valid else "**invalid**"
            name = _suite_of(Path(checked.path)) or checked.path
            file.write(f"### {_code(name)}: {verdict} ({format})\n\n")
            file.write(_cases_of(Path(checked.path)))


def _suite_of(path: Path) -> str:
    """The name of a bundle's suite; empty: it is none, or cannot be read."""
    try:
        found = json.loads((path / "bundle.json").read_bytes()).get("suite")
    except (OSError, ValueError, AttributeError, RecursionError):
        return ""
    return found if isinstance(found, str) else ""


def _cases_of(path: Path) -> str:
    from vestige.artifacts.github_summary import render_step_summary
    from vestige.formats.artifacts.constants import TRACE

    return render_step_summary(path) if (path / TRACE).is_file() else ""


def plain(text: str) -> str:
    """Foreign text on one line: nothing that a terminal would obey."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )


def _code(text: str) -> str:
    """As code in Markdown: neither markup nor a link."""
    return f"`{plain(text)[:300].replace('`', chr(39))}`"


def _data(text: str) -> str:
    """A command's message: on one line, and nothing in it is a command."""
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return plain(escaped)


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
