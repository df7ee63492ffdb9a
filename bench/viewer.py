"""The viewer in a real browser: long runs, one deep trace, a home full of runs.

    python -m bench.viewer fill long|deep|many HOME      # what is looked at

First rows are timed in the page, from the last byte of the answer to the first frame with a row
in it. Frames are the gaps between animation frames while a wheel turns (a timeline is zoomed and
moved). The heap is read after a collection, with the view open. Everything else on the machine
slows a browser too: best of rounds.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import ingest, place
from bench.figures import Figure, Goal

LONG = 100_000
DEEP = 33_000
MANY = 100_000
ROUNDS = 3
TURNS = 60
CHROMIUM = "/usr/bin/chromium"
WATCH = """
window.first = {};
window.frames_ms = null;
let before = performance.now();
const watch = (now) => {
  for (const [name, what] of Object.entries(%s))
    if (!window.first[name] && document.querySelector(what)) window.first[name] = performance.now();
  if (window.frames_ms) window.frames_ms.push(now - before);
  before = now;
  requestAnimationFrame(watch);
};
requestAnimationFrame(watch);
"""
ROWS = {
    "tree": "[role=treeitem]",
    "timeline": ".timeline canvas",
    "transcript": ".transcript .item",
    "runs": "main [role=row] a, main tbody a",
}


def measure() -> list[Figure]:
    if not Path(CHROMIUM).exists():
        return [Figure("the viewer: no browser here", "-", None)]
    figures: list[Figure] = []
    for name, what in (
        ("long", f"run of {LONG:,} spans"),
        ("deep", f"trace of {DEEP:,} spans, 50 deep"),
    ):
        with place.folder() as folder:
            place.output(["-m", "bench.viewer", "fill", name, str(folder)])
            views = ("tree", "timeline", "transcript") if name == "long" else ("tree", "timeline")
            figures += run_page(folder, what, views)
    with place.folder() as folder:
        place.output(["-m", "bench.viewer", "fill", "many", str(folder)])
        figures += home_page(folder)
    return figures


# --- what is looked at ---------------------------------------------------------------------------


def fill_long(home: Path) -> None:
    """Steps of a model call, a tool and a note, as an agent makes them all day."""
    import vestige

    recorder = vestige.Recorder(home, redact=False, crash_hooks=False)
    with recorder, recorder.run("long agent") as run:
        for number in range(LONG // 4):
            _step(run, number)
    ingest.take_ours(home)


def _step(run: Any, number: int) -> None:
    step = run.child(f"step {number % 17}", "step")
    question = {"role": "user", "content": f"question {number} " + "word " * 20}
    request = json.dumps({"model": "gpt-4o", "messages": [question]})
    call = step.child("chat", "llm", {"model": "gpt-4o", "provider": "openai"}, request)
    call.set_attributes(input_tokens=100 + number % 50, output_tokens=20)
    reply = {"role": "assistant", "content": f"answer {number}"}
    call.end(body=json.dumps({"choices": [{"message": reply}]}))
    tool = step.tool("search", {"q": number})
    tool.end(ValueError("nothing found") if number % 97 == 0 else None, body="result " * 5)
    step.child("note").end()
    step.end()


def fill_deep(home: Path) -> None:
    import vestige

    recorder = vestige.Recorder(home, redact=False, crash_hooks=False)
    with recorder, recorder.run("one trace") as run:
        for number in range(DEEP // 50):
            chain = [run.child(f"request {number}", "request")]
            for depth in range(49):
                chain.append(chain[-1].child(f"call {depth}", "step"))
            for span in reversed(chain):
                span.end()
    ingest.take_ours(home)


def fill_many(home: Path) -> None:
    import vestige

    with vestige.Recorder(home, redact=False, crash_hooks=False) as recorder:
        for number in range(MANY):
            with recorder.run(f"agent {number % 40}", f"talk {number // 4}") as run:
                run.tool("search", {"q": number}).end()
                if number % 9 == 0:
                    run.end(error=RuntimeError("refused"))
    ingest.take_ours(home)


# --- looking --------------------------------------------------------------------------------------


@contextmanager
def browsing(home: Path) -> Iterator[tuple[Any, str]]:
    """A page, and the address that `vestige ui` of a home has for it."""
    from playwright.sync_api import sync_playwright

    command = [
        sys.executable,
        "-m",
        "vestige",
        "ui",
        "--no-browser",
        "--port",
        "0",
        "--home",
        str(home),
    ]
    with (
        subprocess.Popen(command, stderr=subprocess.PIPE, env=place.environment()) as server,
        sync_playwright() as playwright,
    ):
        assert server.stderr is not None
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--no-first-run"]
        )
        try:
            first_line = server.stderr.readline().decode()
            found = re.search(r"http://\S+", first_line)
            assert found, first_line
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.set_default_timeout(120_000)
            page.add_init_script(WATCH % json.dumps(ROWS))
            yield page, found[0]
        finally:
            browser.close()
            server.terminate()


def run_page(home: Path, what: str, views: tuple[str, ...]) -> list[Figure]:
    first_ms: dict[str, list[float]] = {view: [] for view in views}
    whole_ms = []
    frames: dict[str, list[float]] = {view: [] for view in views}
    slowest: dict[str, list[float]] = {view: [] for view in views}
    heap_mb = 0.0
    with browsing(home) as (page, url):
        page.goto(url)
        for _ in range(ROUNDS):
            for view in views:
                first_ms[view].append(first_rows(page, url, view))
                whole_ms.append(page.evaluate("view => window.first[view]", view))
                gaps = frame_gaps(page, view)
                frames[view].append(gaps[int(len(gaps) * 0.95)])
                slowest[view].append(gaps[-1])
                heap_mb = max(heap_mb, heap(page))
    return [
        *(
            Figure(
                f"{what}, {view}: first rows after the data",
                "ms",
                min(first_ms[view]),
                goal=Goal("below", 1000),
            )
            for view in views
        ),
        *(
            Figure(
                f"{what}, {view}: frames while scrolling, p95",
                "ms",
                min(frames[view]),
                goal=Goal("below", 50),
            )
            for view in views
        ),
        *(
            Figure(f"{what}, {view}: slowest frame while scrolling", "ms", min(slowest[view]))
            for view in views
        ),
        Figure(f"{what}: from the link to rows", "ms", min(whole_ms)),
        Figure(f"{what}: JavaScript heap", "MB", heap_mb, goal=Goal("below", 300)),
    ]


def first_rows(page: Any, url: str, view: str) -> float:
    """From the last byte of what the view needs to a frame that has rows."""
    page.goto("about:blank")
    page.goto(f"{url}#/run/r2?view={view}")
    page.wait_for_selector(ROWS[view])
    page.wait_for_timeout(100)  # the frame after
    route = "transcript" if view == "transcript" else "outline"
    started_ms: float = page.evaluate(
        """([asked, view]) => {
            const came = performance.getEntriesByType('resource').find(
                one => one.name.includes('/api/v1/' + asked + '?'));
            return window.first[view] - came.responseEnd;
        }""",
        [route, view],
    )
    return started_ms


def frame_gaps(page: Any, view: str) -> list[float]:
    """Return the times between frames while a wheel turns, the slowest last."""
    page.mouse.move(400, 600)
    page.evaluate("window.frames_ms = []")
    for turn in range(TURNS):
        if view == "timeline":  # in and out, and along
            if turn % 2:
                page.keyboard.down("Shift")
            page.mouse.wheel(0, -60 if turn < TURNS * 2 // 3 else 60)
            if turn % 2:
                page.keyboard.up("Shift")
        else:
            page.mouse.wheel(0, 300 if turn % 10 else 30_000)
    page.wait_for_timeout(300)
    return sorted(page.evaluate("window.frames_ms"))


def heap(page: Any) -> float:
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.enable")
    session.send("HeapProfiler.collectGarbage")
    used: float = session.send("Runtime.getHeapUsage")["usedSize"]
    session.detach()
    return used / 1e6


def home_page(home: Path) -> list[Figure]:
    """From the click on a link to a frame with runs in it; the page itself included."""
    took = []
    with browsing(home) as (page, url):
        for _ in range(ROUNDS + 1):
            page.goto("about:blank")
            page.goto(url)
            page.wait_for_selector(ROWS["runs"])
            page.wait_for_timeout(100)  # the frame after
            took.append(page.evaluate("window.first.runs"))
    return [Figure(f"home over {MANY:,} runs", "ms", min(took[1:]), goal=Goal("below", 1000))]


if __name__ == "__main__":
    {"long": fill_long, "deep": fill_deep, "many": fill_many}[sys.argv[2]](Path(sys.argv[3]))
