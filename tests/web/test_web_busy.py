"""A run that is looked at while much happens: what is new is seen, what was chosen stays chosen."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from support.browsing import Visit, served
from vestige.collector.loop import catch_up
from vestige.home import Home
from vestige.recorder import Recorder

pytestmark = pytest.mark.slow

SLOW_MS = 2_000
"""An answer that takes longer than the page waits between two looks."""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def recorder(home: Home) -> Iterator[Recorder]:
    with Recorder(home, last_words=False) as recorder:
        yield recorder


def look(browser: Browser, url: str, place: str) -> Visit:
    visit = Visit(browser, url)
    visit.page.goto("about:blank")
    visit.page.goto(url + place)
    return visit


def delay(page: Page, verb: str) -> None:
    """In the page itself: while a handler of this process waits, nothing else here would happen."""
    page.add_init_script(
        f"""{{
            const plain = window.fetch;
            window.fetch = async (address, options) => {{
                const answer = await plain(address, options);
                if (String(address).includes('/{verb}?'))
                    await new Promise(done => setTimeout(done, {SLOW_MS}));
                return answer;
            }};
        }}"""
    )


@pytest.mark.parametrize(
    ("verb", "view", "role"), [("outline", "tree", "treeitem"), ("files", "files", "button")]
)
def test_slow_answers_about_a_busy_run_are_shown_all_the_same(
    browser: Browser, home: Home, recorder: Recorder, verb: str, view: str, role: str
) -> None:
    """Something is new before each answer has come: it is shown, not thrown away for a newer
    one.
    """
    run = recorder.run("busy")
    run.child("first", "file", attributes={"path": "first"}).end(body="x")
    catch_up(home)
    with served(home.root) as url:
        visit = Visit(browser, url)
        delay(visit.page, verb)
        visit.page.goto(f"{url}#/run/r2?view={view}")
        visit.page.reload()
        page = visit.page
        seen = page.get_by_role(role).filter(has_text="look")
        expect(page.get_by_role(role).filter(has_text="first")).to_be_visible()
        for turn in range(60):
            run.child(f"look {turn}", "file", attributes={"path": f"look {turn}"}).end(body="x")
            catch_up(home)
            page.wait_for_timeout(100)  # the run goes on, whatever the page does
            if seen.count():
                break

        assert seen.count() > 0
        visit.context.close()
    run.end()


def test_what_was_open_in_a_transcript_is_told_anew_when_it_ends(
    browser: Browser, home: Home, recorder: Recorder
) -> None:
    run = recorder.run("talk")
    call = run.child("ask", "llm", body="Why?")
    catch_up(home)
    with served(home.root) as url:
        visit = look(browser, url, "#/run/r2?view=transcript")
        transcript = visit.page.get_by_role("list", name="Transcript")
        expect(transcript).to_contain_text("Open")
        call.end(body="Because of this.")
        catch_up(home)
        expect(transcript).to_contain_text("Because of this.")
        expect(transcript).not_to_contain_text("Open")
        run.end()
        catch_up(home)

        expect(visit.page.get_by_role("region", name="Summary")).to_contain_text("Succeeded")
        visit.done()


def test_the_chosen_run_stays_chosen_when_others_come_in_above_it(
    browser: Browser, home: Home, recorder: Recorder
) -> None:
    for name in ("old", "older than none"):
        recorder.run(name).end()
    catch_up(home)
    with served(home.root) as url:
        visit = look(browser, url, "#/")
        page = visit.page
        expect(page.get_by_role("link", name="older than none")).to_be_visible()
        page.keyboard.press("j")
        expect(page.locator("[role=row][aria-selected=true]")).to_contain_text("older than none")
        recorder.run("new").end()
        catch_up(home)
        expect(page.get_by_role("link", name="new", exact=True)).to_be_visible()

        expect(page.locator("[role=row][aria-selected=true]")).to_contain_text("older than none")
        page.keyboard.press("Enter")
        expect(page.get_by_role("region", name="Summary")).to_contain_text("older than none")
        visit.done()


def test_a_run_that_has_ended_is_not_among_those_that_are_running(
    browser: Browser, home: Home, recorder: Recorder
) -> None:
    run = recorder.run("soon over")
    recorder.run("goes on")
    catch_up(home)
    with served(home.root) as url:
        visit = look(browser, url, "#/?q=is:running")
        expect(visit.page.get_by_role("link", name="soon over")).to_be_visible()
        run.end()
        catch_up(home)

        expect(visit.page.get_by_role("link", name="soon over")).to_have_count(0)
        expect(visit.page.get_by_role("link", name="goes on")).to_be_visible()
        visit.done()


def test_a_stream_that_was_refused_is_asked_for_again(
    browser: Browser, home: Home, recorder: Recorder
) -> None:
    """Too many streams are open for a moment: the page must not stand still for ever."""
    run = recorder.run("busy")
    run.child("first", "step").end()
    catch_up(home)
    refused: list[str] = []

    def refuse(route: Route) -> None:
        if refused:
            route.fallback()
        else:
            refused.append(route.request.url)
            route.fulfill(status=429, body=json.dumps({"error": "rate_limited"}))

    with served(home.root) as url:
        visit = Visit(browser, url)
        page = visit.page
        page.route("**/api/v1/live?run=*", refuse)
        page.goto(f"{url}#/run/r2?view=tree")
        page.reload()
        expect(page.get_by_role("treeitem").filter(has_text="first")).to_be_visible()
        page.wait_for_timeout(1_000)  # what the page looks at once, without a stream, is over
        run.child("second", "step").end()
        catch_up(home)

        expect(page.get_by_role("treeitem").filter(has_text="second")).to_be_visible()
        assert refused
        visit.context.close()


def test_a_server_that_is_gone_is_told_beside_the_run(
    browser: Browser, home: Home, recorder: Recorder
) -> None:
    run = recorder.run("busy")
    run.child("first", "step").end()
    catch_up(home)
    with served(home.root) as url:
        visit = Visit(browser, url)
        page = visit.page
        page.goto(f"{url}#/run/r2?view=tree")
        page.reload()
        expect(page.get_by_role("treeitem").filter(has_text="first")).to_be_visible()
        page.route("**/api/v1/outline?*", lambda route: route.abort())
        run.child("second", "step").end()
        catch_up(home)
        expect(page.get_by_role("alert")).to_contain_text("Lost connection")
        expect(page.get_by_role("treeitem").filter(has_text="first")).to_be_visible()
        button = page.get_by_role("button", name="Try again").element_handle()
        page.unroute("**/api/v1/outline?*")
        # The page may recover by itself before the click: then there is nothing left to click.
        button.evaluate("button => button.click()")

        expect(page.get_by_role("treeitem").filter(has_text="second")).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)
        visit.context.close()


def test_rows_that_come_in_above_the_chosen_one_do_not_move_the_reader(
    browser: Browser, home: Home, recorder: Recorder
) -> None:
    """The chosen span is far below, the reader looks at the top: there he stays."""
    run = recorder.run("busy")
    branch = run.child("a branch", "step")
    for number in range(100):
        run.child(f"step {number}", "step").end()
    catch_up(home)
    with served(home.root) as url:
        visit = look(browser, url, "#/run/r2?view=tree&span=s102")
        page = visit.page
        expect(page.get_by_role("treeitem").filter(has_text="step 99")).to_be_visible()
        rows = page.get_by_role("tree")
        rows.evaluate("at => { at.scrollTop = 0 }")
        expect(page.get_by_role("treeitem").filter(has_text="a branch")).to_be_visible()
        branch.child("a leaf", "step").end()
        catch_up(home)
        expect(page.get_by_role("treeitem").filter(has_text="a leaf")).to_have_count(1)
        page.evaluate("() => new Promise(done => setTimeout(done, 300))")  # to move, if it does

        assert rows.evaluate("at => at.scrollTop") == 0
        visit.done()


def test_sums_of_all_runs_are_not_those_of_long_ago(
    browser: Browser, home: Home, recorder: Recorder
) -> None:
    """Who comes back to the list a minute later sees what it adds up to now."""
    recorder.run("one").end()
    catch_up(home)
    with served(home.root) as url:
        visit = look(browser, url, "#/")
        page = visit.page
        sums = page.get_by_role("region", name="Trends")
        totals = page.get_by_role("status", name="Totals")
        expect(totals).to_contain_text("1 run")
        page.get_by_role("tab", name="Trends").click()
        expect(sums).to_contain_text(re.compile(r"Runs\s*1"))
        page.get_by_role("tab", name="Runs").click()
        page.get_by_role("link", name="one").click()
        expect(page.get_by_role("region", name="Summary")).to_contain_text("one")
        recorder.run("two").end()
        catch_up(home)
        page.clock.set_fixed_time(datetime.now() + timedelta(minutes=1))
        page.get_by_role("link", name="Runs").click()

        expect(totals).to_contain_text("2 runs")
        page.get_by_role("tab", name="Trends").click()
        expect(sums).to_contain_text(re.compile(r"Runs\s*2"))
        visit.done()
