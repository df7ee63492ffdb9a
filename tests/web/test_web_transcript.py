"""A long run is read like a chat, in the page and in an export."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from support.browsing import served, visit
from support.commands import vestige
from vestige.home import Home

pytestmark = pytest.mark.slow

RUNS = Path(__file__).parents[1] / "data" / "real_runs" / "trail"
LONG = "gaia-01c5727165fc43899b3b594b9bef5f19.otlp.json.gz"
"""Steps of two agents, with plans, tools and a failure."""
PHONE = {"viewport": {"width": 390, "height": 780}}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    folder = tmp_path_factory.mktemp("transcript")
    home = Home(folder / "home")
    path = folder / LONG.removesuffix(".gz")
    path.write_bytes(gzip.decompress((RUNS / LONG).read_bytes()))
    assert vestige("import", path, "--home", home.root).exit_code == 0
    return home


@pytest.fixture(scope="module")
def url(home: Home) -> Iterator[str]:
    with served(home.root) as address:
        yield address


def items(page: Page):  # type: ignore[no-untyped-def]  # Playwright's
    return page.get_by_role("list", name="Transcript").get_by_role("listitem")


def test_tool_calls_of_a_long_run_are_lines_that_open(browser: Browser, url: str) -> None:
    with visit(browser, url + "#/run/r1?view=transcript") as page:
        tool = items(page).filter(has_text=re.compile(r"^\W*tool")).first
        line = tool.get_by_role("button", expanded=False)
        expect(line).to_contain_text("→")
        line.click()
        expect(tool.get_by_role("button", expanded=True)).to_be_visible()
        expect(tool).to_contain_text("Result")


def test_all_items_are_folded_and_unfolded_by_key_and_button(browser: Browser, url: str) -> None:
    with visit(browser, url + "#/run/r1?view=transcript") as page:
        tools = page.get_by_role("group", name="Transcript view")
        expect(items(page).get_by_role("button", expanded=False).first).to_be_visible()
        tools.get_by_role("button", name="Unfold all").click()
        page.wait_for_url(re.compile("fold=none"))
        expect(items(page).locator(".is-folded")).to_have_count(0)
        page.keyboard.press("z")
        page.wait_for_url(re.compile("fold=all"))
        expect(items(page).locator(".is-folded").first).to_be_visible()


@pytest.mark.parametrize("options", [{}, PHONE], ids=["wide", "phone"])
def test_answers_only_shows_what_each_step_answered(
    browser: Browser, url: str, options: dict[str, object]
) -> None:
    """No prompts of the program; the link opens the same view again."""
    with visit(browser, url + "#/run/r1?view=transcript", **options) as page:
        page.get_by_role("button", name="Answers only").click()
        page.wait_for_url(re.compile("only=answers"))
        page.reload()
        answer = items(page).filter(has_text=re.compile("^assistant")).first
        expect(answer).to_contain_text(re.compile(r"step \d+"))
        expect(items(page).filter(has_text=re.compile(r"^\W*system"))).to_have_count(0)
        expect(page.get_by_role("button", name="Answers only")).to_have_attribute(
            "aria-pressed", "true"
        )
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")


def test_folding_keeps_the_place_of_the_reader(browser: Browser, url: str) -> None:
    with visit(browser, url + "#/run/r1?view=transcript&fold=none") as page:
        expect(items(page).first).to_be_visible()
        page.get_by_role("list", name="Transcript").evaluate("list => list.scrollTo(0, 1500)")
        top = page.get_by_role("list", name="Transcript").bounding_box()
        assert top is not None
        first_visible = """top => [...document.querySelectorAll('.transcript .item')]
            .find((row) => row.getBoundingClientRect().bottom > top + 12)"""
        link = f"top => ({first_visible})(top).querySelector('[aria-label^=Open]').ariaLabel"
        page.wait_for_function(f"top => ({first_visible})(top).dataset.index > 0", arg=top["y"])
        before = page.evaluate(link, top["y"])
        page.keyboard.press("z")

        page.wait_for_function(f"([top, name]) => ({link})(top) === name", arg=[top["y"], before])


def test_an_exported_transcript_has_answers_only(
    browser: Browser, home: Home, tmp_path: Path
) -> None:
    target = tmp_path / "run.html"
    assert vestige("export", "r1", "-o", target, "--home", home.root).exit_code == 0
    place = "#/run/r1?view=transcript&only=answers"
    with visit(browser, target.as_uri() + place, offline=True) as page:
        expect(items(page).filter(has_text=re.compile("^assistant")).first).to_be_visible()
        expect(items(page).filter(has_text=re.compile(r"^\W*system"))).to_have_count(0)
