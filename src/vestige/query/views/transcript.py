"""`transcript`: a run step by step: new messages, answers, actions and their results.

The page is spent where it matters: errors, code, calls and answers are shown first; prompts and
long results are folded. Recorded text is behind a bar, which marks it as a quotation.
Elsewhere: the steps in query/trajectory, the items as data in query/views/transcript_items.py.

    print(debugger.transcript("r7"))
    debugger.transcript("r7", step="3:5", full=True)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar, Final

from vestige.errors import UsageError
from vestige.limits import TRANSCRIPT_ITEMS, TRANSCRIPT_ITEMS_MAX
from vestige.query import formatting
from vestige.query.evidence import Evidence
from vestige.query.run_as_data import run_data
from vestige.query.shorten_text import fold_text
from vestige.query.text_layout import CommandAnswer, truncate_line, unread_line
from vestige.query.token_budget import count_fitting, count_tokens
from vestige.query.trajectory import Item as Content
from vestige.query.trajectory import Step, Trajectory, build_trajectory
from vestige.query.trajectory.run_parts import RunParts
from vestige.query.views.lines.content_lines import (
    ErrorTexts,
    Line,
    render_action,
    render_content,
    render_logs,
)
from vestige.query.views.lines.page_limits import (
    DEFAULT_BUDGET,
    FULL,
    LEVELS,
    Limits,
    find_endings,
    for_step,
    get_page_level,
    iter_levels,
)
from vestige.query.views.transcript_items import Item, Items
from vestige.record.prompt_segments import parse_segments

DEPTH_SHOWN: Final = 6
SEGMENTS_SHOWN: Final = 8
TASK_SHOWN: Final = 1_200
TASK_BUDGET: Final = 2_000
"""Tokens of a page that shows more than the title of a task."""
ENDING_SHOWN: Final = 1_200


@dataclass(frozen=True)
class TranscriptOptions:
    """The parts of a run to show."""

    after: str | None = None
    limit: int = TRANSCRIPT_ITEMS
    step: str | None = None
    """`3`, or a range such as `3:7`, both ends included."""
    agent: str | None = None
    full: bool = False
    ids: bool = False
    """Show the recorded ids of spans in place of the short ones."""
    unread: int = 0
    """Approximate number of events of a long file that were not read."""

    def words(self) -> list[str]:
        """Return the options for the next command."""
        words = [] if self.step is None else ["--step", self.step]
        words += [] if self.agent is None else ["--agent", self.agent]
        words += ["--full"] if self.full else []
        return [*words, "--ids"] if self.ids else words


def transcript_answer(evidence: Evidence, options: TranscriptOptions) -> TranscriptAnswer:
    limit = options.limit
    if not 1 <= limit <= TRANSCRIPT_ITEMS_MAX:
        raise UsageError(f"limit {limit}: out of range (expected 1 to {TRANSCRIPT_ITEMS_MAX}).")
    parts = evidence.once(RunParts)
    low, high = 1, parts.step_count
    if options.step is not None:
        if parts.count == 1:
            high = len(evidence.once(build_trajectory).steps)
        low, high = _parse_steps(options.step, high)
    is_all = options.step is None and options.agent is None
    index = parts.find_step(low) if options.after is None else parts.find(options.after)
    after = options.after
    while True:
        opened = parts.open(index)
        trajectory = opened.once(build_trajectory)
        part = Part(index, parts.count, parts.step_count)
        is_last = part.is_last or high < parts.first_step(index + 1)
        steps = trajectory.steps
        if options.step is not None:
            steps = [step for step in steps if low <= step.number <= high]
        steps = _select_agent(steps, trajectory, options, is_last=is_last)
        numbers = {step.number for step in steps}
        items = (
            item
            for item in opened.once(Items).walk(after)
            # The end of the run belongs to its last part.
            if (part.is_last or item.kind != "error" or not item.cursor.endswith(".end"))
            and (is_all or item.step in numbers)
        )
        found = list(islice(items, limit + 1))
        if found or is_last:
            break
        index, after = index + 1, None
    begin = found[0] if found and (options.after is not None or index) else None
    more = len(found) > limit or (bool(found) and not is_last)
    return TranscriptAnswer(opened, trajectory, steps, options, found[:limit], more, begin, part)


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of a long run a page is from."""

    index: int = 0
    count: int = 1
    all_steps: int = 0
    """About the number of steps of the run."""

    @property
    def is_last(self) -> bool:
        return self.index + 1 >= self.count


def _select_agent(
    steps: list[Step], trajectory: Trajectory, options: TranscriptOptions, *, is_last: bool
) -> list[Step]:
    if options.agent is not None:
        name = options.agent.lower()
        agents = {step.agent for step in trajectory.steps if step.agent}
        if is_last and not any(name in agent.lower() for agent in agents):
            known = ", ".join(sorted(formatting.single_line(agent, 40) for agent in agents)[:10])
            raise UsageError(
                f"agent {formatting.single_line(options.agent, 40)!r}: not in this run"
                f" (agents: {known or 'none'})."
            )
        steps = [step for step in steps if step.agent and name in step.agent.lower()]
    return steps


def _parse_steps(text: str, count: int) -> tuple[int, int]:
    first, colon, last = text.partition(":")
    try:
        low = int(first) if first.strip() else 1
        high = (int(last) if last.strip() else count) if colon else low
    except ValueError:
        low = high = 0
    if not 1 <= low <= max(1, high) or low > max(1, count):
        raise UsageError(
            f"step {formatting.single_line(text, 40)!r}: not a step of this run"
            f" (expected 1 to {count}, or a range such as 3:7)."
        )
    return low, min(high, count)


@dataclass
class TranscriptAnswer(CommandAnswer):
    """A page of a run's steps."""

    verb: ClassVar[str] = "transcript"
    budget: ClassVar[int] = DEFAULT_BUDGET

    evidence: Evidence
    trajectory: Trajectory
    steps: Sequence[Step]
    options: TranscriptOptions
    items: Sequence[Item]
    more: bool
    begin: Item | None = None
    """The first item of this page, if it is not the first page."""
    part: Part = Part()
    _ids: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The id of each span as it is shown."""
    _task_in_head: bool = False
    """True if the title of this page is the complete task."""

    def __post_init__(self) -> None:
        self._ids = self.evidence.short_ids
        if self.options.ids:
            self._ids = {span_id: span_id for span_id in self._ids}

    @property
    def next(self) -> str | None:
        return self.items[-1].cursor if self.more else None

    def data(self) -> dict[str, Any]:
        trajectory = self.trajectory
        part = self.part
        root = self.evidence.root
        # A part has only its own texts: the task is in the first, the answer in the last.
        has_task = not part.index or (root is not None and root.input is not None)
        has_answer = part.is_last or (root is not None and root.output is not None)
        task, answer = trajectory.task, trajectory.answer
        data: dict[str, Any] = {
            "version": self.version,
            "run": run_data(self.evidence.run.info),
            "title": trajectory.title if has_task else "",
            "task": task.text[:4_000] if task is not None and has_task else None,
            "answer": answer.text[:4_000] if answer is not None and has_answer else None,
            "conversations": [
                {
                    "index": each.index,
                    "agent": each.agent,
                    "opening": each.opening,
                    "steps": each.steps,
                    "parent": each.parent,
                }
                for each in trajectory.conversations
            ],
            "items": [item.data() for item in self.items],
            "next": self.next,
        }
        if part.count > 1:
            data["part"] = {"number": part.index + 1, "count": part.count}
        return data

    # --- the page ---------------------------------------------------------------------------------

    def lines(self, budget: int) -> list[str]:
        return [text for text, _ in self.styled(budget)]

    def styled(self, budget: int) -> list[Line]:
        """Return steps as long as they fit; their contents are folded to suit the page."""
        self._task_in_head = False
        rows = [*self._head(budget)] if budget >= 200 and self.options.after is None else []
        blocks = self._blocks()
        if not blocks:
            return [*rows, (self._empty_hint(), "ok")]
        spent = _cost(rows)
        room = (
            budget - max(count_tokens(self._more(blocks[-1])), count_tokens(self._rest(10**6))) - 2
        )
        limits = self._find_limits(blocks, budget, room - spent)
        folded: int | None = None
        for index, block in enumerate(blocks):
            lines = self._render_block(block, limits)
            tokens = _cost(lines)
            if spent + tokens > room:
                if index == 0:
                    return [*rows, *self._shorten_first(block, budget, rooms=(spent, room))]
                return [*rows, (self._more(blocks[index - 1]), "log")]
            if folded is None and isinstance(block, Step):
                folded = block.number if _is_folded(lines) else None
            rows += lines
            spent += tokens
        if self.options.unread or self._continues:
            return [*rows, (self._more(blocks[-1]), "log")]
        if self.options.full or folded is None:
            return rows
        return [*rows, (self._rest(folded), "log")]

    def _blocks(self) -> list[Step | Item]:
        """Return the steps of this page and the items that belong to no step."""
        blocks: list[Step | Item] = []
        first = self.begin
        if self.options.unread:
            # The last step may be read only in part, so the next page shows it.
            blocks += self.steps[:-1] or self.steps
        elif self.begin is None and self.options.after is None:
            blocks += self.steps
        elif first is None:
            return []
        elif first.step is not None:
            blocks += [step for step in self.steps if step.number >= first.step]
        blocks += [item for item in self.items if item.step is None]
        return blocks

    def _find_limits(self, blocks: Sequence[Step | Item], budget: int, room: int) -> Limits:
        """Return the most generous limits with which the page contains all steps."""
        if self.options.full:
            return FULL
        steps = [block for block in blocks if isinstance(block, Step)]
        for limits in iter_levels(steps, len(blocks) - len(steps), budget, self._endings):
            left = room
            for block in blocks:
                left -= _cost(self._render_block(block, limits))
                if left < 0:
                    break
            else:
                return limits
        return get_page_level(budget)

    @property
    def _continues(self) -> bool:
        """Return whether a later part of a long run follows this one."""
        return self.more and not self.part.is_last

    @cached_property
    def _endings(self) -> frozenset[int]:
        return find_endings(self.trajectory.steps)

    def _shorten_first(self, block: Step | Item, budget: int, rooms: tuple[int, int]) -> list[Line]:
        """Shorten the first step, which is longer than the page; the next page follows it."""
        spent, room = rooms
        room -= spent
        more = (self._more(block), "log")
        lines = self._render_block(block, FULL if self.options.full else LEVELS[-1])
        full = self.command(*self._full_words(block))
        hidden = f"  … {len(lines)} lines of it hidden: {full}"
        costs = [count_tokens(text) + 1 for text, _ in lines]
        shown = count_fitting(costs, room - count_tokens(hidden) - 1)
        if shown == len(lines):
            return [*lines, more]
        if not shown:
            return [(truncate_line(lines[0][0], max(1, room)), lines[0][1]), more]
        hidden = f"  … {len(lines) - shown} lines of it hidden: {full}"
        return [*lines[:shown], (hidden, "log"), more]

    def _full_words(self, block: Step | Item) -> list[str]:
        run = self.evidence.run.info.short_id
        if isinstance(block, Item):
            return ["span", block.span] if block.span else ["show", run]
        span = block.span
        if self.options.full and span is not None:
            return ["body", self._ids[span.id]]
        return ["transcript", run, "--step", str(block.number), "--full"]

    def _head(self, budget: int) -> Iterator[Line]:
        info = self.evidence.run.info
        count = len(self.trajectory.steps) if self.part.count == 1 else self.part.all_steps
        facts = [formatting.pluralize(count, "step")]
        if info.tokens:
            facts.append(formatting.token_counts(info.input_tokens, info.output_tokens))
        if model := self._common_model:
            facts.append(formatting.single_line(model, 60))
        name = formatting.single_line(info.name, 80)
        outcome = formatting.single_line(info.outcome, 20)
        after = formatting.after(info.elapsed_ns)
        text = f"{info.short_id} {name}: {outcome}{after}, {', '.join(facts)}"
        yield text, f"head {info.outcome}"
        if self.options.unread:
            yield unread_line(self.options.unread), "ok"
        if self.part.count > 1:
            steps = self.trajectory.steps
            yield (
                f"long run: part {self.part.index + 1} of {self.part.count}, steps"
                f" {steps[0].number} to {steps[-1].number}. Texts are compared within a part.",
                "ok",
            )
        task = self.trajectory.task
        if task is None or self.options.step is not None or self.options.agent is not None:
            return
        title = f"task: {self.trajectory.title}", "ok"
        self._task_in_head = task.text.strip() == self.trajectory.title
        if self._task_in_head or budget < TASK_BUDGET or self._is_in_steps(task):
            yield title
            return
        yield "task:", "ok"
        for line in fold_text(task.text, TASK_SHOWN, keep="requirements"):
            yield f"  | {line}".rstrip(), "ok"

    def _is_in_head(self, content: Content) -> bool:
        """Return whether a message is the task, and the head of this page shows it in full."""
        text = content.text.strip()
        return self._task_in_head and content.role == "user" and text == self.trajectory.title

    def _is_in_steps(self, task: Content) -> bool:
        """Return whether a step shows the task, and does not refer to it."""
        text = task.text.strip()
        return any(
            text in item.text and not any(repeat.step == 0 for repeat in item.repeats)
            for step in self.trajectory.steps
            for item in step.new_input
        )

    def _empty_hint(self) -> str:
        show = self.command("show", self.evidence.run.info.short_id)
        if self.options.after is not None:
            return f"No more messages. Try: {show}"
        return f"No messages. Try: {show}"

    def _more(self, block: Step | Item) -> str:
        run = self.evidence.run.info.short_id
        cursor = block.cursor if isinstance(block, Item) else self._last_cursor(block)
        again = self.command("transcript", run, "--after", cursor, *self.options.words())
        return f"… continue: {again}"

    def _last_cursor(self, step: Step) -> str:
        """Return the cursor of a step's last item."""
        return self.evidence.once(Items).last_cursor(step) or f"s{step.number}"

    def _rest(self, number: int) -> str:
        run = self.evidence.run.info.short_id
        full = self.command("transcript", run, "--step", str(number), "--full")
        return f"… folded texts in full, step by step: {full}"

    # --- steps ------------------------------------------------------------------------------------

    def _render_block(self, block: Step | Item, limits: Limits) -> list[Line]:
        if isinstance(block, Item):
            return [*_render_end(block, self.trajectory)]
        return [*self._render_step(block, limits)]

    def _render_step(self, step: Step, limits: Limits) -> Iterator[Line]:
        if limits is not FULL:
            limits = for_step(step, limits, self._endings)
        indent = "  " * min(step.depth, DEPTH_SHOWN)
        style = "error" if step.error else "head ok"
        yield f"{indent}{self._step_line(step)}", style
        indent += "  "
        if segments := self.evidence.once(_format_segments).get(step.number):
            yield f"{indent}prompt: {segments}", "log"
        early = [log for log in step.logs if log.time_ns < step.started_ns]
        yield from render_logs(early, indent, limits)
        task = self.trajectory.task
        for content in step.new_input:
            if self._is_in_head(content) and limits is not FULL:
                yield f"{indent}user | [as in the task]", "log"
                continue
            shown = limits
            if content is task and limits is not FULL:
                shown = {**limits, "user": max(limits["user"], TASK_SHOWN)}
            yield from render_content(content, indent, shown)
        for content in step.answer:
            if content.kind != "tool_call":
                yield from render_content(content, indent, limits)
        errors = ErrorTexts(step.answer)
        has_steps = any(action.steps for action in step.actions)
        for action in step.actions:
            yield from render_action(action, indent, limits, errors, self._ids, has_steps=has_steps)
        if step.error:
            for text in errors.fold(step.error, limits["result"] * 2):
                yield f"{indent}✕ {text}", "error"
        later = [log for log in step.logs if log.time_ns >= step.started_ns]
        yield from render_logs(later, indent, limits)

    def _step_line(self, step: Step) -> str:
        info = self.evidence.run.info
        at_s = (step.started_ns - info.started_ns) / 1e9
        parts = [f"#{step.number}"]
        if step.span is not None:
            parts.append(self._ids[step.span.id])
        if step.agent:
            parts.append(formatting.single_line(step.agent, 40))
        elif step.span is not None and step.span.type != "llm":
            kind, name = step.span.type, step.span.name
            parts.append(f"{formatting.single_line(kind, 20)} {formatting.single_line(name, 60)}")
        if self._shares_agents:
            parts.append(f"c{step.conversation + 1}")
        if step.model and step.model != self._common_model:
            parts.append(formatting.single_line(step.model, 40))
        if info.elapsed_ns:
            offset = f"{at_s:.1f}s" if at_s < 1000 else formatting.duration(int(at_s * 1e9))
            parts.append(f"+{offset}")
        if step.duration_ns is None:
            parts.append("open")
        elif step.duration_ns:
            parts.append(formatting.duration(step.duration_ns))
        if step.input_tokens is not None or step.output_tokens is not None:
            tokens = formatting.token_counts(step.input_tokens or 0, step.output_tokens or 0)
            parts.append(tokens)
        if step.finish_reason in ("length", "content_filter", "max_tokens"):
            parts.append(f"finish: {step.finish_reason}")
        if step.status not in ("ok", "open"):
            parts.append(f"✕ {formatting.single_line(step.status, 20)}")
        return "  ".join(parts)

    @cached_property
    def _common_model(self) -> str | None:
        """Return the model of most steps, which the head names."""
        counts = Counter(step.model for step in self.trajectory.steps if step.model)
        return counts.most_common(1)[0][0] if counts else None

    @cached_property
    def _shares_agents(self) -> bool:
        """True if the name of an agent does not identify a conversation."""
        conversations = self.trajectory.conversations
        return len({each.agent for each in conversations}) < len(conversations)


# --- the end --------------------------------------------------------------------------------------


def _render_end(item: Item, trajectory: Trajectory) -> Iterator[Line]:
    """Yield an item that belongs to no step: how the run ended, or a log record."""
    facts = item.facts
    if item.kind == "error":
        errors = ErrorTexts()
        for step in trajectory.steps[-1:]:
            for error in (step.error, *(action.error for action in step.actions)):
                errors.add(error or "")
        for text in errors.fold(facts["text"].text, ENDING_SHOWN):
            yield f"ended: {text}", "stamp"
    elif item.kind == "log":
        level = formatting.single_line(facts["level"], 10)
        message = formatting.single_line(facts["text"].text, 160)
        label = formatting.single_line(facts["label"], 200)
        style = {"error": "error", "warn": "warn"}.get(facts["level"], "log")
        yield f"{level}: {message}  {label}".rstrip(), style
    else:
        yield (
            f"{item.kind} {item.span or ''} {formatting.single_line(str(facts.get('name')), 60)}",
            "log",
        )


def _is_folded(lines: Sequence[Line]) -> bool:
    return any("…" in text or "[base64, " in text or "[markup" in text for text, _ in lines)


def _cost(lines: Sequence[Line]) -> int:
    return sum(count_tokens(text) + 1 for text, _ in lines)


def _format_segments(evidence: Evidence) -> dict[int, str]:
    """Return the recorded contributors of prompts with their bytes, by step, where they change."""
    found: dict[int, str] = {}
    latest: dict[int, str] = {}
    for step in evidence.once(build_trajectory).steps:
        assembly = evidence.assembly(step.span) if step.span is not None else None
        if assembly is None:
            continue
        sizes = Counter[str]()
        for segment in parse_segments(evidence.output(assembly)):
            sizes[segment.contributor] += segment.length
        parts = [f"{formatting.single_line(name, 40)}({size})" for name, size in sizes.items()]
        if len(parts) > SEGMENTS_SHOWN:
            rest = formatting.pluralize(len(parts) - SEGMENTS_SHOWN, "more part")
            parts = [*parts[:SEGMENTS_SHOWN], rest]
        text = " · ".join(parts)
        if text != latest.get(step.conversation):
            found[step.number] = latest[step.conversation] = text
    return found
