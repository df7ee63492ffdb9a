"""Search, share, notes and the timeline of a run, in a real browser."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from support.browsing import Visit, served, visit
from support.scene import fill
from vestige.home import Home

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = Home(tmp_path_factory.mktemp("inside") / "home")
    fill(home)
    with served(home.root) as url:
        yield url


def wait_for(page: Page, condition: str) -> None:
    """Wait in the page. Playwright's own wait needs eval, which the page's policy forbids."""
    page.evaluate(
        f"""new Promise((done) => {{
          const look = () => (({condition}) ? done() : setTimeout(look, 50));
          look();
        }})"""
    )


def test_a_search_counts_highlights_and_steps_through_matches(browser: Browser, url: str) -> None:
    with visit(browser, url + "#/run/r21") as page:
        page.keyboard.press("f")
        page.keyboard.type("refund order")
        status = page.get_by_role("search").get_by_role("status")
        expect(status).to_have_text(re.compile(r"^\d+$"))
        page.keyboard.press("Enter")
        expect(status).to_have_text(re.compile(r"^1 of \d+$"))
        pane = page.get_by_role("region", name="Span details")
        expect(pane).to_contain_text("efund order")
        wait_for(page, "CSS.highlights.get('search')?.size > 0")
        assert "find=refund" in page.url and "span=s" in page.url
        first = page.url
        page.get_by_role("button", name="Next match").click()
        expect(status).to_have_text(re.compile(r"^2 of \d+$"))
        assert page.url != first


def test_enter_before_the_matches_arrive_opens_the_first_of_them(
    browser: Browser, url: str
) -> None:
    with visit(browser, url + "#/run/r21") as page:
        page.keyboard.press("f")
        page.keyboard.type("refund")
        status = page.get_by_role("search").get_by_role("status")
        expect(status).to_have_text(re.compile(r"^\d+( of \d+)?$"))

        page.keyboard.type(" order")
        page.keyboard.press("Enter")

        expect(status).to_have_text(re.compile(r"^1 of \d+$"))
        pane = page.get_by_role("region", name="Span details")
        expect(pane).to_contain_text("efund order")


def test_a_match_of_the_list_opens_its_tab(browser: Browser, url: str) -> None:
    with visit(browser, url + "#/?tab=text&q=refund+order") as page:
        page.locator(".hit", has_text="input").first.click()
        page.wait_for_url(re.compile(r"tab=hit-input.*find=refund|find=refund.*tab=hit-input"))
        expect(page.get_by_role("searchbox", name="Search this run")).to_have_value("refund order")
        wait_for(page, "CSS.highlights.get('search')?.size > 0")
        messages = page.get_by_role("tab", name="Messages")
        expect(messages).to_have_attribute("aria-selected", "true")


MARKED = "[...(CSS.highlights.get('search') ?? [])].map((each) => each.toString().toLowerCase())"


def test_a_row_shows_where_the_run_has_the_searched_words(browser: Browser, url: str) -> None:
    """In any order, beside many others; the match opens in the message that has it."""
    with visit(browser, url + "#/?q=look+brief") as page:
        match = (
            page.get_by_role("row")
            .filter(has=page.get_by_text("r2", exact=True))
            .locator("a.second")
        )
        expect(match.locator("mark")).to_have_text(re.compile("^(brief|look)$", re.I))
        match.click()

        expect(page.get_by_role("searchbox", name="Search this run")).to_have_value("look brief")
        wait_for(page, f"{MARKED}.includes('brief') && {MARKED}.includes('look')")
        pane = page.get_by_role("region", name="Messages")
        expect(pane).to_contain_text("Be brief, and look before you pay.")


def test_only_text_of_the_run_is_highlighted(browser: Browser, url: str) -> None:
    """The page's own labels are not part of the run."""
    with visit(browser, url + "#/run/r21?find=ste") as page:
        expect(page.get_by_role("search").get_by_role("status")).to_be_visible()
        wait_for(page, "document.querySelectorAll('.step').length > 0")
        tabs = page.get_by_role("tablist", name="Views")
        expect(tabs).to_contain_text("Steps")
        inside = "(each) => each.startContainer.parentElement.closest('.viewbar, .topbar')"
        wait_for(page, f"![...(CSS.highlights.get('search') ?? [])].some({inside})")


def test_share_shows_what_leaves_and_every_format_is_downloaded(
    browser: Browser, url: str, tmp_path: Path
) -> None:
    with visit(browser, url + "#/run/r21") as page:
        for label, name in (
            ("HTML", "r21.html"),
            ("Debug bundle", "r21.wink"),
            ("OpenTelemetry", "r21.otlp.jsonl"),
            ("OpenWOP", "r21.openwop.json"),
            ("JSON: spans", "r21.json"),
        ):
            page.get_by_role("button", name="Share").click()
            expect(page.locator(".share")).to_contain_text("payloads")
            expect(page.locator(".share")).to_contain_text(re.compile("redacted|No secrets"))
            with page.expect_download() as download:
                page.get_by_role("link", name=label).click()
            assert download.value.suggested_filename == name
            download.value.save_as(tmp_path / name)
    assert b"data-answers" in (tmp_path / "r21.html").read_bytes()
    assert zipfile.is_zipfile(tmp_path / "r21.wink")
    assert json.loads((tmp_path / "r21.json").read_text())["run"]["short_id"] == "r21"
    json.loads((tmp_path / "r21.openwop.json").read_text())
    for line in (tmp_path / "r21.otlp.jsonl").read_text().splitlines():
        json.loads(line)


def test_markdown_for_an_issue_names_outcome_cause_and_steps(browser: Browser, url: str) -> None:
    seen = Visit(browser, url + "#/run/r21", permissions=["clipboard-read", "clipboard-write"])
    page = seen.page
    page.get_by_role("button", name="Share").click()
    page.get_by_role("button", name="Markdown for an issue").click()
    expect(page.get_by_text("Copied")).to_be_visible()
    text = page.evaluate("navigator.clipboard.readText()")
    seen.context.close()

    assert text.startswith("### ") and "(r21)" in text
    assert "**error**" in text and "`vestige show r21`" in text


def test_printing_renders_all_rows(browser: Browser, url: str) -> None:
    with visit(browser, url) as page:
        rows = "document.querySelectorAll('.runrow.item').length"
        page.evaluate(f"window.print = () => {{ window.rows = {rows} }}")
        page.set_viewport_size({"width": 1000, "height": 300})
        expect(page.get_by_text("r21", exact=True)).to_be_visible()
        page.keyboard.press("Control+p")
        wait_for(page, "window.rows >= 20")


def test_a_note_typed_by_keyboard_is_saved_with_author_and_tag_and_marked_in_the_list(
    browser: Browser, url: str
) -> None:
    with visit(browser, url + "#/run/r19?span=s2") as page:
        page.get_by_role("button", name="Add a note").click()
        page.keyboard.type("the rate is from 2019")
        page.get_by_role("button", name="#culprit").click()
        page.keyboard.press("Control+Enter")
        note = page.locator(".note").first
        expect(note).to_contain_text("#culprit")
        expect(note).to_contain_text("the rate is from 2019")
        expect(note).not_to_contain_text("anonymous")
        page.goto(url + "#/?q=note:culprit")
        page.reload()
        row = page.get_by_role("row").filter(has=page.get_by_text("r19", exact=True))
        expect(row.locator(".note-mark")).to_be_visible()
        expect(page.get_by_role("status", name="Totals")).to_contain_text("1 run")


def test_keys_add_a_note_and_lead_to_the_runs_before_and_after(browser: Browser, url: str) -> None:
    with visit(browser, url + "#/run/r19?span=s2") as page:
        links = page.get_by_role("navigation", name="Earlier and later runs").get_by_role("link")
        expect(links).to_have_count(2)
        page.keyboard.press("m")
        expect(page.get_by_role("textbox", name="Note on s2")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.get_by_role("textbox", name="Note on s2")).to_have_count(0)
        page.keyboard.press("]")
        page.wait_for_url(re.compile("#/run/r2[01]"))
        expect(links.first).to_contain_text("r19")
        page.keyboard.press("[")
        page.wait_for_url(re.compile("#/run/r19"))


def test_the_timeline_zooms_measures_and_folds_into_a_flame(browser: Browser, url: str) -> None:
    with visit(browser, url + "#/run/r21?view=timeline") as page:
        box = page.get_by_role("region", name=re.compile("^Timeline"))
        expect(box).to_be_visible()
        bar = page.locator(".timeline-bar")
        before = bar.inner_text()
        area = box.bounding_box()
        assert area is not None
        x, y = area["x"] + area["width"] / 2, area["y"] + 60
        page.mouse.move(x, y)
        page.mouse.wheel(0, -300)
        expect(bar).not_to_have_text(before)
        page.get_by_role("button", name="Fit").click()
        box.focus()
        page.keyboard.press("w")
        page.wait_for_url(re.compile("from="))
        page.get_by_role("button", name="Fit").click()
        page.keyboard.down("Shift")
        page.mouse.move(x - 200, y)
        page.mouse.down()
        page.mouse.move(x + 200, y, steps=4)
        page.mouse.up()
        page.keyboard.up("Shift")
        expect(page.locator(".measured")).to_contain_text("span")
        page.get_by_role("button", name="Clear", exact=True).click()
        page.get_by_role("button", name="Flame").click()
        bars = page.get_by_role("group", name="Time by call path").get_by_role("button")
        expect(bars.first).to_be_visible()
        bars.first.click()
        page.wait_for_url(re.compile("span=s"))


def test_a_lost_connection_is_shown_until_the_server_is_back(
    browser: Browser, tmp_path: Path
) -> None:
    home = Home(tmp_path / "home")
    fill(home)
    with served(home.root) as url:
        seen = Visit(browser, url)  # a lost connection is an error to the console, too
        expect(seen.page.get_by_text("r21", exact=True)).to_be_visible()
        port = url.split(":")[2].split("/")[0]
    bar = seen.page.get_by_role("alert").filter(has_text="Lost connection")
    expect(bar).to_be_visible()
    command = [sys.executable, "-m", "vestige", "ui", "--no-browser", "--port", port]
    with subprocess.Popen([*command, "--home", str(home.root)], stderr=subprocess.PIPE) as process:
        try:
            expect(bar).to_have_count(0)
        finally:
            process.terminate()
    seen.context.close()


def test_every_way_of_printing_has_all_rows(browser: Browser, url: str) -> None:
    """Also the browser's own command: the transcript is longer than a screen."""
    with visit(browser, url + "#/run/r21?view=transcript&fold=none") as page:
        expect(page.get_by_role("list", name="Transcript")).to_be_visible()
        wait_for(page, "document.querySelectorAll('.transcript .item').length > 1")
        assert len(re.findall(rb"/Type\s*/Page\b", page.pdf())) > 1
        expect(page.locator(".printed")).to_have_count(0)
        page.evaluate("window.printed = 0; window.print = () => { window.printed += 1 }; 0")
        page.get_by_role("button", name="Share").click()
        page.get_by_role("button", name="Print").click()
        wait_for(page, "window.printed > 0")
        assert page.evaluate("window.printed") == 1


def test_the_steps_follow_the_reader_of_a_transcript(browser: Browser, url: str) -> None:
    with visit(
        browser,
        url + "#/run/r2?view=transcript&fold=none",
        viewport={"width": 1280, "height": 420},
    ) as page:
        steps = page.get_by_role("list", name="Steps").get_by_role("listitem")
        expect(steps.first).to_be_visible()
        page.get_by_role("list", name="Transcript").evaluate("list => list.scrollTo(0, 99999)")
        expect(page.locator(".step.reading .step-number")).not_to_have_text("1")
