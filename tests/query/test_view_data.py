"""`segments`, `state`, `files`, `trends` and the rows of `diff`: what the viewer shows beside a
run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vestige
from support.refund_desk import START_NS, TOOLS, answer, ask, record_desk
from vestige._runtime.clock import FakeClock
from vestige.collector.loop import catch_up
from vestige.errors import NotFoundError, UsageError
from vestige.home import Home
from vestige.query.debugger import Debugger
from vestige.query.stats.trends import trends_answer
from vestige.recorder import Recorder

BUNDLE = Path(__file__).parent.parent / "data" / "wink" / "later.zip"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Debugger]:
    home = Home(tmp_path_factory.mktemp("view_data") / "home")
    record_desk(home)
    with vestige.open(home.root) as opened:
        yield opened


@pytest.fixture
def bundle() -> Iterator[Debugger]:
    with vestige.open(BUNDLE) as opened:
        yield opened


# --- segments -------------------------------------------------------------------------------------


def test_segments_are_those_that_the_program_told(desk: Debugger) -> None:
    data = desk.segments("r3.s2").data()
    persona = data["segments"][0]

    assert (data["basis"], data["ranges"]) == ("recorded", "body")
    assert [each["contributor"] for each in data["segments"]] == [
        "persona",
        *(f"tool:{tool['name']}" for tool in TOOLS),
    ]
    assert persona["preview"].startswith("You are the refund desk.")
    assert persona["end"] - persona["begin"] == persona["size_bytes"]
    assert sum(each["share"] for each in data["contributors"]) == pytest.approx(1, abs=0.001)
    assert desk.segments("r3.s3").data() == data  # its prompt.assembly span means the same


def test_a_request_without_segments_tells_by_its_shape(home: Home) -> None:
    """Tools, system, messages, where they stand in the body."""
    request = ask([{"role": "user", "content": "Why?"}], "Be brief.")
    body = json.dumps(request)
    with (
        Recorder(home, last_words=False, clock=FakeClock()) as recorder,
        recorder.run("agent") as run,
    ):
        run.child("c", "llm", body=body).end(body=json.dumps(answer("So.")))
    catch_up(home)
    with vestige.open(home.root) as debugger:
        data = debugger.segments(f"{debugger.resolve(None).run.short_id}.s2").data()

    assert data["basis"] == "parsed"
    assert [each["contributor"] for each in data["segments"]] == [
        "tool:lookup_order",
        "tool:ask_fraud",
        "tool:refund",
        "system",
        "message:user",
    ]
    for each in data["segments"]:
        assert body[each["begin"] : each["end"]][:200] == each["preview"]


def test_a_span_without_a_prompt_is_told_what_has_one(desk: Debugger) -> None:
    with pytest.raises(NotFoundError, match="expected a model call"):
        desk.segments("r3.s4")


# --- states and files -----------------------------------------------------------------------------


def test_every_snapshot_says_what_changed_since_the_one_before(bundle: Debugger) -> None:
    first, second = bundle.state().data()["snapshots"]

    assert [first["index"], second["index"]] == [0, 1]
    assert [change["examples"] for change in first["changes"]] == [['+ [0] {"steps":["read"]}']]
    assert [change["examples"] for change in second["changes"]] == [['+ [1] {"steps":["write"]}']]
    assert second["slices"][0]["item_count"] == 2


def test_one_snapshot_has_its_items_and_two_have_a_difference(bundle: Debugger) -> None:
    run = bundle.resolve(None).run.short_id
    complete = bundle.state(f"{run}#1", than=0).data()
    back = bundle.state(f"{run}#0", than=1).data()

    assert complete["snapshot"]["slices"][0]["items"] == [{"steps": ["read"]}, {"steps": ["write"]}]
    assert not complete["snapshot"]["slices"][0]["cut"]
    assert (complete["diff"]["from"], complete["diff"]["to"]) == (0, 1)
    assert [change["added"] for change in complete["diff"]["changes"]] == [1]
    assert [change["removed"] for change in back["diff"]["changes"]] == [1]


def test_a_value_told_as_a_state_is_a_snapshot_too(home: Home) -> None:
    """AgentDbg's states have no slices: each is one value. A broken index hides none."""
    with (
        Recorder(home, last_words=False, clock=FakeClock()) as recorder,
        recorder.run("agent") as run,
    ):
        for step, index in ((1, 0), (2, 0), (3, True)):
            state = run.child("state", "state", body={"plan": {"step": step}})
            state.set_attributes(index=index)
            state.end()
        run.child("state", "state", body="no JSON").end()
    catch_up(home)
    with vestige.open(home.root) as debugger:
        data = debugger.state().data()
        run_id = debugger.resolve(None).run.short_id
        two = debugger.state(f"{run_id}#2").data()["snapshot"]

    assert [each["index"] for each in data["snapshots"]] == [0, 1, 2, 3]
    assert data["snapshots"][1]["changes"][0]["examples"] == ["~ [0].plan.step: 1 → 2"]
    assert two["slices"][0]["items"] == [{"plan": {"step": 3}}]


def test_a_later_page_of_snapshots_tells_the_same_changes(home: Home) -> None:
    """Each is compared with the previous one of its session, on whatever page that is."""
    with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
        for index, (session, count) in enumerate(
            (("a", 5), ("b", 7), ("a", 6), ("a", 7), ("b", 8))
        ):
            slices = [
                {"slice_type": "plan:Plan", "item_type": "plan:Plan", "items": [*range(count)]}
            ]
            changes = {
                "version": "1",
                "created_at": "2026-01-02T03:04:05+00:00",
                "slices": slices,
                "tags": {"session_id": session},
            }
            run.child("snapshot", "snapshot", {"index": index}).end(body=changes)
    catch_up(home)
    with vestige.open(home.root) as debugger:
        complete, page = debugger.state().data(), debugger.state(after=2).data()

    assert [each["changes"][0]["added"] for each in complete["snapshots"]] == [5, 7, 1, 1, 1]
    assert page["snapshots"] == complete["snapshots"][3:]


def test_what_is_no_snapshot_is_refused(desk: Debugger, bundle: Debugger) -> None:
    run = bundle.resolve(None).run.short_id
    with pytest.raises(UsageError, match="is not a snapshot"):
        desk.state("r3.s2")
    with pytest.raises(UsageError, match="no snapshot to compare"):
        bundle.state(run, than=0)
    with pytest.raises(NotFoundError, match="from #0 to #1"):
        bundle.state(f"{run}#1", than=7)


def test_a_flag_that_became_a_number_is_a_change(home: Home) -> None:
    """Python takes 1 and true for equal; a person who looks for a bug does not."""
    with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
        for value in (1, True, [0, {"x": 1}], [False, {"x": 1}], [False, {"x": True}]):
            run.child("s", "state", body=json.dumps({"paid": value})).end()
    catch_up(home)
    with vestige.open(home.root) as debugger:
        snapshots = debugger.state().data()["snapshots"]

    assert [change["examples"] for each in snapshots[1:] for change in each["changes"]] == [
        ["~ [0].paid: 1 → true"],
        ['~ [0].paid: true → [0,{"x":1}]'],
        ["~ [0].paid[0]: 0 → false"],
        ["~ [0].paid[1].x: 1 → true"],
    ]


def test_files_of_a_bundle_are_listed_with_their_beginnings(bundle: Debugger) -> None:
    files = {file["path"]: file for file in bundle.files().data()["files"]}

    assert files["artifacts/request/input.json"]["preview"] == '{\n  "q": "why"\n}'
    assert all(file["kept"] and file["binary"] is False for file in files.values())


def test_files_are_those_of_the_moment(home: Home) -> None:
    """The latest version of each up to then; a span is a moment too."""
    clock = FakeClock()
    with Recorder(home, last_words=False, clock=clock) as recorder, recorder.run("agent") as run:
        for path, text in (("a.txt", "old"), ("a.txt", "new"), ("b.bin", b"\x00\x01")):
            run.child(path, "file", attributes={"path": path}).end(body=text)
            clock.advance(10**9)
    catch_up(home)
    with vestige.open(home.root) as debugger:
        short = debugger.resolve(None).run.short_id
        early, late = debugger.files(at=0.5).data(), debugger.files().data()
        at_span = debugger.files(at=f"{short}.s3").data()

    assert [(file["path"], file["preview"], file["versions"]) for file in early["files"]] == [
        ("a.txt", "old", 1)
    ]
    assert early["later"] == 1
    assert [(file["path"], file["preview"], file["binary"]) for file in late["files"]] == [
        ("a.txt", "new", False),
        ("b.bin", None, True),
    ]
    assert [file["preview"] for file in at_span["files"]] == ["new"]


def test_a_hash_that_is_no_text_is_none(home: Home) -> None:
    with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
        run.child("a", "file", attributes={"path": "a", "sha256": 5}).end(body="x")
    catch_up(home)
    with vestige.open(home.root) as debugger:
        (file,) = debugger.files().data()["files"]

    assert file["sha256"] is None


def test_a_cut_list_of_files_names_the_moment_again(home: Home) -> None:
    """The rest of another moment would be another answer."""
    with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
        for number in range(50):
            run.child(f"{number}.txt", "file", attributes={"path": f"{number}.txt"}).end(body="x")
    catch_up(home)
    with vestige.open(home.root) as debugger:
        text = debugger.files(at=2.5).text(200)

    assert " --at 2.5 --json" in text


# --- trends ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["day", "hour"])
def test_trends_have_every_bucket_and_add_up(desk: Debugger, by: str) -> None:
    now_ns = START_NS + 5 * 3_600 * 10**9
    data = trends_answer(desk.store, now_ns, 2 * 86_400, by).data()
    buckets = data["buckets"]
    busy = [bucket for bucket in buckets if bucket["runs"]]

    assert len(buckets) == (3 if by == "day" else 49)
    assert [bucket["at"] for bucket in buckets] == sorted(bucket["at"] for bucket in buckets)
    assert sum(bucket["runs"] for bucket in buckets) == data["totals"]["runs"] == 2
    assert data["totals"]["errors"] == 1
    assert data["totals"]["input_tokens"] == 6_400
    assert data["totals"]["cache_read_tokens"] == 4_000
    assert data["totals"]["cost_usd"] == pytest.approx(sum(b["cost_usd"] for b in busy))
    assert all(bucket["p50_ms"] >= 4_800 for bucket in busy)
    assert {tool["name"] for tool in data["tools"]["measured"]["tools"]} >= {"refund"}


def test_trends_name_the_models_that_their_sums_leave_out(home: Home) -> None:
    """A sum without some of its parts says so."""
    with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
        for model in ("gpt-4o-mini", "house-model"):
            run.child("chat", "llm").end(
                attributes={"model": model, "input_tokens": 1_000, "output_tokens": 1}
            )
    catch_up(home)
    with vestige.open(home.root) as debugger:
        text = debugger.trends(since="1d").text()

    assert "no price known for house-model (not included in the cost)" in text


def test_trends_are_bounded_and_refuse_other_steps(desk: Debugger) -> None:
    now_ns = START_NS + 3_600 * 10**9

    assert len(trends_answer(desk.store, now_ns, 1e18, "hour").buckets) == 800
    assert len(trends_answer(desk.store, now_ns, 0).buckets) == 1
    with pytest.raises(UsageError, match="expected day or hour"):
        desk.trends(by="week")


# --- a span ---------------------------------------------------------------------------------------


def test_links_of_a_span_that_are_not_shown_are_counted(home: Home) -> None:
    with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
        causes = [run.child(f"cause {number}", "tool") for number in range(20)]
        total = run.child("sum")
        for cause in causes:
            total.add_link(cause)
    catch_up(home)
    with vestige.open(home.root) as debugger:
        text = debugger.span(f"{debugger.resolve(None).run.short_id}.s22").text(8_000)

    assert text.count("links to: ") == 8
    assert "… 12 more links: vestige span r2.s22 --json" in text


# --- two runs side by side ------------------------------------------------------------------------


def test_rows_of_a_diff_are_all_steps_and_name_what_parted(desk: Debugger) -> None:
    data = desk.diff("r2", "r3").data()
    rows = data["rows"]
    by_text = {row["b_text"] or row["a_text"]: row for row in rows if row["mark"] != "="}
    steps = sum(row["count"] if row["mark"] == "=" else 1 for row in rows)

    assert steps == data["same"] + len(data["differences"])
    assert rows[data["first_row"]]["b"] == data["first"]["b"]
    assert rows[data["first_row"]]["class"] == "prompt"
    assert by_text["tool refund (error)"]["classes"] == ["parameters", "result"]
    assert by_text["tool refund (error)"]["words"] == '{"order":"[-A-17-]{+0+}"}'
    assert by_text['log error "card refused"']["class"] == "message"
    assert data["rows_left_out"] == 0


def test_deltas_set_the_numbers_of_two_runs_side_by_side(desk: Debugger) -> None:
    deltas: dict[str, Any] = {
        each["name"]: (each["a"], each["b"]) for each in desk.diff("r2", "r3").data()["deltas"]
    }
    listed = {run["short_id"]: run for run in desk.list(cost=True).data()["runs"]}

    assert deltas["outcome"] == ("ok", "error")
    assert deltas["model_calls"] == (5, 5)
    assert deltas["tool:refund"] == (1, 1)
    assert deltas["cost_usd"] == (
        pytest.approx(listed["r2"]["cost_usd"]),
        pytest.approx(listed["r3"]["cost_usd"]),
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"messages": [{"role": "user", "content": "How?"}]}, "prompt"),
        ({"tools": TOOLS[:1]}, "tools"),
        ({"max_tokens": 7}, "parameters"),
        ({"tools": TOOLS[:1], "messages": []}, "tools"),
    ],
)
def test_a_request_that_parts_says_in_which_part(
    home: Home, change: dict[str, Any], expected: str
) -> None:
    request = ask([{"role": "user", "content": "Why?"}])
    with Recorder(home, last_words=False, clock=FakeClock()) as recorder:
        for body in (request, {**request, **change}):
            with recorder.run("agent") as run:
                run.child("c", "llm", body=json.dumps(body)).end(body=json.dumps(answer("So.")))
    catch_up(home)
    with vestige.open(home.root) as debugger:
        first, second = (run.short_id for run in reversed(debugger.list().runs))
        data = debugger.diff(first, second).data()

    assert data["rows"][data["first_row"]]["class"] == expected


def test_a_step_that_one_side_lacks_and_a_state_that_differs_have_their_class(home: Home) -> None:
    with Recorder(home, last_words=False, clock=FakeClock()) as recorder:
        for n in range(2):
            with recorder.run("agent") as run:
                run.child("state", "state", body={"n": n}).end()
                if n:
                    run.tool("search", {"q": 1}).end(body="x")
                    run.child("rest", "step").end()
    catch_up(home)
    with vestige.open(home.root) as debugger:
        first, second = (run.short_id for run in reversed(debugger.list().runs))
        rows = debugger.diff(first, second).data()["rows"]

    assert [(row["mark"], row["class"]) for row in rows] == [
        ("~", "state"),
        ("+", "tools"),
        ("+", "steps"),
    ]


@pytest.mark.parametrize("name", [[], ["--name", "nightly"]])
def test_a_program_that_opens_no_run_of_its_own_counts_as_one(home: Home, name: list[str]) -> None:
    """`vestige run` of a plain script, named or not: a list shows its run, so a day has it too."""
    script = "import vestige; vestige.Recorder().logger('agent').info('at work')"
    command = [sys.executable, "-m", "vestige", "run", "--home", str(home.root), *name, "--"]
    subprocess.run([*command, sys.executable, "-c", script], check=True, timeout=120)
    with vestige.open(home.root) as debugger:
        listed = debugger.list().data()["runs"]
        by = {
            step: debugger.trends(since="2d", by=step).data()["totals"] for step in ("day", "hour")
        }
        (day,) = debugger.stats(by="day").data()["rows"]

    assert len(listed) == 1
    assert by["day"]["runs"] == by["hour"]["runs"] == day["count"] == 1


@pytest.mark.parametrize("name", [[], ["--name", "nightly"]])
def test_a_program_that_dies_before_it_says_anything_counts_as_a_failure(
    home: Home, name: list[str]
) -> None:
    """A script that is not there: a list shows that it failed, so a day has it too."""
    command = [sys.executable, "-m", "vestige", "run", "--home", str(home.root), *name, "--"]
    subprocess.run(
        [*command, sys.executable, "nowhere.py"], capture_output=True, timeout=120, check=False
    )
    with vestige.open(home.root) as debugger:
        failed = len(debugger.list(failed=True).runs)
        by = [debugger.trends(since="2d", by=step).data()["totals"] for step in ("day", "hour")]

    assert [failed, *((total["runs"], total["errors"]) for total in by)] == [1, (1, 1), (1, 1)]


def test_the_calls_of_a_run_cost_what_the_run_costs(desk: Debugger) -> None:
    """A model call has a price; other spans have none."""
    run = desk.list().data()["runs"][0]["short_id"]
    overview = desk.overview(run).data()
    spans = desk.outline(run).data()["spans"]["number"]
    details = [desk.span(f"{run}.s{number}").data() for number in spans]
    priced = [one for one in details if one["cost_usd"] is not None]

    assert priced and {one["span"]["type"] for one in priced} == {"llm"}
    assert sum(one["cost_usd"] for one in priced) == pytest.approx(overview["cost_usd"], rel=0.01)
