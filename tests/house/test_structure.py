"""The house: folders that stay small, public paths that stay, prose that names real files."""

from __future__ import annotations

import importlib
import re
import tomllib
from collections import Counter
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import vestige
from vestige.query.debugger import Debugger

ROOT = Path(__file__).parent.parent.parent

PUBLIC = {
    "vestige": "Logger LoggingHandler Recorder Span VestigeError __version__ capture_http "
    "child_environment current_span default_recorder instrument_anthropic instrument_openai mask "
    "open tool tool_call trace traced_run uninstrument warm",
    "vestige.agentdbg": "AgentDbgGuardrailExceeded AgentDbgLoopAbort has_active_run "
    "record_llm_call record_state record_tool_call trace traced_run",
    "vestige.artifacts": "Case InvalidSuiteError Recovered Replay SuiteRecorder SuiteWriter "
    "recover write_step_summary",
    "vestige.debug": "AgentInfo BundleComponentMissingError BundleCorruptedError "
    "BundleVersionError DebugBundle DebugBundleBuilder DebugBundleError ExecutionInfo Session "
    "archive_filesystem collect_all_logs dump_session",
    "vestige.testing": "FakeRecorder MemoryJournal",
}
"""What users have in their programs, and must find there after every move."""


@pytest.mark.parametrize("module", PUBLIC)
def test_a_public_name_is_found_where_users_import_it(module: str) -> None:
    found = importlib.import_module(module)

    assert [name for name in PUBLIC[module].split() if not hasattr(found, name)] == []


def test_commands_and_entry_points_are_found_by_their_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert set(project["scripts"]) == {"vestige", "wink"}
    for target in project["scripts"].values():
        module, _, function = target.partition(":")
        assert callable(getattr(importlib.import_module(module), function))
    assert project["entry-points"]["pytest11"] == {"vestige_pytest": "vestige_pytest"}
    assert entry_points(group="vestige.checks") is not None
    checks = (ROOT / "src/vestige/query/checks/__init__.py").read_text(encoding="utf-8")
    assert 'entry_points(group="vestige.checks")' in checks


def test_every_method_of_the_debugger_is_in_the_python_reference() -> None:
    """The reference shows methods that have a docstring."""
    methods = [name for name in dir(Debugger) if not name.startswith("_")]

    assert "::: vestige.query.debugger.Debugger" in (ROOT / "docs/reference/python.md").read_text()
    assert [name for name in methods if not getattr(Debugger, name).__doc__] == []


def test_the_version_is_that_of_the_newest_release_in_the_changelog() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version, state = re.findall(r"^## (\d+\.\d+\.\d+) \((.+)\)$", changelog, re.MULTILINE)[0]

    assert vestige.__version__ == (f"{version}.dev0" if state == "unreleased" else version)


def test_a_folder_holds_at_most_twenty_modules() -> None:
    """At twenty a reader has to search; most folders hold about seven."""
    modules = Counter(path.parent for path in (ROOT / "src").rglob("*.py"))

    large = {str(folder): count for folder, count in modules.items() if count > 20}
    assert large == {}


IN_PROSE = re.compile(r"(?<![\w/.*<-])((?:[a-z_][a-z_0-9]*/)+[a-z_0-9]+\.(?:py|tsx?))\b")


def test_a_path_in_prose_names_a_file_that_exists() -> None:
    prose = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *(ROOT / "src").rglob("*.py")]
    missing = set()
    for path in prose:
        for name in IN_PROSE.findall(path.read_text(encoding="utf-8")):
            starts = (ROOT, ROOT / "src", ROOT / "src/vestige", ROOT / "web", path.parent)
            if not any((start / name).is_file() for start in starts):
                missing.add((str(path.relative_to(ROOT)), name))

    assert {row for row in missing if not row[1].startswith(FOREIGN)} == set()


BARE = re.compile(r"(?<![\w/.*<\-\"])(?!test_|your_)([a-z_0-9]+\.py)\b")
EXAMPLES = {"a.py", "app.py", "agent.py", "crash.py", "x.py"}


def test_a_file_name_in_a_source_is_that_of_a_file() -> None:
    files = {path.name for path in (ROOT / "src").rglob("*.py")} | {"hatch_build.py"} | EXAMPLES
    missing = {
        (str(path.relative_to(ROOT)), name)
        for path in (ROOT / "src").rglob("*.py")
        for name in BARE.findall(path.read_text(encoding="utf-8"))
        if name not in files
    }

    assert missing == set()


FOREIGN = ("tests/", "app/", "examples/", "src/app", "my_", "scripts/")
"""Paths in examples, which belong to the reader's own project."""


def test_no_two_decisions_have_the_same_number() -> None:
    numbers = Counter(path.name[:4] for path in (ROOT / "docs/decisions").glob("0*.md"))

    assert [number for number, count in numbers.items() if count > 1] == []


def test_every_decision_has_a_status_and_a_date() -> None:
    line = re.compile(r"^Status: \w.*\. Date: \d{4}-\d\d-\d\d\.$", re.MULTILINE)
    pages = sorted((ROOT / "docs/decisions").glob("0*.md"))

    missing = [page.name for page in pages if not line.search(page.read_text(encoding="utf-8"))]
    assert missing == []
