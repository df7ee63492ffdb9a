"""Answer: what every verb returns. The same facts as text within a budget, and as data.

answer = debugger.check("r7")
print(answer)                  # the text, within the verb's budget
answer.text(budget=300)
answer.data()                  # for --json: stable keys, a version
"""

from __future__ import annotations

from typing import Any, ClassVar

from vestige.query.budget import within


class Answer:
    """One verb's answer. Subclasses hold the facts and say how they read."""

    verb: ClassVar[str]
    budget: ClassVar[int]
    """Tokens, unless asked otherwise (QUERIES in the docs: docs/reference/verbs.md)."""
    version: ClassVar[int] = 1
    """Of the shape of `data`."""

    dense: ClassVar[bool] = False
    """Its data are columns of thousands of numbers: `--json` writes them without line breaks."""

    exit_code: int = 0
    """1 for bad news, e.g. findings of severity error."""

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
