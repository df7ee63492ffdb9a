"""The documentation, executed: its examples run, its links exist, and it explains all there is.

A page is one program: its ```python blocks run in order, in one process with a home of its own.
Then its ```console blocks: every line `$ vestige ...` must end with status 0.
A block named after a file (```python agent.py) is also written to it, for the commands to use.
`no-run` in a block's first line leaves it out.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

import vestige
from vestige.cli.main import LISTED, cli

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/**/*.md")])
WRITTEN = [page for page in PAGES if "reference" not in page.parts]

BLOCK = re.compile(r"(?ms)^```(\w+)([^\n]*)\n(.*?)^```$")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"(?m)^#+ (.+)$")
PROGRAM = (
    "import sys; exec(compile(sys.stdin.read(), sys.argv[1], 'exec'), {'__name__': '__main__'})"
)


class Block(NamedTuple):
    info: str
    text: str
    line: int


def _read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def _blocks(page: Path, language: str) -> Iterator[Block]:
    text = _read(page)
    for found in BLOCK.finditer(text):
        if found[1] == language and "no-run" not in found[2]:
            yield Block(found[2].strip(), found[3], text.count("\n", 0, found.start(3)))


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _with(language: str) -> list[Path]:
    return [page for page in PAGES if any(_blocks(page, language))]


def _run(command: list[str] | str, folder: Path, text: str = "") -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command,
        input=text,
        shell=isinstance(command, str),
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env={**os.environ, "PATH": path, "VESTIGE_HOME": str(folder / "home")},
    )

    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", _with("python"), ids=_name)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    """Every block is on its page's own line, so that a traceback points there."""
    program = ""
    for block in _blocks(page, "python"):
        program += "\n" * (block.line - program.count("\n")) + block.text

    _run([sys.executable, "-c", PROGRAM, str(page)], tmp_path, program)


@pytest.mark.parametrize("page", _with("console"), ids=_name)
def test_the_commands_of_a_page_succeed(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They use the first program of the README, or the page's own, as a reader would."""
    monkeypatch.chdir(tmp_path)
    for block in (*_blocks(ROOT / "README.md", "python"), *_blocks(page, "python")):
        if block.info.endswith(".py"):
            (tmp_path / block.info).write_text(block.text, encoding="utf-8")
    for block in _blocks(page, "console"):
        for line in block.text.splitlines():
            if line.startswith("$ vestige run "):
                _run(line.removeprefix("$ "), tmp_path)
            elif line.startswith("$ vestige "):
                _call(line.removeprefix("$ vestige "), tmp_path / "home")


def _call(arguments: str, home: Path) -> None:
    """A command without the price of a process: there are many, and they only read."""
    done = CliRunner().invoke(cli, shlex.split(arguments), env={"VESTIGE_HOME": str(home)})

    assert done.exit_code == 0, f"vestige {arguments}\n{done.output}"


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    """Relative ones, to a file and, where they name one, to a heading in it."""
    broken = []
    for target in LINK.findall(BLOCK.sub("", _read(page))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in _anchors(file)):
            broken.append(target)

    assert broken == []


def _anchors(page: Path) -> set[str]:
    """As GitHub makes them: lower case, spaces to dashes, punctuation out."""
    titles = HEADING.findall(_read(page))
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_command_is_explained() -> None:
    """In prose, not only in the generated reference."""
    prose = "\n".join(map(_read, WRITTEN))
    missing = [name for name in LISTED if f"vestige {name}" not in prose]

    assert missing == []


def test_every_public_name_is_explained() -> None:
    prose = "\n".join(map(_read, WRITTEN))
    missing = [name for name in vestige.__all__ if not re.search(rf"\b{name}\b", prose)]

    assert missing == []


def test_every_setting_is_documented() -> None:
    """Whatever variable the source knows, users can look up."""
    source = "\n".join(map(_read, (ROOT / "src").rglob("*.py")))
    pages = "\n".join(map(_read, PAGES))
    missing = [name for name in set(re.findall(r"VESTIGE_[A-Z_]+\b", source)) if name not in pages]

    assert missing == []


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = set(LINK.findall(_read(folder / "README.md")))

    assert {page.name for page in folder.glob("[0-9]*.md")} == listed


def test_the_reference_says_what_the_code_says(tmp_path: Path) -> None:
    """When this fails, `make docs` writes it again."""
    _run([sys.executable, str(ROOT / "docs" / "generate.py"), "--check"], tmp_path)
