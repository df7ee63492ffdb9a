"""Answer: the result of every command, as text within a token budget or as data.

answer = debugger.check("r7")
print(answer)                  # the text, within the verb's budget
answer.text(budget=300)
answer.data()                  # for --json: stable keys, a version
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar

from vestige.query.token_budget import within
from vestige.record.redaction.output_redaction import redact_lines, redact_values


class Answer:
    """The result of a command. Subclasses hold the facts and render them.

    The results of their `lines`, `styled` and `data` are redacted once more
    (record/redaction/output_redaction.py), so every output of the CLI, HTTP and MCP is.
    """

    verb: ClassVar[str]
    budget: ClassVar[int]
    """Default token budget (docs/reference/verbs.md)."""
    version: ClassVar[int] = 1
    """Version of the format of `data`."""

    dense: ClassVar[bool] = False
    """True if `--json` writes the data without line breaks: columns of thousands of numbers."""

    columns: int | None = None
    """Width of the terminal that shows the answer; None if it goes to a file or a program."""

    exit_code: int = 0
    """1 if, for example, there are findings of severity error."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, redact in _REDACTS.items():
            if name in cls.__dict__:
                setattr(cls, name, _redacted(cls.__dict__[name], redact))

    def text(self, budget: int | None = None) -> str:
        """Return the answer for a person or an agent; deterministic."""
        return "\n".join(self.lines(within(budget, self.budget)))

    def lines(self, budget: int) -> list[str]:
        """Return lines within `budget` tokens; a shortened list ends with the next command."""
        raise NotImplementedError

    def data(self) -> dict[str, Any]:
        """Return the same facts for a program, `{"version": ..., ...}`, without a budget."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.text()


def _redact_styled(lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    texts = redact_lines([text for text, _ in lines])
    return [(text, style) for text, (_, style) in zip(texts, lines, strict=True)]


_REDACTS: dict[str, Callable[[Any], Any]] = {
    "lines": redact_lines,
    "styled": _redact_styled,
    "data": redact_values,
}


def _redacted(method: Callable[..., Any], redact: Callable[[Any], Any]) -> Callable[..., Any]:
    @wraps(method)
    def redacted(self: Answer, *args: Any, **kwargs: Any) -> Any:
        return redact(method(self, *args, **kwargs))

    return redacted
