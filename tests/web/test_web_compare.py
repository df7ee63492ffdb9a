"""Two runs side by side: where they part, what adds up differently, both sides to open."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from support.browsing import Visit, served
from support.errand import run_errands
from vestige.home import Home

pytestmark = pytest.mark.slow

PANES = {
    **dict.fromkeys(("steps", "tree", "timeline"), "Span details"),
    **dict.fromkeys(("transcript", "logs", "state", "files", "metadata"), "Run view"),
    "compare": "Selected difference",
}
"""The region beside the list of each view."""


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    home = Home(tmp_path_factory.mktemp("errand") / "home")
    run_errands(home)
    with served(home.root) as url:
        visit = Visit(browser, url, viewport={"width": 1280, "height": 800})
        yield visit.page
        visit.done()


def compare(page: Page) -> None:
    page.evaluate("location.hash = '#/'")
    page.evaluate("location.hash = '#/compare?a=r2&b=r3'")
    expect(page.get_by_role("region", name="Selected difference")).to_be_visible()


def test_comparing_lands_on_the_first_divergence(page: Page) -> None:
    """With its class, and what exactly differs there."""
    compare(page)
    lines = page.get_by_role("list", name="Steps of both runs").get_by_role("listitem")
    pane = page.get_by_role("region", name="Selected difference")

    expect(page.get_by_role("region", name="Both runs")).to_contain_text("First difference: plan")
    expect(lines.filter(has_text="First difference")).to_have_class(re.compile("chosen"))
    expect(lines.filter(has_text="First difference")).to_be_in_viewport()
    expect(pane.get_by_role("row", name=re.compile(r"\$\.flight"))).to_contain_text('"VS9"')


def test_equal_stretches_are_folded_and_open(page: Page) -> None:
    compare(page)
    lines = page.get_by_role("list", name="Steps of both runs").get_by_role("listitem")
    folded = page.get_by_role("button", name="6 identical steps")
    expect(lines.filter(has_text="search_flights")).to_have_count(0)
    folded.click()
    expect(folded).to_have_attribute("aria-expanded", "true")
    expect(lines.filter(has_text="search_flights")).to_have_count(1)
    expect(lines.filter(has_text="search_flights")).to_contain_text(re.compile("s5.*s5"))
    folded.click()
    expect(lines.filter(has_text="search_flights")).to_have_count(0)


def test_totals_are_compared_and_both_sides_open(page: Page) -> None:
    """j and k go from difference to difference; a side opens as the run it is of."""
    compare(page)
    both = page.get_by_role("region", name="Both runs")
    expect(both.get_by_role("row", name="Spans 14 13 -7.1 %")).to_be_visible()
    expect(both.get_by_role("row", name="Outcome Succeeded Failed", exact=True)).to_be_visible()
    page.keyboard.press("j")
    pane = page.get_by_role("region", name="Selected difference")
    expect(pane).to_contain_text("Different result")
    expect(pane).to_contain_text("VS9 is cheap.")
    for side in ("r2", "r3"):
        pane.get_by_role("link", name=f"{side}.s7").click()
        expect(page.get_by_role("region", name="Summary")).to_contain_text(side)
        head = page.get_by_role("region", name="Span details").locator(".pane-head")
        expect(head).to_contain_text("· s7")
        page.go_back()
        expect(pane).to_be_visible()
        page.keyboard.press("j")


@pytest.mark.full
def test_axe_finds_nothing_serious_on_any_view(page: Page) -> None:
    """Check roles, names, focus and contrast with the pane open; dark mode on four views."""
    places = {view: f"#/run/r3?view={view}&span=s7" for view in PANES}
    places["compare"] = "#/compare?a=r2&b=r3"
    found: dict[str, list[str]] = {}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # one of its words
        for name, place in places.items():
            if scheme == "dark" and name not in ("steps", "transcript", "tree", "compare"):
                continue
            page.evaluate("place => { location.hash = place }", place)
            expect(page.get_by_role("region", name=PANES[name])).to_be_visible()
            violations = Axe().run(page).response["violations"]
            found[f"{name} {scheme}"] = [
                f"{one['id']}: {node['html'][:120]}"
                for one in violations
                if one["impact"] in ("serious", "critical")
                for node in one["nodes"][:3]
            ]

    assert {name: violations for name, violations in found.items() if violations} == {}
