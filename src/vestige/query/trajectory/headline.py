"""Headlines of steps, and the task, title and final answer of a run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from vestige.query import formatting
from vestige.query.error_text import find_innermost, find_message
from vestige.query.trajectory.seen_contents import strip_labels

if TYPE_CHECKING:
    from vestige.query.trajectory.types import Action, Item, Step

THOUGHT_SHOWN: Final = 110
ARGUMENTS_SHOWN: Final = 70
RESULT_SHOWN: Final = 90
TITLE_SHOWN: Final = 100
LABEL_MAX: Final = 20
QUOTED_EMPTY: Final = '""'
"""An argument without a name, which a model made up."""

_THOUGHT: Final = re.compile(
    r"\A[\s#*]*(?:Thought|Thinking|Reasoning|Plan)\s*\d*\**\s*:\**\s*", re.I
)
_INTERJECTION: Final = re.compile(r"\A[\w,' ]{2,20}!\s+(?=\S)")
"""An opening such as `Great!`, which does not distinguish steps."""
_SENTENCE: Final = re.compile(r"(?<=[a-z)\]\"'][.!?])\s|\n\n")
_MARKER: Final = re.compile(
    r"(?:here(?: is|'s) (?:the|your) (?:task|question|problem|issue)[^\n:]{0,40}:\s*"
    r"|^(?:new )?(?:task|question|issue|query|problem|request|user request)\s*:\s*"
    r"|<(?:issue|task|question|query|problem|problem_statement|issue_description|user_query)>\s*)",
    re.IGNORECASE | re.MULTILINE,
)
_TASK_KEYS: Final = (
    "task", "question", "query", "prompt", "user_input", "user_prompt", "input", "message",
    "topic", "content", "text", "instruction", "goal", "request", "inputs", "state", "messages",
)  # fmt: skip


def make_headline(step: Step) -> str:
    """Return what a step thought or did, and what came of it."""
    thought = _first_thought(step)
    actions = [action_line(action) for action in step.actions[:3]]
    if len(step.actions) > 3:
        actions.append(f"and {len(step.actions) - 3} more")
    if step.error and not any(action.error for action in step.actions):
        actions.append(f"✕ {_error_line(step.error)}")
    return " | ".join(filter(None, [thought, *actions])) or _input_line(step) or _name_of(step)


def step_title(step: Step) -> str:
    """Return the first line of a step in a list: its error, or what it thought, called or read."""
    failed = _failure(step)
    if failed:
        return failed if step.actions else f"Model call failed: {failed}"
    thought = _first_thought(step)
    if thought or not step.actions:
        return thought or _input_line(step) or _name_of(step)
    return action_line(step.actions[0]).partition(" -> ")[0]


def _name_of(step: Step) -> str:
    """Return the name of a step without any text, such as a test case."""
    return formatting.single_line(step.span.name, THOUGHT_SHOWN) if step.span else ""


def step_result(step: Step) -> str:
    """Return the second line: the last action and what came back; the thought if it failed."""
    thought = _first_thought(step)
    if _failure(step):
        return thought or (
            action_line(step.actions[0]).partition(" -> ")[0] if step.actions else ""
        )
    if not step.actions:
        return ""
    action = step.actions[-1]
    line = action_line(action)
    is_title = len(step.actions) == 1 and (action.kind == "code" or not thought)
    return line.partition(" -> ")[2] if is_title else line.replace(" -> ", " → ", 1)


def _failure(step: Step) -> str:
    """Return the error of a step or of its first failed action in one line."""
    failed = next((action for action in step.actions if action.is_failed), None)
    if failed is not None:
        return _error_line(failed.error) if failed.error else action_line(failed)
    return _error_line(step.error) if step.error else ""


def shorten_headline(headline: str, length: int) -> str:
    """Shorten the thought first, so that the action and its result remain."""
    thought, bar, action = headline.partition(" | ")
    if not bar or len(headline) <= length:
        return formatting.single_line(headline, length)
    thought = formatting.single_line(thought, max(length // 2, length - len(action) - 3))
    return f"{thought} | {formatting.single_line(action, length - len(thought) - 3)}"


def _first_thought(step: Step) -> str:
    for kind in ("text", "thinking"):
        for item in step.answer:
            if item.kind == kind and item.text.strip():
                thought = _THOUGHT.sub("", item.text).lstrip()
                return first_sentence(_INTERJECTION.sub("", thought), THOUGHT_SHOWN)
    return ""


def _input_line(step: Step) -> str:
    for item in reversed(step.new_input):
        if item.text.strip():
            return f"{item.role}: {first_sentence(item.text, THOUGHT_SHOWN)}"
    return ""


def first_sentence(text: str, length: int) -> str:
    """Return the first sentence on one line."""
    sentence = _SENTENCE.split(_strip_markup(text)[: length * 6], maxsplit=1)[0]
    return formatting.single_line(" ".join(sentence.split()), length)


def action_line(action: Action) -> str:
    """Return `name(arguments) -> result` on one line."""
    arguments = action.arguments.text if action.arguments is not None else ""
    if action.kind == "code":
        shown = _last_code_line(arguments)
        head = f"code: {shown}" if shown else "code"
    else:
        shown = short_arguments(arguments)
        head = f"{formatting.single_line(action.name, 60)}({shown})"
    if action.error:
        return f"{head} -> ✕ {_error_line(action.error)}"
    if action.result is None:
        return head if action.status in ("ok", "unanswered") else f"{head} -> {action.status}"
    mark = "✕ " if action.result.is_error else ""
    return f"{head} -> {mark}{result_line(action.result.text, arguments)}"


def _error_line(error: str) -> str:
    """Return the innermost exception of an error without its module, or a provider's message."""
    answer = find_message(error)
    if answer is not None:
        return formatting.single_line(answer, RESULT_SHOWN)
    innermost = find_innermost(error)
    if innermost is not None and error[innermost.end() :].startswith(": "):
        error = error[innermost.start() :].split("\n", 1)[0]
    kind, colon, message = error.partition(": ")
    if colon and " " not in kind:
        error = f"{kind.rpartition('.')[2]}: {message}"
    return formatting.single_line(error, RESULT_SHOWN)


def result_line(text: str, arguments: str = "") -> str:
    """Return the first line of a result that says something the arguments do not."""
    lines = [line for line in strip_labels(text)[:4_000].splitlines() if line.strip(" =-#*\t")]
    new = next((line for line in lines if not _repeats(line, arguments)), None)
    shown = new or (lines[0] if lines else "(empty)")
    return formatting.single_line(shown, RESULT_SHOWN)


def _repeats(line: str, arguments: str) -> bool:
    """Return whether a line is an argument with a label, such as `Address: https://...`."""
    label, colon, value = line.strip().rpartition(": ")
    return bool(colon and len(label) <= LABEL_MAX and len(value) >= 4 and value in arguments)


def short_arguments(text: str) -> str:
    """Return arguments as `key=value, ...` on one line."""
    try:
        value: Any = msgspec.json.decode(text) if text.startswith("{") else None
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        parts = [f"{key or QUOTED_EMPTY}={_argument_text(each)}" for key, each in value.items()]
        text = ", ".join(parts)
    return formatting.single_line(text, ARGUMENTS_SHOWN)


def _argument_text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _last_code_line(code: str) -> str:
    """Return the last line that says something: not only brackets and quotes."""
    lines = [line.strip() for line in code.splitlines()]
    lines = [line for line in lines if line.strip("()[]{}\"'`,;: ") and line[0] not in "#)]}"]
    return formatting.single_line(lines[-1], ARGUMENTS_SHOWN) if lines else ""


# --- the run --------------------------------------------------------------------------------------

_NO_CONTENT: Final = frozenset(["", "{}", "[]", "null", '""'])


def extract_task(text: str) -> str:
    """Return the task in an agent's input, which may be JSON with a member such as `task`.

    Empty if the input has no content: a function without arguments has the input `{}`.
    """
    if text.strip() in _NO_CONTENT:
        return ""
    value: Any = text
    for _ in range(6):
        if isinstance(value, str):
            stripped = value.strip()
            if not stripped.startswith(("{", "[")):
                return str(value).removeprefix("New task:\n")
            try:
                value = msgspec.json.decode(stripped)
            except (ValueError, RecursionError):
                return text
        elif isinstance(value, dict):
            found = next((value[key] for key in _TASK_KEYS if value.get(key)), None)
            if found is None:
                return text
            value = found
        elif isinstance(value, list) and value:
            users = [
                each
                for each in value
                if isinstance(each, dict)
                and str(each.get("role", each.get("type"))) in ("user", "human")
            ]
            value = (users or value)[0]
        else:
            return text
    return value if isinstance(value, str) else text


def make_title(task: str) -> str:
    """Return a line that distinguishes the task from other tasks of the same program."""
    found = _MARKER.search(task[:20_000])
    rest = task[found.end() :] if found is not None and task[found.end() :].strip() else task
    line = next((line for line in rest.splitlines() if line.strip(" #*>-`\t")), "")
    return first_sentence(line.replace("**", ""), TITLE_SHOWN)


def _strip_markup(text: str) -> str:
    return text.strip().lstrip("#*>- \t\n")


def copy_as_answer(item: Item, text: str) -> Item:
    """Return an item of the final answer with this text."""
    from vestige.query.trajectory.types import Item

    return Item(
        role="assistant",
        kind="text",
        text=text,
        size_bytes=len(text.encode(errors="replace")),
        span_id=item.span_id,
        side=item.side,
        message_index=item.message_index,
    )
