"""Lines of a transcript: contents, actions, errors and log records.

Recorded text is behind a bar, which marks it as a quotation: `|` messages, `>` code and calls,
`=` results, `✕` errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from vestige.query import formatting
from vestige.query.shorten_text import Keep, fold_text
from vestige.query.trajectory import Action, Item
from vestige.query.trajectory.file_edits import FileEdit, find_edits
from vestige.query.trajectory.headline import QUOTED_EMPTY
from vestige.query.trajectory.seen_contents import SeenContents, strip_labels
from vestige.query.trajectory.types import Repeat
from vestige.query.views.lines.page_limits import FULL, LOGS_SHOWN, Limits, get_limit
from vestige.query.views.timeline import format_attributes, is_stamp
from vestige.record.run import LogInfo

Line = tuple[str, str]
"""Text and style."""

ARGUMENTS_ON_A_LINE: Final = 160
ARGUMENT_SHORT: Final = 60
SAME_ERROR_MIN: Final = 20
"""Characters of a message that identify an error which was shown already."""
REPORT_SHOWN: Final = 240
"""Characters of a sub-agent's report: its steps are shown."""

_LABELS: Final = frozenset(["Execution logs:", "Last output from code snippet:"])
"""Lines that a framework puts before an output."""
_EMPTY_OUTPUT: Final = re.compile(r"\n?\s*Last output from code snippet:\s*(?:None)?\s*\Z")


class ErrorTexts:
    """The errors of one step, each shown once.

    A failed tool's error is repeated in the error of the code that called it, and in the error of
    the step. The error of a parser repeats the answer that it rejected.
    """

    def __init__(self, answer: Sequence[Item] = ()) -> None:
        self._shown: list[str] = []
        self._answer = SeenContents()
        for item in answer:
            self._answer.add_lines(item.text, 0)

    def add(self, text: str) -> None:
        self._shown.append(" ".join(text.split()))

    def fold(self, text: str, limit: int) -> list[str]:
        """Return the lines of an error; one line if its message was shown already."""
        message = next((line for line in reversed(text.splitlines()) if line.strip()), "")
        _, _, tail = message.partition(": ")
        core = " ".join((tail or message).split())[:200]
        known = len(core) >= SAME_ERROR_MIN and any(core in shown for shown in self._shown)
        self.add(text)
        if known:
            return [formatting.single_line(message, 120)]
        return fold_text(_drop_passages(text, self._answer.find_repeats(text)), limit)


def _drop_passages(text: str, repeats: Sequence[Repeat]) -> str:
    """Return an error without the passages of the answer, which is shown above it."""
    parts: list[str] = []
    at = 0
    for repeat in repeats:
        size = formatting.size(repeat.end - repeat.begin)
        parts += [text[at : repeat.begin], f"[{size}: the answer above]"]
        at = repeat.end
    return "".join([*parts, text[at:]])


def render_content(content: Item, indent: str, limits: Limits) -> Iterator[Line]:
    """Yield a message, a thought or code."""
    label, mark, style = _marks(content)
    if content.kind == "tool_call":
        yield f"{indent}> {_call_line(content)}", "log"
        return
    lines = fold_content(content, limits)
    if content.kind == "thinking":
        words = formatting.pluralize(len(content.text.split()), "word")
        label = f"[thinking, {words}]"
    if label and len(lines) == 1 and len(lines[0]) < 100:
        yield f"{indent}{label} {mark} {lines[0]}", style
        return
    if label:
        yield f"{indent}{label}", style
    for text in lines:
        yield f"{indent}{mark} {text}".rstrip(), style


def render_action(
    action: Action,
    indent: str,
    limits: Limits,
    errors: ErrorTexts,
    ids: Mapping[str, str],
    *,
    has_steps: bool,
) -> Iterator[Line]:
    """Yield a call, its result and its error. `has_steps`: a sub-agent's steps are shown."""
    failed = action.is_failed
    if action.kind != "code":
        yield from _render_call(action, indent, limits, ids)
    if action.result is not None:
        style = "error" if failed else "log"
        shown = dict(limits)
        if has_steps and not failed and limits is not FULL:
            shown["result"] = min(limits["result"], REPORT_SHOWN)
        for text in fold_content(action.result, shown, is_failed=failed):
            yield f"{indent}= {text}".rstrip(), style
        if failed:
            errors.add(action.result.text)
    if action.error:
        for text in errors.fold(action.error, limits["result"] * 2):
            yield f"{indent}✕ {text}", "error"


def _render_call(
    action: Action, indent: str, limits: Limits, ids: Mapping[str, str]
) -> Iterator[Line]:
    style = "error" if action.is_failed else "ok"
    name = formatting.single_line(action.name, 60)
    if action.kind == "agent":
        name = f"agent {name}"
    label = _call_facts(action, ids)
    arguments = action.arguments.text if action.arguments is not None else ""
    edits = find_edits(action.name, arguments, action.file_diff)
    if edits and not action.is_failed:
        yield from _render_edits(edits, f"{indent}> {name}", label, limits)
        return
    pairs = _argument_pairs(arguments)
    short = ", ".join(f"{key}={value}" if key else value for key, value in pairs)
    if len(short) <= ARGUMENTS_ON_A_LINE and "\n" not in short:
        yield f"{indent}> {name}({formatting.clean_controls(short)}){label}", style
        return
    small = [f"{key}={value}" for key, value in pairs if key and len(value) <= ARGUMENT_SHORT]
    small = [formatting.single_line(each, 100) for each in small if "\n" not in each]
    yield f"{indent}> {name}({', '.join(small)}){label}", style
    repeats = action.arguments.repeats if action.arguments is not None else ()
    long = [(key, value) for key, value in pairs if not key or len(value) > ARGUMENT_SHORT]
    room = min(limits["code"] // max(1, len(long)), max(limits["answer"], 300))
    if action.steps and limits is not FULL:  # the first of its steps shows the rest
        room = min(room, max(limits["user"], 300))
    for key, value in long:
        lines = fold_text(value, room, repeats, keep="requirements" if action.steps else "errors")
        if key and len(lines) == 1:
            yield f"{indent}>   {key}: {lines[0]}", style
            continue
        if key:
            yield f"{indent}>   {key}:", style
        for text in lines:
            yield f"{indent}>   {text}".rstrip(), style


def _render_edits(
    edits: Sequence[FileEdit], head: str, label: str, limits: Limits
) -> Iterator[Line]:
    """Render the edited files of a call as differences."""
    indent = head[: len(head) - len(head.lstrip())]
    room = max(limits["code"], 300) // len(edits)
    for place, edit in enumerate(edits):
        path = formatting.single_line(edit.path, 100)
        kind = f"{edit.kind}, " if edit.kind in ("created", "deleted") else ""
        counts = f"({kind}+{edit.added} -{edit.removed})"
        yield f"{head}: {path} {counts}{label if place == 0 else ''}", "ok"
        shown = 0
        lines = edit.diff.splitlines()
        for number, line in enumerate(lines):
            shown += len(line) + 1
            if shown > room:
                yield f"{indent}>   … {len(lines) - number} more lines", "log"
                break
            style = {"+": "added", "-": "removed"}.get(line[:1], "log")
            yield f"{indent}>   {formatting.clean_controls(line)}", style


def _call_facts(action: Action, ids: Mapping[str, str]) -> str:
    facts = [ids[action.span_id]] if action.span_id else []
    if action.duration_ns is not None:
        facts.append(formatting.duration(action.duration_ns))
    if action.status not in ("ok", "error", "answered"):
        facts.append("no result" if action.status == "unanswered" else action.status)
    if action.steps:
        first, last = action.steps[0], action.steps[-1]
        facts.append(f"step {first}" if first == last else f"steps {first}-{last}")
    return f"  ({', '.join(facts)})" if facts else ""


def _marks(content: Item) -> tuple[str, str, str]:
    """Return the label, the bar and the style of a content."""
    if content.kind == "code":
        return "", ">", "ok"
    if content.kind == "tool_result":
        return "", "=", "error" if content.is_error else "log"
    if content.role == "assistant" and content.side == "output":
        return "", "|", "ok"
    role = formatting.single_line(content.role, 20)
    return role, "|", "log" if content.role == "system" else "ok"


def fold_content(content: Item, limits: Limits, *, is_failed: bool = False) -> list[str]:
    """Return the lines of a content; of prompts, the lines that say what has to be done."""
    limit = get_limit(content, limits)
    if is_failed:
        limit *= 2
    if content.kind == "tool_result" and limits is not FULL:
        text = content.text
        if not content.repeats:
            text = strip_labels(_EMPTY_OUTPUT.sub("", text))
        lines = fold_text(text, limit, content.repeats)
        return [line for line in lines if line.strip() not in _LABELS] or ["(empty)"]
    is_prompt = content.role in ("system", "user") and content.side == "input"
    keep: Keep = "requirements" if is_prompt else "errors"
    return fold_text(content.text, limit, content.repeats, keep=keep) or ["(empty)"]


def _argument_pairs(text: str) -> list[tuple[str, str]]:
    """Return arguments as (name, value); strings unescaped, null left out."""
    try:
        value: Any = msgspec.json.decode(text) if text.startswith("{") else None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        return [("", text)] if text else []
    return [
        (
            formatting.single_line(str(key), 60) or QUOTED_EMPTY,
            each if isinstance(each, str) else msgspec.json.encode(each).decode(),
        )
        for key, each in value.items()
        if each is not None
    ]


def _call_line(content: Item) -> str:
    pairs = _argument_pairs(content.text)
    short = ", ".join(f"{key}={value}" if key else value for key, value in pairs)
    name = formatting.single_line(content.name or "tool", 60)
    return f"{name}({formatting.single_line(short, ARGUMENTS_ON_A_LINE)})"


def render_logs(logs: Sequence[LogInfo], indent: str, limits: Limits) -> Iterator[Line]:
    """Yield the log records of a step: warnings and errors first to be shown, then the rest."""
    shown = list(logs)
    if limits is not FULL and len(shown) > LOGS_SHOWN:
        severe = [log for log in shown if log.level in ("error", "warn")]
        rest = [log for log in shown if log.level not in ("error", "warn")]
        chosen = {id(log) for log in [*severe[:LOGS_SHOWN], *rest][:LOGS_SHOWN]}
        shown = [log for log in logs if id(log) in chosen]
    for log in shown:
        yield _render_log(log, indent)
    if len(shown) < len(logs):
        yield f"{indent}… {len(logs) - len(shown)} more log records", "log"


def _render_log(log: LogInfo, indent: str) -> Line:
    message = formatting.single_line(log.message, 160)
    if is_stamp(log):
        return f"{indent}!! {message}", "stamp"
    kind = log.attributes.get("error.type")
    error = f"{kind}: {log.attributes.get('error.message') or ''}" if kind else ""
    level = formatting.single_line(log.level, 10)
    style = {"error": "error", "warn": "warn"}.get(log.level, "log")
    facts = [formatting.single_line(error, 200), *format_attributes(log.attributes)]
    return f"{indent}{level}: {message}  {' '.join(filter(None, facts))}".rstrip(), style
