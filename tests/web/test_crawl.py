"""Every view, span, tab, file and snapshot of real and hostile runs opens without a problem."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from support.browsing import served
from support.commands import vestige, vestige_json
from support.crawl import DARK, LIGHT, PHONE, crawl
from support.errand import run_errands
from vestige.home import Home

DATA = Path(__file__).parent.parent / "data"
WINDOWS = {"light": LIGHT, "dark": DARK, "phone": PHONE}
SAMPLE = (
    DATA / "real_runs/trail/gaia-041b7f9c8c76c2ca1a8e67c6769267c3.otlp.json.gz",
    DATA / "artifacts/seed_logs_screens",
    DATA / "wink/later.zip",
)
CORPUS = (
    *sorted(DATA.glob("real_runs/*/*.gz")),
    *sorted(path for path in DATA.glob("artifacts/*") if path.is_dir()),
    *sorted(DATA.glob("otlp/*.jsonl")),
    DATA / "wink/later.zip",
)


def fill(home: Home, sources: tuple[Path, ...]) -> list[str]:
    """Import the sources, and return the short ids of all runs of the home."""
    for number, source in enumerate(sources):
        path = source
        if source.suffix == ".gz":
            path = home.root.parent / f"{number}-{source.name.removesuffix('.gz')}"
            path.write_bytes(gzip.decompress(source.read_bytes()))
        assert vestige("import", path, "--home", home.root).exit_code == 0
    answer = vestige_json("list", "--all", "--limit", "500", "--home", home.root)
    return [run["short_id"] for run in answer["runs"]]


@pytest.mark.slow
def test_a_sample_of_runs_opens_everywhere(browser: Browser, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    runs = fill(home, SAMPLE)

    with served(home.root) as url:
        assert crawl(browser, url, runs, LIGHT, spans_of_a_type=1) == []


@pytest.mark.full
@pytest.mark.parametrize("window", WINDOWS)
def test_every_run_opens_everywhere(browser: Browser, tmp_path: Path, window: str) -> None:
    home = Home(tmp_path / "home")
    run_errands(home)
    runs = fill(home, CORPUS)

    with served(home.root) as url:
        assert crawl(browser, url, runs, WINDOWS[window], spans_of_a_type=20) == []
