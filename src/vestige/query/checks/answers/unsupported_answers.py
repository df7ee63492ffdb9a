"""Answers that nothing supports: no tool ran, or data was made up after a tool failed.

answer/no-evidence    the agent has tools, and none returned anything; the values of its answer
                      occur nowhere before it. A chat answer counts if it claims a lookup
answer/refused        the agent refused the task without using a tool
answer/made-up        the text says that data is simulated, assumed or a placeholder, where no
                      tool had returned data, or after one failed
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from vestige.query import formatting
from vestige.query.checks import check, make_finding
from vestige.query.checks.answer_effects import (
    Action,
    actions_by_agent,
    get_input,
    get_observation,
)
from vestige.query.checks.available_tools import find_tool_names
from vestige.query.evidence import Evidence
from vestige.record.finding import Finding
from vestige.record.run import SpanInfo

FINDINGS_MAX = 3
EVIDENCE_MAX = 6
STEM_LENGTH = 5
"""Letters that "assume", "assumed" and "assuming" have in common."""

_CLAIM = re.compile(
    r"\b(?:I|we|I've|we've)\b(?: have| had| now)?[^.\n]{0,30}?\b(?:verified|confirmed|checked"
    r"|searched"
    r"|looked up|reviewed|consulted|examined|retrieved|extracted|obtained|gathered|found)\b"
    r"|\b(?i:according to) (?:the|our|official|published|reliable|my|[A-Z]\w+)\b"
    r"|\bfrom (?:Wikipedia|the (?:document|website|article|paper|report|file|page))\b"
    r"|\bthe (?:document|website|article|paper|page) (?:says|states|lists|shows)\b"
    r"|\bbased on (?:the|our|my|an?|publicly|available|reliable|published|extensive|official)\b"
    r"[^.\n]{0,60}\b(?:search|records?|data|sources?|findings?|figures?|reports?|reviews?|results?"
    r"|information|articles?|pages?|investigation|analysis|research)\b"
    r"|\b(?:search|records?|sources?|reports?|data) (?:shows?|indicates?|confirms?|reveals?)\b"
    r"|\b(?:my|our) (?:re)?search(?: \([^)\n]*\))? (?:yielded|found|returned|showed|confirmed)\b",
    re.IGNORECASE,
)
_MEMORY = re.compile(
    r"\bfrom (?:the )?literature\b|\bfrom memory\b|\b(?:internal|general|my|prior"
    r"|common) knowledge\b"
    r"|\bI know (?:from|that)\b|\bwell[- ]known (?:fact|value|result)\b|\bas is (?:well )?known\b",
    re.IGNORECASE,
)
_REFUSAL = re.compile(
    r"\bI(?:'m| am) (?:sorry|unable)\b[^.\n]{0,60}\b(?:can(?:'t|not)|unable|not able)\b"
    r"|\bI (?:can(?:'t|not)|must decline to|won't) (?:help|assist|provide|comply|do that|answer)\b",
    re.IGNORECASE,
)
_MADE_UP = re.compile(
    r"\b(?:simulat(?:e|es|ed|ing)|hypothetical(?:ly)?|placeholders?(?! text)"
    r"|fabricat(?:e|ed|ing)|pretend|made[- ]up(?!(?: \w+ly)? (?:of|by|from))|dummy|mock(?:ed|ing)?"
    r"|plausible|for (?:demonstration|illustration)"
    r"|for the sake of (?:argument|example|this)|let'?s (?:say|assume|suppose)|I(?:'ll| will"
    r"| must)? "
    r"assume|we(?:'ll| will| can)? assume|assum(?:e|ed|ing) (?:the |that |a |verified "
    r"|typical |some )"
    r"|educated guess|best guess|rough(?:ly)? estimate)\b",
    re.IGNORECASE,
)
_REPLACED = re.compile(
    r"[^.\n]{0,60}\b(?:content|contents|results?|data|files?|pages?|response|answer|output|search"
    r"|extraction|retriev\w+|document|information|reading|call)\b",
    re.IGNORECASE,
)
"""Data that a tool should have returned."""
_SIMULATION = re.compile(r"simulat", re.IGNORECASE)
_SUPPOSITION = re.compile(r"simulat|assum|let'?s|for the sake|hypothetical", re.IGNORECASE)
"""Words of computations, proofs and puzzles, too."""
_WORD = re.compile(r"\d[\d.,:/-]*\d|\d|[^\W\d_]{3,}")
_NUMBER = re.compile(r"\d[\d.,:/-]*\d")
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][\w-]{2,}")
_COMMON = frozenset(
    ("the", "and", "for", "not", "are", "was", "has", "have", "with", "this", "that", "from")
)
"""Words of a literal that are not facts."""
_SENTENCE_END = re.compile(r"[.!?:]\s+|\n")
_FINAL_CALL = re.compile(r"(?:final_answer|submit|finish)\s*\((.*)\)", re.DOTALL)


@check(
    "unsupported-answer",
    title="Answer without evidence",
    looks_at="final answers of agents that have tools: whether a tool or code returned anything "
    "before, and whether the text claims a lookup, or says that data is assumed or simulated",
    severity="warning",
    confidence=0.7,
    false_positives="a question that needs no data; an agent whose job is to simulate",
    version=5,
)
def unsupported_answer(evidence: Evidence) -> Iterator[Finding]:
    yield from islice(_find_unsupported(evidence), FINDINGS_MAX)


def _find_unsupported(evidence: Evidence) -> Iterator[Finding]:
    names = find_tool_names(evidence)
    for actions in actions_by_agent(evidence):
        has_evidence = False
        failed: Action | None = None
        for index, action in enumerate(actions):
            if index == 0 and _is_task(evidence, actions):
                continue
            if action.code or action.is_final or "message_index" in action.call.attributes:
                made_up = _find_made_up(evidence, action, after_failure=failed is not None)
                if failed is not None and "message_index" in action.call.attributes:
                    break  # in a log of messages, the failed action before it is reported
                if made_up and (failed is not None or (not has_evidence and names)):
                    yield _made_up_finding(evidence, action, made_up, failed)
                    break
            if _is_answer(actions, index) and names and not has_evidence:
                found = _refusal_finding(evidence, action)
                found = found or _no_evidence_finding(evidence, actions, index)
                if found is not None:
                    yield found
                    break
            failed = action if failed is None and action.failure is not None else failed
            has_evidence = has_evidence or _returned_data(evidence, actions, index)


def _is_answer(actions: Sequence[Action], index: int) -> bool:
    """Return whether an action ends the work of its agent."""
    action = actions[index]
    if action.is_final:
        return True
    is_last = index + 1 == len(actions)
    return is_last and not action.tool_names and not action.code and bool(action.text.strip())


def _returned_data(evidence: Evidence, actions: Sequence[Action], index: int) -> bool:
    """Return whether something came back that the action did not contain itself."""
    action = actions[index]
    if any(tool.status in ("ok", None) and _was_executed(tool) for tool in action.working_tools):
        return True
    if not (action.code or action.tool_names):
        return False
    known = f"{action.text}\n{get_input(evidence, action.call)}".lower()
    words = set(_WORD.findall(get_observation(evidence, actions, index).lower())) - _COMMON
    new = [word for word in words if word not in known]
    return len(new) > max(3, 0.2 * len(words))


def _was_executed(tool: SpanInfo) -> bool:
    """Return False for a message of an executor that had nothing to execute."""
    return tool.input is not None or "message_index" not in tool.attributes


def _find_made_up(evidence: Evidence, action: Action, *, after_failure: bool) -> str:
    """Return the words that say that data is made up, if the task does not contain them.

    A simulation may compute a process, and an assumption may be part of a proof or a puzzle: they
    count if they replace what a tool returns. After a failure, any assumption counts.
    """
    ambiguous = _SIMULATION if after_failure else _SUPPOSITION
    match = next(
        (
            found
            for found in _MADE_UP.finditer(action.text)
            if not ambiguous.search(found[0]) or _REPLACED.match(action.text, found.end())
        ),
        None,
    )
    if match is None:
        return ""
    stem = match[0].split()[0][:STEM_LENGTH].lower()
    if stem == "assum" and action.working_tools:
        return ""  # about what the tool returns, not instead of it
    task = get_input(evidence, action.call, with_system=False)
    return "" if stem in task.lower() else match[0]


def _is_task(evidence: Evidence, actions: Sequence[Action]) -> bool:
    """Return whether a group chat starts with the task as the message of an agent."""
    first = actions[0].call
    return first.attributes.get("message_index") == 0 and len(actions) > 1


def _made_up_finding(
    evidence: Evidence, action: Action, words: str, failed: Action | None
) -> Finding:
    reason = "after a tool or action failed" if failed else "and no tool had returned any"
    return make_finding(
        evidence,
        "unsupported-answer",
        kind="answer/made-up",
        basis="hypothesis",
        confidence=0.75,
        cause=action.call.id,
        evidence=[action.call.id, *([failed.call.id] if failed else [])],
        message=f'The model made up data ("{formatting.single_line(words, 40)}") {reason}: '
        f"{_excerpt(action.text, words)}",
        command=f"vestige body {action.call.short_id} --out --text",
    )


def _no_evidence_finding(
    evidence: Evidence, actions: Sequence[Action], index: int
) -> Finding | None:
    action = actions[index]
    claim = _CLAIM.search(action.text) or _MEMORY.search(action.text)
    if claim is None and not action.is_final:
        return None
    values = _find_new_values(evidence, actions, index)
    if not values:
        return None
    shown = ", ".join(values[:3])
    begin = "the model answered from memory"
    if claim is not None:
        begin = f'the text says "{formatting.single_line(claim[0], 60)}"'
    return make_finding(
        evidence,
        "unsupported-answer",
        kind="answer/no-evidence",
        basis="hypothesis",
        confidence=0.75,
        cause=action.call.id,
        evidence=[action.call.id],
        message=f"Answer without evidence: {begin}, but no tool returned anything, and nothing "
        f"before it contains {shown}.",
        command=f"vestige body {action.call.short_id} --out --text",
    )


def _refusal_finding(evidence: Evidence, action: Action) -> Finding | None:
    refusal = _REFUSAL.search(action.text)
    if refusal is None:
        return None
    return make_finding(
        evidence,
        "unsupported-answer",
        kind="answer/refused",
        basis="hypothesis",
        confidence=0.7,
        cause=action.call.id,
        evidence=[action.call.id],
        message="The model refused the task without using a tool: "
        f"{_excerpt(action.text, refusal[0])}",
        command=f"vestige body {action.call.short_id} --out --text",
    )


def _find_new_values(evidence: Evidence, actions: Sequence[Action], index: int) -> list[str]:
    """Return the words and numbers of the answer that occur in no earlier text."""
    action = actions[index]
    final = _FINAL_CALL.search(action.code)
    text = action.text[-4000:]
    # Prose has many words that occur nowhere before. Only its numbers and names are facts.
    values = _WORD.findall(final[1]) if final is not None else _NAME.findall(text)
    if any(get_observation(evidence, actions, n) for n in range(index) if actions[n].tool_names):
        return []
    known = get_input(evidence, actions[0].call) + get_input(evidence, action.call)
    known = known.lower()
    values = (
        [*_NUMBER.findall(text), *values] if final is None else [*values, *_NUMBER.findall(text)]
    )
    new = [value for value in dict.fromkeys(values) if value.lower() not in known]
    return [value for value in new if value.lower() not in _COMMON][:20]


def _excerpt(text: str, words: str) -> str:
    at = text.find(words)
    before = text[max(0, at - 60) : at]
    ends = [found.end() for found in _SENTENCE_END.finditer(before)]
    before = before[ends[-1] :] if ends else before
    return f'"{formatting.single_line((before + text[at : at + 120]).strip(), 180)}"'
