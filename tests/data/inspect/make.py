"""Make the samples of this folder with Inspect: python make.py FOLDER (needs inspect_ai)."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import inspect_ai
from inspect_ai import Task
from inspect_ai.agent import AgentPrompt, agent, as_tool, react
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, system_message, use_tools
from inspect_ai.tool import ToolError, tool

TARGET = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
MODEL = "mockllm/model"


@tool
def find_order() -> Any:
    async def execute(id: int) -> str:
        """Find an order.

        Args:
            id: Number of the order.
        """
        if id == 13:
            raise ToolError("no such order")
        return f"order {id}: late. " + "Details follow. " * 20

    return execute


def call(name: str, **arguments: Any) -> ModelOutput:
    output = ModelOutput.for_tool_call(MODEL, name, arguments, content="I use a tool.")
    output.usage = ModelUsage(
        input_tokens=100, output_tokens=10, total_tokens=170, input_tokens_cache_read=60
    )
    return output


def text(words: str) -> ModelOutput:
    output = ModelOutput.from_content(MODEL, words)
    output.usage = ModelUsage(input_tokens=150, output_tokens=20, total_tokens=170)
    return output


def outputs(*kinds: tuple[str, Any]) -> Any:
    """Return a function, because a list of outputs would be stored in the log."""
    waiting = list(kinds)

    def next_output(*_: Any) -> ModelOutput:
        kind, value = waiting.pop(0)
        return text(value) if kind == "text" else call(kind, **value)

    return next_output


def orders() -> Task:
    samples = [
        Sample(id="seven", input="Where is order 7?", target="late", metadata={"shop": "socks"}),
        Sample(id="thirteen", input="Where is order 13?", target="late"),
    ]
    solver = [system_message("You work for a shop."), use_tools(find_order()), generate()]
    return Task(dataset=samples, solver=solver, scorer=includes(), epochs=2, name="orders")


def own_prompt(words: str) -> AgentPrompt:
    return AgentPrompt(
        instructions=words, assistant_prompt=None, handoff_prompt=None, submit_prompt=None
    )


def delegating() -> Task:
    @agent
    def helper() -> Any:
        """Look up orders."""
        return react(
            name="helper",
            description="Looks up orders.",
            prompt=own_prompt("You look up orders."),
            tools=[find_order()],
        )

    boss = react(name="boss", prompt=own_prompt("You delegate."), tools=[as_tool(helper())])
    sample = Sample(id="delegated", input="Where is order 8?", target="late")
    return Task(dataset=[sample], solver=boss, scorer=includes(), name="delegating")


def run(task: Task, format: str, next_output: Any, target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        inspect_ai.eval(
            task,
            model=get_model(MODEL, custom_outputs=next_output),
            log_dir=folder,
            log_format=format,
            display="none",
            max_samples=1,
        )
        (log,) = Path(folder).iterdir()
        shutil.copy(log, target)


turns = [
    ("find_order", {"id": 7}),
    ("text", "Order 7 is late."),
    ("find_order", {"id": 13}),
    ("text", "I do not know."),
]
run(orders(), "eval", outputs(*turns, *turns), TARGET / "orders.eval")
run(
    delegating(),
    "json",
    outputs(
        ("helper", {"input": "Find order 8."}),
        ("find_order", {"id": 8}),
        ("submit", {"answer": "It is late."}),
        ("submit", {"answer": "Order 8 is late."}),
    ),
    TARGET / "delegating.json",
)
