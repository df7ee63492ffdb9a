"""What the tests of pages share: a browser, a served home, and what the page did there.

with launched() as browser: ...                 # Debian's Chromium
with served(home) as url: ...                   # `vestige ui` in a process of its own
page = visit(browser, url); page.problems       # what the console and the network said

A page that is not looked at by a test of its own still must not log an error or ask anybody
but its server: `Visit.done` checks both.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

WAIT_MS = 60_000
"""For what is certain to come: a page may be slow on a machine that has much else to do."""
expect.set_options(timeout=WAIT_MS)

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)


@contextlib.contextmanager
def launched() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def served(home: Path, *arguments: str) -> Iterator[str]:
    """The address that `vestige ui` prints, while it runs."""
    command = [
        sys.executable,
        "-m",
        "vestige",
        "ui",
        "--no-browser",
        "--port",
        "0",
        "--home",
        str(home),
    ]
    env = {key: value for key, value in os.environ.items() if not key.startswith("VESTIGE_")}
    process = subprocess.Popen([*command, *arguments], stderr=subprocess.PIPE, text=True, env=env)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        found = re.search(r"http://\S+", line)
        assert found, line + process.stderr.read()
        yield found[0]
    finally:
        process.terminate()
        process.wait(120)
        process.stderr.close()


class Visit:
    """One page in a context of its own. Requests to other origins fail and are recorded."""

    def __init__(self, browser: Browser, url: str, **options: object) -> None:
        self.context: BrowserContext = browser.new_context(**options)  # type: ignore[arg-type]
        self.context.set_default_timeout(WAIT_MS)
        self.problems: list[str] = []
        self.elsewhere: list[str] = []
        self._origin = urlsplit(url)[:2]
        for event in ("requestfinished", "requestfailed"):
            self.context.on(event, self._record_request)  # type: ignore[call-overload]
        self.page: Page = self.context.new_page()
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.goto(url)

    def _record_request(self, request) -> None:  # type: ignore[no-untyped-def]  # Playwright's
        """Record requests to other hosts, which the browser cannot reach (ARGUMENTS).

        A route would also record them, but pass every other request through this process.
        A request that the page's policy stops was never sent; it is an error of the console.
        """
        scheme, host = urlsplit(request.url)[:2]
        sent = scheme not in ("blob", "data") and request.failure != "csp"
        if sent and (scheme, host) != self._origin:
            self.elsewhere.append(request.url)

    def _console(self, message) -> None:  # type: ignore[no-untyped-def]  # Playwright's
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def done(self) -> None:
        """Nothing went wrong that nobody looked at, and nobody else was asked."""
        self.context.close()
        assert self.problems == [], self.problems
        assert self.elsewhere == [], self.elsewhere


@contextlib.contextmanager
def visit(browser: Browser, url: str, **options: object) -> Iterator[Page]:
    visiting = Visit(browser, url, **options)
    try:
        yield visiting.page
    except BaseException:
        visiting.context.close()
        raise
    visiting.done()
