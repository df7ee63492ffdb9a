"""`transcript`: a run read like a chat: said, answered, called, given back.

Items and their order are query/views/transcript_items.py's; here they get words. Foreign text stands
behind a bar, control characters out, so that it is visibly a quotation.

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
from vestige.query.text_layout import CommandAnswer, begin_of
from vestige.query.views.show import run_data
from vestige.query.views.transcript_items import Item, Items, Text
from vestige.record.run import RunInfo

Line = tuple[str, str]
"""Text, and the mood in which it is told."""

Command = Callable[..., str]
"""Words of a command -> the command, for the place where this was asked."""

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
    """A stretch of a run's talk."""

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
        """Whole items as long as they fit, each at most a twelfth of the budget or so."""
        told: list[Line] = [*self._head()] if budget >= 200 else []
        if not self.items:
            return [*told, (self._nothing(), "ok")]
        spent = sum(count_tokens(text) + 1 for text, _ in told)
        room = budget - count_tokens(self._more(self.items[-1].cursor)) - 1
        shown = max(120, budget // 3)
        last: Item | None = None
        for item in self.items:
            lines = list(_tell(item, shown, self.command))
            price = sum(count_tokens(text) + 1 for text, _ in lines)
            if spent + price > room:
                break
            told += lines
            spent += price
            last = item
        if last is None:
            return [*told, *self._begin(room - spent)] if room > 2 * spent else self._begin(room)
        if self.more or last is not self.items[-1]:
            told.append((self._more(last.cursor), "log"))
        return told

    def _begin(self, room: int) -> list[Line]:
        """Of an item that is longer than the page, what fits; the next page goes on after it."""
        item = self.items[0]
        lines = list(_tell(item, 120, self.command))
        whole = (
            self.command("span", item.span)
            if item.span
            else self.command("show", self.run.short_id)
        )
        left_out = f"  … {len(lines)} lines of it left out: {whole}"
        costs = [count_tokens(text) + 1 for text, _ in lines]
        shown = count_fitting(costs, room - count_tokens(left_out) - 1)
        more = (self._more(item.cursor), "log")
        if not shown:
            return [(begin_of(lines[0][0], room), lines[0][1]), more]
        if shown == len(lines):
            return [*lines, more]
        left_out = f"  … {len(lines) - shown} lines of it left out: {whole}"
        return [*lines[:shown], (left_out, "log"), more]

    def _head(self) -> Iterator[Line]:
        info = self.run
        took = info.duration_ns if info.duration_ns is not None else info.last_ns - info.started_ns
        tokens = (formatting.number(info.input_tokens), formatting.number(info.output_tokens))
        told = f", {'+'.join(tokens)} tokens" if info.tokens else ""
        name = formatting.single_line(info.name, 80)
        text = f"{info.short_id} {name}: {formatting.single_line(info.outcome, 20)} after {formatting.duration(took)}{told}"
        yield text, f"head {info.outcome}"

    def _nothing(self) -> str:
        show = self.command("show", self.run.short_id)
        if self.after is not None:
            return f"Nothing after this. How it unfolded: {show}"
        return f"Nothing was said here. How it unfolded: {show}"

    def _more(self, cursor: str) -> str:
        again = self.command("transcript", self.run.short_id, "--after", cursor)
        return f"… on from here: {again}"


# --- words ----------------------------------------------------------------------------------------


def _tell(item: Item, shown: int, command: Command) -> Iterator[Line]:
    lead = "  " * min(item.depth, DEPTH_SHOWN)
    head, mood = _HEADS[item.kind](item)
    yield f"{_at(item.at_us):>8}  {lead}{head}", mood
    for mark, text, quoted in _texts(item):
        for line in _quote(text, mark, shown, command):
            yield f"{'':>8}  {lead}{line}", quoted


def _at(us: int) -> str:
    return f"+{us / 1e6:.1f}s" if us < 10**9 else f"+{formatting.duration(us * 1000)}"


def _texts(item: Item) -> Iterator[tuple[str, Text, str]]:
    facts = item.facts
    if item.kind in ("message", "call", "state", "error"):
        if isinstance(facts["text"], Text) and facts["text"].text:
            yield "|", facts["text"], "error" if item.kind == "error" else "ok"
    elif item.kind == "tool" and isinstance(facts["result"], Text):
        yield "=", facts["result"], "error" if facts["is_error"] else "log"
    for call in facts.get("calls", ()) if item.kind == "message" else ():
        asked = f"{call['name']} {call['arguments'].text}"
        yield ">", Text(asked, len(asked), call["arguments"].cut), "log"


def _quote(text: Text, mark: str, shown: int, command: Command) -> Iterator[str]:
    """A few lines behind a bar, and where the rest is."""
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
        where = f": {command('body', text.span or '', which)}" if text.which else ""
        yield f"  {mark} … {formatting.size(text.size_bytes)} in all{where}"


def _head_message(item: Item) -> Line:
    return formatting.single_line(str(item.facts["role"]), 20), "head ok"


def _head_call(item: Item) -> Line:
    facts = item.facts
    parts = [f"ai {item.span}", formatting.single_line(str(facts["model"] or facts["name"]), 60)]
    parts += _ended(facts)
    tokens = [facts["input_tokens"], facts["output_tokens"]]
    if any(count is not None for count in tokens):
        counts = "+".join("?" if count is None else formatting.value(count, 20) for count in tokens)
        parts.append(f"{counts} tokens")
    if facts["repeated"]:
        parts.append(f"({formatting.pluralize(facts['repeated'], 'message')} as before)")
    return "  ".join(parts), "head ok" if facts["status"] == "ok" else "error"


def _head_tool(item: Item) -> Line:
    facts = item.facts
    name = formatting.single_line(str(facts["name"] or facts["call_id"] or "tool"), 60)
    given = facts["arguments"]
    called = (
        f"{name}({formatting.single_line(given.text, ARGUMENTS_SHOWN)})" if given else f"{name}()"
    )
    parts = [f"tool {item.span}" if facts["duration_us"] is not None else "tool", called]
    bad = facts["is_error"] or facts["status"] in ("unanswered", "open")
    return "  ".join([*parts, *_ended(facts)]), "error" if bad else "ok"


def _head_step(item: Item) -> Line:
    facts = item.facts
    name = (
        f"{formatting.single_line(facts['type'], 20)} {formatting.single_line(facts['name'], 60)}"
    )
    mood = "log" if facts["status"] == "ok" else "open" if facts["status"] == "open" else "error"
    return "  ".join([f"{name} {item.span}", *_ended(facts)]), mood


def _head_state(item: Item) -> Line:
    index = item.facts["index"]
    number = "" if index is None else f" #{index}"
    return f"state {item.span}{number}  {formatting.single_line(item.facts['name'], 60)}", "log"


def _head_log(item: Item) -> Line:
    facts = item.facts
    told = f"{formatting.single_line(facts['level'], 10)}: {formatting.single_line(facts['text'].text, 160)}"
    mood = {"error": "error", "warn": "warn"}.get(facts["level"], "log")
    label = formatting.single_line(facts["label"], 200)
    return f"{told}  {label}".rstrip(), mood


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


def _ended(facts: dict[str, Any]) -> list[str]:
    status = formatting.single_line(facts["status"], 20)
    took = facts["duration_us"]
    spent = f" after {formatting.duration(took * 1000)}" if took is not None else ""
    error = f": {formatting.single_line(facts['error'], 160)}" if facts["error"] else ""
    return [f"{status}{spent}{error}"]
