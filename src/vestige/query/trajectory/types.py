"""Trajectory, Step, Action and Item: a run in the form that every view and check reads.

A trajectory is an ordered list of steps. A step is one model call: what was new in its input,
what it answered, what was executed and what came back. Runs without model calls have steps of
their messages, tools or test cases. `text` of an item is complete up to ITEM_TEXT_MAX; its span
and side name the body with all of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from vestige.record.run import LogInfo, SpanInfo

ITEM_TEXT_MAX: Final = 64 * 1024
"""Characters of one item that are kept in memory; the body has the rest."""

Kind = Literal[
    "text", "thinking", "tool_call", "tool_result", "code", "image", "audio", "file", "other"
]
Side = Literal["input", "output"]
ActionKind = Literal["tool", "code", "agent", "step"]
"""`step`: a failed span of the program, such as a parser."""


@dataclass(slots=True)
class Repeat:
    """Characters of an item that repeat what an earlier step shows."""

    begin: int
    end: int
    step: int
    """Number of the step that shows them."""


@dataclass(slots=True)
class Item:
    """A piece of content: a text, a thought, code, a tool call or result, an image."""

    role: str
    """`system`, `user`, `assistant` or `tool`."""
    kind: Kind
    text: str
    """The text; for media a description, such as `[image 160x100 png, 61 kB]`."""
    size_bytes: int
    span_id: str
    side: Side
    """The body of the span that contains it."""
    begin: int = 0
    end: int = 0
    """Offsets of its message in the body, in bytes; both 0 if they are not known."""
    message_index: int | None = None
    """Index of its message in the request, or in the imported list of messages."""
    name: str | None = None
    """Name of the tool, the agent that sent it, or the language of code."""
    call_id: str | None = None
    is_error: bool = False
    truncated: bool = False
    """True if `text` is only the beginning."""
    repeats: list[Repeat] = field(default_factory=list)


@dataclass(slots=True)
class Action:
    """An action of a step: a tool, code, or a sub-agent."""

    kind: ActionKind
    name: str
    arguments: Item | None
    """None if the model's own code or tool call (in the answer) is all that is known."""
    result: Item | None
    error: str | None
    status: str
    """`ok`, `error`, ... as recorded; `open`: never ended; `unanswered`: no result was seen."""
    span_id: str | None
    """Span of the execution; None if only the model's request and the result are known."""
    call_id: str | None
    started_ns: int | None
    duration_ns: int | None
    steps: list[int] = field(default_factory=list)
    """Numbers of the sub-agent's steps."""
    span_ids: list[str] = field(default_factory=list)
    """The execution, its wrappers and inner spans that are not steps."""
    file_diff: str = ""
    """The difference of the files that it edited, if the program recorded it."""

    @property
    def is_failed(self) -> bool:
        return self.error is not None or (self.result is not None and self.result.is_error)


@dataclass(slots=True)
class Step:
    """A model call and its actions."""

    number: int
    """1, 2, ... in reading order."""
    span: SpanInfo | None
    """The model call; for runs without one, the message, tool or test case."""
    agent: str | None
    conversation: int
    """Index into `Trajectory.conversations`."""
    parent: int | None
    """Number of the step whose action contains this one."""
    depth: int
    """Number of enclosing agents."""
    new_input: list[Item] = field(default_factory=list)
    repeated: int = 0
    """Messages of the input that earlier steps show."""
    answer: list[Item] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    logs: list[LogInfo] = field(default_factory=list)
    status: str = "ok"
    error: str | None = None
    model: str | None = None
    finish_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    """US dollars of the model call; None if no price is known. Set by `price_steps`."""
    total_cost: float | None = None
    """The cost with the steps of its sub-agents."""
    started_ns: int = 0
    duration_ns: int | None = None
    """From the start of the model call to the end of the last action."""
    span_ids: list[str] = field(default_factory=list)
    headline: str = ""

    @property
    def is_failed(self) -> bool:
        return self.error is not None or any(action.is_failed for action in self.actions)

    @property
    def answer_text(self) -> str:
        """Return the text and code of the answer, without thinking and tool calls."""
        return "\n".join(item.text for item in self.answer if item.kind in ("text", "code"))

    def items(self) -> Iterator[Item]:
        """Yield every item once. Arguments of actions are calls and code of the answer."""
        yield from self.new_input
        yield from self.answer
        for action in self.actions:
            if action.result is not None:
                yield action.result


@dataclass(slots=True)
class Conversation:
    """Model calls that share a history: one chat of a service, one agent's invocation."""

    index: int
    agent: str | None
    opening: str
    """The first text of the user."""
    steps: list[int] = field(default_factory=list)
    parent: int | None = None
    """Index of the conversation that started this one, as a sub-agent."""


@dataclass(slots=True)
class Trajectory:
    """A run as steps."""

    task: Item | None
    """The task of the run: the first text of the user, or the input of its root."""
    title: str
    """A line: the program's own name of the run, or the task."""
    outcome: str
    error: str | None
    answer: Item | None
    """The final answer."""
    steps: list[Step]
    conversations: list[Conversation]
    by_span: dict[str, int] = field(default_factory=dict)
    """Number of the step that each span belongs to."""

    def step_of(self, span_id: str) -> Step | None:
        """Return the step that a span belongs to."""
        number = self.by_span.get(span_id)
        if number is None:
            return None
        # A trajectory of the two ends of a run lacks numbers.
        return self.steps[bisect_left(self.steps, number, key=lambda step: step.number)]
