"""Does `check` point where people found the errors? Scores on real, labelled runs.

python -m bench.power [FOLDER]     # prints the figures, and each kind of finding

FOLDER, or VESTIGE_CORPUS, has `trail/` and `whowhen/` with runs and `labels.json`. Without it, the
runs in tests/data/real_runs are scored. Of a larger corpus the precision of each kind is written
to bench/precision.json, which docs/reference/checks.md shows.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import place
from bench.figures import Figure, Goal

LEAD_MIN = 60
CAUSES_MIN = 50
AUTO_MIN = 35
HAND_MIN = 15
RUNS_MIN = 60
"""Runs of a corpus whose precision is worth to be committed."""
PRECISION = place.ROOT / "bench" / "precision.json"

Finding = dict[str, Any]
Labelled = tuple[str, Any, Any, list[Finding]]
"""Name, label, run, findings."""


def measure() -> list[Figure]:
    folder = Path(os.environ.get("VESTIGE_CORPUS") or place.ROOT / "tests/data/real_runs")
    return [*_score_traces(folder / "trail"), *_score_messages(folder / "whowhen")]


def _score_traces(folder: Path) -> list[Figure]:
    leads: list[bool] = []
    chances: list[float] = []
    causes = right = runs = 0
    found: Counter[str] = Counter()
    on_label: Counter[str] = Counter()
    for _, label, run, findings in _check_runs(folder):
        at = {each["span_id"] for each in label}
        if not at:
            continue
        runs += 1
        likely = [span.id for span in run.spans if span.type in ("llm", "tool")]
        chances.append(sum(each in at for each in likely) / max(1, len(likely)))
        real = [each for each in findings if each["severity"] != "hint"]
        if real:
            leads.append(real[0]["cause"] in at)
        named = {each["cause"] for each in real}
        causes, right = causes + len(named), right + len(named & at)
        for each in findings:
            found[each["kind"]] += 1
            on_label[each["kind"]] += each["cause"] in at
    chance = 100 * sum(chances) / max(1, len(chances))
    _write_precision(found, on_label, runs, chance)
    return [
        Figure(
            f"lead on a labelled span, {len(leads)} of {runs} traces",
            "%",
            100 * sum(leads) / max(1, len(leads)),
            floor=chance,
            goal=Goal("at least", LEAD_MIN),
        ),
        Figure(
            f"causes on a labelled span, {causes}",
            "%",
            100 * right / max(1, causes),
            floor=chance,
            goal=Goal("at least", CAUSES_MIN),
        ),
    ]


def _score_messages(folder: Path) -> list[Figure]:
    right: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    chance: Counter[str] = Counter()
    for name, label, run, findings in _check_runs(folder):
        group = name.partition("-")[0]
        indexes = {span.id: span.attributes.get("message_index") for span in run.spans}
        first = next((each for each in findings if each["severity"] != "hint"), None)
        runs[group] += 1
        chance[group] += 1 / max(1, len(set(indexes.values())))
        right[group] += first is not None and indexes.get(first["cause"]) == label["step"]
    goals = {"auto": AUTO_MIN, "hand": HAND_MIN}
    return [
        Figure(
            f"decisive step of {runs[group]} message logs ({group})",
            "%",
            100 * right[group] / runs[group],
            floor=100 * chance[group] / runs[group],
            goal=Goal("at least", goal),
        )
        for group, goal in goals.items()
        if runs[group]
    ]


def _check_runs(folder: Path) -> Iterator[Labelled]:
    from vestige.query.failures.check import CheckAnswer, examine
    from vestige.store.protocol import RunFilter
    from vestige.transfer.temp_store import load_runs

    labels = json.loads((folder / "labels.json").read_text(encoding="utf-8"))
    for name in sorted(labels):
        with place.folder() as work:
            temporary = load_runs(_unpack(folder, name, work))
            try:
                store = temporary.store
                run = store.load_run(store.list_runs(RunFilter())[0].id)
                answer = CheckAnswer(run, examine(store, run))
                yield name, labels[name], run, answer.data()["findings"]
            finally:
                temporary.close()


def _unpack(folder: Path, name: str, work: Path) -> Path:
    for suffix in (".otlp.json.gz", ".json.gz"):
        packed = folder / f"{name}{suffix}"
        if packed.exists():
            target = work / packed.name.removesuffix(".gz")
            target.write_bytes(gzip.decompress(packed.read_bytes()))
            return target
    return folder / f"{name}.json"


def _write_precision(found: Counter[str], on_label: Counter[str], runs: int, chance: float) -> None:
    """Write the precision of each kind, if enough runs were scored."""
    if runs < RUNS_MIN:
        return
    kinds = {
        kind: {"findings": count, "on_label": round(on_label[kind] / count, 2)}
        for kind, count in sorted(found.items())
    }
    table = {"runs": runs, "chance": round(chance / 100, 2), "kinds": kinds}
    PRECISION.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    if len(sys.argv) > 1:
        os.environ["VESTIGE_CORPUS"] = sys.argv[1]
    for figure in measure():
        print(f"{figure.name}: {figure.ours or 0:.1f} % (chance {figure.floor or 0:.1f} %)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
