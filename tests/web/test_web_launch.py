"""The file that `vestige ui` opens a browser with, in a real one: it leads in, once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import pytest
from playwright.sync_api import Browser, expect

from support.scene import fill
from vestige.home import Home

pytestmark = pytest.mark.slow


def test_a_launch_file_leads_a_browser_to_the_run(browser: Browser, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    fill(home)
    opener, seen = tmp_path / "opener", tmp_path / "seen"
    opener.write_text(f'#!/bin/sh\nprintf %s "$1" > {seen}.part && mv {seen}.part {seen}\n')
    opener.chmod(0o700)
    with subprocess.Popen(
        [sys.executable, "-m", "vestige", "ui", "r21", "--port", "0", "--home", str(home.root)],
        stderr=subprocess.PIPE,
        env={**os.environ, "BROWSER": str(opener)},
    ) as process:
        try:
            deadline = monotonic() + 120
            while not seen.exists():
                assert monotonic() < deadline, "no browser was started"
                sleep(0.05)
            page = browser.new_context().new_page()
            page.goto(seen.read_text())
            page.wait_for_url(re.compile(r"http://127\.0\.0\.1:\d+/#/run/r21"))
            expect(page.locator("text=r21").first).to_be_visible()
            stranger = browser.new_context().new_page()
            stranger.goto(seen.read_text())
            expect(stranger.get_by_label("Key")).to_be_visible()
        finally:
            process.terminate()
