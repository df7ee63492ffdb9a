"""What has less in it than one expects, or more than one would write: the page shows it, and goes
on.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

import vestige
from support.browsing import Visit, served

pytestmark = pytest.mark.slow

NUMBERS = (
    "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 300) SELECT x FROM n"
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home: Path = tmp_path_factory.mktemp("bare") / "home"
    with vestige.Recorder(home) as recorder:
        with recorder.run("calls") as run:
            for number in range(12):
                run.span(f"look {number}", attributes={"app": "shop"}).end()
            run.span("m2", type="llm", attributes={"model": "m2", "app": "shop"}).end()
        with recorder.run("agent") as run:
            run.span("basket", type="state").end()
            run.span("plan", attributes={"goal": "ship"}).end()
            run.span("mail", type="state", body=">" * 15_000 + " quoted").end()
    with served(home) as address:
        yield address


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    visit = Visit(browser, address)
    visit.page.get_by_role("link", name="agent", exact=True).wait_for()
    yield visit.page
    visit.done()


def test_a_state_without_a_body_and_a_steps_attributes_are_told(page: Page) -> None:
    """What follows a state of which only the name is known is there, too."""
    page.get_by_role("link", name="agent", exact=True).click()
    page.get_by_role("tab", name="Transcript").click()
    transcript = page.get_by_role("list", name="Transcript")

    expect(transcript).to_contain_text("basket")
    expect(transcript).to_contain_text("goal=ship")
    expect(transcript).to_contain_text("mail")


def test_markdown_that_is_nested_too_deeply_is_shown_as_it_is(page: Page) -> None:
    """The parser gives up; the page does not."""
    page.get_by_role("link", name="agent", exact=True).click()
    page.get_by_role("tab", name="Transcript").click()
    transcript = page.get_by_role("list", name="Transcript")
    transcript.get_by_role("button", name="Show full").click()
    transcript.get_by_role("button", name="Plain text", pressed=True).click()

    expect(transcript.locator("pre").last).to_contain_text(">>>> quoted")


def test_more_rows_are_those_of_the_query_that_is_shown(page: Page) -> None:
    """Whatever was typed since."""
    page.get_by_role("link", name="SQL").click()
    ask = page.get_by_label("SQL query")
    ask.fill(NUMBERS)
    page.get_by_role("button", name="Run Ctrl").click()
    foot = page.locator(".list-foot")
    foot.get_by_role("button", name="More").wait_for()
    ask.fill("SELECT 'another'")
    foot.get_by_role("button", name="More").click()

    expect(foot).to_contain_text("300 rows", timeout=15_000)


def test_a_model_call_without_bodies_shows_its_own_attributes(page: Page) -> None:
    """Its messages are not requested, and what every span has is folded."""
    page.get_by_role("link", name="calls", exact=True).click()
    page.get_by_role("tab", name="Tree").click()
    page.get_by_role("treeitem").filter(has_text="m2").click()
    attributes = page.get_by_role("region", name="Attributes")

    expect(attributes.get_by_role("cell", name="m2").first).to_be_visible()
    expect(attributes.get_by_role("cell", name="shop")).to_be_hidden()
    attributes.get_by_text("On every span (1)").click()
    expect(attributes.get_by_role("cell", name="shop")).to_be_visible()
