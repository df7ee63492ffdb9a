"""The examples in examples/deploy: what they start exists, with the options that they give."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from vestige.cli.main import cli

DEPLOY = Path(__file__).parent.parent / "examples" / "deploy"


def _check_command(words: list[str]) -> None:
    """As click would parse it, without doing it."""
    command: click.Command = cli
    context = click.Context(cli, info_name="vestige")
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, words
        command, words = found, words[1:]
    command.make_context("vestige", list(words), parent=context)


def _unit() -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # systemd
    unit.read(DEPLOY / "vestige.service")
    return unit


def test_the_unit_starts_a_command_that_exists() -> None:
    """ExecStart, and the key that its comment says to make first."""
    unit = _unit()
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    commands = re.findall(r"vestige server (keys add .*)", (DEPLOY / "vestige.service").read_text())

    assert program.endswith("/vestige")
    assert unit["Service"]["Environment"].startswith("VESTIGE_HOME=/var/lib/vestige")
    assert commands
    for each in (words, *map(shlex.split, commands)):
        _check_command(each)


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    """`systemd-analyze verify`, with a program and a user that are there."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd here")
    text = (DEPLOY / "vestige.service").read_text()
    text = text.replace("/opt/vestige/bin/vestige", "/bin/true").replace("=vestige\n", "=root\n")
    unit = tmp_path / "vestige.service"
    unit.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=120,
    )

    about_it = [line for line in done.stderr.splitlines() if "vestige.service" in line]
    assert about_it == []


def test_the_container_starts_a_command_that_exists() -> None:
    """ENTRYPOINT with CMD, and the commands in its comment."""
    text = (DEPLOY / "Containerfile").read_text()
    entry = json.loads(re.findall(r"^ENTRYPOINT (.*)", text, re.MULTILINE)[0])
    words = json.loads(re.findall(r"^CMD (.*)", text, re.MULTILINE)[0])
    health = json.loads(re.findall(r"^HEALTHCHECK .* CMD (.*)", text, re.MULTILINE)[0])
    commands = re.findall(r"^# .* vestige server (keys .*)", text, re.MULTILINE)

    assert entry == ["/opt/vestige/bin/vestige"]
    assert commands
    for each in (words, *map(shlex.split, commands)):
        _check_command(each)
    compile(health[2], "healthcheck", "exec")
    assert "/healthz" in health[2]
    for source in re.findall(r"^COPY (?!--from)(\S+)", text, re.MULTILINE):
        assert (DEPLOY.parent.parent / source).exists()
