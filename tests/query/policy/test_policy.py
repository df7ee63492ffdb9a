"""A policy is a short TOML file; each rule that a run breaks is a finding on the span."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import vestige
from vestige import Recorder
from vestige.cli.main import cli
from vestige.errors import UsageError
from vestige.home import Home
from vestige.query.policy.policy import parse_policy

POLICY = b"""
[tools]
allow = ["look_up_order", "refund", "delete_*"]
deny = ["delete_*"]
require = ["confirm"]
order = ["look_up_order", "refund"]

[[arguments]]
tool = "refund"
path = "order.amount"
max = 100

[[arguments]]
tool = "look_up_order"
path = "id"
matches = "A-[0-9]+"

[models]
allow = ["gpt-4o*"]

[limits]
tool_calls = 3
"""


@pytest.fixture
def run(home: Home) -> str:
    """Record a run that breaks every rule of the policy."""
    calls = [
        ("refund", '{"order": {"amount": 250}}'),
        ("look_up_order", '{"id": "seven"}'),
        ("delete_order", "{}"),
        ("send_mail", "{}"),
    ]
    with Recorder(home) as recorder, recorder.run("desk") as run:
        run.span("chat", "llm", {"model": "other-1"}).end()
        for name, arguments in calls:
            run.span(name, "tool", body=arguments).end(body="done")
        return run.run_id


def test_each_broken_rule_is_a_finding_on_its_span(home: Home, run: str) -> None:
    with vestige.open(home) as debugger:
        answer = debugger.check(run, policy=parse_policy(POLICY, "policy.toml"))

    names = {span.id: span.name for span in answer.run.spans}
    found = {
        (finding.kind, names.get(finding.cause or ""))
        for finding in answer.report.findings
        if finding.check == "policy"
    }
    assert found == {
        ("policy/tool-not-allowed", "send_mail"),
        ("policy/tool-denied", "delete_order"),
        ("policy/tool-missing", None),
        ("policy/tool-order", "refund"),
        ("policy/argument", "refund"),
        ("policy/argument", "look_up_order"),
        ("policy/model-not-allowed", "chat"),
        ("policy/limit-tool-calls", None),
    }
    assert answer.exit_code == 1


def test_a_run_that_keeps_the_policy_has_no_finding_of_it(home: Home, run: str) -> None:
    rules = b'[tools]\nrequire = ["refund"]\n[limits]\ntool_calls = 4\ntokens = 10\n'

    with vestige.open(home) as debugger:
        answer = debugger.check(run, policy=parse_policy(rules, "policy.toml"))

    assert not [finding for finding in answer.report.findings if finding.check == "policy"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[limits]\ntokens = 'many'", "p.toml: limits.tokens: is a text (expected a whole number"),
        (
            b"[limits]\ntokens = -5",
            "p.toml: limits.tokens: out of range (expected a whole number, 0",
        ),
        (b"[tools]\ndeny = 'x'", "p.toml: tools.deny: is a text (expected a list)"),
        (
            b"[tool]\ndeny = []",
            "p.toml: unknown key tool (expected tools, arguments, models, hosts",
        ),
        (b"[tools]\ndenny = []", "p.toml: tools: unknown key denny (expected allow, deny, require"),
        (b"[[arguments]]\ntool = 'x'", "p.toml: arguments[0]: the key path is missing"),
        (b"[[arguments]]\ntool = 'x'\npath = 'y'", "arguments of x: no condition on y"),
        (b"", "p.toml: no rules (expected at least one of tools"),
        (b"[tools", "p.toml: not valid TOML"),
        (b"\xff", "p.toml: not valid TOML"),
        (b"[[arguments]]\ntool = 'x'\npath = 'y'\nmatches = '('", "is not a regular expression"),
    ],
)
def test_an_invalid_policy_names_the_place(text: bytes, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_policy(text, "p.toml")

    assert message in str(caught.value)


def test_a_missing_policy_file_is_a_clear_error(home: Home, run: str, tmp_path: Path) -> None:
    options = ["check", run, "--home", str(home.root), "--policy", str(tmp_path / "none.toml")]

    result = CliRunner().invoke(cli, options)

    assert result.exit_code == 3 and "none.toml: cannot be read" in result.stderr
