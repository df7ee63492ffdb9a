"""Kill a capture at random points: there is a valid bundle, or a spool that becomes one.

The program captures, finalizes and exports, over and over; the kill comes at a random moment, so
that it meets each of the three. Never is there half a file under the final name.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vestige.debug import DebugBundle
from vestige.debug.recover import recover_spools
from vestige.home import Home

ROUNDS = [8, pytest.param(200, marks=pytest.mark.full)]
PROGRAM = """
import itertools, logging, os
from vestige.debug import *

log = logging.getLogger("app")
print("go", flush=True)
for number in itertools.count():
    session = Session()
    builder = DebugBundleBuilder(session=session, agent=AgentInfo("a", "b", "c"))
    with builder.capture():
        for call in range(10):
            log.info("call %d", call, extra={"context": {"nested": {"n": call}}})
            event = ToolInvoked(name="t", result="r" * 2000, session_id=session.session_id)
            session.dispatcher.dispatch(event)
        builder.add_filesystem(MemoryFilesystem({".env": "A=1", "large": os.urandom(300_000)}))
    builder.finalize().export("out/")
    print(number, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("rounds", ROUNDS)
def test_killed_anywhere_there_is_a_bundle_or_a_spool_that_becomes_one(
    home: Home, tmp_path: Path, rounds: int
) -> None:
    """Every bundle under its final name loads whole; every spool is recovered into one."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    chance = random.Random(7)
    exported = left = 0
    for _ in range(rounds):
        process = subprocess.Popen(
            [sys.executable, str(program)],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            env={**os.environ, "VESTIGE_HOME": str(home.root)},
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(chance.uniform(0.0, 0.4))  # the moment of the kill is what is tested
        process.send_signal(signal.SIGKILL)
        exported += len(process.stdout.read().splitlines())
        process.wait()
        left += len([path for path in home.spool.glob("*") if not path.name.startswith(".")])
        made = list(recover_spools(home.spool, home.bundles))

        assert all(one.problem is None for one in made)
    bundles = [*tmp_path.glob("out/*.wink"), *home.bundles.glob("*.wink")]
    for path in bundles:
        bundle = DebugBundle.load(path)
        assert all(snapshot.valid for snapshot in bundle.snapshots)
        assert len(list(bundle.logs)) == (bundle.manifest.component("logs") or 0).entry_count  # type: ignore[union-attr]

    assert [path for path in home.spool.iterdir() if not path.name.startswith(".")] == []
    assert len(bundles) >= exported
    assert left > 0
