"""The run page: each view, the pane, the verdict; served, and as one HTML file from file://."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from support.browsing import Visit, served, visit
from support.errand import run_errands
from support.programs import load
from vestige.home import Home

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    home = Home(tmp_path_factory.mktemp("errand") / "home")
    run_errands(home)
    return home


@dataclass(slots=True)
class Place:
    """A page that is open; `at` goes to a run's view in it."""

    page: Page
    addresses: dict[str, str]
    exported: bool

    def at(self, run: str, query: str = "") -> Page:
        """From any state of the page, without reloading it where possible."""
        address = self.addresses.get(run, self.addresses[""]).split("#")[0]
        if self.exported and not self.page.url.startswith(address):
            self.page.goto(f"{address}#/run/{run}?{query}")
        self.page.evaluate("hash => { location.hash = hash }", f"#/run/{run}?{query}&again")
        self.page.evaluate("hash => { location.hash = hash }", f"#/run/{run}?{query}")
        expect(self.page.get_by_role("region", name="Summary")).to_contain_text(run)
        return self.page


@pytest.fixture(scope="module")
def live(browser: Browser, home: Home) -> Iterator[Place]:
    """Through the server."""
    with served(home.root) as url:
        visit = Visit(browser, url, permissions=["clipboard-read", "clipboard-write"])
        yield Place(visit.page, {"": url}, exported=False)
        visit.done()


@pytest.fixture(scope="module")
def file(browser: Browser, home: Home) -> Iterator[Place]:
    """From files, with the network switched off."""
    paths = {run: home.root.parent / f"{run}.html" for run in ("r2", "r3")}
    for run, path in paths.items():
        command = ["export", run, "--format", "html", "-o", str(path), "--home", str(home.root)]
        subprocess.run([sys.executable, "-m", "vestige", *command], check=True, timeout=120)
    addresses = {run: path.as_uri() for run, path in paths.items()}
    visit = Visit(browser, addresses["r3"], offline=True)
    yield Place(visit.page, {"": addresses["r3"], **addresses}, exported=True)
    visit.done()


@pytest.fixture(params=["live", "file"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


def pane(page: Page) -> Locator:
    return page.get_by_role("region", name="Span details")


def rows(page: Page) -> Locator:
    return page.get_by_role("treeitem")


# --- the verdict -------------------------------------------------------------------------------


def test_the_verdict_says_how_it_ended_why_and_what_is_missing(place: Place) -> None:
    """The task, the outcome, one cause in a sentence, redacted secrets, and all findings."""
    page = place.at("r3")
    verdict = page.get_by_role("region", name="Summary")

    expect(verdict).to_contain_text("Failed")
    expect(verdict).to_contain_text("book a trip")
    expect(verdict).to_contain_text("13 spans")
    expect(verdict).to_contain_text("Uncaught exception.")
    expect(verdict).to_contain_text("1 secret redacted")
    verdict.get_by_role("button", name=re.compile(r"\d+ more findings")).click()
    expect(verdict.get_by_role("listitem").nth(1)).to_be_visible()
    verdict.get_by_role("button", name="Go to s10").first.click()
    expect(pane(page)).to_contain_text("s10")


def test_a_failed_run_opens_at_its_first_failure(place: Place) -> None:
    """The step is selected and in sight, and its pane is open; the link says which span it is."""
    page = place.at("r3")
    page.reload()
    step = page.get_by_role("list", name="Steps").locator(".step.chosen")

    expect(step).to_contain_text("✕")
    expect(step).to_be_in_viewport()
    expect(pane(page)).to_contain_text("Failed")
    assert "span=s" in page.url


def test_back_returns_to_what_was_shown(live: Place) -> None:
    """Spans, tabs and views are entries of the history."""
    page = live.at("r3", "span=s7")
    page.wait_for_timeout(800)  # steps in quick succession are one entry
    pane(page).get_by_role("tab", name="Attributes").click()
    page.wait_for_timeout(800)
    page.get_by_role("tab", name="Tree").click()
    page.wait_for_url(re.compile("view=tree"))
    page.go_back()
    expect(pane(page).get_by_role("tab", name="Attributes")).to_have_attribute(
        "aria-selected", "true"
    )
    page.go_back()

    expect(pane(page).get_by_role("tab", name="Messages")).to_have_attribute(
        "aria-selected", "true"
    )


def test_a_model_call_is_read_as_a_chat(place: Place) -> None:
    """Roles, tool calls with their arguments, what is new since the previous call, the answer."""
    page = place.at("r3", "span=s7")
    chat = pane(page).get_by_role("region", name="Messages")

    expect(chat.get_by_role("article").filter(has_text="assistant").first).to_be_visible()
    expect(chat).to_contain_text("new since step")
    expect(chat).to_contain_text("VS9 is cheap.")
    pane(page).get_by_role("tab", name=re.compile("New since step")).click()
    expect(chat).to_contain_text("search_flights")
    expect(chat).not_to_contain_text("sent before")


# --- the views -----------------------------------------------------------------------------------


def test_the_transcript_reads_like_a_chat(place: Place) -> None:
    """Messages in order, Markdown rendered, a tool's call beside its result."""
    page = place.at("r2", "view=transcript")
    transcript = page.get_by_role("list", name="Transcript")
    question = transcript.get_by_role("listitem").filter(has_text="Book me")
    tool = transcript.get_by_role("listitem").filter(has_text="tool search_flights")

    expect(question).to_contain_text("user")
    expect(question.locator("strong")).to_have_text("three nights")
    expect(tool.get_by_role("group", name="Text").first).to_contain_text("Oslo")
    expect(tool).to_contain_text("VS0")


def test_the_tree_folds_and_a_filter_keeps_what_matches_stand_in(place: Place) -> None:
    page = place.at("r3", "view=tree")
    expect(rows(page)).to_have_count(13)
    desk = rows(page).filter(has_text="booking desk")
    desk.click()
    page.keyboard.press("ArrowLeft")
    expect(rows(page)).to_have_count(9)
    expect(desk).to_have_attribute("aria-expanded", "false")
    page.keyboard.press("ArrowRight")
    expect(rows(page)).to_have_count(13)
    page.get_by_role("searchbox", name="Filter").fill("hold_seat")

    expect(rows(page)).to_have_count(5)
    expect(rows(page).nth(1)).to_contain_text("booking desk")
    assert "q=hold_seat" in page.url


def test_the_timeline_zooms_and_its_range_is_everybodys(place: Place) -> None:
    """One range: it is part of the link, narrows the other views, and one key ends it."""
    page = place.at("r3", "view=timeline")
    drawn = page.evaluate(
        """() => { const canvas = document.querySelector('canvas');
            const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            return new Set(new Uint32Array(data.buffer)).size }"""
    )
    page.get_by_role("button", name="zoom in").click()
    page.wait_for_url(re.compile("from=.*to="))
    page.get_by_role("tab", name="Tree").click()
    expect(rows(page).filter(has_text="search_flights")).to_have_count(1)
    expect(rows(page).filter(has_text="hold_seat")).to_have_count(0)
    page.get_by_role("button", name="Clear time range").click()

    expect(rows(page)).to_have_count(13)
    assert drawn > 5
    assert "from=" not in page.url


def test_log_lines_are_narrowed_by_level_component_and_words(place: Place) -> None:
    page = place.at("r3", "view=logs")
    lines = page.get_by_role("list", name="Log lines").get_by_role("listitem")
    expect(lines).to_have_count(6)
    expect(lines.nth(1)).to_contain_text("…redacted…")
    page.get_by_label("Level:").select_option("warn")
    expect(lines).to_have_count(4)
    page.get_by_label("Source:").select_option("planner")
    expect(page.get_by_text("No matching log lines")).to_be_visible()
    page.get_by_label("Source:").select_option("booking")
    page.get_by_role("searchbox", name="Filter").fill("gave up")
    expect(lines).to_have_count(1)
    lines.get_by_role("button", name="s8").click()

    expect(pane(page)).to_contain_text("booking desk")


def test_two_snapshots_are_held_against_each_other(place: Place) -> None:
    page = place.at("r2", "view=state")
    page.get_by_role("list", name="Snapshots").get_by_role("button").nth(2).click()
    expect(page.get_by_role("tabpanel", name="Snapshots")).to_contain_text('"seat": "14A"')
    page.get_by_label("Compare with:").select_option("1")
    between = page.get_by_role("region", name="Changes from #1 to #2")

    expect(between.locator(".add")).to_contain_text('"seat": "14A"')
    expect(between.locator(".del")).to_contain_text('"flight": "VS3"')


def test_files_are_looked_into(place: Place) -> None:
    """Markdown as a page, and as the text that was recorded."""
    page = place.at("r2", "view=files")
    files = page.get_by_role("list", name="Files")
    expect(files.get_by_role("button")).to_have_count(2)
    files.get_by_role("button", name="plan.md").click()

    expect(page.get_by_role("region", name="File").get_by_role("listitem")).to_contain_text(
        ["search", "book VS3"]
    )
    page.get_by_role("group", name="File view").get_by_role("button", name="Raw").click()
    expect(page.get_by_role("region", name="Body")).to_contain_text("- book VS3")


def test_files_are_those_of_the_moment(live: Place) -> None:
    """At time T: what was written later is not there yet, nor its later content."""
    page = live.at("r2", "view=files")
    files = page.get_by_role("list", name="Files")
    page.get_by_label("Moment of the run").fill("1000000")
    expect(files.get_by_role("button")).to_have_count(1)
    files.get_by_role("button", name="plan.md").click()
    content = page.get_by_role("region", name="File")

    expect(content).to_contain_text("search")
    expect(content).not_to_contain_text("book")


def test_metadata_tells_what_the_run_is_made_of(place: Place) -> None:
    page = place.at("r3", "view=metadata")
    about = page.get_by_role("region", name="Metadata")

    expect(about).to_contain_text("trip of May")
    expect(about).to_contain_text("4,500 in, 120 out")
    expect(about).to_contain_text("redacted: key:api_key")
    expect(about.get_by_role("row", name="tool 4")).to_be_visible()


# --- the pane ------------------------------------------------------------------------------------


def test_the_pane_has_facts_and_exact_bytes(place: Place) -> None:
    page = place.at("r3", "view=tree&span=s7&tab=attributes")
    expect(pane(page)).to_contain_text("2,900 in (800 cached) · 40 out")
    pane(page).get_by_role("tab", name="Raw").click()
    body = pane(page).get_by_label("Body")
    expect(body).to_contain_text('"model": "claude-sonnet-4-5",')
    pane(page).get_by_role("button", name="Raw").click()
    expect(body).to_contain_text('{"model": "claude-sonnet-4-5", "max_tokens"')
    pane(page).get_by_role("button", name="Hex").click()
    expect(body).to_contain_text("00000000  7b 22 6d 6f 64 65 6c 22")
    pane(page).get_by_role("button", name="Output").click()
    expect(body).to_contain_text("VS9 is cheap.")
    pane(page).get_by_role("tab", name="Sizes").click()

    expect(pane(page).get_by_role("row", name=re.compile("^tool:hold_seat tool"))).to_be_visible()
    expect(pane(page).get_by_role("img")).to_have_attribute("aria-label", re.compile("system 1 %"))


def test_a_request_is_held_against_the_one_before(place: Place) -> None:
    page = place.at("r3", "view=tree&span=s7&tab=input")
    pane(page).get_by_role("button", name="Changes since previous call").click()

    expect(pane(page).get_by_role("region", name="Differences")).to_contain_text("r3.s4")
    expect(pane(page).get_by_role("row", name=re.compile("message 4 user"))).to_be_visible()


def test_why_leads_back_to_the_cause(place: Place) -> None:
    page = place.at("r3", "view=tree&span=s12")
    pane(page).get_by_role("tab", name="Cause").click()
    causes = pane(page).get_by_role("list", name="Causes")
    expect(causes).to_contain_text("hold_seat failed 3 times: TimeoutError")
    causes.get_by_role("button", name="s10").click()

    expect(pane(page)).to_contain_text("s10")


def test_a_span_is_taken_along(live: Place) -> None:
    """As Markdown, JSON, curl, a link, a command."""
    page = live.at("r3", "view=tree&span=s7")
    pane(page).get_by_role("button", name="Copy", exact=True).first.click()
    expect(pane(page).get_by_role("button", name="JSON")).to_be_visible()
    taken = {}
    for name in ("Markdown", "JSON", "cURL", "Link", "CLI command"):
        pane(page).get_by_role("button", name=name).click()
        expect(pane(page).get_by_role("button", name="Copied")).to_be_visible()
        taken[name] = page.evaluate("navigator.clipboard.readText()")
        expect(pane(page).get_by_role("button", name="Copied")).to_have_count(0)

    assert taken["Markdown"].startswith("## llm messages.create (r3.s7)")
    assert '"short_id": "r3.s7"' in taken["JSON"]
    assert "curl" in taken["cURL"]
    assert "claude-sonnet-4-5" in taken["cURL"]
    assert taken["Link"].endswith("#/run/r3?view=tree&span=s7")
    assert taken["CLI command"] == "vestige span r3.s7"


def test_escape_closes_the_open_menu_only(place: Place) -> None:
    page = place.at("r3", "view=tree&span=s4")
    expect(pane(page)).to_contain_text("s4")
    expect(pane(page).get_by_role("region", name="Messages")).to_contain_text("assistant")
    pane(page).get_by_role("button", name="Copy", exact=True).first.click()
    expect(pane(page).get_by_role("button", name="CLI command")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="CLI command")).to_have_count(0)
    expect(pane(page).get_by_role("tab", name="Messages")).to_be_visible()
    page.keyboard.press("Escape")

    expect(pane(page)).to_have_count(0)


def test_go_to_the_cause_opens_the_tab_with_the_failure(place: Place) -> None:
    """Whichever tab was open before."""
    page = place.at("r3", "view=tree&span=s7&tab=attributes")
    page.get_by_role("region", name="Summary").get_by_role("button", name="Go to").first.click()

    expect(pane(page).get_by_role("tab").first).to_have_attribute("aria-selected", "true")
    expect(pane(page).locator(".notice.bad").first).to_be_visible()


OWN_RUN = """
import sys, vestige

with vestige.Recorder().run("main"):
    pass
sys.exit(3)
"""


def test_the_head_names_the_other_runs_of_the_program(browser: Browser, tmp_path: Path) -> None:
    """The program failed after its own run succeeded."""
    home = Home(tmp_path / "home")
    program = tmp_path / "program.py"
    program.write_text(OWN_RUN)
    command = [sys.executable, "-m", "vestige", "run", "--", sys.executable, str(program)]
    subprocess.run(command, env={**os.environ, "VESTIGE_HOME": str(home.root)}, timeout=120)
    (run,) = (run for run in load(home) if run.info.name == "main")

    with served(home.root) as url, visit(browser, f"{url}#/run/{run.info.short_id}") as page:
        summary = page.get_by_role("region", name="Summary")
        expect(summary).to_contain_text("Same program:")
        summary.get_by_role("link", name="program.py").last.click()

        expect(page.get_by_role("heading", level=1)).to_have_text("program.py")


def test_a_process_that_an_exception_ended_shows_its_traceback(
    browser: Browser, tmp_path: Path
) -> None:
    """The page opens there, and the exception is a log line, not an attribute of the span."""
    home = Home(tmp_path / "home")
    program = tmp_path / "program.py"
    program.write_text("import vestige\n@vestige.tool\ndef f(): pass\nf()\n{}['Oslo']\n")
    command = [sys.executable, "-m", "vestige", "run", "--", sys.executable, str(program)]
    subprocess.run(command, env={**os.environ, "VESTIGE_HOME": str(home.root)}, timeout=120)

    with served(home.root) as url, visit(browser, f"{url}#/run/r1") as page:
        page.get_by_role("region", name="Summary").get_by_role("button", name="Go to").click()

        expect(pane(page)).to_contain_text("uncaught exception: KeyError: 'Oslo'")
        expect(pane(page)).to_contain_text('program.py", line 5')


def test_a_note_typed_by_keyboard_is_saved(live: Place) -> None:
    """Written on a span, read on the run after the page is loaded again."""
    page = live.at("r3", "view=tree&span=s9&tab=attributes")
    pane(page).get_by_role("button", name="Add a note").click()
    expect(pane(page).get_by_role("textbox")).to_be_focused()
    page.keyboard.type("<b>the seat was gone</b>")
    page.keyboard.press("Control+Enter")
    expect(pane(page).get_by_role("region", name="Notes")).to_contain_text("the seat was gone")
    live.at("r3", "view=metadata")
    page.reload()

    notes = page.get_by_role("region", name="Notes")
    expect(notes).to_contain_text("<b>the seat was gone</b>")


def test_a_note_is_edited_and_deleted(live: Place) -> None:
    """Deleting asks once more."""
    page = live.at("r2", "view=metadata")
    notes = page.get_by_role("region", name="Notes")
    notes.get_by_role("button", name="Add a note").click()
    page.keyboard.type("one room")
    page.keyboard.press("Control+Enter")
    notes.get_by_role("button", name="Edit").click()
    expect(notes.get_by_role("textbox", name="Text of the note")).to_have_value("one room")
    page.keyboard.press("End")
    page.keyboard.type(" too many")
    page.keyboard.press("Control+Enter")
    expect(notes).to_contain_text("one room too many")
    notes.get_by_role("button", name="Delete").click()
    expect(notes).to_contain_text("one room too many")
    notes.get_by_role("button", name="Delete this note?").click()

    expect(notes).not_to_contain_text("one room")


# --- one selection, one range, keys ---------------------------------------------------------------


def test_one_selection_is_seen_in_every_view_and_by_link(place: Place) -> None:
    """A deep link opens the same place again."""
    page = place.at("r3", "view=tree")
    rows(page).filter(has_text="search_flights").click()
    page.get_by_role("tab", name="Transcript").click()
    chosen = page.get_by_role("list", name="Transcript").locator(".chosen").first
    expect(chosen).to_contain_text("search_flights")
    link = page.url
    place.at("r3", "view=metadata")
    page.goto(link)
    page.reload()

    assert link.endswith("#/run/r3?view=transcript&span=s5")
    expect(chosen).to_contain_text("search_flights")
    page.get_by_role("tab", name="Steps").click()
    expect(pane(page)).to_contain_text("s5")


def test_a_run_is_read_with_the_keyboard_alone(place: Place) -> None:
    page = place.at("r3")
    expect(page.get_by_role("list", name="Steps")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("2")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(rows(page).nth(1)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("k")
    expect(rows(page).nth(0)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("e")
    expect(pane(page)).to_contain_text("s10")
    page.keyboard.press("e")
    expect(pane(page)).to_contain_text("s11")
    page.keyboard.press("E")
    expect(pane(page)).to_contain_text("s10")
    page.keyboard.press("/")
    page.keyboard.type("plan.md")
    expect(rows(page)).to_have_count(3)
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Next row")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.keyboard.type("search_fl")
    page.get_by_role("option").filter(has_text="s5").first.wait_for()
    page.keyboard.press("Enter")

    expect(pane(page)).to_contain_text("s5")


def test_a_view_of_the_run_has_the_page_of_a_phone(browser: Browser, home: Home) -> None:
    """The list of steps is not half visible behind it."""
    with (
        served(home.root) as url,
        visit(browser, url + "#/run/r2?view=files", viewport={"width": 390, "height": 844}) as page,
    ):
        view = page.get_by_role("region", name="Run view")
        expect(view).to_contain_text("2 files")
        expect(page.get_by_role("list", name="Steps")).to_be_hidden()
        top, tabs = view.bounding_box(), page.locator(".viewbar").bounding_box()
        assert top is not None and tabs is not None
        assert abs(top["y"] - (tabs["y"] + tabs["height"])) < 2


def test_the_head_of_a_span_fits_a_phone(browser: Browser, home: Home) -> None:
    """With its title and the button that closes it."""
    with (
        served(home.root) as url,
        visit(browser, url + "#/run/r3?span=s10", viewport={"width": 390, "height": 844}) as page,
    ):
        expect(pane(page)).to_contain_text("s10")
        title = pane(page).get_by_role("heading", level=2).bounding_box()
        close = pane(page).get_by_role("button", name="Close").bounding_box()
        assert title is not None and title["width"] > 60
        assert close is not None and close["x"] + close["width"] <= 390
