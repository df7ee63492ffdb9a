"""Runs of other people's agents: every text once, a bounded number of items, ids that work."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.sampling import every_third
from vestige.home import Home
from vestige.query.debugger import Debugger
from vestige.query.evidence import Evidence
from vestige.query.token_budget import count_tokens
from vestige.query.trajectory import Trajectory, build_trajectory
from vestige.query.trajectory.seen_contents import normalize
from vestige.transfer import open_ids

FILES = sorted((Path(__file__).parents[2] / "data" / "real_runs").glob("*/*.gz"))
LONG = 200
"""Characters of a text that does not occur twice by chance."""


@pytest.fixture(scope="module", params=every_third(FILES), ids=lambda path: path.name[:20])
def opened(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Debugger, Evidence]]:
    folder = tmp_path_factory.mktemp("real")
    source = folder / request.param.name.removesuffix(".gz")
    source.write_bytes(gzip.decompress(request.param.read_bytes()))
    with open_ids(Home(folder / "home"), str(source)) as (debugger, (run_id,)):
        yield debugger, debugger._open(run_id)


def trajectory_of(opened: tuple[Debugger, Evidence]) -> Trajectory:
    return opened[1].once(build_trajectory)


def test_there_are_real_runs() -> None:
    assert len(FILES) >= 12


@pytest.mark.slow
def test_no_text_is_shown_twice(opened: tuple[Debugger, Evidence]) -> None:
    counts: Counter[str] = Counter()
    for step in trajectory_of(opened).steps:
        for item in step.items():
            text = item.text
            for repeat in reversed(item.repeats):
                text = text[: repeat.begin] + text[repeat.end :]
            if len(text) >= LONG:
                counts[normalize(text)] += 1

    assert [text[:80] for text, count in counts.items() if count > 1] == []


@pytest.mark.slow
def test_the_items_are_bounded_by_calls_tools_and_logs(
    opened: tuple[Debugger, Evidence],
) -> None:
    debugger, evidence = opened
    calls, tools = len(evidence.model_calls), len(evidence.of_type("tool"))
    page = debugger.transcript(evidence.run.info.short_id, limit=1_000).data()

    assert page["next"] is None
    assert len(page["items"]) <= 3 * calls + tools + len(evidence.run.logs) + 1


def test_every_model_call_is_a_step_with_a_headline(opened: tuple[Debugger, Evidence]) -> None:
    trajectory = trajectory_of(opened)
    spans = [step.span.id for step in trajectory.steps if step.span is not None]

    assert spans and set(spans) >= {span.id for span in opened[1].model_calls}
    assert len(spans) == len(set(spans))
    assert all(step.headline for step in trajectory.steps)
    assert trajectory.task is not None and trajectory.title


@pytest.mark.slow
def test_answers_stay_within_their_budget(opened: tuple[Debugger, Evidence]) -> None:
    debugger, evidence = opened
    run = evidence.run.info.short_id
    for budget in (600, 1_200, 12_000):
        assert count_tokens(debugger.overview(run).text(budget)) <= budget
        assert count_tokens(debugger.transcript(run).text(budget)) <= budget


@pytest.mark.slow
def test_code_that_a_model_wrote_keeps_its_indentation(opened: tuple[Debugger, Evidence]) -> None:
    debugger, evidence = opened
    text = debugger.transcript(evidence.run.info.short_id, full=True).text(50_000)
    for step in trajectory_of(opened).steps[:3]:
        for item in step.answer:
            if item.kind != "code" or item.repeats or "\t" in item.text:
                continue
            for line in item.text.splitlines()[:5]:
                assert line.rstrip() in text
