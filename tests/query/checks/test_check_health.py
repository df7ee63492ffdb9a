"""Can the record be trusted?"""

from __future__ import annotations

import os

from support.planted_bugs import evidence_of, findings, recording
from vestige._runtime.clock import FakeClock
from vestige.collector.loop import catch_up
from vestige.home import Home
from vestige.limits import BODY_INLINE_MAX, BODY_MAX
from vestige.query.checks.process import recording_health
from vestige.record.types import OWN_COMPONENT
from vestige.recorder import Recorder
from vestige.store.protocol import RetentionPolicy
from vestige.store.sqlite.sqlite_store import SqliteStore

ALL = (
    recording_health.recorder_gap,
    recording_health.clock_step,
    recording_health.secret_found,
    recording_health.body_incomplete,
    recording_health.unsampled_run,
)


def test_a_healthy_run_has_nothing_to_say(home: Home) -> None:
    with recording(home) as run:
        run.child("search", "tool", body="{}").end(body="[]")
        run.log.info("fine")

    assert findings(home, *ALL) == []


def test_what_the_recorder_lost_is_told(home: Home) -> None:
    """As `Writer.report` says it, here inside the run."""
    with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
        log = recorder.logger(OWN_COMPONENT).child(run)
        log.warn("records dropped (7)", gap="records dropped", count=7)
        log.warn("records dropped (2)", gap="records dropped", count=2)

    (found,) = findings(home, *ALL)

    assert (found.kind, found.severity) == ("health/gap", "warning")
    assert "9 records" in found.message


def test_a_span_whose_opening_never_arrived_is_a_hole(home: Home) -> None:
    with recording(home) as run:
        span = run.child("search", "tool")
        span.end()
    (path,) = [path for _, _, path in home.journal_files()]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(x for x in lines if b'"span-open"' not in x or b'"search"' not in x))

    (found,) = findings(home, *ALL)

    assert (found.kind, found.cause) == ("health/hole", span.id)


def test_a_clock_that_goes_back(home: Home) -> None:
    clock = FakeClock()
    with recording(home, clock=clock) as run:
        run.child("one").end()
        clock.advance(-5 * 10**9)
        two = run.child("two")
        two.end()

    (found,) = findings(home, recording_health.clock_step)

    assert (found.kind, found.cause) == ("health/clock-step", two.id)
    assert "5.0s" in found.message


def test_secrets_are_told_by_rule_and_never_in_clear(home: Home) -> None:
    key = "sk-proj-" + "Ab1" * 16
    with recording(home) as run:
        span = run.child("search", "tool", body=f"use {key} now")
        span.end()

    (found,) = findings(home, *ALL)

    assert (found.kind, found.severity, found.cause) == ("health/secret", "hint", span.id)
    assert "redacted" in found.message and key not in found.message


def test_a_body_that_was_cut(home: Home) -> None:
    with recording(home) as run:
        span = run.child("read", "tool", body="x" * (BODY_MAX + 10))
        span.end()

    (found,) = findings(home, *ALL)

    assert (found.kind, found.cause) == ("health/body-cut", span.id)


def test_a_body_whose_file_is_gone(home: Home) -> None:
    with recording(home) as run:
        span = run.child("read", "tool", body="x" * (BODY_INLINE_MAX + 10))
        span.end()
    for path in (home.root / "bodies").rglob("*"):
        if path.is_file():
            os.unlink(path)

    (found,) = findings(home, *ALL)

    assert (found.kind, found.severity, found.cause) == ("health/body-lost", "warning", span.id)


def test_a_body_that_retention_took(home: Home) -> None:
    with recording(home) as run:
        span = run.child("read", "tool", body="x" * 5000)
        span.end()
    catch_up(home)
    with SqliteStore.open(home.store) as store:
        now = 1_700_000_100 * 10**9
        store.prune(RetentionPolicy(age_max_s=None, body_bytes_max=0), now)

    (found,) = findings(home, *ALL)

    assert (found.kind, found.cause) == ("health/body-evicted", span.id)


def test_a_run_that_was_not_sampled(home: Home) -> None:
    with recording(home, sample=0.0) as run:
        run.child("search", "tool").end()

    (found,) = findings(home, *ALL)

    assert found.kind == "health/unsampled"
    with evidence_of(home) as evidence:
        assert evidence.root is not None and found.cause == evidence.root.id
