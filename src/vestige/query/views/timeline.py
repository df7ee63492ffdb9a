"""The timeline of a run: one line per span or log line, oldest first.

A pure function of a run. Every line has its span or log record; repeats are folded into one
line with a count; spans that never ended are marked open.

    for line in timeline(run): print(line.id, line.text)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from vestige.query import formatting
from vestige.query.views.lines.common_attributes import find_common, is_redundant
from vestige.record.run import LogInfo, Node, Run, SpanInfo, in_order, time_ns
from vestige.record.types import OWN_COMPONENT, Attributes, Scalar

Style = Literal["ok", "error", "open", "log", "warn", "stamp"]

NAME_SHOWN = 60
MESSAGE_SHOWN = 160
VALUE_SHOWN = 40
VALUES_SHOWN = 4

# Shown elsewhere in the line, or only in `vestige span`.
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

# Attributes of recorded HTTP calls: where they went, and what the line shows elsewhere.
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
"""Values that are not shown, because they are the normal case."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the timeline."""

    id: str
    """The short id of its span; empty for a log line."""
    at_ns: int
    """Nanoseconds since the run's start."""
    depth: int
    node: Node
    style: Style
    count: int = 1
    """Number of equal consecutive lines that this one replaces."""
    common: Mapping[str, Scalar] = field(default_factory=dict, compare=False)
    """Attributes that the head shows for all spans."""

    @property
    def text(self) -> str:
        """The line without id and time; rendered on demand, as most lines are never shown."""
        return self.render()

    def render(self, arguments: str = "") -> str:
        """Return the line, with the arguments of a tool after its name."""
        node = self.node
        if isinstance(node, LogInfo):
            text = _format_log(node)
        else:
            text = _format_span(node, self.common, arguments)
        return text if self.count == 1 else f"{text}  ×{self.count}"


def timeline(
    run: Run,
    *,
    errors_only: bool = False,
    fold: bool = True,
    between: tuple[int, int] | None = None,
) -> list[Line]:
    """Return the run as lines.

    `errors_only` selects what failed and its ancestors. `between` selects what started in an
    interval (ns since the run's start, both ends included), before repeats are folded.
    """
    children, roots = tree_of(run)
    if errors_only:
        children, roots = _only_failed(children, roots)
    lines = list(_walk(children, roots, run.info.started_ns, find_common(run.spans)))
    if between is not None:
        low, high = between
        lines = [each for each in lines if low <= each[0].at_ns <= high]
    return list(_folded(lines)) if fold else [line for line, _ in lines]


def nodes_in_depth(run: Run, *, errors_only: bool = False) -> Iterator[tuple[Node, int]]:
    """Yield each span and log record of the timeline with its depth."""
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
    """Return the children of each span, and the nodes whose parent is not in the run."""
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
    """Make a root of a span that is its own ancestor, so that a hostile run cannot hide it."""
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
    failed_children: dict[str, list[Node]] = {}
    failed: dict[str, bool] = {}
    # Children before parents, without recursion: the depth of a run is not bounded.
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
            failed_children[node.id] = below
            failed[node.id] = bool(below) or node.status != "ok"
    return failed_children, [node for node in roots if has_failed(node)]


def _walk(
    children: dict[str, list[Node]],
    roots: list[Node],
    start_ns: int,
    common: Mapping[str, Scalar],
) -> Iterator[tuple[Line, object]]:
    """Yield lines in order, each with a key that equal lines share; None never folds."""
    stack: list[tuple[Node, int]] = [(node, 0) for node in reversed(roots)]
    while stack:
        node, depth = stack.pop()
        at_ns = max(0, time_ns(node) - start_ns)
        if isinstance(node, LogInfo):
            log_key = (depth, node.level, node.component, node.message)
            yield Line("", at_ns, depth, node, _log_style(node)), log_key
            continue
        below = children.get(node.id, [])
        body: object = node.input.id if node.input is not None else None
        if node.type == "snapshot":  # snapshots are equal by their content and session
            body = (node.output.id if node.output else None, node.attributes.get("session_id"))
        key = None if below else (depth, node.type, node.name, node.component, node.status, body)
        yield Line(node.short_id, at_ns, depth, node, _span_style(node), common=common), key
        stack.extend((child, depth + 1) for child in reversed(below))


def _folded(lines: Iterable[tuple[Line, object]]) -> Iterator[Line]:
    first: Line | None = None
    first_key: object = None
    count = 0
    for line, key in lines:
        if first is not None and key is not None and key == first_key:
            count += 1
            continue
        if first is not None:
            yield replace(first, count=count) if count > 1 else first
        first, first_key, count = line, key, 1
    if first is not None:
        yield replace(first, count=count) if count > 1 else first


# --- text -----------------------------------------------------------------------------------


def _format_span(span: SpanInfo, common: Mapping[str, Scalar], arguments: str) -> str:
    parts = [
        formatting.single_line(span.type, 20),
        formatting.single_line(span.name, NAME_SHOWN) + arguments,
    ]
    model = span.attributes.get("model")
    if isinstance(model, str) and model != span.name:
        parts.append(f"[{formatting.single_line(model, 40)}]")
    if span.status is None:
        parts.append("(open)")
    else:
        took = f"{formatting.duration(span.duration_ns)}{_format_latencies(span.attributes)}"
        parts.append(f"{took} → {_format_status(span)}".lstrip())
    truncated = _format_truncated(span)
    if truncated:
        parts.append(f"({truncated})")
    tokens = format_tokens(
        span.attributes.get("input_tokens"), span.attributes.get("output_tokens")
    )
    if tokens:
        parts.append(tokens)
    hidden = {
        key
        for key, value in span.attributes.items()
        if is_redundant(span, key, value)
        or (key in common and common[key] == value)
        or value in ("{}", "[]", "")
    }
    parts.extend(format_attributes(span.attributes, hidden))
    return " ".join(parts)


def _format_latencies(attributes: Attributes) -> str:
    """Format the time to the first token of a stream, and the time spent on reasoning."""
    text = ""
    for label, name in ((", first token after", "first_token_ns"), (", thinking", "thinking_ns")):
        spent_ns = attributes.get(name)
        if isinstance(spent_ns, int) and spent_ns >= 0:
            text += f"{label} {formatting.duration(spent_ns)}"
    return text


def _format_status(span: SpanInfo) -> str:
    status = formatting.single_line(str(span.status), 20)
    error = span.attributes.get("error.type")
    if span.status == "ok" or error is None:
        return status
    kind = formatting.single_line(str(error), NAME_SHOWN)
    message = formatting.single_line(str(span.attributes.get("error.message") or ""), MESSAGE_SHOWN)
    return f"{status} {kind}: {message}" if message else f"{status} {kind}"


def _format_truncated(span: SpanInfo) -> str:
    """Name the bodies that are incomplete, and why."""
    return ", ".join(
        f"{side} {formatting.size(body.size_bytes)} {body.cut}"
        for side, body in (("input", span.input), ("output", span.output))
        if body is not None and body.cut
    )


def format_tokens(input_tokens: Scalar, output_tokens: Scalar) -> str:
    """`3,698 → 215 tokens`; empty if neither count is known."""
    if input_tokens is None and output_tokens is None:
        return ""
    shown = (
        "?"
        if count is None
        else f"{count:,}"
        if type(count) is int
        else formatting.value(count, 20)
        for count in (input_tokens, output_tokens)
    )
    return f"{' → '.join(shown)} tokens"


def format_attributes(attributes: Attributes, hidden: Collection[str] = ()) -> list[str]:
    """Return a few attributes as `key=value`, without those that a line shows elsewhere."""
    is_call = "method" in attributes and "url" in attributes
    shown = [
        f"{formatting.single_line(key, 40)}={formatting.value(value, VALUE_SHOWN)}"
        for key, value in attributes.items()
        if key not in NOT_SHOWN and key not in hidden and not (is_call and _is_usual(key, value))
    ]
    if len(shown) > VALUES_SHOWN:
        return [*shown[:VALUES_SHOWN], f"+{len(shown) - VALUES_SHOWN} more"]
    return shown


def _is_usual(key: str, value: object) -> bool:
    if key in _NOT_SHOWN_OF_CALLS or key.startswith(_PARTS_OF_CALLS):
        return True
    return key in _USUAL_OF_CALLS and _USUAL_OF_CALLS[key] == value


def _format_log(log: LogInfo) -> str:
    if is_stamp(log):
        fault = log.attributes.get("fault")
        if str(fault).removeprefix("terminated by ") in log.message:
            fault = None  # the message has it already
        signal = f": {formatting.single_line(str(fault), MESSAGE_SHOWN)}" if fault else ""
        return f"!! {formatting.single_line(log.message, MESSAGE_SHOWN)}{signal}"
    parts = [formatting.single_line(log.level, 20)]
    if "code.file" in log.attributes:  # recorded by `logging`: the logger's name is useful
        parts.append(f"{formatting.single_line(log.component, NAME_SHOWN)}:")
    parts.append(formatting.single_line(log.message, MESSAGE_SHOWN))
    error = log.attributes.get("error.type")
    if error is not None:
        message = formatting.single_line(
            str(log.attributes.get("error.message") or ""), MESSAGE_SHOWN
        )
        text = f"{formatting.single_line(str(error), NAME_SHOWN)}: {message}"
        if text not in parts:  # the message of a printed traceback is the error itself
            parts.append(f"→ {text}")
    parts.extend(format_attributes(log.attributes))
    return " ".join(parts)


def is_stamp(log: LogInfo) -> bool:
    """Return True for the collector's record of how a process ended."""
    return log.component == OWN_COMPONENT and "crash" in log.attributes


def _span_style(span: SpanInfo) -> Style:
    if span.status is None:
        return "open"
    return "ok" if span.status == "ok" else "error"


def _log_style(log: LogInfo) -> Style:
    if is_stamp(log):
        return "stamp"
    return {"error": "error", "warn": "warn"}.get(log.level, "log")  # type: ignore[return-value]
