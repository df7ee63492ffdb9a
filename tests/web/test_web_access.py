"""Pages for everybody: axe finds nothing serious, nothing runs over the edge, at three sizes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from support.browsing import served, visit
from support.scene import fill
from vestige.home import Home

pytestmark = pytest.mark.slow

PLACES = {
    "#/": "a[href='#/run/r21']",
    "#/?q=fishy&tab=text": "a.hit",
    "#/?tab=tools": "text=Prompt cost",
    "#/run/r21?view=tree&span=s9": "section.second",
    "#/sql?q=SELECT name FROM spans LIMIT 5": "text=5 rows",
}
"""Where to look, and what is there once it is all there."""


@pytest.fixture(scope="module")
def url(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = Home(tmp_path_factory.mktemp("scene") / "home")
    fill(home)
    with served(home.root) as url:
        yield url


def go_to(page: Page, place: str, sign: str) -> None:
    page.evaluate("place => location.hash = place", place)
    page.locator(sign).first.wait_for()
    expect(page.locator(".empty[role=status]")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Browser, url: str, scheme: str) -> None:
    """Roles, names, focus, contrast."""
    found: dict[str, list[str]] = {}
    with visit(browser, url, viewport={"width": 1280, "height": 600}, color_scheme=scheme) as page:
        for name, sign in PLACES.items():
            go_to(page, name, sign)
            violations = Axe().run(page).response["violations"]
            serious = [one for one in violations if one["impact"] in ("serious", "critical")]
            found[name] = [
                f"{one['id']}: {node['html'][:120]}" for one in serious for node in one["nodes"][:3]
            ]

    assert {name: violations for name, violations in found.items() if violations} == {}


@pytest.mark.parametrize("width", [360, 820, 2560])
def test_no_page_is_wider_than_its_window(browser: Browser, url: str, width: int) -> None:
    wider = []
    with visit(browser, url, viewport={"width": width, "height": 780}) as page:
        for name, sign in PLACES.items():
            go_to(page, name, sign)
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                wider.append(name)

    assert wider == []
