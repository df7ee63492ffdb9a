"""Two spans side by side: fields, attributes, bodies. And what every diff answers with.

    diff_spans(evidence, span, other_evidence, other_span)

Elsewhere: bodies in query/diff/body_diff.py; which two spans are meant in query/diff/diff_answer.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from vestige.query import formatting
from vestige.query.body_cache import BODY_READ_MAX
from vestige.query.budget import TOKENS_MAX, fit_lines
from vestige.query.diff.attribute_diff import diff_attributes
from vestige.query.diff.body_diff import BodyDiff, Differences, diff_bodies
from vestige.query.diff.word_diff import check_rules
from vestige.query.evidence import Evidence
from vestige.query.text_layout import CommandAnswer, shell_word
from vestige.record.run import BodyRef, LogInfo, Node, SpanInfo

_NEXT = "next: "
"""A line that begins so names a command. Foreign text never begins a line."""


class DiffAnswer(CommandAnswer):
    """What differs, and where first."""

    verb: ClassVar[str] = "diff"
    budget: ClassVar[int] = 1_000

    def __init__(
        self, told: list[str], facts: Callable[[], dict[str, Any]], *, differs: bool, command: str
    ) -> None:
        self._told = told
        self._facts = facts
        self.differs = differs
        self.exit_code = 1 if differs else 0
        self._command = command
        self.paths: tuple[str, ...] = ()
        """Both, where they are no runs of one home: then their ids are of this comparison alone."""

    def lines(self, budget: int) -> list[str]:
        def more(left_out: int) -> str:
            larger = min(TOKENS_MAX, budget * 4)
            how = f"--budget {larger}" if budget < TOKENS_MAX else "--json"
            return f"… {formatting.pluralize(left_out, 'more line')}: {self.placed(f'{self._command} {how}')}"

        told = [line for line in self._told if not (self.paths and line.startswith(_NEXT))]
        return fit_lines([self._here(line) for line in told], budget, more)

    def placed(self, command: str) -> str:
        if not self.paths:
            return super().placed(command)
        vestige, diff, _a, _b, *rest = command.split(" ")
        return " ".join([vestige, diff, *map(shell_word, self.paths), *rest])

    def _here(self, line: str) -> str:
        """Next commands, for the place where this was asked."""
        return f"{_NEXT}{self.placed(line[len(_NEXT) :])}" if line.startswith(_NEXT) else line

    def data(self) -> dict[str, Any]:
        return {"version": self.version, "differs": self.differs, **self._facts()}


@dataclass(frozen=True, slots=True)
class SpanDiff:
    """What differs between two spans."""

    fields: Differences
    """Type, name, status and attributes."""
    bodies: list[tuple[str, BodyDiff | str]]
    """`input`, `output`: how they differ, or a word on why that cannot be said."""

    @property
    def differs(self) -> bool:
        return bool(self.fields) or any(
            isinstance(found, str) or not found.alike for _, found in self.bodies
        )

    def lines(self, structure_max: int = 40) -> list[str]:
        told = [difference.line() for difference in self.fields[:structure_max]]
        more = len(self.fields) - structure_max + self.fields.left_out
        if more > 0:
            told.append(f"… {formatting.pluralize(more, 'more attribute')}")
        for which, found in self.bodies:
            if isinstance(found, str):
                told.append(f"{which}: {found}")
            elif not found.alike:
                told.append(f"{which}:")
                told.extend(f"  {line}" for line in found.lines(structure_max))
            elif not found.identical:
                told.append(f"{which}: differs only in {' and '.join(found.ignored)}, ignored")
        return told

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
    """Fields, then bodies."""
    checked = check_rules(rules)
    fields = Differences()
    bodies: list[tuple[str, BodyDiff | str]] = []
    if not inputs_only:
        for name in ("type", "name", "component", "status"):
            was, now = (str(getattr(side, name) or "open") for side in (a_span, b_span))
            if was != now:
                fields.note("~", name, was, now)
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
            found = "the same text; they differ in bytes that are none"
        if found is not None:
            bodies.append((which, found))
    return SpanDiff(fields, bodies)


def differ_beyond_text(text: str, a: Evidence, a_ref: BodyRef, b: Evidence, b_ref: BodyRef) -> bool:
    """Whether two bodies that read the same are not: bytes that are no text all look alike."""
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
        gone = " and ".join(side for side, text in (("A", a), ("B", b)) if text is None)
        return f"gone from the store in {gone}, not compared"
    found = diff_bodies(a, b, rules)
    longest = max(a_ref.size_bytes, b_ref.size_bytes)
    if longest > BODY_READ_MAX and not found.alike:
        note = f"only the first {formatting.size(BODY_READ_MAX)} of {formatting.size(longest)} were compared"
        return replace(found, notes=(*found.notes, note))
    if longest > BODY_READ_MAX and a_ref != b_ref:
        return f"the same in the first {formatting.size(BODY_READ_MAX)} of {formatting.size(longest)}, then not compared"
    return found


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
    """Two spans: fields, attributes, bodies."""
    found = compare_spans(a, a_span, b, b_span, ignore, inputs_only=inputs_only)
    told = [f"A {format_value(a_span)}", f"B {format_value(b_span)}"]
    if found.differs:
        told += found.lines()
        told += [f"next: {line}" for line in _next_bodies(a_span, b_span, found)]
    else:
        what = "the prompt as built and as sent are" if inputs_only else "they are"
        rules = check_rules(ignore)
        but_for = f", {' and '.join(rules)} ignored" if rules else ""
        told += [f"{what} the same{but_for}", *found.lines()]

    def facts() -> dict[str, Any]:
        return {"kind": "spans", "a": a_span.short_id, "b": b_span.short_id, **found.data()}

    command = (command or f"vestige diff {a_span.short_id} {b_span.short_id}") + ignored(ignore)
    return DiffAnswer(told, facts, differs=found.differs, command=command)


def _next_bodies(a: SpanInfo, b: SpanInfo, found: SpanDiff) -> list[str]:
    """The exact slices, where bytes differ."""
    for which, body in found.bodies:
        if isinstance(body, BodyDiff) and body.parting is not None:
            begin = max(0, body.parting.offset_bytes - 200)
            option = " --out" if which == "output" else ""
            return [
                f"vestige body {side.short_id}{option} --bytes {begin}:{begin + 800}"
                for side in (a, b)
            ]
    return []


def format_value(node: Node) -> str:
    """A step on one line, with the beginning of its arguments."""
    if isinstance(node, LogInfo):
        return label(node)
    told = f"{node.short_id} {label(node)}"
    if node.input is not None:
        told += f" in {formatting.size(node.input.size_bytes)}"
    if node.output is not None:
        told += f" out {formatting.size(node.output.size_bytes)}"
    return told


def label(node: Node) -> str:
    if isinstance(node, LogInfo):
        return f'log {formatting.single_line(node.level, 20)} "{formatting.single_line(node.message, 80)}"'
    label = f"{formatting.single_line(node.type, 20)} {formatting.single_line(node.name, 60)}"
    return (
        label
        if node.status == "ok"
        else f"{label} ({formatting.single_line(node.status or 'open', 20)})"
    )


def ignored(rules: Sequence[str]) -> str:
    """The options that say so again."""
    return "".join(f" --ignore {rule}" for rule in rules)
