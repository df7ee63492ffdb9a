"""Run the sections, print one table, write bench/RESULTS.md."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from bench import (
    agentdbg,
    agentdbg_emit,
    artifacts,
    bundles,
    capture,
    emit,
    ingest,
    place,
    power,
    read,
    redaction,
    server,
    storage,
    suites,
    survival,
    verbs,
    viewer,
    wire,
)
from bench.figures import HEADER, Figure, figure_of

SECTIONS: dict[str, tuple[str, Callable[[], Sequence[Figure]]]] = {
    "emit": ("Emitting one tool-call span", emit.measure),
    "agentdbg-emit": ("Emitting one AgentDbg event", agentdbg_emit.measure),
    "survival": ("What is readable after SIGKILL", survival.measure),
    "ingest": ("Journal to store", ingest.measure),
    "storage": ("Bodies on disk", lambda: [figure_of(row) for row in storage.measure()]),
    "read": ("Reading, importing, memory", read.measure),
    "bundles": ("A run as one file", bundles.measure),
    "capture": ("Capturing a debug bundle", capture.measure),
    "verbs": ("Asking", verbs.measure),
    "power": ("Findings on labelled runs", power.measure),
    "redaction": ("Finding secrets, and nothing else", redaction.measure),
    "wire": ("Model calls, recorded at the wire", wire.measure),
    "agentdbg": ("Runs of AgentDbg", agentdbg.measure),
    "suites": ("Test suites", suites.measure),
    "artifacts": ("Artifact bundles", artifacts.measure),
    "server": ("The server", server.measure),
    "viewer": ("The viewer, in a browser", viewer.measure),
}

HOW_TO_READ = """\
Times move by a factor of two from machine to machine and from minute to minute; ratios move less,
because what is compared takes turns in one run, but on a busy machine a ratio to a peer still
moves by a fifth or so: do not lean on a target that is only just met. *Floor* is the least work
that could do the same job, written by hand for this benchmark. *Peer* is the tool that the row
names, measured in the same run unless the row says quoted. *Ratio* is ours to the floor, or how
much less we take than the peer. *Met* is computed from the figures in its row; `-` means that the
row has no target or that it could not be measured here. Times of a span are the lowest of several
rounds' medians (p50), for ours, the floor and the peers alike. A median leaves out the work of a
recorder's background threads; the row on CPU includes it. OpenTelemetry's batch processor drops
spans while its queue is full, also during the calls that are timed."""


def main() -> int:
    names = sys.argv[1:] or list(SECTIONS)
    if unknown := [name for name in names if name not in SECTIONS]:
        print(f"bench: no section {unknown[0]!r} (one of {', '.join(SECTIONS)}).", file=sys.stderr)
        return 2
    begun = time.monotonic()
    results = {name: measure(name) for name in names}
    show(results)
    if len(results) == len(SECTIONS):
        path = place.ROOT / "bench" / "RESULTS.md"
        path.write_text(render(results), encoding="utf-8")
        print(f"written: {path.relative_to(place.ROOT)}")
    figures = [figure for section in results.values() for figure in section]
    missed = sum(figure.met is False for figure in figures)
    judged = sum(figure.met is not None for figure in figures)
    print(f"{judged - missed} of {judged} targets met in {time.monotonic() - begun:.0f} s.")
    return 0


def measure(name: str) -> Sequence[Figure]:
    title, section = SECTIONS[name]
    print(f"{name}: {title} ...", end=" ", flush=True)
    begun = time.monotonic()
    figures = section()
    print(f"{time.monotonic() - begun:.0f} s", flush=True)
    return figures


def show(results: dict[str, Sequence[Figure]]) -> None:
    table = Table(*HEADER)
    for column in table.columns[1:5]:
        column.justify = "right"
    for name, figures in results.items():
        table.add_section()
        table.add_row(f"[bold]{SECTIONS[name][0]}")
        for figure in figures:
            table.add_row(*figure.cells(), style="red" if figure.met is False else None)
    console = Console()
    # A pipe has no width of its own; a wrapped table cannot be read.
    console = console if console.is_terminal else Console(width=170)
    console.print(table)


def render(results: dict[str, Sequence[Figure]]) -> str:
    """The same tables, as Markdown."""
    parts = ["# Results", f"{place.machine()}. Written by `python -m bench`.", HOW_TO_READ]
    for name, figures in results.items():
        lines = [HEADER, ("---", *("---:",) * 4, "---", "---"), *(row.cells() for row in figures)]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        parts += [f"## {SECTIONS[name][0]}", table]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.exit(main())
