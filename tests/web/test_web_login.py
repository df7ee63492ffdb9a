"""A colleague's browser and a server with keys: a link, a form, and where the link led."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from support.scene import fill
from vestige.fleet.api_keys import Keys
from vestige.home import Home

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    found = Home(tmp_path_factory.mktemp("login") / "home")
    fill(found)
    return found


@pytest.fixture(scope="module")
def url(home: Home) -> Iterator[str]:
    Keys(home).add("first", ["runs:read"])  # with a key there is no token
    command = [sys.executable, "-m", "vestige", "serve", "--port", "0", "--no-log"]
    with subprocess.Popen(
        [*command, "--home", str(home.root)], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        found = re.search(r"http://127\.0\.0\.1:\d+", process.stderr.readline())
        assert found
        try:
            yield found[0]
        finally:
            process.terminate()


def test_a_link_leads_where_it_led_once_the_key_is_given(
    browser: Browser, home: Home, url: str
) -> None:
    key = Keys(home).add("eva", ["runs:read"]).key
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{url}/#/run/r21?view=tree")
    page.get_by_label("Key").fill("vstg_nonsense")
    page.get_by_role("button").click()
    expect(page.get_by_role("alert")).to_contain_text("unknown, expired or revoked")
    page.get_by_label("Key").fill(key)
    page.get_by_role("button").click()

    page.wait_for_url(f"{url}/#/run/r21?view=tree")
    expect(page.locator("text=r21").first).to_be_visible()
    assert page.evaluate("document.cookie") == ""
    page.goto(f"{url}/logout")
    page.goto(f"{url}/")
    expect(page.get_by_label("Key")).to_be_visible()
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_form_is_for_everybody(browser: Browser, url: str, scheme: str) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 640}, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    texts: list[str] = []
    page.on("console", lambda message: texts.append(message.text))
    page.goto(url)
    violations = Axe().run(page).response["violations"]
    wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
    focused = page.evaluate("document.activeElement.id")
    context.close()

    assert [one["id"] for one in violations] == []
    assert not wide
    assert focused == "key"
    assert [line for line in texts if "Content Security Policy" in line] == []
