"""A run that is looked at while it happens, until its process is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from support.browsing import served, visit
from vestige.home import Home

pytestmark = pytest.mark.slow

AGENT = """
import sys, vestige
with vestige.traced_run("night shift") as run:
    run.child("switch the light on", "tool").end()
    print("begun", flush=True)
    for line in sys.stdin:
        if line.startswith("open"):
            run.child(line.strip(), "tool")
        else:
            run.child(line.strip(), "tool").end()
        print("done", flush=True)
"""


class Agent:
    """A process that follows commands, one line at a time."""

    def __init__(self, folder: Path, home: Path) -> None:
        (folder / "agent.py").write_text(AGENT)
        self.process = subprocess.Popen(
            [sys.executable, str(folder / "agent.py")],
            stdin=subprocess.PIPE,
            bufsize=1,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "VESTIGE_HOME": str(home)},
        )
        self._heard("begun")

    def do(self, what: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(what + "\n")
        self._heard("done")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def _heard(self, word: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == word + "\n"


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    Home(tmp_path / "home").make()
    agent = Agent(tmp_path, tmp_path / "home")
    yield agent
    agent.kill()
    agent.process.communicate()


def known(page: Page, name: str) -> None:
    """Wait until the server knows of a span, whether the page shows it or not."""
    page.evaluate(
        """async name => {
            for (;;) {
                const answer = await fetch('/api/v1/outline?id=r2');
                if ((await answer.text()).includes(name)) return;
                await new Promise(done => setTimeout(done, 50));
            }
        }""",
        name,
    )


def test_rows_come_while_it_runs_and_the_verdict_when_it_is_killed(
    browser: Browser, tmp_path: Path, agent: Agent
) -> None:
    """What happens is seen without a touch; pausing holds the page still; a kill is shown, with the
    last thing before it."""
    with served(tmp_path / "home") as url, visit(browser, url) as page:
        page.get_by_role("link", name="night shift").click()
        page.get_by_role("tab", name="Tree").click()
        verdict = page.get_by_role("region", name="Summary")
        rows = page.get_by_role("treeitem")
        expect(verdict).to_contain_text("Running")
        agent.do("look around")
        expect(rows.filter(has_text="look around")).to_be_visible()
        page.get_by_role("button", name="Pause").click()
        agent.do("listen at the door")
        known(page, "listen at the door")
        expect(rows.filter(has_text="look around")).to_be_visible()
        expect(rows.filter(has_text="listen")).to_have_count(0)
        page.keyboard.press("p")
        expect(rows.filter(has_text="listen")).to_be_visible()
        agent.do("open the door")
        expect(rows.filter(has_text="open the door")).to_be_visible()
        agent.kill()

        expect(verdict).to_contain_text("Crashed")
        expect(verdict).to_contain_text("open the door")
        expect(verdict.get_by_role("button", name="Pause")).to_have_count(0)
