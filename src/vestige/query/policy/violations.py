"""Find the rules of a policy that a run broke.

for violation in find_violations(policy, activity):
    violation.rule       # tool-denied
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from vestige.query import formatting
from vestige.query.policy.policy import ArgumentRule, Names, Policy, ToolRules
from vestige.query.policy.run_activity import Activity, ToolCall
from vestige.record.finding import Finding
from vestige.record.run import Run

CHECK: Final = "policy"
TEXT_MAX: Final = 10_000
"""Characters of an argument that a regular expression reads."""
_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that was broken."""

    rule: str
    """Short and stable: `tool-denied`, `limit-tokens`."""
    message: str
    span_id: str | None = None


def find_violations(policy: Policy, activity: Activity, *, ended: bool = True) -> list[Violation]:
    """Return the broken rules. Before a run has ended, a required tool is not missing yet."""
    found = [*_check_tools(policy.tools, activity.tool_calls, ended)]
    for rule in policy.arguments:
        found += _check_arguments(rule, activity.tool_calls)
    found += _check_names("model", policy.models, activity.models)
    found += _check_names("host", policy.hosts, activity.hosts)
    found += _check_limits(policy, activity)
    return found


def to_findings(run: Run, violations: Sequence[Violation]) -> list[Finding]:
    """Return violations as findings of `check`."""
    short_ids = {span.id: span.short_id for span in run.spans}
    return [
        Finding(
            check=CHECK,
            severity="error",
            confidence=1.0,
            basis="measured",
            kind=f"{CHECK}/{violation.rule}",
            message=violation.message,
            cause=violation.span_id,
            evidence=[violation.span_id] if violation.span_id else [],
            command=f"vestige span {short_ids[violation.span_id]}"
            if violation.span_id in short_ids
            else f"vestige show {run.info.short_id}",
        )
        for violation in violations
    ]


def _check_tools(rules: ToolRules, calls: Sequence[ToolCall], ended: bool) -> Iterator[Violation]:
    first = {call.name: call.span_id or "" for call in reversed(calls)}
    yield from _check_names("tool", rules, first)
    for pattern in rules.require if ended else ():
        if not any(fnmatchcase(call.name, pattern) for call in calls):
            yield Violation("tool-missing", f"{pattern} was never called, but must be.")
    yield from _check_order(rules.order, calls)


def _check_order(order: Sequence[str], calls: Sequence[ToolCall]) -> Iterator[Violation]:
    """Report the first call of each tool that came before one that must precede it."""
    seen: set[str] = set()
    for call in calls:
        for at, pattern in enumerate(order):
            if not fnmatchcase(call.name, pattern) or pattern in seen:
                continue
            seen.add(pattern)
            early = [each for each in order[:at] if each not in seen]
            if early:
                name = formatting.single_line(call.name, 60)
                yield Violation("tool-order", f"{name} was called before {early[0]}.", call.span_id)


def _check_names(noun: str, rules: Names, found: Mapping[str, str]) -> Iterator[Violation]:
    for name, span_id in found.items():
        shown = formatting.single_line(name, 80)
        pattern = next((each for each in rules.deny if fnmatchcase(name, each)), None)
        if pattern is not None:
            yield Violation(f"{noun}-denied", f"{noun} {shown} is denied ({pattern}).", span_id)
        elif rules.allow and not any(fnmatchcase(name, each) for each in rules.allow):
            yield Violation(f"{noun}-not-allowed", f"{noun} {shown} is not allowed.", span_id)


def _check_arguments(rule: ArgumentRule, calls: Sequence[ToolCall]) -> Iterator[Violation]:
    for call in calls:
        if fnmatchcase(call.name, rule.tool):
            value = _find_value(call.arguments, rule.path)
            problem = _find_problem(rule, value)
            if problem:
                shown = formatting.single_line(f"{call.name}: {rule.path} {problem}", 200)
                yield Violation("argument", f"{shown}.", call.span_id)


def _find_value(arguments: Any, path: str) -> Any:
    value = arguments
    for key in path.split("."):
        if isinstance(value, dict):
            value = value.get(key, _MISSING)
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return _MISSING
    return value


def _find_problem(rule: ArgumentRule, value: Any) -> str:
    if value is _MISSING:
        return "is missing" if rule.required else ""
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    if rule.min is not None and (number is None or number < rule.min):
        return f"is {value!r} (expected at least {rule.min:g})"
    if rule.max is not None and (number is None or number > rule.max):
        return f"is {value!r} (expected at most {rule.max:g})"
    if rule.one_of is not None and value not in rule.one_of:
        return f"is {value!r} (expected one of {rule.one_of!r})"
    if rule.matches is not None and not re.fullmatch(rule.matches, str(value)[:TEXT_MAX]):
        return f"is {value!r} (expected a match of {rule.matches!r})"
    return ""


def _check_limits(policy: Policy, activity: Activity) -> Iterator[Violation]:
    limits = policy.limits
    for name, limit, used in (
        ("model_calls", limits.model_calls, activity.model_calls),
        ("tool_calls", limits.tool_calls, len(activity.tool_calls)),
        ("tokens", limits.tokens, activity.tokens),
        ("cost_usd", limits.cost_usd, activity.cost_usd),
        ("duration_s", limits.duration_s, activity.duration_s),
    ):
        if limit is not None and used is not None and used > limit:
            rule = f"limit-{name.replace('_', '-')}"
            yield Violation(rule, f"{name} is {used:g} (expected at most {limit:g}).")
