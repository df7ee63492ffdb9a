"""Answer: what every verb returns. The same facts as text within a budget, and as data.

answer = debugger.check("r7")
print(answer)                  # the text, within the verb's budget
answer.text(budget=300)
answer.data()                  # for --json: stable keys, a version
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar

from vestige.query.budget import within
from vestige.record.redaction.output_redaction import redact_lines, redact_values


class Answer:
    """One verb's answer. Subclasses hold the facts and say how they read.

    What their `lines`, `styled` and `data` return has passed the last redaction
    (record/redaction/output_redaction.py): every answer of every door comes from one of them."""

    verb: ClassVar[str]
    budget: ClassVar[int]
    """Tokens, unless asked otherwise (QUERIES in the docs: docs/reference/verbs.md)."""
    version: ClassVar[int] = 1
    """Of the shape of `data`."""

    dense: ClassVar[bool] = False
    """Its data are columns of thousands of numbers: `--json` writes them without line breaks."""

    exit_code: int = 0
    """1 for bad news, e.g. findings of severity error."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, redact in _REDACTS.items():
            if name in cls.__dict__:
                setattr(cls, name, _redacted(cls.__dict__[name], redact))

    def text(self, budget: int | None = None) -> str:
        """The answer as a person or an agent reads it; deterministic."""
        return "\n".join(self.lines(within(budget, self.budget)))

    def lines(self, budget: int) -> list[str]:
        """The text's lines, within `budget` tokens. What is cut says so, with the next command."""
        raise NotImplementedError  # each verb's own

    def data(self) -> dict[str, Any]:
        """The same for a program: `{"version": ..., ...}`; not budgeted."""
        raise NotImplementedError  # each verb's own

    def __str__(self) -> str:
        return self.text()


def _redact_styled(lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    texts = redact_lines([text for text, _ in lines])
    return [(text, mood) for text, (_, mood) in zip(texts, lines, strict=True)]


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
