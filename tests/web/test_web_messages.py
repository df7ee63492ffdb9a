"""A model call as a chat: lost first messages, what is new in a conversation, and code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from support.browsing import served, visit
from vestige.collector.loop import catch_up
from vestige.home import Home
from vestige.recorder import Recorder

pytestmark = pytest.mark.slow

CODE = "import os\n\nfor name in os.listdir('.'):\n    print(name)"
WINDOWS = [
    {"viewport": {"width": 1440, "height": 900}, "color_scheme": "light"},
    {"viewport": {"width": 390, "height": 780}, "color_scheme": "dark"},
]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def record_call(parent: Any, messages: list[dict[str, Any]], answer: dict[str, Any]) -> None:
    call = parent.child("chat", "llm", {"model": "m-1"}, body=json.dumps({"messages": messages}))
    call.end(body=json.dumps({"choices": [{"message": answer}]}))


def record_lost_head(recorder: Recorder) -> None:
    """The requests of later calls lack their first messages, as some exporters cut them."""
    complete = [{"role": "system", "content": "You are exact."}, user("Find order 7.")]
    complete += [assistant(f"Look {number}.") for number in range(6)]
    with recorder.run("beheaded") as run:
        record_call(run, complete[:6], assistant("Look 4."))
        record_call(run, complete[:7], assistant("Look 5."))
        record_call(run, complete[1:], assistant("Look 6."))
        record_call(run, [user("Look 1."), *complete[4:], assistant("Look 6.")], assistant("Done."))


def record_agents(recorder: Recorder) -> None:
    """A manager's second call follows its first one, with a helper's call between them."""
    with recorder.run("team") as run, run.span("manager", type="agent") as manager:
        history = [user("Find the rate.")]
        record_call(manager, history, assistant("I ask the searcher."))
        with manager.span("searcher", type="agent") as helper:
            record_call(helper, [user("Search the rate.")], assistant("It is 4 %."))
        history += [assistant("I ask the searcher."), user("The searcher found 4 %.")]
        record_call(manager, history, assistant("4 %."))


def record_code(recorder: Recorder) -> None:
    sent = {"name": "python", "arguments": json.dumps({"code": CODE})}
    call = {"id": "c1", "type": "function", "function": sent}
    with recorder.run("coder") as run:
        answer = {"role": "assistant", "content": "I list them.", "tool_calls": [call]}
        record_call(run, [user("List the files.")], answer)
        run.tool("python", {"code": CODE}).end(body="a.txt")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = Home(tmp_path_factory.mktemp("messages") / "home")
    with Recorder(home, crash_hooks=False) as recorder:
        for record in (record_lost_head, record_agents, record_code):
            record(recorder)
    catch_up(home)
    with served(home.root) as address:
        yield address


def open_step(page: Page, run: str, number: int) -> None:
    """Open the model call of a step of the run with this name."""
    page.get_by_role("searchbox", name="Filter and search runs").fill(f"name:{run}")
    page.get_by_role("row").filter(has_text=run).get_by_role("link").first.click()
    page.get_by_role("button", name=re.compile(f"^Step {number},")).click()


@pytest.mark.parametrize("options", WINDOWS, ids=["wide", "phone"])
def test_lost_first_messages_are_named_with_the_call_that_has_them(
    browser: Browser, url: str, options: dict[str, Any]
) -> None:
    with visit(browser, url, **options) as page:
        open_step(page, "beheaded", 4)
        chat = page.get_by_role("region", name="Messages")
        notice = chat.locator(".notice.warn")
        expect(notice).to_contain_text("The first 3 messages of step 2 are missing here")
        notice.get_by_role("button", name="Show in step 2").click()
        expect(page.get_by_role("region", name="Span details")).to_contain_text("Step 2")
        expect(chat).to_contain_text("You are exact.")
        expect(notice).to_have_count(0)


def test_new_messages_are_those_since_the_last_call_of_the_same_agent(
    browser: Browser, url: str
) -> None:
    with visit(browser, url) as page:
        open_step(page, "team", 3)
        pane = page.get_by_role("region", name="Span details")
        pane.get_by_role("tab", name=re.compile("New since step 1")).click()
        chat = page.get_by_role("region", name="Messages")
        expect(chat).to_contain_text("The searcher found 4 %.")
        expect(chat).not_to_contain_text("Find the rate.")


def test_code_of_a_tool_call_is_shown_as_code(browser: Browser, url: str) -> None:
    """With its lines and colours, in the model call and in the tool call."""
    with visit(browser, url) as page:
        open_step(page, "coder", 1)
        chat = page.get_by_role("region", name="Messages")
        code = chat.locator(".tool-call .code-block")
        expect(code).to_contain_text("for name in os.listdir")
        expect(code.locator(".hl-keyword").first).to_have_text("import")
        page.get_by_role("tab", name="Tree").click()
        page.get_by_role("treeitem").filter(has_text="python").click()
        content = page.get_by_role("region", name="Content")
        expect(content.locator(".code-block .hl-keyword").first).to_have_text("import")
