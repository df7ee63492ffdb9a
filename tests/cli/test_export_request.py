"""`vestige export SPAN --format curl|python`: the script, to standard output or into a new file."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.commands import vestige
from vestige import Recorder
from vestige.home import Home


@pytest.fixture
def span_id(home: Home) -> str:
    with Recorder(home, crash_hooks=False) as recorder, recorder.run("agent") as run:
        attributes = {"method": "POST", "url": "http://127.0.0.1:9/v1/chat/completions"}
        span = run.span("chat", "llm", attributes, '{"model": "m"}')
        span.end()
        return span.id


@pytest.mark.parametrize(("format", "word"), [("curl", "curl "), ("python", "urllib.request")])
def test_a_request_goes_to_standard_output(
    home: Home, span_id: str, format: str, word: str
) -> None:
    done = vestige("export", span_id, "--format", format, "--home", home.root)

    assert done.exit_code == 0
    assert word in done.output and '{"model": "m"}' in done.output


def test_a_file_that_is_there_is_not_written_over(home: Home, span_id: str, tmp_path: Path) -> None:
    """The first time it is written; the second time it is refused, and stays."""
    target = tmp_path / "again.py"
    arguments = [
        "export",
        span_id,
        "--format",
        "python",
        "-o",
        str(target),
        "--home",
        str(home.root),
    ]
    first = vestige(*arguments)
    target.write_text("mine now")
    second = vestige(*arguments)

    assert first.exit_code == 0 and first.output.strip() == str(target)
    assert second.exit_code == 2 and "already exists" in second.output
    assert target.read_text() == "mine now"


def test_a_span_without_a_request_is_refused_with_a_reason(home: Home) -> None:
    with Recorder(home, crash_hooks=False) as recorder, recorder.run("agent") as run:
        span = run.span("search", "tool")
        span.end()
    done = vestige("export", span.id, "--format", "curl", "--home", home.root)

    assert done.exit_code == 2 and "no HTTP request" in done.output
