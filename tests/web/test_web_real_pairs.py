"""Compare pages of real runs: every pair opens, and every difference can be selected."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from support.browsing import Visit, served
from vestige.home import Home
from vestige.store.open import open_store
from vestige.transfer import import_path

RUNS = Path(__file__).parents[1] / "data" / "real_runs" / "trail"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def real_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("real")
    home = Home(folder / "home")
    home.make()
    with open_store(home.store) as store:
        for packed in sorted(RUNS.glob("*.gz"))[:20]:
            path = folder / packed.stem
            path.write_bytes(gzip.decompress(packed.read_bytes()))
            assert list(import_path(store, path))
    with served(home.root) as url:
        yield url


def open_pairs(browser: Browser, url: str, pairs: list[tuple[int, int]]) -> None:
    seen = Visit(browser, url)
    page = seen.page
    expect(page.get_by_role("row").nth(2)).to_be_visible()
    for one, other in pairs:
        page.evaluate(f"location.hash = '#/compare?a=r{one}&b=r{other}'")
        heading = page.get_by_role("heading", name=f"Compare r{one} with r{other}")
        expect(heading).to_have_count(1)
        for _ in range(5):
            page.keyboard.press("j")
        expect(page.get_by_role("alert")).to_have_count(0)
    problems = list(seen.problems)
    seen.context.close()
    assert problems == []


def test_pairs_of_real_runs_are_compared(browser: Browser, real_runs: str) -> None:
    open_pairs(browser, real_runs, [(1, 2), (3, 12), (19, 20)])


@pytest.mark.full
def test_all_pairs_of_twenty_real_runs_are_compared(browser: Browser, real_runs: str) -> None:
    open_pairs(browser, real_runs, list(itertools.combinations(range(1, 21), 2)))


def test_two_spans_are_compared_by_shift_click(browser: Browser, real_runs: str) -> None:
    seen = Visit(browser, real_runs + "#/run/r1?view=tree&span=s3")
    rows = seen.page.get_by_role("treeitem")
    expect(rows.nth(4)).to_be_visible()
    rows.nth(4).click(modifiers=["Shift"])
    seen.page.wait_for_url("**/*#/compare?a=r1.s3&b=r1.s*")
    expect(seen.page.get_by_role("region", name="Both spans")).to_contain_text("r1.s3")
    seen.context.close()
