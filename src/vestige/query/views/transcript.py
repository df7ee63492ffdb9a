"""`transcript`: a run as a chat: messages, model answers, tool calls and their results.

Recorded text is printed behind a bar, without control characters, which marks it as a
quotation. Elsewhere: the items and their order in query/views/transcript_items.py.

    print(debugger.transcript("r7"))
    debugger.transcript("r7", after=answer.next)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from vestige.errors import UsageError
from vestige.limits import TRANSCRIPT_ITEMS, TRANSCRIPT_ITEMS_MAX
from vestige.query import formatting
from vestige.query.budget import count_fitting, count_tokens
from vestige.query.evidence import Evidence
from vestige.query.text_layout import CommandAnswer, truncate_line
from vestige.query.views.show import run_data
from vestige.query.views.timeline import format_tokens
from vestige.query.views.transcript_items import Item, Items, Text
from vestige.record.run import RunInfo

Line = tuple[str, str]
"""Text and style."""

Command = Callable[..., str]
"""Arguments -> a `vestige` command that reads the same store."""

DEPTH_SHOWN = 10
ARGUMENTS_SHOWN = 160


def transcript_answer(
    evidence: Evidence, after: str | None = None, limit: int = TRANSCRIPT_ITEMS
) -> TranscriptAnswer:
    if not 1 <= limit <= TRANSCRIPT_ITEMS_MAX:
        raise UsageError(f"limit {limit}: out of range (expected 1 to {TRANSCRIPT_ITEMS_MAX}).")
    found = list(islice(evidence.once(Items).walk(after), limit + 1))
    return TranscriptAnswer(evidence.run.info, found[:limit], after, len(found) > limit)


@dataclass
class TranscriptAnswer(CommandAnswer):
    """A page of a run's chat."""

    verb: ClassVar[str] = "transcript"
    budget: ClassVar[int] = 2_000

    run: RunInfo
    items: Sequence[Item]
    after: str | None
    more: bool

    @property
    def next(self) -> str | None:
        return self.items[-1].cursor if self.more else None

    def data(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "run": run_data(self.run),
            "items": [item.data() for item in self.items],
            "next": self.next,
        }

    def lines(self, budget: int) -> list[str]:
        return [text for text, _ in self.styled(budget)]

    def styled(self, budget: int) -> list[Line]:
        """Return complete items as long as they fit; long texts in them are shortened."""
        rows: list[Line] = [*self._head()] if budget >= 200 else []
        if not self.items:
            return [*rows, (self._empty_hint(), "ok")]
        spent = sum(count_tokens(text) + 1 for text, _ in rows)
        room = budget - count_tokens(self._more(self.items[-1].cursor)) - 1
        shown = max(120, budget // 3)
        last: Item | None = None
        for item in self.items:
            lines = list(_render_item(item, shown, self.command))
            tokens = sum(count_tokens(text) + 1 for text, _ in lines)
            if spent + tokens > room:
                break
            rows += lines
            spent += tokens
            last = item
        if last is None:
            if room > 2 * spent:
                return [*rows, *self._shorten_first(room - spent)]
            return self._shorten_first(room)
        if self.more or last is not self.items[-1]:
            rows.append((self._more(last.cursor), "log"))
        return rows

    def _shorten_first(self, room: int) -> list[Line]:
        """Shorten the first item, which is longer than the page; the next page follows it."""
        item = self.items[0]
        lines = list(_render_item(item, 120, self.command))
        full = self.command("show", self.run.short_id)
        if item.span:
            full = self.command("span", item.span)
        hidden = f"  … {len(lines)} lines of it hidden: {full}"
        costs = [count_tokens(text) + 1 for text, _ in lines]
        shown = count_fitting(costs, room - count_tokens(hidden) - 1)
        more = (self._more(item.cursor), "log")
        if not shown:
            return [(truncate_line(lines[0][0], room), lines[0][1]), more]
        if shown == len(lines):
            return [*lines, more]
        hidden = f"  … {len(lines) - shown} lines of it hidden: {full}"
        return [*lines[:shown], (hidden, "log"), more]

    def _head(self) -> Iterator[Line]:
        info = self.run
        took = info.duration_ns if info.duration_ns is not None else info.last_ns - info.started_ns
        tokens = ""
        if info.tokens:
            tokens = f", {formatting.token_counts(info.input_tokens, info.output_tokens)}"
        name = formatting.single_line(info.name, 80)
        outcome = formatting.single_line(info.outcome, 20)
        text = f"{info.short_id} {name}: {outcome} after {formatting.duration(took)}{tokens}"
        yield text, f"head {info.outcome}"

    def _empty_hint(self) -> str:
        show = self.command("show", self.run.short_id)
        if self.after is not None:
            return f"No more messages. Try: {show}"
        return f"No messages. Try: {show}"

    def _more(self, cursor: str) -> str:
        again = self.command("transcript", self.run.short_id, "--after", cursor)
        return f"… continue: {again}"


# --- rendering ------------------------------------------------------------------------------------


def _render_item(item: Item, shown: int, command: Command) -> Iterator[Line]:
    indent = "  " * min(item.depth, DEPTH_SHOWN)
    head, style = _HEADS[item.kind](item)
    yield f"{_offset(item.at_us):>8}  {indent}{head}", style
    for mark, text, text_style in _texts(item):
        for line in _quote(text, mark, shown, command):
            yield f"{'':>8}  {indent}{line}", text_style


def _offset(us: int) -> str:
    return f"+{us / 1e6:.1f}s" if us < 10**9 else f"+{formatting.duration(us * 1000)}"


def _texts(item: Item) -> Iterator[tuple[str, Text, str]]:
    facts = item.facts
    if item.kind in ("message", "call", "state", "error"):
        if isinstance(facts["text"], Text) and facts["text"].text:
            yield "|", facts["text"], "error" if item.kind == "error" else "ok"
    elif item.kind == "tool" and isinstance(facts["result"], Text):
        yield "=", facts["result"], "error" if facts["is_error"] else "log"
    for call in facts.get("calls", ()) if item.kind == "message" else ():
        text = f"{call['name']} {call['arguments'].text}"
        yield ">", Text(text, len(text), call["arguments"].cut), "log"


def _quote(text: Text, mark: str, shown: int, command: Command) -> Iterator[str]:
    """Yield the first lines behind a bar, and the command for the rest."""
    left = shown
    rows = text.text.strip("\n").splitlines() or [""]
    for number, row in enumerate(rows):
        if left <= 0 or number >= max(6, shown // 60):
            break
        yield f"  {mark} {formatting.single_line(row, max(20, left))}"
        left -= len(row) + 2
    else:
        number = len(rows)
    over = len(text.text) - sum(len(row) + 1 for row in rows[:number])
    if text.cut or over > 0 or left < 0:
        which = "--in" if text.which == "input" else "--out"
        body = f": {command('body', text.span or '', which)}" if text.which else ""
        yield f"  {mark} … {formatting.size(text.size_bytes)} in total{body}"


def _head_message(item: Item) -> Line:
    return formatting.single_line(str(item.facts["role"]), 20), "head ok"


def _head_call(item: Item) -> Line:
    facts = item.facts
    parts = [f"llm {item.span}", formatting.single_line(str(facts["model"] or facts["name"]), 60)]
    parts += _format_end(facts)
    tokens = format_tokens(facts["input_tokens"], facts["output_tokens"])
    if tokens:
        parts.append(tokens)
    if facts["repeated"]:
        parts.append(f"({formatting.pluralize(facts['repeated'], 'repeated message')})")
    return "  ".join(parts), "head ok" if facts["status"] == "ok" else "error"


def _head_tool(item: Item) -> Line:
    facts = item.facts
    name = formatting.single_line(str(facts["name"] or facts["call_id"] or "tool"), 60)
    arguments = facts["arguments"]
    shown = formatting.single_line(arguments.text, ARGUMENTS_SHOWN) if arguments else ""
    parts = [f"tool {item.span}" if facts["duration_us"] is not None else "tool"]
    parts.append(f"{name}({shown})")
    failed = facts["is_error"] or facts["status"] in ("unanswered", "open")
    return "  ".join([*parts, *_format_end(facts)]), "error" if failed else "ok"


def _head_step(item: Item) -> Line:
    facts = item.facts
    kind, name = (
        formatting.single_line(facts["type"], 20),
        formatting.single_line(facts["name"], 60),
    )
    style = {"ok": "log", "open": "open"}.get(facts["status"], "error")
    return "  ".join([f"{kind} {name} {item.span}", *_format_end(facts)]), style


def _head_state(item: Item) -> Line:
    index = item.facts["index"]
    number = "" if index is None else f" #{index}"
    return f"state {item.span}{number}  {formatting.single_line(item.facts['name'], 60)}", "log"


def _head_log(item: Item) -> Line:
    facts = item.facts
    level = formatting.single_line(facts["level"], 10)
    message = formatting.single_line(facts["text"].text, 160)
    label = formatting.single_line(facts["label"], 200)
    style = {"error": "error", "warn": "warn"}.get(facts["level"], "log")
    return f"{level}: {message}  {label}".rstrip(), style


def _head_error(item: Item) -> Line:
    return "ended", "stamp"


_HEADS = {
    "message": _head_message,
    "call": _head_call,
    "tool": _head_tool,
    "step": _head_step,
    "state": _head_state,
    "log": _head_log,
    "error": _head_error,
}


def _format_end(facts: dict[str, Any]) -> list[str]:
    status = formatting.single_line(facts["status"], 20)
    took = facts["duration_us"]
    spent = f" after {formatting.duration(took * 1000)}" if took is not None else ""
    error = f": {formatting.single_line(facts['error'], 160)}" if facts["error"] else ""
    return [f"{status}{spent}{error}"]
