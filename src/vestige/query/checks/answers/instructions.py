"""Instructions of a prompt that can be checked: a tag that must be written, a limit of length.

    write the '<end_plan>' tag       the answer has to contain it
    at most 100 words                the answer may not be longer
    500 characters at a time         code may not print more

A tag that is a stop sequence of the request is never part of an answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from vestige.query import formatting
from vestige.query.checks import check, make_finding
from vestige.query.checks.answer_effects import Action, actions_by_agent, get_observation
from vestige.query.evidence import Evidence
from vestige.record.finding import Finding

FINDINGS_MAX = 3
EVIDENCE_MAX = 20
INSTRUCTION_MAX = 40_000
"""Characters of a prompt that are searched: its end, where instructions for this call are."""

_TAG = re.compile(
    r"\b(?:write|end (?:it |your \w+ )?with|append|add|include|finish with|conclude with|close with"
    r"|must (?:end with|contain|include)|wrap\w* (?:\w+ ){0,4}in)\b[^.\n]{0,40}?[`'\"](?:\\n)?"
    r"(</?[A-Za-z][\w-]{2,30}>)[`'\"]",
    re.IGNORECASE,
)
_PRINT_LIMIT = re.compile(
    r"\b(\d[\d,]{1,6}) (?:characters|chars)\b[^.\n]{0,20}\b(?:at a time|at once|at most)",
    re.IGNORECASE,
)
_ANSWER_LIMIT = re.compile(
    r"\b(?:answer|reply|respond|response|summary|summari[sz]e)\b[^.\n]{0,60}?\b(?:at most"
    r"|no more than"
    r"|maximum(?: of)?|up to|under|fewer than|less than|within"
    r"|not exceed(?:ing)?)\s+(\d[\d,]{0,5}) "
    r"(words|characters|sentences)\b",
    re.IGNORECASE,
)
_SLACK = 1.25
"""A text may be a little longer than its limit: tokenisation and markup are counted differently."""


@dataclass(frozen=True, slots=True)
class _Broken:
    """A broken instruction."""

    key: str
    message: str


@check(
    "broken-instruction",
    title="Instruction of the prompt not followed",
    looks_at="instructions of requests that name a required tag or a limit of length, and the "
    "output of the same call",
    severity="warning",
    confidence=0.6,
    false_positives="an instruction for another call; a tag that the client removes, or a stop "
    "sequence that was not recorded",
)
def broken_instruction(evidence: Evidence) -> Iterator[Finding]:
    found: dict[str, list[tuple[Action, _Broken]]] = {}
    for actions in actions_by_agent(evidence):
        for index, action in enumerate(actions):
            for broken in _find_broken(evidence, actions, index):
                found.setdefault(broken.key, []).append((action, broken))
    for cases in islice(found.values(), FINDINGS_MAX):
        action, broken = cases[0]
        count = f" ({len(cases)} calls)" if len(cases) > 1 else ""
        yield make_finding(
            evidence,
            "broken-instruction",
            kind=f"instruction/{broken.key.partition(' ')[0]}",
            cause=action.call.id,
            evidence=[each.call.id for each, _ in cases][:EVIDENCE_MAX],
            message=f"{broken.message}{count}.",
            command=f"vestige body {action.call.short_id} --out --text",
        )


def _find_broken(evidence: Evidence, actions: Sequence[Action], index: int) -> Iterator[_Broken]:
    action = actions[index]
    request = evidence.request(action.call)
    if request is None or not action.text:
        return
    texts = [m.text for m in request.messages if m.role in ("system", "user") and m.text]
    last = texts[-1][-INSTRUCTION_MAX:] if texts else ""
    if len(texts) <= 2:  # instructions of a long conversation are for its first calls, too
        yield from _find_missing_tags(evidence, action, last)
    everything = "\n".join(text[-INSTRUCTION_MAX:] for text in texts[:3])
    yield from _find_long_print(evidence, actions, index, everything)
    yield from _find_long_answer(action, last)


def _find_missing_tags(evidence: Evidence, action: Action, prompt: str) -> Iterator[_Broken]:
    stops = str(evidence.input(action.call) or "") if "stop" in prompt else ""
    for tag in dict.fromkeys(_TAG.findall(prompt)):
        bare = tag.strip("<>/")
        if bare in action.text or _is_stop(stops, tag):
            continue
        yield _Broken(
            f"missing-tag {tag}",
            f"The prompt requires {formatting.single_line(tag, 40)}, and the answer does not have "
            "it",
        )


def _is_stop(request: str, tag: str) -> bool:
    return re.search(rf'"stop\w*"\s*:\s*(?:\[[^\]]*)?"[^"]*{re.escape(tag)}', request) is not None


def _find_long_print(
    evidence: Evidence, actions: Sequence[Action], index: int, prompt: str
) -> Iterator[_Broken]:
    limits = [int(text.replace(",", "")) for text in _PRINT_LIMIT.findall(prompt)]
    if not limits or not actions[index].code:
        return
    size = len(get_observation(evidence, actions, index))
    if size > 2 * _SLACK * min(limits):
        yield _Broken(
            "limit print",
            f"The prompt allows {min(limits):,} characters at a time, and the action printed "
            f"{size:,}",
        )


def _find_long_answer(action: Action, prompt: str) -> Iterator[_Broken]:
    for number, unit in _ANSWER_LIMIT.findall(prompt):
        limit = int(number.replace(",", ""))
        size = _count(action.text, unit.lower())
        if action.code or action.tool_names or size <= _SLACK * limit + 5:
            continue
        yield _Broken(
            f"limit {unit.lower()}",
            f"The prompt allows {limit:,} {unit.lower()}, and the answer has {size:,}",
        )


def _count(text: str, unit: str) -> int:
    if unit == "words":
        return len(text.split())
    if unit == "sentences":
        return len(re.findall(r"[.!?](?:\s|$)", text))
    return len(text)
