"""Make the pictures of the viewer anew, from the tests' own runs, in docs/images/.

    make screenshots

The page is the built one, served as users see it. So a picture that no longer fits is made
anew, not touched up.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "images"
SIZE = {"width": 1280, "height": 760}
PICTURES = {
    "runs": ("#/", "text=r21", "light"),
    "transcript": ("#/run/r21?span=s9", "text=ask_fraud", "light"),
    "tree": ("#/run/r21?view=tree&span=s8", "text=fraud desk", "light"),
    "timeline": ("#/run/r21?view=timeline", "canvas", "dark"),
    "logs": ("#/run/r21?view=logs", "text=card refused", "light"),
    "metadata": ("#/run/r21?view=metadata", "[role=tabpanel]", "light"),
    "compare": ("#/compare?a=r19&b=r21", "main", "light"),
    "sql": ("#/sql?q=SELECT name, count(*) n FROM spans GROUP BY name", "text=rows", "light"),
}
"""Of each: where in the page, what is there once it is drawn, and the colours."""


def main() -> int:
    sys.path.insert(0, str(ROOT / "tests" / "web"))
    from browsing import launched, served, visit
    from scene import fill

    from vestige.home import Home

    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder) / "home")
        fill(home)
        with served(home.root) as url, launched() as browser:
            for name, (place, sign, colours) in PICTURES.items():
                with visit(browser, url + place, viewport=SIZE, color_scheme=colours) as page:
                    page.locator(sign).first.wait_for()
                    page.locator(".empty[role=status]").wait_for(state="detached")
                    page.wait_for_timeout(800)  # findings come one by one, after the rows
                    page.screenshot(path=FOLDER / f"{name}.png")
                sys.stdout.write(f"wrote docs/images/{name}.png\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
