"""One HTML file: everything about a run, from file://, without a server or a network."""

from __future__ import annotations

import base64
import gzip
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from support.browsing import visit
from support.scene import fill
from vestige.home import Home
from vestige.server.html_export import key_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("export")
    fill(Home(folder / "home"))
    for run, name in (("r21", "failed.html"), ("r20", "hostile.html")):
        done = export(folder, run, name)
        assert done.returncode == 0, done.stderr
    yield folder


def export(folder: Path, run: str, name: str) -> subprocess.CompletedProcess[str]:
    command = ["export", run, "--format", "html", "-o", str(folder / name)]
    return subprocess.run(
        [sys.executable, "-m", "vestige", *command, "--home", str(folder / "home")],
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_an_exported_run_opens_from_a_file_with_all_its_views(
    browser: Browser, folder: Path
) -> None:
    """No server, no network (it is switched off), nothing missing, nothing asked for elsewhere."""
    with visit(browser, (folder / "failed.html").as_uri(), offline=True) as page:
        verdict = page.get_by_role("region", name="Summary")
        expect(verdict).to_contain_text("refund desk")
        expect(verdict).to_contain_text("Uncaught exception")
        expect(page.get_by_role("banner")).to_contain_text("Exported")
        views = page.get_by_role("tablist", name="Views").get_by_role("tab")
        for at in range(views.count()):
            views.nth(at).click()
            expect(page.locator(".empty[role=status]")).to_have_count(0)
            expect(page.get_by_role("alert")).to_have_count(0)
        page.keyboard.press("e")
        page.keyboard.press("e")

        expect(page.get_by_role("region", name="Span details")).to_contain_text("refund")
        expect(page.get_by_role("region", name="Span details").get_by_role("alert")).to_have_count(
            0
        )
        expect(page.get_by_role("navigation")).to_have_count(0)


def test_hostile_text_stays_text_in_an_export(browser: Browser, folder: Path) -> None:
    """Also where the file's own markup surrounds it."""
    with visit(browser, (folder / "hostile.html").as_uri(), offline=True) as page:
        expect(page.get_by_role("heading", level=1)).to_contain_text("<script>")

        assert page.evaluate("window.pwned") is None


def test_a_span_has_its_link_in_an_export_too(browser: Browser, folder: Path) -> None:
    address = (folder / "failed.html").as_uri() + "#/run/r21?view=tree&span=s9"
    with visit(browser, address, offline=True) as page:
        expect(page.get_by_role("region", name="Span details")).to_contain_text("refund")


def test_the_answers_inside_are_those_of_the_api(folder: Path) -> None:
    """Under the keys that the page asks by, each body included."""
    html = (folder / "failed.html").read_text(encoding="utf-8")
    answers = {}
    for text in re.findall(r'<script type="application/octet-stream"[^>]*>([^<]*)</script>', html):
        answers |= json.loads(gzip.decompress(base64.b64decode(text)))

    assert answers["overview?id=r21"]["run"]["outcome"] == "error"
    assert answers["body?id=r21.s9&in=true"]["text"] == '{"order":"0"}'
    assert answers["export"]["bodies_left_out"] == 0
    assert key_of("state", id="r7#3", after=None) == "state?id=r7%233"


def test_nothing_is_written_over(folder: Path) -> None:
    done = export(folder, "r21", "failed.html")

    assert done.returncode == 2
    assert done.stderr.strip().endswith("already exists. Choose another name.")
    assert not list(folder.glob(".*.part"))
