"""A logger speaks as one component, inside the span that it is bound to or that is ambient."""

from __future__ import annotations

import pytest

from vestige.limits import MESSAGE_MAX
from vestige.testing import FakeRecorder


def test_every_level_is_a_line_with_its_attributes() -> None:
    """`warning` is the same word as `warn`."""
    recorder = FakeRecorder()
    log = recorder.logger("billing")

    log.debug("a")
    log.info("b", invoice_id="i-17", amount=120)
    log.warn("c")
    log.warning("d")
    log.error("e")

    assert [(line.level, line.message) for line in recorder.logs] == [
        ("debug", "a"),
        ("info", "b"),
        ("warn", "c"),
        ("warn", "d"),
        ("error", "e"),
    ]
    assert recorder.logs[1].attributes == {"invoice_id": "i-17", "amount": 120}
    assert {line.component for line in recorder.logs} == {"billing"}


@pytest.mark.parametrize("level", ["debug", "info", "warn", "error"])
def test_lines_below_the_level_are_not_recorded(level: str) -> None:
    """Errors always are."""
    order = ["debug", "info", "warn", "error"]
    recorder = FakeRecorder(level=level)
    log = recorder.logger("c")

    for name in order:
        getattr(log, name)("x")
        log.record(name, "x", {})

    expected = [name for name in order[order.index(level) :] for _ in range(2)]
    assert [line.level for line in recorder.logs] == expected


def test_a_line_belongs_to_its_span_or_the_ambient_one_or_the_process() -> None:
    """Bound first, ambient second, the process's own span last."""
    recorder = FakeRecorder()
    log = recorder.logger("c")
    run = recorder.run("r")
    elsewhere = recorder.run("elsewhere")

    log.info("outside")
    with run:
        log.info("ambient")
        elsewhere.log.info("bound")

    outside, ambient, bound = recorder.logs
    assert outside.span_id == recorder._writer.process_span.id
    assert (ambient.run_id, ambient.span_id) == (run.run_id, run.id)
    assert (bound.run_id, bound.span_id) == (elsewhere.run_id, elsewhere.id)


def test_a_child_carries_attributes_to_every_line_and_span() -> None:
    """The nearest word wins."""
    recorder = FakeRecorder()
    log = recorder.logger("c").child(tenant="t1", n=1).child(n=2)

    log.info("line", n=3)
    log.span("span", attributes={"x": True})

    assert recorder.logs[0].attributes == {"tenant": "t1", "n": 3}
    assert recorder.spans[0].attributes == {"tenant": "t1", "n": 2, "x": True}
    assert recorder.spans[0].component == "c"


def test_a_loggers_span_stands_in_the_ambient_one() -> None:
    """Outside any, in the process's."""
    recorder = FakeRecorder()
    log = recorder.logger("c")

    alone = log.span("alone")
    with recorder.run("r") as run:
        within = log.span("within")

    assert alone.parent_id == recorder._writer.process_span.id
    assert (within.run_id, within.parent_id) == (run.run_id, run.id)


def test_an_attribute_may_have_any_name() -> None:
    """Also those of our own parameters and fields."""
    recorder = FakeRecorder()

    recorder.logger("c").info("m", message="x", level="y", component="z", self="s", span_id="q")

    (line,) = recorder.logs
    assert (line.message, line.level, line.component) == ("m", "info", "c")
    assert line.attributes == {
        "message": "x",
        "level": "y",
        "component": "z",
        "self": "s",
        "span_id": "q",
    }


class Markup(str):
    """As template libraries have it: a text of another class."""


@pytest.mark.parametrize(
    ("message", "stored"),
    [
        (Markup("<b>"), "<b>"),
        (7, "7"),
        (None, "None"),
        ("\ud800", "\\ud800"),
        ("m" * (MESSAGE_MAX + 3), "m" * MESSAGE_MAX + "…[+3 characters]"),
    ],
    ids=["subclass", "int", "none", "surrogate", "long"],
)
def test_any_message_is_kept_in_its_form(message: str, stored: str) -> None:
    """Never a record lost for what it says."""
    recorder = FakeRecorder()

    recorder.logger("c").info(message)

    assert recorder.logs[0].message == stored


def test_a_line_may_have_a_body() -> None:
    """For bridges, which have large payloads to hand over."""
    recorder = FakeRecorder()

    recorder.logger("c").record("info", "m", {}, b"\xff\x00")

    (line,) = recorder.logs
    assert line.body == "/wA="
    assert line.body_info is not None
    assert line.body_info.encoding == "base64"
