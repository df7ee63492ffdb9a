"""An exception keeps its whole story: type, message, stack, causes, and members of a group."""

from __future__ import annotations

import pytest

from vestige.emit.exception_attributes import error_attributes, status_of
from vestige.limits import STACK_MAX


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text of me")


def caught(raiser: object) -> BaseException:
    try:
        raiser()  # type: ignore[operator]
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def test_an_error_is_told_with_its_stack() -> None:
    """Builtins by their bare name, others with their module."""

    def fail() -> None:
        raise ValueError("bad value")

    attributes = error_attributes(caught(fail))

    assert attributes["error.type"] == "ValueError"
    assert attributes["error.message"] == "bad value"
    assert 'raise ValueError("bad value")' in str(attributes["error.stack"])
    assert error_attributes(Unprintable())["error.type"] == f"{__name__}.Unprintable"


def test_a_chain_names_its_deepest_cause() -> None:
    """`raise ... from`, and exceptions while handling another; but not what was suppressed."""

    def explicit() -> None:
        try:
            try:
                raise KeyError("root")
            except KeyError as error:
                raise ValueError("middle") from error
        except ValueError as error:
            raise RuntimeError("top") from error

    def suppressed() -> None:
        try:
            raise KeyError("hidden")
        except KeyError:
            raise RuntimeError("top") from None

    attributes = error_attributes(caught(explicit))

    assert (attributes["error.type"], attributes["error.cause.type"]) == (
        "RuntimeError",
        "KeyError",
    )
    assert attributes["error.cause.message"] == "'root'"
    assert all(word in str(attributes["error.stack"]) for word in ("root", "middle", "top"))
    assert "error.cause.type" not in error_attributes(caught(suppressed))


def test_a_chain_that_bites_its_tail_ends() -> None:
    """Exceptions may be chained into a circle."""
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first

    assert error_attributes(first)["error.cause.message"] == "second"


def test_a_group_names_its_members() -> None:
    """Each of them is also in the stack."""
    group = ExceptionGroup("both", [ValueError("one"), KeyError("two")])

    attributes = error_attributes(group)

    assert attributes["error.group.count"] == 2
    assert attributes["error.group.types"] == "ValueError, KeyError"
    assert all(word in str(attributes["error.stack"]) for word in ("both", "one", "two"))


def test_an_error_that_cannot_be_printed_is_still_told() -> None:
    """Its own code may raise."""
    attributes = error_attributes(Unprintable())

    assert attributes["error.message"] == "<unprintable Unprintable>"
    assert "Unprintable" in str(attributes["error.stack"])


def test_a_long_stack_keeps_its_ends() -> None:
    """The first and last frames say it."""

    def deep(n: int) -> None:
        if n == 0:
            raise ValueError("x" * STACK_MAX * 2)
        deep(n - 1)

    attributes = error_attributes(caught(lambda: deep(200)))

    stack = str(attributes["error.stack"])
    assert STACK_MAX <= len(stack) < STACK_MAX + 100
    assert stack.startswith("Traceback")
    assert "characters left out" in stack
    assert len(str(attributes["error.message"])) < 5_000


def test_a_text_in_place_of_an_exception_is_a_message() -> None:
    """`span.end(error="no answer")` says what it means."""
    assert error_attributes("no answer") == {"error.message": "no answer"}  # type: ignore[arg-type]
    assert status_of("no answer") == "error"  # type: ignore[arg-type]


@pytest.mark.parametrize("code", [None, 0])
def test_a_clean_exit_is_no_error(code: int | None) -> None:
    """sys.exit() and sys.exit(0) end a span as ok."""
    assert status_of(SystemExit(code)) == "ok"
