"""Pictures of the viewer for the README and the guide: docs/images/*.png.

    python docs/screenshots.py           # `make screenshots`

Every picture shows a real page in Debian's Chromium. `failed` is the run of `make demo`: an agent
that was killed. The others show the runs that the tests of the viewer use.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
SIZE = {"width": 1280, "height": 800}
sys.path.insert(0, str(ROOT / "tests"))

from playwright.sync_api import Page, expect  # noqa: E402

import vestige  # noqa: E402
from support.browsing import launched, served  # noqa: E402  # after the path
from support.errand import errand  # noqa: E402
from support.scene import SECOND_NS, refund  # noqa: E402
from vestige._runtime.clock import SYSTEM, FakeClock  # noqa: E402
from vestige.collector.loop import catch_up  # noqa: E402
from vestige.home import Home  # noqa: E402
from vestige.recorder import Recorder  # noqa: E402

HOUR_NS = 3600 * SECOND_NS


@dataclass(frozen=True, slots=True)
class Picture:
    name: str
    route: str
    """`{good}` and `{bad}` are the two runs."""
    sign: str
    """A selector of an element that appears last."""
    dark: bool = False
    before: Callable[[Page], object] = lambda page: None


def compare_states(page: Page) -> None:
    page.get_by_role("list", name="Snapshots").get_by_role("button").last.click()
    page.get_by_label("Compare with:").select_option("1")
    page.get_by_role("region", name="Changes", exact=True).wait_for()


def open_file(page: Page) -> None:
    page.get_by_role("list", name="Files").get_by_role("button").first.click()
    page.locator(".two-columns .column").wait_for()


def open_request(page: Page) -> None:
    page.get_by_role("tab", name="Sizes").click()


PICTURES = (
    Picture("runs", "#/", "text=book a trip"),
    Picture("transcript", "#/run/{bad}?view=transcript", ".transcript .who"),
    Picture("tree", "#/run/{bad}?view=tree&span=s10", "text=no seat within"),
    Picture("timeline", "#/run/{bad}?view=timeline", "canvas", dark=True),
    Picture("logs", "#/run/{bad}?view=logs", ".logrow"),
    Picture("state", "#/run/{good}?view=state", ".snapshot", before=compare_states),
    Picture("files", "#/run/{good}?view=files", ".side", before=open_file),
    Picture("metadata", "#/run/{bad}?view=metadata", ".card"),
    Picture("prompt", "#/run/{bad}?view=tree&span=s7", "role=tab", before=open_request),
    Picture("sql", "#/sql?q=SELECT type, count(*) AS n FROM spans GROUP BY type", "text=rows"),
    Picture("compare", "#/compare?a={good}&b={bad}", ".differences", dark=True),
)


FAILED = Picture("failed", "#/run/{demo}", ".step-line")


def main() -> int:
    IMAGES.mkdir(parents=True, exist_ok=True)
    demo = [sys.executable, str(ROOT / "examples" / "demo" / "demo.py")]
    subprocess.run(demo, check=True, stdout=subprocess.DEVNULL)
    home = ROOT / "build" / "demo" / "home"
    with vestige.open(home) as debugger:
        killed = debugger.list(limit=1).data()["runs"][0]["short_id"]
    with served(home) as url, launched() as browser:
        page = browser.new_page(viewport=SIZE)  # type: ignore[arg-type]  # a plain dict
        page.goto(url)
        take(page, FAILED, {"demo": killed})
    with tempfile.TemporaryDirectory(prefix="vestige-pictures-") as folder:
        home = Home(Path(folder) / "home")
        runs = record(home)
        with served(home.root) as url, launched() as browser:
            page = browser.new_page(viewport=SIZE)  # type: ignore[arg-type]  # a plain dict
            page.goto(url)
            for picture in PICTURES:
                take(page, picture, runs)
    total = sum(path.stat().st_size for path in IMAGES.glob("*.png"))
    sys.stdout.write(
        f"{len(PICTURES) + 1} pictures, {total / 1e6:.2f} MB: {IMAGES.relative_to(ROOT)}\n"
    )
    return 0


def record(home: Home) -> dict[str, str]:
    """Record days of refunds, then a successful and a failed booking. Return those two ids."""
    clock = FakeClock(SYSTEM.now_ns() - 9 * 24 * HOUR_NS)
    with Recorder(home, crash_hooks=False, clock=clock) as recorder:
        for number in range(24):
            talk = f"talk {number // 3}"
            refund(recorder, clock, f"A-{number}", good=number % 7 != 3, conversation=talk)
            clock.advance(int(8.8 * HOUR_NS))
        errand(recorder, clock, good=True)
        clock.advance(600 * SECOND_NS)
        errand(recorder, clock, good=False)
    catch_up(home)
    with vestige.open(home.root) as debugger:
        bad, good = (run["short_id"] for run in debugger.list(limit=2).data()["runs"])
    return {"good": good, "bad": bad}


def take(page: Page, picture: Picture, runs: dict[str, str]) -> None:
    page.emulate_media(color_scheme="dark" if picture.dark else "light")
    page.evaluate("location.hash = '#/compare'")  # closes the panels of the previous picture
    page.evaluate("route => { location.hash = route }", picture.route.format(**runs))
    page.locator(picture.sign).first.wait_for()
    picture.before(page)
    expect(page.get_by_text("Loading")).to_have_count(0)
    page.wait_for_timeout(400)  # canvas and fonts are drawn later
    page.screenshot(path=IMAGES / f"{picture.name}.png")


if __name__ == "__main__":
    sys.exit(main())
