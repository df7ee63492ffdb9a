"""OpenWOP on the command line: out with a redaction mode, in again, validated, and asked like any
run.
"""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import vestige_process
from support.openwop_server import SECRETS, record_everything, validate_bundle
from vestige.formats.openwop.assemble import assemble
from vestige.formats.openwop.from_records import Story
from vestige.home import Home
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import load_run_to_write


def run_in_home(home: Home, *arguments: str) -> subprocess.CompletedProcess[str]:
    return vestige_process(*arguments, "--home", home.root)


@pytest.mark.slow  # seven processes
def test_a_run_goes_out_and_comes_in_by_the_command_line(home: Home, tmp_path: Path) -> None:
    """`export --format openwop [--redaction MODE]`, `import`, `validate`, every verb on the
    file.
    """
    run_id = record_everything(home)
    target, other = tmp_path / "a.json", Home(tmp_path / "other")
    masked = run_in_home(home, "export", run_id, "--format", "openwop", "-o", str(target))
    hashed = run_in_home(
        home,
        "export",
        run_id,
        "--format",
        "openwop",
        "-o",
        str(tmp_path / "h.json"),
        "--redaction",
        "hash",
    )
    plain = run_in_home(
        home,
        "export",
        run_id,
        "--format",
        "openwop",
        "-o",
        str(tmp_path / "p.json"),
        "--redaction",
        "passthrough",
    )
    wink = run_in_home(
        home, "export", run_id, "--format", "wink", "-o", str(tmp_path / "w"), "--redaction", "mask"
    )
    taken = run_in_home(other, "import", str(target))
    shown = run_in_home(other, "show", run_id)
    valid = subprocess.run(
        [sys.executable, "-m", "vestige", "validate", str(target)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (masked.returncode, hashed.returncode, taken.returncode, shown.returncode) == (
        0,
        0,
        0,
        0,
    )
    assert "sha256:" in (tmp_path / "h.json").read_text()
    assert stat.S_IMODE(home.hash_key.stat().st_mode) == 0o600
    assert (plain.returncode, wink.returncode) == (2, 2)
    assert "passthrough is refused" in plain.stderr
    assert not (tmp_path / "p.json").exists()
    assert "Imported 1 run from" in taken.stdout
    assert "ValueError" in shown.stdout
    assert valid.returncode == 0, valid.stdout
    validate_bundle(json.loads(target.read_text()))
    assert not any(secret in shown.stdout for secret in SECRETS.values())


@pytest.mark.slow
def test_lines_that_are_read_one_at_a_time_make_the_same_bundle(home: Home) -> None:
    """A long run's lines are not all loaded for a bundle that holds few of them."""
    run_id = record_everything(home, fails=True)
    with SqliteStore.open(home.store, readonly=True) as store:
        complete, places = [
            assemble(Story(load_run_to_write(store, run_id, with_logs=with_logs)), 1)
            for with_logs in (True, False)
        ]

    assert complete == places


@pytest.mark.slow  # processes
def test_a_recorded_program_goes_out_without_its_command_and_without_false_alarms(
    home: Home, tmp_path: Path
) -> None:
    """Neither argv nor what the exporter itself has masked."""
    program = (
        "import vestige\n"
        "with vestige.Recorder().run('r') as run:\n"
        "    run.span('call', attributes={'headers': '{\"authorization\":\"Bearer sk-ant-api03-"
        + "x" * 40
        + "\"}'}).end()\n"
    )
    (tmp_path / "agent.py").write_text(program)
    command = [sys.executable, "-m", "vestige", "run", "--home", str(home.root), "--"]
    subprocess.run([*command, sys.executable, str(tmp_path / "agent.py")], check=True, timeout=120)
    with SqliteStore.open(home.store, readonly=True) as store:
        runs = list(store.run_ids())
    results = []
    for number, run_id in enumerate(runs):
        target = tmp_path / f"{number}.json"
        run_in_home(home, "export", run_id, "--format", "openwop", "-o", str(target))
        checked = subprocess.run(
            [sys.executable, "-m", "vestige", "validate", str(target)],
            capture_output=True,
            text=True,
            check=False,
        )
        results.append((target.read_text(), checked.returncode, checked.stdout))

    assert len(results) == 3
    assert all('"command"' not in text and 'agent.py\\"' not in text for text, _, _ in results)
    assert any("Bearer [REDACTED]" in text for text, _, _ in results)
    assert all(code == 0 and "warning" not in output for _, code, output in results), results
