"""Findings for a GitHub workflow: annotations on the log, and a summary of the step.

https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vestige.formats.protocol import Problem, ValidationResult


def annotate(problem: Problem) -> str:
    """Render a problem as one workflow command on one line."""
    properties = {"file": problem.file, "title": problem.rule}
    line = re.match(r"line (\d+)", problem.place)
    if line is not None:
        properties["line"] = line[1]
    where = f"{problem.place}: " if problem.place else ""
    message = f"{where}{problem.message} {problem.hint}".strip()
    return _render_command(problem.severity, properties, message)


def render_annotation(severity: str, title: str, message: str) -> str:
    """Render a message about no file as one workflow command."""
    return _render_command(severity, {"title": title}, message)


def _render_command(severity: str, properties: Mapping[str, str], message: str) -> str:
    rendered = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{severity} {rendered}::{_data(message)}"


def append_summary(markdown: str) -> None:
    """Append Markdown to the summary of the step, if there is one."""
    target = os.environ.get("GITHUB_STEP_SUMMARY")
    if target:
        with open(target, "a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(markdown)


def write_summary(results: Iterable[tuple[str, ValidationResult]]) -> None:
    """Append verdicts and failing cases to the summary of the step, if there is one."""
    target = os.environ.get("GITHUB_STEP_SUMMARY")
    if not target:
        return
    with open(target, "a", encoding="utf-8", errors="backslashreplace") as file:
        for format, checked in results:  # noqa: A001  # `format` is the usual word
            verdict = "valid" if checked.valid else "**invalid**"
            name = _suite_of(Path(checked.path)) or checked.path
            file.write(f"### {_code(name)}: {verdict} ({format})\n\n")
            file.write(_cases_of(Path(checked.path)))


def _suite_of(path: Path) -> str:
    """Return the name of a bundle's suite; empty if it is not a bundle or unreadable."""
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
    """Escape foreign text so that it has one line and no terminal control characters."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )


def _code(text: str) -> str:
    """Render text as inline code in Markdown, without markup or links."""
    return f"`{plain(text)[:300].replace('`', chr(39))}`"


def _data(text: str) -> str:
    """Escape a message so that it has one line and contains no workflow command."""
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return plain(escaped)


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
