"""Failed runs by cause, more runs like one, and forks of a run, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Route, expect

from support.browsing import served, visit
from vestige._runtime.clock import SYSTEM, FakeClock
from vestige.collector.loop import catch_up
from vestige.home import Home
from vestige.recorder import Recorder

pytestmark = pytest.mark.slow

SECOND_NS = 10**9
ON_THE_WIRE = {
    "method": "POST",
    "url": "https://api.example/v1/chat/completions",
    "attempt": 1,
    "model": "gpt-4o",
    "provider": "openai",
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Home:
    home = Home(tmp_path_factory.mktemp("failures") / "home")
    clock = FakeClock(SYSTEM.now_ns() - 3600 * SECOND_NS)
    with Recorder(home, crash_hooks=False, clock=clock) as recorder:
        for number in range(3):
            record_refusal(recorder, f"A-{number}")
        origin, call = record_agent(recorder, "be careless")
        change = {"path": ["model"], "value": "gpt-5", "before": '"gpt-4o"'}
        fork = {"replay.run": origin, "replay.span": call, "replay.set": json.dumps([[change]])}
        record_agent(recorder, "be careful", **fork)
    catch_up(home)
    return home


@pytest.fixture(scope="module")
def url(recorded: Home) -> Iterator[str]:
    with served(recorded.root) as address:
        yield address


def record_refusal(recorder: Recorder, order: str) -> None:
    with recorder.run("refunds") as run:
        tool = run.tool("refund", {"order": order})
        tool.end(error=ValueError(f"order {order} was not found"))


def record_agent(recorder: Recorder, prompt: str, **attributes: str) -> tuple[str, str]:
    """Record three model calls. Return the ids of the run and of its second call."""
    command = json.dumps(["python", "agent.py"])
    with recorder.run("agent.py", attributes={**attributes, "command": command}) as run:
        calls = []
        for number in range(3):
            text = f"{prompt}, call {number}"
            request = {"model": "gpt-4o", "messages": [{"role": "user", "content": text}]}
            message = {"role": "assistant", "content": f"answer {number}"}
            call = run.child("chat.completions", "llm", ON_THE_WIRE, body=json.dumps(request))
            call.end(body=json.dumps({"choices": [{"message": message}]}))
            calls.append(call.id)
    return run.run_id, calls[1]


def test_failures_of_one_cause_are_one_group_with_its_runs(browser: Browser, url: str) -> None:
    with visit(browser, url) as page:
        page.get_by_role("link", name="Failures").click()
        group = page.get_by_role("list", name="Groups of failures").get_by_role("listitem").first
        expect(group).to_contain_text("3 runs")
        expect(group).to_contain_text("order … was not found")
        expect(group).not_to_contain_text("A-1")
        expect(group.get_by_role("link")).to_have_count(0)
        group.get_by_role("button", expanded=False).click()
        for number in (1, 2, 3):
            expect(group.get_by_role("link", name=f"r{number + 1}", exact=True)).to_be_visible()
        group.get_by_role("link", name="Compare").click()
        expect(page.get_by_role("heading", name="3 runs")).to_be_visible()


def test_failures_are_shown_while_other_runs_are_examined(browser: Browser, recorded: Home) -> None:
    """The first answers have no time for all runs, and the page asks until none is left."""
    with served(recorded.root) as url, visit(browser, url) as page:
        sent: list[str] = []

        def without_time(route: Route) -> None:
            sent.append(route.request.url)
            route.continue_(url=route.request.url.replace("seconds=2", "seconds=0"))

        page.route("**/api/v1/groups*", without_time)
        page.get_by_role("link", name="Failures").click()
        group = page.get_by_role("list", name="Groups of failures").get_by_role("listitem").first
        expect(group).to_contain_text("3 runs")
        expect(page.get_by_text("Examining runs")).to_have_count(0)
        assert len(sent) == 5  # one more run each


def test_a_failed_run_names_the_others_like_it(browser: Browser, url: str) -> None:
    with visit(browser, url + "#/run/r2") as page:
        page.get_by_role("link", name="2 more like this").click()
        expect(page.get_by_role("heading", name="Failures like r2")).to_be_visible()
        groups = page.get_by_role("list", name="Groups of failures").locator(".group")
        expect(groups).to_have_count(1)
        page.get_by_role("link", name="Show all groups").click()
        expect(page.get_by_role("heading", name="Failures", exact=True)).to_be_visible()


def test_a_list_marks_forks(browser: Browser, url: str) -> None:
    with visit(browser, url) as page:
        expect(page.get_by_text("fork of r5")).to_be_visible()


def test_a_fork_at_a_step_without_a_request_begins_at_the_next_call(
    browser: Browser, url: str
) -> None:
    with visit(browser, url + "#/run/r5?span=s1") as page:
        page.get_by_role("button", name="Fork from here").click()
        expect(page.get_by_text("The fork begins at the next model call")).to_be_visible()


def test_a_run_shows_its_forks_at_their_step_and_the_command_that_forks_it(
    browser: Browser, url: str
) -> None:
    with visit(browser, url + "#/run/r5?span=s3") as page:
        steps = page.get_by_role("list", name="Steps")
        second = steps.get_by_role("listitem").nth(1)
        expect(second.get_by_role("link", name="r6")).to_be_visible()
        expect(second).to_contain_text("model=gpt-5")
        page.get_by_role("button", name="Fork from here").click()
        command = "vestige replay r5 --until s3 -- python agent.py"
        expect(page.get_by_text(command, exact=True)).to_be_visible()
        recorded = "vestige replay r5 --until s3 --tools recorded -- python agent.py"
        expect(page.get_by_text(recorded, exact=True)).to_be_visible()
        page.keyboard.press("Escape")
        second.get_by_role("link", name="r6").click()
        expect(page.get_by_role("region", name="Summary")).to_contain_text("Forked from r5.s3")
        forked = page.get_by_role("list", name="Steps").get_by_role("listitem").nth(1)
        expect(forked).to_contain_text("Forked here from r5")
        page.get_by_role("link", name="Compare with r5").click()
        expect(page.get_by_role("heading", name="Compare r5 with r6")).to_be_attached()
