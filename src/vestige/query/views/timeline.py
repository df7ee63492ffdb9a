"""The easy view: how a run unfolded, one line per span or log line, oldest first.

A pure function of a run. Every line is backed by a span or a log line; repeats fold
into one with a count; what was in flight at the end says so.

    for line in timeline(run): print(line.id, line.text)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from vestige.query import formatting
from vestige.record.run import LogInfo, Node, Run, SpanInfo, in_order, time_ns
from vestige.record.types import OWN_COMPONENT, Attributes

Mood = Literal["ok", "error", "open", "log", "warn", "stamp"]

NAME_SHOWN = 60
MESSAGE_SHOWN = 160
VALUE_SHOWN = 40
VALUES_SHOWN = 4

# Said elsewhere in the line, or only of use when one looks at the span itself.
NOT_SHOWN = frozenset(
    [
        "error.type",
        "error.message",
        "error.stack",
        "error.cause.type",
        "error.cause.message",
        "error.cause.stack",
        "error.group.count",
        "error.group.types",
        "error.group.messages",
        "model",
        "input_tokens",
        "output_tokens",
        "cache_read_tokens",
        "cache_write_tokens",
        "implicit",
        "code.file",
        "code.function",
        "sampled",
    ]
)

# Of a call that the wire recorded: where it went, and what stands elsewhere in its line.
_NOT_SHOWN_OF_CALLS = frozenset(
    [
        "method",
        "url",
        "host",
        "provider",
        "http_version",
        "request_id",
        "first_byte_ns",
        "first_token_ns",
        "thinking_ns",
        "prefix.fingerprint",
    ]
)
_PARTS_OF_CALLS = ("request.", "response.", "tool_call.", "cache_control.")
_USUAL_OF_CALLS: dict[str, object] = {"attempt": 1, "status_code": 200, "finish_reason": "stop"}
"""Told only where they are otherwise."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the easy view."""

    id: str
    """The short id of its span; empty for a log line."""
    at_ns: int
    """Since the run's start."""
    depth: int
    node: Node
    """What it stands for."""
    mood: Mood
    count: int = 1
    """How many there were in a row, told once."""

    @property
    def text(self) -> str:
        """In words; made when asked for, because most lines of a long run are never shown."""
        if isinstance(self.node, LogInfo):
            said, what = _say_log(self.node), "same line"
        else:
            said, what = _say_span(self.node), "same call"
        return said if self.count == 1 else f"{said}  x{self.count} {what}"


def timeline(
    run: Run,
    *,
    errors_only: bool = False,
    fold: bool = True,
    between: tuple[int, int] | None = None,
) -> list[Line]:
    """The run as lines. `errors_only` keeps what failed, and what it stood in; `between`, what
    began between two moments (ns since its start, both included), before repeats are folded."""
    children, roots = tree_of(run)
    if errors_only:
        children, roots = _only_failed(children, roots)
    lines = list(_walk(children, roots, run.info.started_ns))
    if between is not None:
        low, high = between
        lines = [each for each in lines if low <= each[0].at_ns <= high]
    return list(_folded(lines)) if fold else [line for line, _ in lines]


def nodes_in_depth(run: Run, *, errors_only: bool = False) -> Iterator[tuple[Node, int]]:
    """What the lines stand for: each span and log line of the view, with how deep it stands."""
    children, roots = tree_of(run)
    if errors_only:
        children, roots = _only_failed(children, roots)
    stack: list[tuple[Node, int]] = [(node, 0) for node in reversed(roots)]
    while stack:
        node, depth = stack.pop()
        yield node, depth
        if isinstance(node, SpanInfo):
            stack.extend((child, depth + 1) for child in reversed(children.get(node.id, [])))


# --- the tree -------------------------------------------------------------------------------


def tree_of(run: Run) -> tuple[dict[str, list[Node]], list[Node]]:
    """Spans and log lines under their parents; what has none that we know stands at the top."""
    known = {span.id for span in run.spans}
    children: dict[str, list[Node]] = {}
    roots: list[Node] = []
    nodes: list[Node] = [*run.spans, *run.logs]
    for node in in_order(nodes):
        parent = node.parent_id if isinstance(node, SpanInfo) else node.span_id
        if parent in known and not (isinstance(node, SpanInfo) and parent == node.id):
            children.setdefault(parent, []).append(node)
        else:
            roots.append(node)
    _break_cycles(run, children, roots)
    return children, roots


def _break_cycles(run: Run, children: dict[str, list[Node]], roots: list[Node]) -> None:
    """A hostile run may name a span as its own ancestor; it must not hide by that."""
    reached: set[str] = set()

    def reach(nodes: Iterable[Node]) -> None:
        stack = [node for node in nodes if isinstance(node, SpanInfo)]
        while stack:
            span = stack.pop()
            reached.add(span.id)
            stack.extend(
                child
                for child in children.get(span.id, ())
                if isinstance(child, SpanInfo) and child.id not in reached
            )

    reach(roots)
    for span in run.spans:
        if span.id not in reached and span.parent_id is not None:
            children[span.parent_id].remove(span)
            roots.append(span)
            reach([span])


def _only_failed(
    children: dict[str, list[Node]], roots: list[Node]
) -> tuple[dict[str, list[Node]], list[Node]]:
    kept: dict[str, list[Node]] = {}
    failed: dict[str, bool] = {}
    # Children before parents, without recursion: a run may be as deep as it likes.
    order: list[Node] = []
    stack = list(roots)
    while stack:
        node = stack.pop()
        order.append(node)
        if isinstance(node, SpanInfo):
            stack.extend(children.get(node.id, ()))

    def has_failed(node: Node) -> bool:
        if isinstance(node, LogInfo):
            return node.level == "error"
        return failed[node.id]

    for node in reversed(order):
        if isinstance(node, SpanInfo):
            below = [child for child in children.get(node.id, ()) if has_failed(child)]
            kept[node.id] = below
            failed[node.id] = bool(below) or node.status != "ok"
    return kept, [node for node in roots if has_failed(node)]


def _walk(
    children: dict[str, list[Node]], roots: list[Node], start_ns: int
) -> Iterator[tuple[Line, object]]:
    """Lines in order, each with what makes it the same as another."""
    stack: list[tuple[Node, int]] = [(node, 0) for node in reversed(roots)]
    while stack:
        node, depth = stack.pop()
        at_ns = max(0, time_ns(node) - start_ns)
        if isinstance(node, LogInfo):
            same = (depth, node.level, node.component, node.message)
            yield Line("", at_ns, depth, node, _log_mood(node)), same
            continue
        below = children.get(node.id, [])
        body: object = node.input.id if node.input is not None else None
        if node.type == "snapshot":  # a state is what it ends with, and whose it is
            body = (node.output.id if node.output else None, node.attributes.get("session_id"))
        alone = None if below else (depth, node.type, node.name, node.component, node.status, body)
        yield Line(node.short_id, at_ns, depth, node, _span_mood(node)), alone
        stack.extend((child, depth + 1) for child in reversed(below))


def _folded(lines: Iterable[tuple[Line, object]]) -> Iterator[Line]:
    held: Line | None = None
    held_same: object = None
    count = 0
    for line, same in lines:
        if held is not None and same is not None and same == held_same:
            count += 1
            continue
        if held is not None:
            yield replace(held, count=count) if count > 1 else held
        held, held_same, count = line, same, 1
    if held is not None:
        yield replace(held, count=count) if count > 1 else held


# --- the words ------------------------------------------------------------------------------


def _say_span(span: SpanInfo) -> str:
    verb = {"llm": "thought", "tool": "ran"}.get(span.type, "took")
    word = "ai" if span.type == "llm" else formatting.single_line(span.type, 20)
    parts = [word, formatting.single_line(span.name, NAME_SHOWN)]
    model = span.attributes.get("model")
    if isinstance(model, str) and model != span.name:
        parts.append(f"[{formatting.single_line(model, 40)}]")
    if span.status is None:
        parts.append("(open)")
    else:
        took = f"{verb} {formatting.duration(span.duration_ns)}{_say_first_token(span.attributes)}"
        parts.append(f"{took} → {_say_status(span)}")
    sizes = _say_sizes(span)
    if sizes:
        parts.append(f"({sizes})")
    tokens = _say_tokens(span.attributes)
    if tokens:
        parts.append(tokens)
    parts.extend(format_attributes(span.attributes))
    return " ".join(parts)


def _say_first_token(attributes: Attributes) -> str:
    """How long one waited for the first sign of a streamed answer, and for how long it thought aloud."""
    told = ""
    for word, name in ((", first token after", "first_token_ns"), (", thinking", "thinking_ns")):
        taken = attributes.get(name)
        if isinstance(taken, int) and taken >= 0:
            told += f"{word} {formatting.duration(taken)}"
    return told


def _say_status(span: SpanInfo) -> str:
    status = formatting.single_line(str(span.status), 20)
    error = span.attributes.get("error.type")
    if span.status == "ok" or error is None:
        return status
    kind = formatting.single_line(str(error), NAME_SHOWN)
    message = formatting.single_line(str(span.attributes.get("error.message") or ""), MESSAGE_SHOWN)
    return f"{status} {kind}: {message}" if message else f"{status} {kind}"


def _say_sizes(span: SpanInfo) -> str:
    parts = []
    for word, body in (("in", span.input), ("out", span.output)):
        if body is not None:
            cut = " " + body.cut if body.cut else ""
            parts.append(f"{word} {formatting.size(body.size_bytes)}{cut}")
    return ", ".join(parts)


def _say_tokens(attributes: Attributes) -> str:
    given, made = attributes.get("input_tokens"), attributes.get("output_tokens")
    if given is None and made is None:
        return ""
    shown = ("?" if count is None else formatting.value(count, 20) for count in (given, made))
    return f"{'+'.join(shown)} tokens"


def format_attributes(attributes: Attributes) -> list[str]:
    """The telling ones as `key=value`, a few; what a line says elsewhere is left out."""
    is_call = "method" in attributes and "url" in attributes
    shown = [
        f"{formatting.single_line(key, 40)}={formatting.value(value, VALUE_SHOWN)}"
        for key, value in attributes.items()
        if key not in NOT_SHOWN and not (is_call and _is_usual(key, value))
    ]
    if len(shown) > VALUES_SHOWN:
        return [*shown[:VALUES_SHOWN], f"+{len(shown) - VALUES_SHOWN} more"]
    return shown


def _is_usual(key: str, value: object) -> bool:
    if key in _NOT_SHOWN_OF_CALLS or key.startswith(_PARTS_OF_CALLS):
        return True
    return key in _USUAL_OF_CALLS and _USUAL_OF_CALLS[key] == value


def _say_log(log: LogInfo) -> str:
    if is_stamp(log):
        fault = log.attributes.get("fault")
        if str(fault).removeprefix("terminated by ") in log.message:
            fault = None  # the parent said so
        said = f": {formatting.single_line(str(fault), MESSAGE_SHOWN)}" if fault else ""
        return f"!! {formatting.single_line(log.message, MESSAGE_SHOWN)}{said}"
    parts = [formatting.single_line(log.level, 20)]
    if "code.file" in log.attributes:  # by `logging`, whose loggers have telling names
        parts.append(f"{formatting.single_line(log.component, NAME_SHOWN)}:")
    parts.append(formatting.single_line(log.message, MESSAGE_SHOWN))
    error = log.attributes.get("error.type")
    if error is not None:
        message = formatting.single_line(
            str(log.attributes.get("error.message") or ""), MESSAGE_SHOWN
        )
        told = f"{formatting.single_line(str(error), NAME_SHOWN)}: {message}"
        if told not in parts:  # a printed traceback says nothing else
            parts.append(f"→ {told}")
    parts.extend(format_attributes(log.attributes))
    return " ".join(parts)


def is_stamp(log: LogInfo) -> bool:
    """Is this the collector's word on how the process ended?"""
    return log.component == OWN_COMPONENT and "crash" in log.attributes


def _span_mood(span: SpanInfo) -> Mood:
    if span.status is None:
        return "open"
    return "ok" if span.status == "ok" else "error"


def _log_mood(log: LogInfo) -> Mood:
    if is_stamp(log):
        return "stamp"
    return {"error": "error", "warn": "warn"}.get(log.level, "log")  # type: ignore[return-value]
