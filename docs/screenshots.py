"""Pictures of the viewer for the README and the guide: docs/images/*.png.

    python docs/screenshots.py           # `make screenshots`

Every picture is of a real page: runs are recorded (those that the tests of the pages use, too), served
and looked at with Debian's Chromium. So what the documents show is what there is.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
SIZE = {"width": 1280, "height": 800}
sys.path.insert(0, str(ROOT / "tests"))

from errand import errand  # noqa: E402
from playwright.sync_api import Page  # noqa: E402

import vestige  # noqa: E402
from support.browsing import launched, served  # noqa: E402  # after the path
from support.scene import SECOND_NS, refund  # noqa: E402
from vestige._runtime.clock import SYSTEM, FakeClock  # noqa: E402
from vestige.collector.loop import catch_up  # noqa: E402
from vestige.home import Home  # noqa: E402
from vestige.recorder import Recorder  # noqa: E402

HOUR_NS = 3600 * SECOND_NS


@dataclass(frozen=True, slots=True)
class Picture:
    name: str
    place: str
    """`{good}` and `{bad}` are the two runs."""
    sign: str
    """What is there once it is all there."""
    dark: bool = False
    before: Callable[[Page], object] = lambda page: None


def compare_states(page: Page) -> None:
    page.get_by_role("list", name="Snapshots").get_by_role("button").last.click()
    page.get_by_label("Compared with").select_option("1")
    page.get_by_role("region", name="#1 against #2").wait_for()


def open_file(page: Page) -> None:
    page.get_by_role("list", name="Files").get_by_role("button").first.click()
    page.get_by_role("region", name="Body").wait_for()


def open_request(page: Page) -> None:
    page.get_by_role("tab", name="Prompt").click()
    page.get_by_role("region", name="Parts of the prompt").wait_for()


PICTURES = (
    Picture("runs", "#/", "text=book a trip"),
    Picture("transcript", "#/run/{bad}", ".transcript .item"),
    Picture("tree", "#/run/{bad}?view=tree&span=s10", "text=no seat within"),
    Picture("timeline", "#/run/{bad}?view=timeline", "canvas", dark=True),
    Picture("logs", "#/run/{bad}?view=logs", ".logrow"),
    Picture("state", "#/run/{good}?view=state", ".snapshot", before=compare_states),
    Picture("files", "#/run/{good}?view=files", ".side", before=open_file),
    Picture("metadata", "#/run/{bad}?view=metadata", ".card"),
    Picture("prompt", "#/run/{bad}?view=tree&span=s7", ".facts", before=open_request),
    Picture("sql", "#/sql?q=SELECT type, count(*) AS n FROM spans GROUP BY type", "text=rows"),
    Picture("compare", "#/compare?a={good}&b={bad}", ".differences", dark=True),
)


def main() -> int:
    IMAGES.mkdir(parents=True, exist_ok=True)
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
        f"{len(PICTURES)} pictures, {total / 1e6:.2f} MB: {IMAGES.relative_to(ROOT)}\n"
    )
    return 0


def record(home: Home) -> dict[str, str]:
    """Some days of refunds, then an errand that goes well and one that does not."""
    clock = FakeClock(SYSTEM.now_ns() - 9 * 24 * HOUR_NS)
    with Recorder(home, last_words=False, clock=clock) as recorder:
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
    page.evaluate("location.hash = '#/compare'")  # nothing of the picture before stays open
    page.evaluate("place => { location.hash = place }", picture.place.format(**runs))
    page.locator(picture.sign).first.wait_for()
    picture.before(page)
    page.wait_for_timeout(400)  # what is drawn, not awaited: canvas, fonts
    page.screenshot(path=IMAGES / f"{picture.name}.png")


if __name__ == "__main__":
    sys.exit(main())
