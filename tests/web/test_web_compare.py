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


def test_a_step_of_one_run_shows_its_result_and_opens(page: Page) -> None:
    compare(page)
    lines = page.get_by_role("list", name="Steps of both runs").get_by_role("listitem")
    pane = page.get_by_role("region", name="Selected difference")
    row = lines.filter(has_text="Only in r2").filter(has_text="tickets/VS3.json")
    expect(row).to_contain_text('{"seat": "14A", "flight": "VS3"}')
    lines.filter(has_text="Only in r3").filter(has_text="attempt=3").click()
    expect(pane.get_by_role("heading", name="Only in r3")).to_be_visible()
    expect(pane).to_contain_text("Arguments")
    expect(pane).to_contain_text("no seat within 250 ms")
    lines.filter(has_text="Only in r2").filter(has_text="messages.create").click()
    expect(pane).to_contain_text("You fly on VS3, seat 14A.")


def test_a_span_is_compared_with_another_step(page: Page) -> None:
    """From the pane, and by a shift-click on another row; the page says that these are spans."""
    page.evaluate("location.hash = '#/run/r3?view=steps&span=s7'")
    pane = page.get_by_role("region", name="Span details")
    pane.get_by_role("button", name="Compare with another span").click()
    choices = pane.get_by_role("list", name="Steps to compare with")
    expect(choices.get_by_role("link")).to_have_count(2)
    expect(pane.get_by_text("shift-click another row")).to_be_visible()
    choices.get_by_role("link", name=re.compile("Step 1")).click()

    both = page.get_by_role("region", name="Both spans")
    expect(both.get_by_role("heading", name="Compare two spans")).to_be_visible()
    expect(both).to_contain_text("Before r3.s4 Step 1", use_inner_text=True)
    expect(both).to_contain_text("After r3.s7 Step 2", use_inner_text=True)
    expect(page).to_have_title("Spans r3.s4 and r3.s7 · Vestige")
    # A result that only step 2 was sent, as the table that it is.
    expect(both.get_by_role("row", name="+ message 4 user")).to_contain_text("VS55")
    expect(both.get_by_role("row", name="+ message 3 assistant")).to_contain_text("search_flights(")
    page.go_back()
    steps = page.get_by_role("list", name="Steps").get_by_role("listitem")
    steps.filter(has_text="I look for flights.").click(modifiers=["Shift"])
    expect(page).to_have_title("Spans r3.s4 and r3.s7 · Vestige")


def test_a_step_is_compared_with_that_of_another_run(page: Page) -> None:
    page.evaluate("location.hash = '#/run/r3?view=steps&span=s7'")
    pane = page.get_by_role("region", name="Span details")
    pane.get_by_role("button", name="Compare with another span").click()
    runs = pane.get_by_role("list", name="Runs to compare with")
    runs.get_by_role("button", name=re.compile("r2")).click()
    expect(page).to_have_title("Spans r2.s7 and r3.s7 · Vestige")


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


def test_the_heads_of_a_comparison_have_the_tasks(page: Page) -> None:
    """The names of both runs are often the name of one program."""
    compare(page)
    heads = page.get_by_role("region", name="Both runs").locator(".head-title")
    expect(heads).to_have_text([re.compile("Book me three nights"), re.compile("Book me three")])


def test_the_runs_to_choose_have_no_invented_duration(page: Page) -> None:
    page.evaluate("location.hash = '#/compare'")
    choices = page.get_by_role("region", name="Runs to choose").get_by_role("listitem")
    expect(choices.first).to_be_visible()
    for text in choices.all_inner_texts():
        assert "0" not in text.splitlines()


def test_a_phone_shows_the_steps_of_a_comparison_first(browser: Browser, page: Page) -> None:
    """The selected difference would cover them."""
    address = page.url.split("#")[0]
    context = browser.new_context(viewport={"width": 390, "height": 844})
    context.add_cookies(page.context.cookies())  # type: ignore[arg-type]  # the stubs differ
    phone = context.new_page()
    phone.goto(address + "#/compare?a=r2&b=r3")
    steps = phone.get_by_role("list", name="Steps of both runs")
    expect(steps).to_be_in_viewport()
    expect(phone.get_by_role("region", name="Selected difference")).to_have_count(0)
    steps.get_by_role("listitem").filter(has_text="First difference").click()
    expect(phone.get_by_role("region", name="Selected difference")).to_be_visible()
    context.close()
