"""From a run to the runs of its task, to their comparison, and to all changes of a text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from support.browsing import served, visit
from vestige.collector.loop import catch_up
from vestige.home import Home
from vestige.recorder import Recorder

pytestmark = pytest.mark.slow

PHONE = {"viewport": {"width": 390, "height": 780}}
TASK = "What is 7 USD in EUR?"


def page_of(rate: str, tax: str) -> str:
    """A long result with two changes, and much between them."""
    lines = [f"paragraph {number}" for number in range(40)]
    return "\n".join([f"the rate is {rate}", *lines, f"the tax is {tax}"])


def record_agent(recorder: Recorder, rate: str, tax: str, task: str = TASK) -> None:
    """Record two searches, and a last call whose prompt repeats the results."""
    with recorder.run("agent", body=task) as run:
        run.child("search", "tool", body='{"q": "rate"}').end(body=page_of(rate, tax))
        for number in range(3):
            messages = [{"role": "user", "content": f"{task}\n{page_of(rate, tax)}\n{number}"}]
            call = run.child("chat", "llm", body=json.dumps({"messages": messages}))
            call.end(body='{"choices": [{"message": {"content": "I have it."}}]}')


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = Home(tmp_path_factory.mktemp("same-task") / "home")
    with Recorder(home, crash_hooks=False) as recorder:
        record_agent(recorder, "0.92", "19 %")
        record_agent(recorder, "10.0", "21 %")
        record_agent(recorder, "0.92", "19 %", "Write a poem about rain.")
    catch_up(home)
    with served(home.root) as address:
        yield address


def test_a_run_leads_to_the_comparison_with_the_runs_of_its_task(
    browser: Browser, url: str
) -> None:
    with visit(browser, url + "#/run/r3") as page:
        page.get_by_role("button", name="Compare with another run").click()
        menu = page.locator(".same-task").first
        expect(menu.get_by_role("row")).to_have_count(2)
        expect(menu.get_by_role("row").last).to_contain_text("Succeeded")
        menu.get_by_role("link", name="Compare with r2").click()
        expect(page.get_by_role("heading", name="Compare r2 with r3")).to_be_attached()


def test_the_pane_of_a_run_lists_the_runs_of_its_task(browser: Browser, url: str) -> None:
    with visit(browser, url + "#/run/r2") as page:
        pane = page.get_by_role("region", name="Task and answer")
        expect(pane.get_by_role("link", name="Compare with r3")).to_be_visible()
        expect(pane.get_by_role("link", name="Compare with r4")).to_have_count(0)


@pytest.mark.parametrize("options", [{}, PHONE], ids=["wide", "phone"])
def test_the_page_compare_begins_with_the_run_that_one_came_from(
    browser: Browser, url: str, options: dict[str, object]
) -> None:
    with visit(browser, url + "#/run/r3", **options) as page:
        expect(page.get_by_role("region", name="Summary")).to_be_visible()
        page.get_by_role("navigation", name="Pages").get_by_role("link", name="Compare").click()
        chosen = page.get_by_role("group", name="Chosen run")
        expect(chosen).to_contain_text("r3")
        expect(chosen).to_contain_text(TASK)
        choices = page.get_by_role("region", name="Runs to choose")
        expect(choices.locator("section").first).to_contain_text("Same task")
        expect(choices.locator("section").last).to_contain_text("r4")
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
        choices.get_by_role("button", name=re.compile("r2")).click()
        expect(page.get_by_role("heading", name="Compare r3 with r2")).to_be_attached()


def test_a_side_of_a_comparison_is_exchanged(browser: Browser, url: str) -> None:
    with visit(browser, url + "#/compare?a=r2&b=r3") as page:
        page.get_by_role("link", name="Change r2").click()
        expect(page.get_by_role("group", name="Chosen run")).to_contain_text("r3")
        page.get_by_role("searchbox", name="Search runs").fill("r4")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Compare r4 with r3")).to_be_attached()


def test_all_changes_of_a_text_are_shown_and_the_rest_is_folded(browser: Browser, url: str) -> None:
    with visit(browser, url + "#/compare?a=r2&b=r3") as page:
        pane = page.get_by_role("region", name="Selected difference")
        changes = pane.get_by_role("group", name="Changes of the output")
        expect(changes.locator("del")).to_have_text(["0.92", "19"])
        expect(changes.locator("ins")).to_have_text(["10.0", "21"])
        expect(changes).not_to_contain_text("paragraph 20")
        changes.get_by_role("button", name=re.compile("unchanged lines")).click()
        expect(changes).to_contain_text("paragraph 20")


def test_later_prompts_that_only_repeat_a_difference_are_one_line(
    browser: Browser, url: str
) -> None:
    with visit(browser, url + "#/compare?a=r2&b=r3") as page:
        steps = page.get_by_role("list", name="Steps of both runs")
        fold = steps.get_by_role("button", name="3 later steps only repeat this change")
        expect(fold).to_be_visible()
        expect(steps.get_by_role("listitem").filter(has_text="chat")).to_have_count(0)
        fold.click()
        expect(steps.get_by_role("listitem").filter(has_text="chat")).to_have_count(3)
