"""Compare two spans by fields, attributes and bodies.

`DiffAnswer` is the answer of every diff.

    diff_spans(a_evidence, a_span, b_evidence, b_span)

Elsewhere: bodies in query/diff/body_diff.py; the choice of the two spans in
query/diff/diff_targets.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from vestige.query import formatting
from vestige.query.body_cache import BODY_READ_MAX
from vestige.query.diff.attribute_diff import diff_attributes
from vestige.query.diff.body_diff import BodyDiff, Differences, diff_bodies
from vestige.query.diff.word_diff import validate_rules
from vestige.query.evidence import Evidence
from vestige.query.text_layout import CommandAnswer, shell_word
from vestige.query.token_budget import TOKENS_MAX, fit_lines
from vestige.record.run import BodyRef, LogInfo, Node, SpanInfo

_NEXT = "next: "
"""Prefix of a line that names a command. Recorded text never starts a line."""


class DiffAnswer(CommandAnswer):
    """The differences between two runs or spans, the first one in detail."""

    verb: ClassVar[str] = "diff"
    budget: ClassVar[int] = 1_000

    def __init__(
        self,
        rendered: list[str],
        make_data: Callable[[], dict[str, Any]],
        *,
        differs: bool,
        command: str,
    ) -> None:
        self._rendered = rendered
        self._make_data = make_data
        self.differs = differs
        self.exit_code = 1 if differs else 0
        self._command = command
        self.paths: tuple[str, ...] = ()
        """Paths of both sides if they are not runs of one home. Their ids are then temporary."""

    def lines(self, budget: int) -> list[str]:
        def more(left_out: int) -> str:
            larger = min(TOKENS_MAX, budget * 4)
            option = f"--budget {larger}" if budget < TOKENS_MAX else "--json"
            command = self.placed(f"{self._command} {option}")
            return f"… {formatting.pluralize(left_out, 'more line')}: {command}"

        lines = []
        for line in self._rendered:
            if not line.startswith(_NEXT):
                lines.append(line)
            elif not self.paths:
                lines.append(f"{_NEXT}{self.placed(line[len(_NEXT) :])}")
        return fit_lines(lines, budget, more)

    def placed(self, command: str) -> str:
        if not self.paths:
            return super().placed(command)
        vestige, diff, _a, _b, *rest = command.split(" ")
        return " ".join([vestige, diff, *map(shell_word, self.paths), *rest])

    def data(self) -> dict[str, Any]:
        return {"version": self.version, "differs": self.differs, **self._make_data()}


@dataclass(frozen=True, slots=True)
class SpanDiff:
    """The differences between two spans."""

    fields: Differences
    """Type, name, component, status and attributes."""
    bodies: list[tuple[str, BodyDiff | str]]
    """`input` and `output`, each with its differences or the reason why it was not compared."""

    @property
    def differs(self) -> bool:
        return bool(self.fields) or any(
            isinstance(found, str) or not found.alike for _, found in self.bodies
        )

    def lines(self, structure_max: int = 40) -> list[str]:
        lines = self.fields.lines(structure_max, "attribute")
        for which, found in self.bodies:
            if isinstance(found, str):
                lines.append(f"{which}: {found}")
            elif not found.alike:
                lines.append(f"{which}:")
                lines.extend(f"  {line}" for line in found.lines(structure_max))
            elif not found.identical:
                lines.append(f"{which}: differs only in {' and '.join(found.ignored)} (ignored)")
        return lines

    def data(self) -> dict[str, Any]:
        return {
            "fields": [difference.data() for difference in self.fields],
            **{
                which: {"note": found} if isinstance(found, str) else found.data()
                for which, found in self.bodies
            },
        }


def compare_spans(
    a: Evidence,
    a_span: SpanInfo,
    b: Evidence,
    b_span: SpanInfo,
    rules: Sequence[str],
    *,
    inputs_only: bool = False,
) -> SpanDiff:
    """Compare fields and attributes, then bodies."""
    checked = validate_rules(rules)
    fields = Differences()
    bodies: list[tuple[str, BodyDiff | str]] = []
    if not inputs_only:
        for name in ("type", "name", "component", "status"):
            was, now = (str(getattr(side, name) or "open") for side in (a_span, b_span))
            if was != now:
                fields.add("~", name, was, now)
        diff_attributes(a_span, b_span, checked, fields)
    for which in ("input",) if inputs_only else ("input", "output"):
        a_ref, b_ref = getattr(a_span, which), getattr(b_span, which)
        a_text, b_text = getattr(a, which)(a_span), getattr(b, which)(b_span)
        found = _diff_body(a_ref, a_text, b_ref, b_text, checked)
        if (
            isinstance(found, BodyDiff)
            and found.identical
            and differ_beyond_text(a_text, a, a_ref, b, b_ref)
        ):
            found = "the text is the same, but bytes that are not valid UTF-8 differ"
        if found is not None:
            bodies.append((which, found))
    return SpanDiff(fields, bodies)


def differ_beyond_text(text: str, a: Evidence, a_ref: BodyRef, b: Evidence, b_ref: BodyRef) -> bool:
    """Return True if equal texts have different bytes: invalid UTF-8 all decodes to U+FFFD."""
    return "\ufffd" in text and a.raw(a_ref) != b.raw(b_ref)


def _diff_body(
    a_ref: BodyRef | None, a: str | None, b_ref: BodyRef | None, b: str | None, rules: Sequence[str]
) -> BodyDiff | str | None:
    if a_ref is None and b_ref is None:
        return None
    if a_ref is None or b_ref is None:
        side, ref = ("B", b_ref) if a_ref is None else ("A", a_ref)
        return f"only {side} has one ({formatting.size(ref.size_bytes if ref else 0)})"
    if a is None or b is None:
        missing = " and ".join(side for side, text in (("A", a), ("B", b)) if text is None)
        return f"missing from the store in {missing}, not compared"
    found = diff_bodies(a, b, rules)
    longest = max(a_ref.size_bytes, b_ref.size_bytes)
    if longest <= BODY_READ_MAX:
        return found
    compared = f"{formatting.size(BODY_READ_MAX)} of {formatting.size(longest)}"
    if not found.alike:
        return replace(found, notes=(*found.notes, f"only the first {compared} were compared"))
    return found if a_ref == b_ref else f"the first {compared} are the same, the rest not compared"


def diff_spans(
    a: Evidence,
    a_span: SpanInfo,
    b: Evidence,
    b_span: SpanInfo,
    ignore: Sequence[str] = (),
    *,
    command: str | None = None,
    inputs_only: bool = False,
) -> DiffAnswer:
    """Compare two spans, and answer with the differences."""
    found = compare_spans(a, a_span, b, b_span, ignore, inputs_only=inputs_only)
    lines = [f"A {format_step(a_span)}", f"B {format_step(b_span)}"]
    if found.differs:
        lines += found.lines()
        lines += [f"{_NEXT}{command}" for command in _body_commands(a_span, b_span, found)]
    else:
        subject = "the prompt as built and as sent are" if inputs_only else "they are"
        rules = validate_rules(ignore)
        exception = f" ({' and '.join(rules)} ignored)" if rules else ""
        lines += [f"{subject} the same{exception}", *found.lines()]

    def make_data() -> dict[str, Any]:
        return {"kind": "spans", "a": a_span.short_id, "b": b_span.short_id, **found.data()}

    command = command or f"vestige diff {a_span.short_id} {b_span.short_id}"
    command += ignore_options(ignore)
    return DiffAnswer(lines, make_data, differs=found.differs, command=command)


def _body_commands(a: SpanInfo, b: SpanInfo, found: SpanDiff) -> list[str]:
    """Return the commands that print both bodies around the first differing byte."""
    for which, body in found.bodies:
        if isinstance(body, BodyDiff) and body.first is not None:
            begin = max(0, body.first.offset_bytes - 200)
            option = " --out" if which == "output" else ""
            return [
                f"vestige body {side.short_id}{option} --bytes {begin}:{begin + 800}"
                for side in (a, b)
            ]
    return []


def format_step(node: Node) -> str:
    """Format a span or log record on one line, with the sizes of its bodies."""
    if isinstance(node, LogInfo):
        return format_label(node)
    text = f"{node.short_id} {format_label(node)}"
    if node.input is not None:
        text += f" in {formatting.size(node.input.size_bytes)}"
    if node.output is not None:
        text += f" out {formatting.size(node.output.size_bytes)}"
    return text


def format_label(node: Node) -> str:
    """Format `type name (status)` of a span, or the level and message of a log record."""
    single_line = formatting.single_line
    if isinstance(node, LogInfo):
        return f'log {single_line(node.level, 20)} "{single_line(node.message, 80)}"'
    label = f"{single_line(node.type, 20)} {single_line(node.name, 60)}"
    return label if node.status == "ok" else f"{label} ({single_line(node.status or 'open', 20)})"


def ignore_options(rules: Sequence[str]) -> str:
    """Return the command-line options that repeat these rules."""
    return "".join(f" --ignore {rule}" for rule in rules)
