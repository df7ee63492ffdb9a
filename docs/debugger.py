"""The pages about the debugger: checks from their registry, verbs from their answers.

The JSON shapes are read off real answers about a small recorded run, so a key that is
documented exists, and one that exists is documented.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import vestige
from vestige._runtime.clock import FakeClock
from vestige.home import get_home
from vestige.query.answer import Answer
from vestige.query.checks import all_checks
from vestige.query.command_tools import BY_NAME
from vestige.query.debugger import Debugger
from vestige.query.token_budget import TOKENS_MAX
from vestige.transfer import add_note

Table = Callable[[tuple[str, ...], list[tuple[str, ...]]], str]


def render_checks(table: Table) -> str:
    rows = [
        (f"[{c.name}](#{c.name})", c.title, c.severity, f"{c.confidence:.0%}") for c in all_checks()
    ]
    parts = [
        "# Checks",
        "What `vestige check` looks for. *Confidence*: of a hundred such findings, how many are "
        "really so."
        " A finding may carry a lower severity or confidence than its check. Another package adds "
        "checks"
        " through the entry point group `vestige.checks`.",
        table(("check", "finds", "severity", "confidence"), rows),
        *_render_precision(table),
    ]
    for each in all_checks():
        parts += [
            f"## {each.name}",
            f"{each.title}.",
            f"- Looks at: {each.looks_at}.\n- Severity: {each.severity}; confidence "
            f"{each.confidence:.0%}.\n"
            f"- Known to be wrong about: {each.false_positives}.\n- Version {each.version}.",
        ]
    return "\n\n".join(parts)


def _render_precision(table: Table) -> list[str]:
    """Render the precision of each kind of finding on labelled runs (bench/power.py)."""
    path = Path(__file__).parents[1] / "bench" / "precision.json"
    measured = json.loads(path.read_text(encoding="utf-8"))
    rows = [
        (f"`{kind}`", str(each["findings"]), f"{each['on_label']:.0%}")
        for kind, each in measured["kinds"].items()
    ]
    return [
        "## Measured precision",
        f"Findings on {measured['runs']} traces of agents whose errors people have labelled, and"
        " the share whose cause is a labelled span. A random model or tool call is labelled in"
        f" {measured['chance']:.0%}. Labels are not complete, so a finding off a label is not"
        " always wrong. Kinds that only cost time or money, and `history-loss`, whose share was far"
        " below chance, come after all others.",
        table(("kind", "findings", "on a label"), rows),
    ]


def render_verbs(table: Table) -> str:
    parts = [
        "# Verbs",
        "The same in the command line, in Python (`vestige.open()`) and in the MCP server. An "
        "answer is text"
        f" within a budget of tokens, never above {TOKENS_MAX}; `--json` gives the same facts as "
        f"data, with a"
        " version. Keys below are read off real answers; `[]` is a list, `*` any key.",
    ]
    shapes: dict[str, set[tuple[str, str]]] = {}
    budgets: dict[str, int] = {}
    for answer in _answers():
        shapes.setdefault(answer.verb, set()).update(_paths(answer.data()))
        budgets[answer.verb] = answer.budget
    for verb, shape in shapes.items():
        tool = BY_NAME[verb]
        parts += [
            f"## {verb}",
            f"{tool.gives} Use it when: {tool.use} Budget: {budgets[verb]} tokens.",
            table(("key", "type"), [(f"`{path}`", kind) for path, kind in sorted(shape)]),
        ]
    return "\n\n".join(parts)


def _answers() -> Iterator[Answer]:
    """One of each, about a run with a bit of everything."""
    with tempfile.TemporaryDirectory() as folder:
        with vestige.Recorder(folder, clock=FakeClock(), last_words=False) as recorder:
            for _ in range(2):
                _record(recorder)
        with vestige.open(folder) as debugger:
            add_note(get_home(folder), debugger, "r2.s3", "seen before", clock=FakeClock())
            yield from _ask(debugger)


def _record(recorder: vestige.Recorder) -> None:
    with recorder.run("triage", conversation_id="c-1") as run:
        body = json.dumps(
            {"model": "gpt-4o", "messages": [{"role": "user", "content": "refunds?"}]}
        )
        usage = {"model": "gpt-4o", "input_tokens": 9, "output_tokens": 3}
        with run.span("chat", type="llm", body=body) as call:
            call.end(attributes=usage, body='{"choices": []}')
        for _ in range(4):
            span = run.span(
                "search", type="tool", attributes={"tool_call_id": "call_7"}, body='{"q": 1}'
            )
            span.add_link(call, reason="asked by")
            span.log.warn("slow", waited_s=3)
            span.end(ValueError("no such index"), body="refund rules")
        run.span("plan", type="state", body='{"step": 1}').end()
        run.span("plan", type="state", body='{"step": 2}').end()
        run.span("notes.txt", type="file", attributes={"path": "notes.txt"}).end(body="read me")


def _ask(debugger: Debugger) -> Iterator[Answer]:
    run, span = "r2", "r2.s3"
    yield debugger.doctor()
    yield debugger.list()
    yield debugger.list("name:triage", group="conversation", cost=True)
    yield debugger.overview(run)
    yield debugger.show(run)
    yield debugger.transcript(run)
    yield debugger.outline(run)
    yield debugger.span(span)
    yield debugger.notes(run)
    yield debugger.body(span)
    yield debugger.segments("r2.s2")
    yield debugger.state(run)
    yield debugger.state("r2#1", than=0)
    yield debugger.files(run)
    yield debugger.grep("refund", run)
    yield debugger.check(run)
    yield debugger.why(span)
    yield debugger.diff("r2", "r3")
    yield debugger.stats(by="name")
    yield debugger.trends(since="1d")
    yield debugger.compare(["r2"], ["r3"])
    yield debugger.sql("SELECT name, count(*) AS n FROM spans GROUP BY name")
    yield debugger.schema()


_FREE = ("attributes", "redacted", "parameters")


def _paths(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if path.rpartition(".")[2].removesuffix("[]") in _FREE:
                yield f"{path}.*", "any"
            else:
                yield from _paths(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        yield f"{path}[]", "list"
        for inner in value:
            yield from _paths(inner, f"{path}[]")
    else:
        kinds = {type(None): "null", bool: "boolean", int: "number", float: "number", str: "text"}
        yield path, kinds[type(value)]
