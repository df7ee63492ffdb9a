"""Tool calls: who asked for them, whether they were on offer, whether they ran, and how often.

A failing tool is a symptom; the model call whose output asked for it is the better place to
look. Calls and executions are matched by `tool_call_id`, which a tool span should carry.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from vestige.query import formatting
from vestige.query.checks import check, make_finding
from vestige.query.checks.process.infrastructure import could_not_start
from vestige.query.checks.requested_calls import (
    Askers,
    ModelCall,
    RequestedCall,
    as_json,
    asked_calls,
    call_id_of,
    latest_texts,
    model_calls,
    tool_name_of,
)
from vestige.query.checks.tools.argument_schema import find_problem
from vestige.query.checks.wording import format_error, format_outcome, named
from vestige.query.evidence import Evidence
from vestige.record.finding import Finding
from vestige.record.run import SpanInfo

FINDINGS_MAX = 5
EVIDENCE_MAX = 10
ARGUMENTS_SHOWN = 100
ID_MIN = 5
"""Letters of a call's id that say something where they stand in a text."""

FAILED = frozenset(["error", "timeout"])


# --- who asked ----------------------------------------------------------------------------------


@check(
    "producer-blame",
    title="The model call that asked for what failed",
    looks_at="failed tool spans, and the llm span whose output holds their tool_call_id",
    severity="warning",
    confidence=0.7,
    false_positives="a tool that is broken, whatever it is asked for",
    version=2,
)
def producer_blame(evidence: Evidence) -> Iterator[Finding]:
    askers = Askers(evidence)
    by_producer: dict[tuple[str, str], list[tuple[RequestedCall, bool, SpanInfo]]] = {}
    for span in evidence.of_type("tool"):
        if span.status not in FAILED or could_not_start(evidence, span):
            continue
        found = askers.find(span)
        if found is not None:
            key = (span.name, str(span.attributes.get("error.message")))
            by_producer.setdefault(key, []).append((*found, span))
    for failures in list(by_producer.values())[:FINDINGS_MAX]:
        asked, sure, span = failures[0]
        again = f" ({len(failures)} times so)" if len(failures) > 1 else ""
        yield make_finding(
            evidence,
            "producer-blame",
            kind="producer-blame/by-id" if sure else "producer-blame/by-name",
            confidence=0.7 if sure else 0.5,
            basis="measured" if sure else "hypothesis",
            cause=asked.span.id,
            evidence=[asked.span.id, *(failed.id for _, _, failed in failures)][:EVIDENCE_MAX],
            message=f"{named(asked.span)} asked for {_say_call(asked)}, which failed with "
            f"{format_error(evidence, span)}{again}.",
        )


# --- executions against requests ------------------------------------------------------------------


@check(
    "orphan-call",
    title="The model asked for a tool that never ran",
    looks_at="tool calls in llm outputs without a tool span, or a result in a later request, in a run that is over",
    severity="warning",
    confidence=0.7,
    false_positives="a call that is the answer (structured output, hand-over), or waits for a person; "
    "an agent that tells calls and results as text, without their ids",
    version=4,
)
def orphan_call(evidence: Evidence) -> Iterator[Finding]:
    if evidence.run.info.outcome == "running":
        return
    ran = _Ran(evidence)
    orphans = [asked for asked in asked_calls(evidence) if not ran.take(asked)]
    if orphans:
        said = latest_texts(evidence)
        orphans = [asked for asked in orphans if not _is_told(asked, said)]
    what = "it never ran"
    if not evidence.of_type("tool"):  # the wire alone does not see a tool that hangs or raises
        what = "no result came back: it never ran, or did not return (this run records no tools)"
    for asked in orphans[:FINDINGS_MAX]:
        yield make_finding(
            evidence,
            "orphan-call",
            cause=asked.span.id,
            evidence=[asked.span.id],
            message=f"{named(asked.span)} asked for {_say_call(asked)}, and {what} "
            f"({formatting.pluralize(len(orphans), 'such call')}; the run ended {format_outcome(evidence)}).",
        )


def _is_told(asked: RequestedCall, texts: Sequence[str]) -> bool:
    """Some agents write calls and their results into the history as text: what came of one is said there."""
    call_id = asked.call.id or ""
    return len(call_id) >= ID_MIN and any(call_id in text for text in texts)


class _Ran:
    """What is known to have run: tool spans, and results in requests."""

    def __init__(self, evidence: Evidence) -> None:
        tools, calls = evidence.of_type("tool"), model_calls(evidence)
        wanted = {asked.call.id for asked in asked_calls(evidence)}
        self._ids = {call_id_of(span) for span in tools}
        self._nameless = Counter(tool_name_of(span) for span in tools if call_id_of(span) is None)
        # A program may give ids of its own to calls that came without one.
        self._renamed = Counter(tool_name_of(s) for s in tools if call_id_of(s) not in wanted)
        self._place = {model.span.id: place for place, model in enumerate(calls)}
        self._given = {key: place for place, model in enumerate(calls) for key in model.results}
        self._unread = max((place for place, model in enumerate(calls) if model.unread), default=-1)

    def take(self, asked: RequestedCall) -> bool:
        """Whether it ran, or nobody can know; an execution without an id counts for one call."""
        call_id, name = asked.call.id, asked.call.name
        if call_id is not None and (call_id in self._ids or call_id in self._given):
            return True
        unnamed = self._renamed if call_id is None else self._nameless
        if unnamed[name] > 0:
            unnamed[name] -= 1  # ran, and did not say for whom
            return True
        place = self._place[asked.span.id]
        return place < max(self._unread, self._given.get(name, -1))


@check(
    "duplicate-result",
    title="One tool call: executed twice, or its result delivered more than once",
    looks_at="tool_call_id of tool and queue.deliver spans, and the results in llm requests",
    severity="error",
    confidence=0.9,
    false_positives="a tool span inside another for the same call; ids that a provider uses again",
    version=2,
)
def duplicate_result(evidence: Evidence) -> Iterator[Finding]:
    executions = _by_call_id(evidence, "tool")
    yield from islice(_executed_twice(evidence, executions), FINDINGS_MAX)
    yield from islice(_in_request_twice(evidence, executions), FINDINGS_MAX)
    yield from islice(_delivered_twice(evidence, executions), FINDINGS_MAX)


def _delivered_twice(
    evidence: Evidence, executions: dict[str, list[SpanInfo]]
) -> Iterator[Finding]:
    for call_id, delivered in _by_call_id(evidence, "queue.deliver").items():
        ran = executions.get(call_id, [])
        if len(delivered) > max(1, len(ran)):
            yield make_finding(
                evidence,
                "duplicate-result",
                kind="duplicate-result/deliveries",
                cause=delivered[1].id,
                evidence=[span.id for span in (*delivered[1:], delivered[0], *ran)][:EVIDENCE_MAX],
                message=f"the result of tool call {formatting.single_line(call_id, 60)} was delivered "
                f"{len(delivered)} times; {_say_ran(ran)}.",
            )


def _executed_twice(evidence: Evidence, executions: dict[str, list[SpanInfo]]) -> Iterator[Finding]:
    askers = Askers(evidence)
    for call_id, spans in executions.items():
        ids = {span.id for span in spans}
        done = [s for s in spans if s.status == "ok" and s.parent_id not in ids]
        again = _most_alike(done)
        if len(done) > max(1, askers.count(call_id)) and len(again) > 1:
            yield make_finding(
                evidence,
                "duplicate-result",
                kind="duplicate-result/executions",
                cause=again[1].id,
                evidence=[span.id for span in again[:EVIDENCE_MAX]],
                message=f"{named(again[0])} ran {len(again)} times for one tool call "
                f"({formatting.single_line(call_id, 60)}).",
            )


def _most_alike(spans: list[SpanInfo]) -> list[SpanInfo]:
    """Those with the same tool and arguments: others are of another call, whose id is used anew."""
    alike: dict[object, list[SpanInfo]] = {}
    for span in spans:
        body = span.input.id if span.input is not None else None
        alike.setdefault((tool_name_of(span), body), []).append(span)
    return max(alike.values(), key=len, default=[])


def _in_request_twice(
    evidence: Evidence, executions: dict[str, list[SpanInfo]]
) -> Iterator[Finding]:
    told: set[str] = set()
    for model in model_calls(evidence):
        for call_id, count in model.results.items():
            if count <= max(1, model.asked_before[call_id]) or call_id in told:
                continue
            told.add(call_id)
            ran = executions.get(call_id) or _named(evidence, call_id)
            yield make_finding(
                evidence,
                "duplicate-result",
                kind="duplicate-result/deliveries",
                cause=model.span.id,
                evidence=[model.span.id, *(span.id for span in ran)][:EVIDENCE_MAX],
                message=f"the request of {named(model.span)} holds the result of tool call "
                f"{formatting.single_line(call_id, 60)} {count} times; {_say_ran(ran)}.",
            )


def _named(evidence: Evidence, name: str) -> list[SpanInfo]:
    return [span for span in evidence.of_type("tool") if tool_name_of(span) == name]


def _say_ran(ran: list[SpanInfo]) -> str:
    return (
        f"the tool ran {formatting.pluralize(len(ran), 'time')}"
        if ran
        else "no run of it is recorded"
    )


def _by_call_id(evidence: Evidence, type: str) -> dict[str, list[SpanInfo]]:
    found: dict[str, list[SpanInfo]] = {}
    for span in evidence.of_type(type):
        call_id = call_id_of(span)
        if call_id is not None:
            found.setdefault(call_id, []).append(span)
    return found


# --- what was on offer ----------------------------------------------------------------------------


@check(
    "unknown-tool",
    title="The model asked for a tool that its request does not offer",
    looks_at="tool calls in llm outputs against the tools in the same request",
    severity="error",
    confidence=0.95,
    false_positives="a proxy that renames tools between the recorded request and the provider",
    version=2,
)
def unknown_tool(evidence: Evidence) -> Iterator[Finding]:
    found = 0
    for model in model_calls(evidence):
        if not model.tools or model.response is None:
            continue
        for call in model.response.calls:
            if call.name in model.tools or found >= FINDINGS_MAX:
                continue
            found += 1
            offered = ", ".join(formatting.single_line(name, 30) for name in list(model.tools)[:6])
            yield make_finding(
                evidence,
                "unknown-tool",
                cause=model.span.id,
                evidence=[model.span.id],
                message=f"{named(model.span)} asked for {formatting.single_line(call.name, 60)}, which is "
                f"none of the {len(model.tools)} tools of its request ({offered}).",
            )


@check(
    "bad-arguments",
    title="Arguments that do not fit the tool's own schema",
    looks_at="arguments of tool calls in llm outputs against the JSON Schema in the same request",
    severity="error",
    confidence=0.9,
    false_positives="a program that repairs or completes arguments before it runs the tool",
    version=2,
)
def bad_arguments(evidence: Evidence) -> Iterator[Finding]:
    found = 0
    for model in model_calls(evidence):
        for call in model.response.calls if model.response is not None else ():
            schema = model.tools.get(call.name)
            if schema is None or schema.parameters is None or found >= FINDINGS_MAX:
                continue  # a tool without a schema may take free text
            problem = _problem_of(call.arguments, schema.parameters)
            if problem is None:
                continue
            found += 1
            ran = [s for s in evidence.of_type("tool") if call.id and call_id_of(s) == call.id]
            yield make_finding(
                evidence,
                "bad-arguments",
                cause=model.span.id,
                evidence=[model.span.id, *(span.id for span in ran)][:EVIDENCE_MAX],
                message=f"{named(model.span)} asked for {_say_call(RequestedCall(model.span, call))}: "
                f"{formatting.single_line(problem, 160)}.",
            )


def _problem_of(arguments: str, schema: object) -> str | None:
    value = as_json(arguments.strip() or "{}")
    if value is None and arguments.strip() != "null":
        return "the arguments are no JSON"
    return find_problem(schema, value)


# --- what the model said ----------------------------------------------------------------------------

_MARKUP = r"""<tool_call>|<\|tool_call|\[TOOL_CALLS\]|<function=|<function_call|<invoke\s|<tool_use>|<\|python_tag\|>|\bto=functions\.|```tool_code"""
_NAMED_IN_JSON = r"""["'](?:name|tool|tool_name|function|recipient_name|action)["']\s*:\s*["'](?:functions\.)?{name}["']"""
_ARGUMENTS = r"""["'](?:arguments|parameters|input|args|action_input|tool_input)["']\s*:"""


@check(
    "call-as-text",
    title="A tool call came as text, so nothing ran",
    looks_at="llm outputs without a tool call whose text holds a JSON or XML call of a tool on offer",
    severity="error",
    confidence=0.85,
    false_positives="an answer that explains how a tool is called; a program that reads calls from text",
    version=2,
)
def call_as_text(evidence: Evidence) -> Iterator[Finding]:
    found = 0
    ran = {tool_name_of(span) for span in evidence.of_type("tool")}
    for model in model_calls(evidence):
        if model.response is None or model.response.calls or found >= FINDINGS_MAX:
            continue
        name = _call_in(model.response.text, list(model.tools))
        if name is None:
            continue
        found += 1
        # Did the program read it from the text after all? Then a tool of this name ran.
        yield make_finding(
            evidence,
            "call-as-text",
            severity="hint" if name in ran else "error",
            confidence=0.4 if name in ran else 0.85,
            cause=model.span.id,
            evidence=[model.span.id],
            message=f"{named(model.span)} wrote a call of {formatting.single_line(name, 60)} into its text "
            "and made no tool call: " + f'"{formatting.single_line(model.response.text, 120)}".',
        )


def _call_in(text: str, names: list[str]) -> str | None:
    if not names or not ("{" in text or "<" in text or "```" in text):
        return None
    text = text[:100_000]
    for name in names:
        escaped = re.escape(name)
        if name not in text:
            continue
        if re.search(_NAMED_IN_JSON.replace("{name}", escaped), text) and re.search(
            _ARGUMENTS, text
        ):
            return name
        if re.search(f"(?:{_MARKUP}).{{0,200}}?{escaped}", text, re.DOTALL):
            return name
        if re.search(rf"<{escaped}>\s*<\w+>.{{0,2000}}?</{escaped}>", text, re.DOTALL):
            return name
    return None


_ASKS_FOR_DATA = re.compile(
    r"\b(?:look up|find|fetch|search|get me|list|show me|check|how many|how much|what is the|what's the"
    r"|latest|current|today|now|status of|read|query|weather|price)\b",
    re.IGNORECASE,
)


@check(
    "answer-without-tool",
    title="An answer without any tool, although there were tools and data was asked for",
    looks_at="runs that offered tools, ended with an answer, and called none",
    severity="hint",
    confidence=0.3,
    false_positives="a question that the model could answer by itself; words that only sound like a question for data",
)
def answer_without_tool(evidence: Evidence) -> Iterator[Finding]:
    calls = model_calls(evidence)
    if evidence.of_type("tool") or any(m.response and m.response.calls for m in calls):
        return
    answers = [m for m in calls if m.tools and m.is_answer and not m.results]
    if answers and _ASKS_FOR_DATA.search(answers[-1].user_text):
        last = answers[-1]
        yield make_finding(
            evidence,
            "answer-without-tool",
            basis="hypothesis",
            cause=last.span.id,
            evidence=[last.span.id],
            message=f"{named(last.span)} answered without any of its {len(last.tools)} tools; "
            f'the user said: "{formatting.single_line(last.user_text, 100)}".',
        )


@check(
    "steps-after-answer",
    title="Tools ran after the final answer",
    looks_at="tool spans after an llm output that ended the turn, which no later llm call asked for",
    severity="hint",
    confidence=0.4,
    false_positives="housekeeping that a program does with a tool after the answer",
    version=2,
)
def steps_after_answer(evidence: Evidence) -> Iterator[Finding]:
    by_span = {model.span.id: model for model in model_calls(evidence)}
    askers = Askers(evidence)
    final: ModelCall | None = None
    after: list[SpanInfo] = []
    for span in evidence.of_type("llm", "tool"):
        model = by_span.get(span.id)
        if model is not None:
            final = model if model.is_answer else None
            after = []
        elif span.type == "tool" and final is not None:
            if not _is_later(final.span, span) or askers.find(span) is not None:
                continue  # a part of the answer, or asked for
            after.append(span)
    if final is not None and after:
        yield make_finding(
            evidence,
            "steps-after-answer",
            basis="hypothesis",
            cause=after[0].id,
            evidence=[final.span.id, *(span.id for span in after)][:EVIDENCE_MAX],
            message=f"{formatting.pluralize(len(after), 'tool call')} after the final answer of "
            f"{named(final.span)}, the first {formatting.single_line(after[0].name, 60)}; no model asked for it.",
        )


def _is_later(answer: SpanInfo, tool: SpanInfo) -> bool:
    """After its end, and no part of it."""
    ended = answer.started_ns + (answer.duration_ns or 0)
    return tool.started_ns >= ended and tool.parent_id != answer.id


def _say_call(asked: RequestedCall) -> str:
    arguments = formatting.single_line(asked.call.arguments, ARGUMENTS_SHOWN)
    return f"{formatting.single_line(asked.call.name, 60)}({arguments})"
