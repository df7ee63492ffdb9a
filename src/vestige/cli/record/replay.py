"""`vestige replay RUN -- COMMAND`: run a program again with the recorded answers."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from vestige.cli.options import Examples, Home, home_option

if TYPE_CHECKING:
    from vestige.query.debugger import Debugger
    from vestige.record.run import BodyRef, SpanInfo
    from vestige.wire.replay import Entry, Line


@click.command(
    "replay",
    cls=Examples,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    examples="""
  vestige replay r7 -- python agent.py       run it again, with the answers of r7
""",
    exits="the command's own; 128 + n if signal n killed it; 2 no such run, or it has no calls",
)
@home_option
@click.argument("id")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def replay(home: Home, id: str, command: tuple[str, ...]) -> None:
    """Run COMMAND again with the answers that model providers gave in run ID.

    Each model call is answered from the recording, matched by its method, path and body, and
    never reaches the network. A call that is not the recorded one gets status 400; the first
    of them is shown as a diff. Everything else runs as it always does, tools too. The new run
    is recorded like any other.
    """
    from vestige.boot import boot_environment
    from vestige.collector.run_supervisor import run_command
    from vestige.errors import NotFoundError
    from vestige.transfer import open_path
    from vestige.wire.replay import SCRIPT_VARIABLE, write_script

    if command[0] == "--":  # click keeps it: it stands after the run
        command = command[1:]
    with tempfile.TemporaryDirectory(prefix="vestige-replay-") as folder:
        script = os.path.join(folder, "script")
        with open_path(home) as debugger:
            run = debugger.resolve(id, "run").run
            count = write_script(script, _lines(debugger, run.id))
        if not count:
            raise NotFoundError(f"{id}: no model call was recorded in it. Nothing to replay.")
        env = {**boot_environment(os.environ), SCRIPT_VARIABLE: script}
        code = run_command(home, command, env, f"replay of {run.short_id} {run.name}")
        _report(home, script, count)
    sys.exit(code)


def _lines(debugger: Debugger, run_id: str) -> Iterator[Line]:
    """The calls of a run and of the runs that it started, in order."""
    from vestige.wire.replay import Answer, Line, digest, target_of

    for span in sorted(_calls(debugger, run_id), key=lambda span: span.started_ns):
        told = span.attributes
        headers = told.get("response.headers")
        status = told.get("status_code")
        error = told.get("error.type") if told.get("error.stack") else None
        yield Line(
            span.id,
            str(told["method"]),
            target_of(str(told["url"])),
            digest(_read(debugger, span.input)),
            Answer(
                status if isinstance(status, int) else None,
                _read_headers(headers),
                _read(debugger, span.output),
                None if error is None else str(error).rpartition(".")[2],
            ),
        )


def _read_headers(told: object) -> dict[str, str]:
    """Of a JSON object that was too long for an attribute, those that stand before the cut."""
    import msgspec

    text = told if isinstance(told, str) else ""
    before = _BEFORE_CUT.match(text)
    for each in (text, before[0].rstrip(",") + "}" if before else "{}"):
        try:
            return msgspec.json.decode(each, type=dict[str, str])
        except (msgspec.DecodeError, ValueError, RecursionError):
            continue
    return {}


_TEXT = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_BEFORE_CUT = re.compile(rf"\{{(?:{_TEXT}:{_TEXT},?)*+")


def _calls(debugger: Debugger, run_id: str) -> Iterator[SpanInfo]:
    store = debugger.store
    run = store.load_run(run_id)
    runs = {run_id: run}
    for span in run.spans:
        if span.type in ("run", "process", "test"):
            for place, _ in store.links_to(run_id, span.id):
                if place.run_id not in runs:
                    runs[place.run_id] = store.load_run(place.run_id)
    for each in runs.values():
        for span in each.spans:
            if span.type in ("llm", "http") and {"method", "url"} <= span.attributes.keys():
                yield span


def _read(debugger: Debugger, ref: BodyRef | None) -> bytes:
    if ref is None or ref.id is None:
        return b""
    return debugger.store.read_body(ref.id, 0, ref.size_bytes)


def _report(home: Home, script: str, count: int) -> None:
    """On stderr: stdout is the command's."""
    from vestige.wire.replay import read_report

    entries = read_report(script)
    served = sum(not entry.differs for entry in entries)
    click.echo(f"vestige: replayed {served} of {count} recorded calls.", err=True)
    first = next((entry for entry in entries if entry.differs), None)
    if first is not None:
        _show_difference(home, first, sum(entry.differs for entry in entries))


def _show_difference(home: Home, first: Entry, count: int) -> None:
    from vestige.query.diff.body_diff import diff_bodies
    from vestige.query.formatting import pluralize
    from vestige.transfer import open_path

    told = f"vestige: {pluralize(count, 'request')} not as recorded. The first: {first.method} {first.target}"
    if first.span_id is None:
        click.echo(f"{told}: the recording has no further call.", err=True)
        return
    with open_path(home) as debugger:
        answer: Any = debugger.span(first.span_id)
        before = _read(debugger, answer.span.input).decode(errors="replace")
        click.echo(f"{told}, against {answer.span.short_id}:", err=True)
        for line in diff_bodies(before, first.body).lines():
            click.echo(f"  {line}", err=True)
