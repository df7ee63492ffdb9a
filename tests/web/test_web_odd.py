"""Runs and answers that are not as usual: a page says what is wrong, and goes on working."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from support.browsing import Visit, served
from support.scene import SECOND_NS, _answer
from vestige._runtime.clock import SYSTEM, FakeClock
from vestige.collector.loop import catch_up
from vestige.home import Home
from vestige.record.types import SpanClose, SpanOpen
from vestige.recorder import Recorder
from vestige.store.sqlite.sqlite_store import SqliteStore

pytestmark = pytest.mark.slow

LONG = "12345678901234567890"
LONG_64 = "9007199254740993"
"""What a number of a browser cannot be."""
SHADE = """() => {
    const copy = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    copy.drawImage(document.querySelector('canvas'), -600, -10);
    return copy.getImageData(0, 0, 1, 1).data[0];
}"""
"""Of the ruler above the lanes, where nothing is written."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """r2 goes on with an older talk, r3 has long numbers, r4 is its own ancestor."""
    home = Home(tmp_path_factory.mktemp("odd") / "home")
    clock = FakeClock(SYSTEM.now_ns() - 3600 * SECOND_NS)
    with Recorder(home, last_words=False, clock=clock) as recorder:
        with recorder.run("an older talk") as run:
            old = _answer("", [("t0", "look", {})])["content"]
            result = {"type": "tool_result", "tool_use_id": "t0", "content": "an older result"}
            messages = [
                {"role": "user", "content": "Look."},
                {"role": "assistant", "content": old},
                {"role": "user", "content": [result]},
            ]
            request = {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": messages}
            call = run.child("messages.create", "llm", body=json.dumps(request))
            call.end(body=json.dumps(_answer("Seen.", ())))
        with recorder.run("long numbers") as run:
            run.log.info("hid\U000e0041den\u061c")
            run.child("write", "tool").end(body="x" * 3_000_000 + " the end")
            run.child("look", "tool").end(body=f'{{"id": {LONG}, "10": 1, "2": 1}}')
            run.child("count", "tool", {"rows": int(LONG_64)}).end()
            run.child("basket", "state", body=f'{{"order": {LONG_64}}}').end()
    catch_up(home)
    add_cycle(home, clock.now_ns())
    return home


def export(home: Home, run: str, path: Path) -> None:
    """As one page that needs no server."""
    command = [sys.executable, "-m", "vestige", "export", run, "--format", "html"]
    subprocess.run(
        [*command, "--home", str(home.root), "-o", str(path)], check=True, capture_output=True
    )


def add_cycle(home: Home, now_ns: int) -> None:
    """Two calls that name each other as parents, and one that began before the run, of a status
    that nobody knows."""
    writer, run = "c" * 16, "f" * 32
    cached = {"model": "m", "cache_read_tokens": 5, "input_tokens": 9}
    spans = [
        ("root", "run", None, 0),
        ("a", "llm", "b", 0),
        ("b", "llm", "a", 0),
        ("c", "tool", "root", -5),
    ]
    records: list[SpanOpen | SpanClose] = []
    for name, kind, parent, at_s in spans:
        at_ns = now_ns + at_s * SECOND_NS
        records += [
            SpanOpen(
                1,
                writer,
                len(records),
                at_ns,
                run,
                name,
                "agent",
                kind,
                f"span {name}",
                parent,
                attributes=cached if kind == "llm" else {},
            ),
            SpanClose(
                1,
                writer,
                len(records) + 1,
                at_ns + SECOND_NS,
                run,
                name,
                "constructor" if name == "c" else "ok",
                SECOND_NS,
            ),
        ]
    with SqliteStore.open(home.store) as store:
        store.append(records)


@pytest.fixture(scope="module")
def url(home: Home) -> Iterator[str]:
    with served(home.root) as address:
        yield address


@pytest.fixture
def visit(browser: Browser, url: str) -> Iterator[Visit]:
    visit = Visit(browser, url)
    yield visit
    visit.context.close()


def at(visit: Visit, url: str, place: str) -> Page:
    visit.page.goto("about:blank")
    visit.page.goto(url.split("#")[0] + place)
    return visit.page


def answer_with(change: Callable[[dict[str, Any]], None]) -> Callable[[Route], None]:
    def answer(route: Route) -> None:
        response = route.fetch()
        data = response.json()
        change(data)
        route.fulfill(response=response, json=data)

    return answer


def test_a_result_of_a_call_from_before_the_run_is_shown(visit: Visit, url: str) -> None:
    page = at(visit, url, "#/run/r2?view=transcript")

    expect(page.get_by_role("list", name="Transcript")).to_contain_text("an older result")
    expect(page.get_by_role("list", name="Transcript")).to_contain_text("Seen.")
    visit.done()


def test_a_view_that_cannot_be_drawn_says_so_and_the_others_work(visit: Visit, url: str) -> None:
    """What failed and why, in its place; the tabs, the pane and the other pages are there."""

    def spoil(data: dict[str, Any]) -> None:
        for item in data["items"]:
            item["kind"], item["text"], item["calls"] = "message", 5, 5

    visit.page.route("**/api/v1/transcript?*", answer_with(spoil))
    page = at(visit, url, "#/run/r2?view=transcript")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("went wrong while showing the view Transcript")
    page.get_by_role("tab", name="Tree").click()
    expect(alert).to_have_count(0)
    page.get_by_role("treeitem").nth(1).click()
    expect(page.get_by_role("region", name="Span details")).to_contain_text("messages.create")
    page.get_by_role("tab", name="Transcript").click()
    expect(alert).to_contain_text("went wrong while showing")
    page.unroute("**/api/v1/transcript?*")
    alert.get_by_role("link", name="All runs").click()

    expect(page.get_by_role("row", name="an older talk")).to_be_visible()


def test_a_body_laid_out_is_what_was_recorded(visit: Visit, url: str) -> None:
    """Long numbers are not rounded, keys stay where they were."""
    page = at(visit, url, "#/run/r3?view=tree&span=s3")
    expect(page.get_by_role("region", name="Content")).to_contain_text(LONG)
    page.get_by_role("tab", name="Raw").click()
    body = page.get_by_label("Body")

    expect(body).to_contain_text(re.compile(rf'"id": {LONG},\s*3?\s*"10": 1,\s*4?\s*"2": 1'))
    visit.done()


def test_long_numbers_are_shown_as_they_were_recorded(visit: Visit, url: str) -> None:
    """In attributes and in states, too: an id that is another one is worse than none."""
    page = at(visit, url, "#/run/r3?view=tree&span=s4")
    expect(page.get_by_role("region", name="Attributes")).to_contain_text(LONG_64)
    page.get_by_role("tab", name="Snapshots").click()
    page.get_by_role("list", name="Snapshots").get_by_role("button").first.click()

    expect(page.get_by_role("region", name="Snapshot")).to_contain_text(f'"order": {LONG_64}')
    visit.done()


def test_an_exported_page_has_long_numbers_as_they_were_recorded(
    home: Home, browser: Browser, tmp_path: Path
) -> None:
    path = tmp_path / "r3.html"
    export(home, "r3", path)
    page = browser.new_page()
    page.goto(f"{path.as_uri()}#/run/r3?view=tree&span=s4")

    expect(page.get_by_role("region", name="Attributes")).to_contain_text(LONG_64)
    page.close()


def test_not_each_letter_is_a_search(visit: Visit, url: str) -> None:
    """A search reads all there is: it begins when one stops typing."""
    requests: list[str] = []
    page = at(visit, url, "#/?tab=text")
    page.on("request", lambda one: requests.append(one.url) if "/grep?" in one.url else None)
    page.get_by_role("searchbox").press_sequentially("older result", delay=10)
    expect(page.get_by_role("list", name='Matches for "older result"')).to_be_visible()

    assert len(requests) < 6  # of twelve: we may be slow at typing ourselves
    visit.done()


def test_spans_that_are_their_own_ancestors_are_shown(visit: Visit, url: str) -> None:
    """In the tree, and on the timeline, which reaches back to what began before the run."""
    page = at(visit, url, "#/run/r4?view=tree")
    expect(page.get_by_role("treeitem")).to_have_count(4)
    expect(page.get_by_role("treeitem").filter(has_text="span b")).to_be_visible()
    expect(page.get_by_role("treeitem").filter(has_text="span c")).to_contain_text("-5.000")
    expect(page.get_by_role("treeitem").filter(has_text="span c")).to_contain_text("constructor")
    page.get_by_role("tab", name="Timeline").click()

    expect(page.locator(".timeline-bar")).to_contain_text("-5.000 to +1.0")
    assert page.locator(".timeline-inner").evaluate("at => at.clientHeight") < 1_000
    visit.done()


def test_a_moment_beyond_all_times_does_not_hold_the_page_up(visit: Visit, url: str) -> None:
    page = at(visit, url, f"#/run/r3?view=timeline&from={10**17}&to={10**17 + 16}")

    expect(page.get_by_role("region", name="Timeline of")).to_be_visible()
    visit.done()


def test_the_timeline_follows_the_colours_of_the_page(visit: Visit, url: str) -> None:
    """Those that are chosen, and those of the system."""
    page = at(visit, url, "#/run/r3?view=timeline")
    page.emulate_media(color_scheme="light")
    expect(page.get_by_role("region", name="Timeline of")).to_be_visible()
    page.wait_for_function(f"() => ({SHADE})() > 200")
    page.keyboard.press("T")
    page.wait_for_function(f"() => ({SHADE})() < 60")
    page.keyboard.press("T")
    page.wait_for_function(f"() => ({SHADE})() > 200")
    page.keyboard.press("T")  # as the system again
    page.emulate_media(color_scheme="dark")

    page.wait_for_function(f"() => ({SHADE})() < 60")
    visit.done()


def test_enter_presses_what_has_the_focus(visit: Visit, url: str) -> None:
    """The list's own Enter opens the chosen run only where nothing else is meant."""
    page = at(visit, url, "#/")
    expect(page.get_by_role("row", name="an older talk")).to_be_visible()
    page.get_by_role("button", name="Group by conversation").press("Enter")
    expect(page).to_have_url(re.compile("group=conversation"))
    page.get_by_role("link", name="SQL").press("Enter")

    expect(page).to_have_url(re.compile("#/sql"))
    visit.done()


def test_a_transcript_that_breaks_off_says_so(visit: Visit, url: str) -> None:
    """The first page is there, the next is not: the reader must not take it for the end."""

    def shorten(data: dict[str, Any]) -> None:
        data["items"] = data["items"][:2]
        data["next"] = data["items"][-1]["cursor"]

    failing = {"error": "broken", "message": "The store is gone."}
    visit.page.route("**/api/v1/transcript?id=r2", answer_with(shorten))
    visit.page.route(
        "**/api/v1/transcript?after=*", lambda route: route.fulfill(status=500, json=failing)
    )
    page = at(visit, url, "#/run/r2?view=transcript")
    expect(page.get_by_role("list", name="Transcript")).to_contain_text("Look.")
    expect(page.get_by_role("alert")).to_contain_text("The store is gone.")
    page.unroute("**/api/v1/transcript?after=*")
    page.get_by_role("button", name="Try again").click()

    expect(page.get_by_role("list", name="Transcript")).to_contain_text("Seen.")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_answers_to_words_that_were_typed_before_are_not_taken(visit: Visit, url: str) -> None:
    """Further hits of the old words come after those of the new ones: they are not shown there."""
    routes: list[Route] = []

    def more(data: dict[str, Any]) -> None:
        data["next"] = "further"

    visit.page.route("**/api/v1/grep?*pattern=older*", answer_with(more))
    visit.page.route("**/api/v1/grep?after=*", lambda route: routes.append(route))
    page = at(visit, url, "#/?tab=text&q=older")
    hits = page.get_by_role("list", name="Matches for")
    page.get_by_role("button", name="Load more").click()
    page.get_by_role("searchbox").fill(LONG)
    expect(page.get_by_role("list", name=f'Matches for "{LONG}"')).to_be_visible()
    old = {
        "short_id": "r9.s9",
        "part": "x",
        "count": 1,
        "before": "",
        "match": "too late",
        "after": "",
    }
    with page.expect_response("**/api/v1/grep?after=*"):
        routes[0].fulfill(json={"version": 1, "hits": [old], "next": None})
    page.evaluate(
        "() => new Promise(done => setTimeout(done, 100))"
    )  # for it to be drawn, if it is

    expect(hits).not_to_contain_text("too late")


def test_an_exported_page_has_no_empty_home(visit: Visit, home: Home, browser: Browser) -> None:
    """A link to the list leads to the one run that there is."""
    path: Path = home.root.parent / "r2.html"
    export(home, "r2", path)
    page = browser.new_page()
    page.goto(f"{path.as_uri()}#/?q=conversation:x")

    expect(page.get_by_role("region", name="Summary")).to_contain_text("an older talk")
    page.close()


def test_the_whole_of_a_text_is_the_whole(visit: Visit, url: str) -> None:
    """A body of several pages, asked for where the transcript cuts it."""
    page = at(visit, url, "#/run/r3?view=transcript")
    page.get_by_role("button", name="Show full output").click()
    page.get_by_role("button", name="Show less").click()

    expect(page.get_by_role("button", name="Show more")).to_be_visible()
    visit.done()


def test_what_only_a_model_reads_is_seen(visit: Visit, url: str) -> None:
    """Letters that have no look, and marks that turn the direction of writing."""
    page = at(visit, url, "#/run/r3?view=logs")

    expect(page.get_by_role("list", name="Log lines")).to_contain_text("hid⟨U+E0041⟩den⟨U+061C⟩")
    visit.done()
