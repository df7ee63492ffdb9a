"""Sessions of coding agents in a real browser: the files that the agent edited, as differences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from support.agent_logs import DATA
from support.browsing import served, visit
from vestige.home import Home
from vestige.store.open import open_store
from vestige.transfer.import_runs import import_path

pytestmark = pytest.mark.slow

SESSION = DATA / "claude_code/projects/-home-dev-calc/5a3a2b1c-0000-4000-8000-000000000001.jsonl"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = Home(Path(tmp_path_factory.mktemp("logs")) / "home")
    home.make()
    with open_store(home.store) as store:
        assert [result.run_id is not None for result in import_path(store, SESSION)] == [True]
    with served(home.root) as url:
        yield url


@pytest.mark.parametrize("place", ["view=transcript&fold=none", "span=s7"])
def test_an_edited_file_is_shown_as_a_difference(browser: Browser, url: str, place: str) -> None:
    with visit(browser, f"{url}#/run/r1?{place}") as page:
        edit = page.locator("details.edit").filter(has_text="/home/dev/calc/calc.py").first
        expect(edit).to_be_visible()
        expect(edit.locator("summary")).to_contain_text("+4")
        expect(edit.locator(".diff-block")).to_be_visible()
        added = edit.locator(".diff-line.diff-add")
        expect(added.filter(has_text="+def subtract(a, b):")).to_be_visible()
        expect(added).to_have_count(4)
        assert edit.locator(".diff-line.diff-del").count() == 0
