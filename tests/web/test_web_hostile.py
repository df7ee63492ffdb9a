"""Text from a trace is data: in every view and in the pane nothing of it runs, loads or hides."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from support.browsing import Visit, served
from support.errand import run_errands
from vestige.home import Home

pytestmark = pytest.mark.slow

ODD = {"\u202e", "\x1b", "\x00"}
COUNT = "document.querySelectorAll('script, img, iframe, object, embed, link').length"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    home = Home(tmp_path_factory.mktemp("hostile") / "home")
    run_errands(home)
    return home


def look_everywhere(browser: Browser, address: str, **options: object) -> None:
    visit = Visit(browser, address, **options)
    page = visit.page
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    expect(page.get_by_role("heading", level=1)).to_contain_text("<script>window.pwned")
    before = page.evaluate(COUNT)
    seen = ""
    views = page.get_by_role("tablist", name="Views").get_by_role("tab")
    for at in range(views.count()):
        views.nth(at).click()
        expect(page.locator(".empty[role=status]")).to_have_count(0)
        if page.get_by_role("list", name="Transcript").count():
            check_markdown(page)
        seen += page.inner_text("body")
    seen += open_bodies(page)

    assert "<img src=https://evil.example/x onerror=" in seen
    assert "⟨U+202E⟩gnp.exe" in seen
    assert not set(seen) & ODD
    assert page.evaluate("window.pwned") is None
    assert page.evaluate(COUNT) == before
    assert dialogs == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    visit.done()


def check_markdown(page: Page) -> None:
    """A script or a picture of another origin in rendered text is words."""
    expect(page.get_by_role("list", name="Transcript")).to_contain_text("<script>")


def open_bodies(page: Page) -> str:
    """The pane of the tool: a megabyte on one line is shown, and only what is visible exists."""
    page.get_by_role("tab", name="Tree").click()
    page.get_by_role("treeitem").nth(1).click()
    pane = page.get_by_role("region", name="Span details")
    seen = pane.inner_text()
    pane.get_by_role("tab", name="Raw").click()
    for side in ("Input", "Output"):
        pane.get_by_role("button", name=side).click()
        expect(pane.get_by_label("Body")).to_contain_text("<script>window.pwned")
        seen += pane.inner_text()

    assert page.locator("*").count() < 2_000
    return seen


def test_hostile_text_is_text_in_a_served_page(browser: Browser, home: Home) -> None:
    with served(home.root) as url:
        look_everywhere(browser, url + "#/run/r4")


def test_hostile_text_is_text_in_an_exported_page(
    browser: Browser, home: Home, tmp_path: Path
) -> None:
    path = tmp_path / "hostile.html"
    command = ["export", "r4", "--format", "html", "-o", str(path), "--home", str(home.root)]
    subprocess.run([sys.executable, "-m", "vestige", *command], check=True, timeout=120)

    look_everywhere(browser, path.as_uri(), offline=True)
