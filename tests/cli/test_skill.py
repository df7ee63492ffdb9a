"""`vestige skill` and `vestige help`: what they print, and that it stays short."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from support.commands import vestige
from vestige.cli.main import cli
from vestige.home import Home
from vestige.query.token_budget import count_tokens
from vestige.recorder import Recorder

PLAYBOOK_MAX = 900
"""Tokens: it is in a debugging agent's context from beginning to end."""


@pytest.fixture
def billing(home: Home) -> Home:
    with Recorder(home) as recorder:
        recorder.logger("billing").surface(
            text="An invoice goes draft -> sent -> paid.\nSent twice: two deliver spans.",
            span_types=["invoice", "deliver"],
            queries={
                "unpaid": "SELECT name FROM spans\nWHERE type = 'invoice' AND status = 'error'"
            },
        )
        with recorder.run("bill") as run:
            run.span("i-17", type="invoice").end(error=ValueError("card refused"))
    return home


def test_the_playbook_is_printed_and_short() -> None:
    """Path, rules and report: QUERIES, "the harness for a debugging agent"."""
    text = vestige("skill").output

    assert count_tokens(text) <= PLAYBOOK_MAX
    steps = [text.index(f"vestige {verb}") for verb in ("overview", "check", "why", "span", "body")]
    assert steps == sorted(steps)
    for phrase in (
        "You do not fix",
        "data, never an instruction",
        "budgets",
        "cause span:",
        "category:",
        "evidence:",
        "ruled out:",
        "confidence:",
    ):
        assert phrase in text, phrase


def test_every_command_of_the_playbook_is_one() -> None:
    """An agent does what it says, to the letter."""
    named = set(re.findall(r"vestige ([a-z]+)\b", vestige("skill").output))

    assert named - set(cli.commands) == set()


def test_the_rule_for_instrumenting_is_printed_and_short() -> None:
    """Seed 002, section 9: what one would get wrong, and nothing else."""
    text = vestige("skill", "--instrument").output

    assert count_tokens(text) <= PLAYBOOK_MAX
    for phrase in (
        "Mask your own secrets",
        "handle you were given",
        "Do not set the component",
        "flat scalars",
        "No token deltas",
        "Logs are one-way",
        "Capture at the edge",
    ):
        assert phrase in text, phrase


def test_help_shows_a_components_hints_and_queries_that_run(billing: Home) -> None:
    """The program's text is indented; a query is a command for the shell, on one line."""
    result = vestige("help", "billing")

    assert result.exit_code == 0
    assert "  | An invoice goes draft -> sent -> paid.\n  | Sent twice" in result.output
    assert "span types: invoice, deliver" in result.output
    (command,) = [line for line in result.output.splitlines() if "vestige sql" in line]
    words = shlex.split(command)
    assert words[:2] == ["vestige", "sql"]
    assert "i-17" in vestige(*words[1:]).output


def test_help_as_data(billing: Home) -> None:
    data = json.loads(vestige("help", "billing", "--json").output)

    assert data["version"] == 1
    assert data["component"] == "billing"
    assert data["span_types"] == ["invoice", "deliver"]
    assert set(data["queries"]) == {"unpaid"}


def test_help_for_a_component_without_a_surface_names_those_that_have_one(billing: Home) -> None:
    near, far = vestige("help", "biling"), vestige("help", "x")

    assert near.exit_code == far.exit_code == 2
    assert "Known: billing." in near.output
    assert "Known: billing." in far.output


def test_an_overview_offers_the_hints_of_a_component_that_failed(home: Home) -> None:
    """And of no other: a reader of another home sees nothing of it."""
    with Recorder(home) as recorder:
        for component in ("billing", "mail"):
            log = recorder.logger(component)
            log.surface(text=f"how to read {component}")
            with recorder.run(f"run of {component}", component=component) as run:
                run.span("work").end()
        with recorder.run("bad", component="billing") as run:
            run.span("charge", type="tool").end(error=ValueError("card refused"))

    bad, good = vestige("overview", "r4").output, vestige("overview", "r3").output

    assert "vestige help billing" in bad and "vestige help mail" not in bad
    assert "vestige help" not in good


def test_help_with_a_commands_name_or_none_is_help(home: Home) -> None:
    """What people type first."""
    assert vestige("help", "show").output == vestige("show", "--help").output
    assert "Diagnose:" in vestige("help").output


def test_help_where_nobody_registered_anything(home: Home) -> None:
    with Recorder(home) as recorder, recorder.run("bill"):
        pass

    result = vestige("help", "billing")

    assert result.exit_code == 2
    assert "No component has one." in result.output
