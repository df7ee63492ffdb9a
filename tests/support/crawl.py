"""Open every page, and every view, span, tab, file and snapshot of runs, and list what is wrong.

    with served(home) as url, launched() as browser:
        problems = crawl(browser, url, ["r1", "r2"], LIGHT, spans_of_a_type=3)

A problem is an error on the console, a part of the page that could not be shown, an empty pane,
a page wider than its window, or a violation that axe reports.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from support.browsing import Visit

LIGHT: dict[str, Any] = {"viewport": {"width": 1440, "height": 900}, "color_scheme": "light"}
DARK: dict[str, Any] = {"viewport": {"width": 1440, "height": 900}, "color_scheme": "dark"}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 780}, "color_scheme": "light"}

PAGES = ("#/", "#/groups", "#/compare", "#/sql")
HOME_TABS = ("text", "trends", "costs", "tools")
ROWS_OPENED = 12
SAMPLED_KINDS = {"#/", "#/groups", "landing", "files", "span llm", "span tool", "llm attributes"}
"""Kinds of pages that axe examines in a sample: it takes longer than all the rest."""

STATE = """() => {
  const text = (element) => element.innerText.trim();
  const shown = (selector) =>
    [...document.querySelectorAll(selector)].filter((one) => one.checkVisibility());
  return {
    busy: shown('.empty[role=status]').map(text).filter((one) => one.startsWith('Loading')),
    alerts: shown('[role=alert]').map(text),
    blank: shown('[role=tabpanel]').filter((one) => !text(one) && !one.querySelector('img, canvas'))
      .map((one) => one.id),
    heading: shown('h1').length > 0,
    wide: document.documentElement.scrollWidth > innerWidth,
    tabs: [...document.querySelectorAll('[role=tablist]')].map((list) =>
      [list.getAttribute('aria-label'), [...list.querySelectorAll('[role=tab]')].map((tab) =>
        tab.id.split('-tab-')[1])]),
  };
}"""


@dataclass
class Crawler:
    """One page, and the problems found so far."""

    visit: Visit
    is_sample: bool = False
    problems: list[str] = field(default_factory=list)
    _examined: set[str] = field(default_factory=set)

    @property
    def page(self) -> Page:
        return self.visit.page

    def open(self, address: str, kind: str) -> dict[str, list[str]]:
        """Go to an address, look at it, and return the tabs it has by the name of their list.

        axe examines one page of each kind.
        """
        self.page.evaluate("hash => { location.hash = hash }", address)
        return self.look(address, kind)

    def look(self, place: str, kind: str) -> dict[str, list[str]]:
        state = self._settle()
        self.problems += [f"{place}: {text}" for text in state["alerts"]]
        self.problems += [f"{place}: {name} is empty" for name in state["blank"]]
        if state["busy"]:
            self.problems.append(f"{place}: still {state['busy'][0]}")
        if state["wide"]:
            self.problems.append(f"{place}: wider than its window")
        self.problems += [f"{place}: console: {text[:300]}" for text in self.visit.problems]
        self.visit.problems.clear()
        skipped = self.is_sample and kind not in SAMPLED_KINDS
        if kind not in self._examined and not skipped:
            self._examined.add(kind)
            self.problems += [f"{place}: {text}" for text in _violations(self.page)]
        return dict(state["tabs"])

    def _settle(self) -> dict[str, Any]:
        """Return the state of the page once nothing is loading; at most after 20 s."""
        state: dict[str, Any] = {}
        for _ in range(200):
            self.page.wait_for_timeout(50)
            state = self.page.evaluate(STATE)
            if not state["busy"] and (state["tabs"] or state["heading"]):
                break
        return state

    def press_all(self, selector: str, place: str, kind: str) -> None:
        """Press the buttons of a list one by one; a row that grows may push others out of it."""
        buttons = self.page.locator(selector)
        for at in range(3 if self.is_sample else ROWS_OPENED):
            if at >= buttons.count():
                break
            buttons.nth(at).click()
            self.look(f"{place} [{at}]", kind)


def crawl(
    browser: Browser, url: str, runs: list[str], options: dict[str, Any], *, spans_of_a_type: int
) -> list[str]:
    """Return the problems of these runs, in one window.

    `spans_of_a_type` spans of each type are opened, failed ones first; 1 makes a sample, which
    also opens fewer rows.
    """
    visit = Visit(browser, url, **options)
    crawler = Crawler(visit, is_sample=spans_of_a_type == 1)
    try:
        _crawl_pages(crawler, runs)
        for run in runs:
            _crawl_run(crawler, run, spans_of_a_type)
    finally:
        visit.context.close()
    return crawler.problems


def _crawl_pages(crawler: Crawler, runs: list[str]) -> None:
    for page in PAGES:
        crawler.open(page, page)
    for tab in HOME_TABS:
        crawler.open(f"#/?tab={tab}", f"home {tab}")
    for before, run in pairwise(runs):
        crawler.open(f"#/compare?a={before}&b={run}", "compare")
    if runs:
        crawler.open(f"#/groups?like={runs[0]}", "failures like a run")


def _crawl_run(crawler: Crawler, run: str, spans_of_a_type: int) -> None:
    tabs = crawler.open(f"#/run/{run}", "landing")
    for view in tabs.get("Views", []):
        place = f"#/run/{run}?view={view}"
        crawler.open(place, view)
        if view == "files":
            crawler.press_all("ul.side button", place, "file")
        elif view == "state":
            crawler.press_all("ol.side button", place, "snapshot")
        elif view == "logs":
            crawler.press_all(".logrow .logline", place, "log line")
        elif view == "transcript":
            crawler.press_all(".telling-tools button", place, "message")
    for span, kind in _spans(crawler.page, run, spans_of_a_type):
        place = f"#/run/{run}?span={span}"
        parts = crawler.open(place, f"span {kind}").get("Span sections", [])
        for part in parts[1:]:
            crawler.open(f"{place}&tab={part}", f"{kind} {part}")
        if "input" in parts:
            crawler.open(f"{place}&tab=output", f"{kind} output")


def _spans(page: Page, run: str, most: int) -> Iterator[tuple[str, str]]:
    """Yield `s12` and the type of spans, failed ones first."""
    outline = page.evaluate("async (id) => (await fetch('/api/v1/outline?id=' + id)).json()", run)
    strings, spans = outline["strings"], outline["spans"]
    rows = zip(spans["number"], spans["type"], spans["status"], strict=True)
    by_type: dict[str, int] = {}
    for number, kind, _ in sorted(rows, key=lambda row: strings[row[2]] == "ok"):
        name = strings[kind]
        by_type[name] = by_type.get(name, 0) + 1
        if by_type[name] <= most:
            yield f"s{number}", name


def _violations(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [
        f"axe {one['id']}: {node['html'][:160]}"
        for one in found
        if one["impact"] in ("moderate", "serious", "critical")
        for node in one["nodes"][:2]
    ]
