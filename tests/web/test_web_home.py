"""The home page, through the real server, in a real browser."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from support.browsing import Visit, served, visit
from support.scene import fill
from vestige.home import Home

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def url(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = Home(tmp_path_factory.mktemp("scene") / "home")
    fill(home)
    with served(home.root) as url:
        yield url


def row(page: Page, short_id: str):  # type: ignore[no-untyped-def]
    return page.get_by_role("row").filter(has=page.get_by_text(short_id, exact=True))


def test_home_shows_each_run_and_how_it_went(browser: Browser, url: str) -> None:
    """Outcome, name, duration, spans, tokens, cost and the top finding, without a click."""
    with visit(browser, url) as page:
        failed, good = row(page, "r21"), row(page, "r19")

        expect(failed).to_contain_text("Failed")
        expect(failed).to_contain_text("refund desk")
        expect(failed).to_contain_text("refund failed")
        expect(good).to_contain_text("Succeeded")
        expect(good).to_contain_text("5.37 s")
        expect(good).to_contain_text("$0.0075")
        totals = page.get_by_role("status", name="Totals")
        expect(totals).to_contain_text("20 runs")
        expect(totals).to_contain_text("4 failed (20 %)")
        page.get_by_role("tab", name="Trends").click()
        expect(page.get_by_role("img", name="Runs: 20")).to_be_visible()
        expect(page.get_by_role("img", name="Failed: 4 · 20 %")).to_be_visible()


def test_a_filter_narrows_and_is_part_of_the_link(browser: Browser, url: str) -> None:
    """Typed, by a button, or by the address: the same runs. A bad term is reported."""
    with visit(browser, url) as page:
        page.get_by_role("searchbox").fill("is:failed")
        expect(page.get_by_text("r19", exact=True)).to_have_count(0)
        expect(row(page, "r15")).to_be_visible()
        link = page.url
        page.get_by_role("button", name="Failed", exact=True).click()

        expect(row(page, "r19")).to_be_visible()
        assert "q=is%3Afailed" in link
    seen = Visit(browser, url)  # a refusal is an error to the console, too
    expect(row(seen.page, "r19")).to_be_visible()
    seen.page.get_by_role("searchbox").fill("cost>much")
    expect(seen.page.get_by_role("alert")).to_contain_text("cost")
    expect(row(seen.page, "r19")).to_be_visible()
    seen.context.close()
    with visit(browser, url + "#/?q=is:failed") as page:
        expect(row(page, "r15")).to_be_visible()
        expect(page.get_by_text("r19", exact=True)).to_have_count(0)


def test_every_heading_sorts_and_totals_follow_the_filter(browser: Browser, url: str) -> None:
    with visit(browser, url) as page:
        ids = page.locator(".runrow .c-run .mono")
        for heading in ("Duration", "Cost", "Run", "Tokens"):
            page.get_by_role("button", name=heading, exact=True).click()
            column = page.get_by_role("columnheader", name=heading, exact=True)
            expect(column).to_have_attribute("aria-sort", re.compile("ending"))
            expect(ids.first).not_to_have_text("")
        page.get_by_role("button", name="Tokens", exact=True).click()
        expect(page.get_by_role("columnheader", name="Tokens", exact=True)).to_have_attribute(
            "aria-sort", "ascending"
        )
        page.get_by_role("searchbox").fill("is:failed")
        expect(page.get_by_role("status", name="Totals")).to_contain_text("4 runs")


def test_a_phone_sorts_without_headings(browser: Browser, url: str) -> None:
    with visit(browser, url, viewport={"width": 390, "height": 780}) as page:
        ids = page.locator(".runrow .c-run .mono")
        expect(ids.first).not_to_have_text("")
        newest = ids.first.text_content()
        page.get_by_role("button", name="Sort ascending").click()
        expect(ids.first).not_to_have_text(newest or "")
        page.get_by_role("combobox", name="Sort by").select_option("Cost")
        expect(page).to_have_url(re.compile("sort=cost"))
        cost = page.locator(".runrow .c-cost").first
        expect(cost).to_contain_text("$")
        page.get_by_role("button", name="Sort ascending").click()
        expect(page).to_have_url(re.compile("reverse=1"))
        expect(page.get_by_role("button", name="Sort descending")).to_be_visible()


def test_columns_and_saved_filters_stay_in_the_browser(browser: Browser, url: str) -> None:
    with visit(browser, url) as page:
        page.get_by_role("button", name="Columns").click()
        page.get_by_role("checkbox", name="Spans").check()
        page.get_by_role("searchbox").fill("is:failed")
        page.get_by_role("button", name="Saved filters").click()
        page.get_by_role("button", name="Save this filter").click()
        page.goto(url + "#/")
        page.reload()
        expect(page.get_by_role("columnheader", name="Spans")).to_be_visible()
        page.get_by_role("button", name="Saved filters").click()
        page.get_by_role("button", name="is:failed", exact=True).click()
        expect(page.get_by_role("searchbox")).to_have_value("is:failed")


def test_conversations_can_be_taken_together(browser: Browser, url: str) -> None:
    """One row for each, with how many runs it has; a click shows them."""
    with visit(browser, url) as page:
        page.get_by_role("button", name="Group by conversation").click()
        expect(row(page, "r19")).to_contain_text("3 runs")
        expect(page.get_by_text("r18", exact=True)).to_have_count(0)
        row(page, "r19").get_by_role("button", name="3 runs").click()

        expect(row(page, "r18")).to_be_visible()
        expect(page.get_by_text("r15", exact=True)).to_have_count(0)


def test_full_text_search_leads_to_the_span(browser: Browser, url: str) -> None:
    """Words anywhere in a body; the hit is a link to the very span."""
    with visit(browser, url + "#/?q=A-13") as page:
        page.get_by_role("tab", name="Matches").click()
        page.locator("a.hit").first.click()

        expect(page.get_by_role("region", name="Span details")).to_be_visible()
        assert "#/run/r15?span=s" in page.url and "find=A-13" in page.url


def test_tools_are_ranked_by_cost_against_use(browser: Browser, url: str) -> None:
    with visit(browser, url + "#/?tab=tools") as page:
        tools = page.get_by_role("region", name="Tools")

        expect(tools).to_contain_text("Prompt cost vs. usage")
        expect(tools.get_by_role("row").filter(has_text="refund").first).to_contain_text("79 %")


def test_the_keyboard_is_enough(browser: Browser, url: str) -> None:
    """Keys move, find the next failure, open, go back, show help and search."""
    with visit(browser, url) as page:
        expect(row(page, "r21")).to_be_visible()
        for key in "jjjk":
            page.keyboard.press(key)
        expect(row(page, "r20")).to_have_attribute("aria-selected", "true")
        page.keyboard.press("e")
        expect(row(page, "r15")).to_have_attribute("aria-selected", "true")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="refund desk")).to_be_visible()
        page.keyboard.press("e")
        expect(page.get_by_role("region", name="Span details")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("region", name="Span details")).to_have_count(0)
        expect(page.get_by_role("region", name="Run details")).to_be_visible()
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_contain_text("Next failed span")
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.keyboard.press("g")
        expect(row(page, "r21")).to_be_visible()
        page.keyboard.press("Control+k")
        expect(page.get_by_role("dialog").locator("input")).to_be_focused()
        page.keyboard.type("r17")
        expect(page.get_by_role("dialog").get_by_role("option").first).to_contain_text("r17")
        page.keyboard.press("Enter")

        expect(page.get_by_role("region", name="Summary")).to_contain_text("r17")


def test_a_run_is_found_by_a_text_in_it(browser: Browser, url: str) -> None:
    with visit(browser, url) as page:
        expect(row(page, "r21")).to_be_visible()
        page.keyboard.press("Control+k")
        page.keyboard.type("A-13")
        expect(page.get_by_role("dialog").get_by_role("option").first).to_contain_text("r15")
        page.keyboard.press("Enter")

        expect(page.get_by_role("region", name="Summary")).to_contain_text("r15")


def test_the_search_opens_a_run_at_the_text(browser: Browser, url: str) -> None:
    """At the span, in the tab with the text, highlighted; all matches are one choice away."""
    with visit(browser, url) as page:
        expect(row(page, "r21")).to_be_visible()
        page.keyboard.press("Control+k")
        page.keyboard.type("A-13")
        options = page.get_by_role("dialog").get_by_role("option")
        expect(options.first).to_contain_text("r15")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(r"#/run/r15\?span=s\d+.*find=[Aa]-13"))
        pane = page.get_by_role("region", name="Span details")
        expect(pane).to_contain_text("A-13")
        expect(page.get_by_role("searchbox", name="Search this run")).to_have_value(
            re.compile("A-13", re.IGNORECASE)
        )
        page.evaluate(  # wait_for_function needs eval, which the page's policy forbids
            """new Promise((done) => {
              const look = () =>
                CSS.highlights.get('search')?.size > 0 ? done() : setTimeout(look, 50);
              look();
            })"""
        )

        page.keyboard.press("Control+k")
        page.keyboard.type("A-13")
        options.filter(has_text="All matches").click()
        expect(page.locator("a.hit").first).to_be_visible()


def test_a_filter_is_sent_once_it_is_complete(browser: Browser, url: str) -> None:
    """An open quote or a key without a value is not an error; the page says that it waits."""
    with visit(browser, url) as page:
        expect(row(page, "r19")).to_be_visible()
        box = page.get_by_role("searchbox")
        for text in ('is:failed "refund f', "is:failed note:", "is:fai"):
            box.fill(text)
            expect(page.get_by_text("Not applied yet")).to_be_visible()
            page.wait_for_timeout(300)  # longer than the page waits for the next key
            expect(page.get_by_role("alert")).to_have_count(0)
        box.fill('is:failed "refund failed"')
        expect(page.get_by_text("Not applied yet")).to_have_count(0)
        expect(page.get_by_text("r19", exact=True)).to_have_count(0)


def test_selected_runs_and_costs_are_added_up(browser: Browser, url: str) -> None:
    with visit(browser, url) as page:
        row(page, "r21").get_by_role("checkbox").check()
        row(page, "r19").get_by_role("checkbox").check()
        selected = page.get_by_role("status", name="Selected runs")
        expect(selected).to_contain_text("2 runs selected")
        expect(selected).to_contain_text("tokens")
        expect(selected).to_contain_text("$")
        page.get_by_role("tab", name="Costs").click()
        total = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="Total"))
        expect(total.last).to_contain_text("% of $")


def test_checkboxes_of_columns_are_beside_their_labels(browser: Browser, url: str) -> None:
    with visit(browser, url) as page:
        page.get_by_role("button", name="Columns").click()
        box = page.get_by_role("checkbox", name="Spans").bounding_box()
        label = page.locator("fieldset label", has_text="Spans").bounding_box()

        assert box and label
        assert box["width"] < 40 and label["height"] < 2 * box["height"]


def test_a_phone_shows_ids_and_results(browser: Browser, url: str) -> None:
    with visit(browser, url, viewport={"width": 390, "height": 780}) as page:
        good = row(page, "r19")
        expect(good.get_by_text("r19", exact=True)).to_be_visible()
        expect(good.get_by_text(re.compile("^→ "))).to_be_visible()


@pytest.mark.parametrize("system", ["light", "dark"])
def test_the_first_click_on_the_theme_changes_it(browser: Browser, url: str, system: str) -> None:
    with visit(browser, url, color_scheme=system) as page:
        color = "getComputedStyle(document.body).backgroundColor"
        before = page.evaluate(color)
        page.get_by_role("button", name="Theme: system").click()

        assert page.evaluate(color) != before
        page.get_by_role("button", name="Theme:").click()
        assert page.evaluate(color) == before
        page.get_by_role("button", name="Theme:").click()
        expect(page.get_by_role("button", name="Theme: system")).to_be_visible()


def test_a_run_that_is_not_there_leads_to_all_runs(browser: Browser, url: str) -> None:
    seen = Visit(browser, url + "#/run/r999")
    expect(seen.page.get_by_text("Run r999 not found.")).to_be_visible()
    seen.page.get_by_role("link", name="All runs").click()
    expect(row(seen.page, "r21")).to_be_visible()
    seen.context.close()


def test_a_span_that_was_closed_stays_closed_when_the_overview_arrives(
    browser: Browser, url: str
) -> None:
    """The page opens the first failure by itself, but not after the reader has closed it."""
    seen = Visit(browser, url)
    page = seen.page
    waiting: list[Route] = []
    expect(row(page, "r15")).to_be_visible()
    page.route("**/overview?*", lambda route: waiting.append(route))
    page.evaluate("location.hash = '#/run/r15'")
    expect(page.get_by_role("region", name="Run details")).to_be_visible()
    page.keyboard.press("e")
    expect(page.get_by_role("region", name="Span details")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("region", name="Run details")).to_be_visible()
    for each in waiting:
        each.continue_()
    expect(page.get_by_role("list", name="Steps")).to_be_visible()

    expect(page.get_by_role("region", name="Run details")).to_be_visible()
    assert "span=" not in page.url
    seen.done()


def test_two_marked_runs_are_compared_the_older_one_first(browser: Browser, url: str) -> None:
    with visit(browser, url) as page:
        row(page, "r21").get_by_role("checkbox").check()
        row(page, "r19").get_by_role("checkbox").check()
        page.get_by_role("button", name="Compare", exact=True).click()
        page.wait_for_url("**/*#/compare?a=r19&b=r21")


def test_sql_is_asked_and_ids_are_links(browser: Browser, url: str) -> None:
    """A refusal says what is wrong; nothing can be written."""
    query = "SELECT 'r' || run || '.s' || number AS id FROM spans WHERE status='error' LIMIT 1"
    with visit(browser, url + "#/sql") as page:
        page.get_by_role("textbox", name="SQL query").fill(query)
        page.keyboard.press("Control+Enter")
        page.get_by_role("cell").get_by_role("link").click()
        expect(page.get_by_role("region", name="Span details")).to_be_visible()
    refused = Visit(browser, url + "#/sql?q=DELETE FROM runs")
    expect(refused.page.get_by_role("alert")).to_be_visible()
    refused.context.close()


def test_text_from_a_trace_is_text(browser: Browser, url: str) -> None:
    """Tags, escapes and characters that change the writing direction are shown as text."""
    with visit(browser, url) as page:
        name = row(page, "r20").get_by_role("link")
        expect(name).to_contain_text("<script>window.pwned = 1</script>")
        name.click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("<script>")
        for view in ("Tree", "Logs", "Transcript", "Timeline"):
            page.get_by_role("tab", name=view).click()
            expect(page.get_by_role("tabpanel")).to_be_visible()
        page.get_by_role("tab", name="Tree").click()
        text = page.inner_text("body")

        assert page.evaluate("window.pwned") is None
        assert not set(text) & {"\u202e", "\x1b", "\x00"}


def test_the_policy_lets_only_the_page_itself_run(browser: Browser, url: str) -> None:
    """Markup that gets into the page all the same does nothing."""
    seen = Visit(browser, url)
    expect(row(seen.page, "r21")).to_be_visible()
    seen.page.evaluate(
        """() => {
            const script = document.createElement('script');
            try { script.textContent = 'window.pwned = 1' } catch {}
            document.body.append(script);
            const html = '<img src=x onerror="window.pwned=1">';
            try { document.body.insertAdjacentHTML('beforeend', html) } catch {}
            const image = new Image(); image.src = 'https://evil.example/x.png';
        }"""
    )
    seen.page.wait_for_timeout(200)  # nothing is awaited: time for it to happen, if it could

    assert seen.page.evaluate("window.pwned") is None
    assert seen.elsewhere == []
    seen.context.close()


AGENT = """
import os, time, vestige
with vestige.traced_run("night shift") as run:
    run.child("look around", "tool").end()
    run.child("open the door", "tool")
    print("in flight", flush=True)
    time.sleep(600)
"""


def test_rows_are_live_until_the_process_is_killed(browser: Browser, tmp_path: Path) -> None:
    """A run appears while the page is open, is running, and is interrupted once it is killed."""
    (tmp_path / "agent.py").write_text(AGENT)
    home = tmp_path / "home"
    Home(home).make()
    with served(home) as url, visit(browser, url) as page:
        expect(page.get_by_text("No runs yet.")).to_be_visible()
        agent = subprocess.Popen(
            [sys.executable, str(tmp_path / "agent.py")],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "VESTIGE_HOME": str(home)},
        )
        assert agent.stdout is not None
        assert agent.stdout.readline() == "in flight\n"
        running = page.get_by_role("row").filter(has_text="night shift")
        expect(running).to_contain_text("Running")
        running.get_by_role("link").click()
        expect(page.get_by_role("region", name="Summary")).to_contain_text("Running")
        agent.send_signal(signal.SIGKILL)
        agent.wait()
        agent.stdout.close()

        expect(page.get_by_role("region", name="Summary")).to_contain_text("Crashed")
        page.keyboard.press("g")
        expect(page.get_by_role("row").filter(has_text="night shift")).to_contain_text("Crashed")


def test_words_are_searched_near_each_other_and_the_page_says_so(
    browser: Browser, url: str
) -> None:
    with visit(browser, url) as page:
        page.get_by_role("searchbox").fill("failed refund")
        expect(page.get_by_text('words that begin with "failed" and "refund"')).to_be_visible()
        expect(row(page, "r21")).to_be_visible()
        expect(page.get_by_text("r19", exact=True)).to_have_count(0)
        page.get_by_role("button", name="Search the exact phrase").click()
        expect(page.get_by_role("searchbox")).to_have_value('"failed refund"')
        expect(page.get_by_text("No runs match: the text")).to_be_visible()
        page.get_by_role("searchbox").fill("r19")
        expect(row(page, "r19")).to_be_visible()
        expect(page.get_by_text("r21", exact=True)).to_have_count(0)
        expect(page.get_by_role("status", name="Totals")).to_contain_text("1 run")


def test_rows_of_the_filter_before_cannot_be_used(browser: Browser, url: str) -> None:
    """Until the answer arrives, and after a refused filter: they may not be what is asked for."""
    seen = Visit(browser, url)
    page = seen.page
    expect(row(page, "r19")).to_be_visible()
    table = page.get_by_role("table", name="Runs")
    page.route("**/api/v1/list?*", lambda route: None)
    page.get_by_role("searchbox").fill("is:failed")
    expect(table).to_have_attribute("aria-busy", "true")
    expect(page.get_by_text("Searching…")).to_be_visible()
    assert table.evaluate("table => table.inert")
    page.keyboard.press("Escape")
    for key in ("j", "x", "Enter"):
        page.keyboard.press(key)
    expect(page.get_by_text("selected")).to_have_count(0)
    assert "#/run" not in page.url
    page.unroute("**/api/v1/list?*")
    page.get_by_role("searchbox").fill("is:nonsense")
    expect(page.get_by_role("alert")).to_contain_text("expected is: and one of failed, ok")
    assert table.evaluate("table => table.inert")
    page.get_by_role("searchbox").fill("is:succeeded")
    expect(page.get_by_role("checkbox", name="Select r19")).to_be_enabled()
    page.get_by_role("checkbox", name="Select r19").check()
    page.get_by_role("button", name="Remove r19 from the selection").click()
    expect(page.get_by_text("1 run selected")).to_have_count(0)
    seen.context.close()


def test_trends_have_the_filter_and_the_counts_of_the_list(browser: Browser, url: str) -> None:
    with visit(browser, url) as page:
        page.get_by_role("tab", name="Trends").click()
        for text, runs in (("", "20"), ("is:failed", "4"), ("name:nothing", "0")):
            page.get_by_role("searchbox").fill(text)
            expect(page.get_by_role("status", name="Totals")).to_contain_text(f"{runs} runs")
            expect(page.get_by_role("img", name=re.compile(f"Runs: {runs}(,|$)"))).to_be_visible()
        page.get_by_role("button", name="Include deleted runs").click()
        expect(page.get_by_text("also deleted ones, whatever the filter")).to_be_visible()
        expect(page.get_by_role("img", name=re.compile("Runs: 20"))).to_be_visible()


def test_an_unknown_page_says_so(browser: Browser, url: str) -> None:
    with visit(browser, url + "#/nonsense") as page:
        expect(page.get_by_role("main")).to_contain_text("Page not found")
        page.get_by_role("link", name="All runs").click()
        expect(row(page, "r19")).to_be_visible()
    with visit(browser, url + "#/?tab=nonsense") as page:
        expect(row(page, "r19")).to_be_visible()


def test_a_task_has_the_width_of_a_phone(browser: Browser, url: str) -> None:
    with visit(browser, url, viewport={"width": 390, "height": 780}) as page:
        title = row(page, "r19").locator(".title")
        expect(title).to_be_visible()
        box = title.bounding_box()
        assert box is not None and box["width"] > 330


def test_the_list_returns_to_the_run_that_was_open(browser: Browser, url: str) -> None:
    """Its row is chosen, and keys go on from there, not from a link that was clicked."""
    with visit(browser, url, viewport={"width": 1280, "height": 420}) as page:
        page.locator(".virtual").evaluate("list => list.scrollTo(0, 9999)")
        row(page, "r2").locator(".title").click()
        expect(page.get_by_role("region", name="Summary")).to_contain_text("r2")
        page.go_back()
        expect(row(page, "r2")).to_be_in_viewport()
        expect(row(page, "r2")).to_have_attribute("aria-selected", "true")
        page.get_by_role("link", name="Runs", exact=True).click()
        page.keyboard.press("k")
        page.keyboard.press("Enter")
        expect(page.get_by_role("region", name="Summary")).to_contain_text("r3")


def test_an_id_of_a_span_leads_to_the_span(browser: Browser, url: str) -> None:
    with visit(browser, url) as page:
        page.keyboard.press("Control+k")
        page.keyboard.type("r21.s3")
        option = page.get_by_role("option", name=re.compile(r"r21\.s3"))
        expect(option).to_be_visible()
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(r"run/r21\?span=s3"))


def test_the_terms_of_a_filter_are_listed_and_inserted(browser: Browser, url: str) -> None:
    with visit(browser, url) as page:
        page.get_by_role("button", name="Filter terms").click()
        page.get_by_role("button", name=re.compile("^is:failed")).click()
        expect(page.get_by_role("searchbox")).to_have_value("is:failed")
        expect(row(page, "r19")).to_have_count(0)


def test_a_note_can_be_read_in_the_list(browser: Browser, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    fill(home)
    note = ["note", "r21", "#culprit the wrong order", "--home", str(home.root)]
    subprocess.run([sys.executable, "-m", "vestige", *note], check=True, timeout=120)
    with served(home.root) as url, visit(browser, url) as page:
        expect(row(page, "r21")).to_contain_text("#culprit the wrong order")
        expect(row(page, "r21")).to_contain_text("refund failed")


def test_another_order_is_shown_from_its_beginning(browser: Browser, url: str) -> None:
    """Also after the list has returned to a run far below."""
    with visit(browser, url, viewport={"width": 1280, "height": 420}) as page:
        page.locator(".virtual").evaluate("list => list.scrollTo(0, 9999)")
        row(page, "r2").locator(".title").click()
        expect(page.get_by_role("region", name="Summary")).to_contain_text("r2")
        page.go_back()
        expect(row(page, "r2")).to_be_in_viewport()
        page.get_by_role("button", name="Duration", exact=True).click()
        page.wait_for_url(re.compile("sort=duration"))
        expect(page.locator("[aria-rowindex='1']")).to_be_in_viewport()
