"""Pair the tool calls of a history with their results, and find results in the wrong position.

Each call has one result after it. Chat completions and Messages also require that the results
come directly after the call, before any other message.
"""

from __future__ import annotations

from vestige.providers.chat_types import Message
from vestige.providers.json_access import quote

PROBLEMS_MAX = 100
"""Problems of one request. The rest of a history that is wrong everywhere is left out."""

Turn = tuple[str, Message]
"""The path of a message (`messages[3]`), and the message."""


def find_pairing_problems(turns: list[Turn], *, adjacent: bool) -> list[str]:
    """Calls without results, results without calls, and both in the wrong place. By id."""
    called: dict[str, str] = {}
    answered: dict[str, str] = {}
    open_now: set[str] = set()
    problems: list[str] = []
    later = {call.id for _, message in turns for call in message.calls}
    for path, message in turns:
        for result in message.results:
            call_id = result.call_id
            if call_id is None:
                problems.append(f"{path}: a tool result does not say which call it answers")
            elif call_id in answered:
                problems.append(
                    f"{path}: a second result for call {quote(call_id)} (first in "
                    f"{answered[call_id]})"
                )
            elif call_id not in called:
                what = "comes before its call" if call_id in later else "has no call"
                problems.append(f"{path}: the result for {quote(call_id)} {what}")
            else:
                answered[call_id] = path
                if adjacent and call_id not in open_now:
                    problems.append(
                        f"{path}: the result for {quote(call_id)} does not directly follow its call"
                        f" in {called[call_id]}"
                    )
        if message.calls or message.text or not message.results:
            open_now = set()
        for call in message.calls:
            if call.id is None:
                problems.append(f"{path}: the call of {quote(call.name)} has no id")
            elif call.id in called:
                problems.append(
                    f"{path}: call id {quote(call.id)} is used twice (first in {called[call.id]})"
                )
            else:
                called[call.id] = path
                open_now.add(call.id)
    problems += [
        f"{path}: tool call {quote(call.id)} ({quote(call.name)}) has no result"
        for path, message in turns
        for call in message.calls
        if call.id is not None and call.id not in answered
    ]
    return list(dict.fromkeys(problems))


def find_turn_problems(turns: list[Turn]) -> list[str]:
    """Check Gemini's rule: the turn after calls has one result for each, and nothing else."""
    problems: list[str] = []
    before: Turn | None = None
    for path, message in turns:
        called = sorted(call.name for call in before[1].calls) if before else []
        answers = sorted(result.call_id or "" for result in message.results)
        if called and not answers and before:
            problems.append(
                f"{before[0]}: tool call {quote(called[0])} has no result in the next turn"
            )
        elif answers and not called:
            problems.append(
                f"{path}: the result of {quote(answers[0])} does not directly follow a call"
            )
        elif len(called) != len(answers):
            problems.append(f"{path}: {len(answers)} tool results for {len(called)} calls")
        elif before and answers and not _same_calls(before[1], message):
            problems.append(
                f"{path}: the results {quote(answers)} are not those of the calls {quote(called)}"
            )
        if message.calls and before and before[1].role == "assistant":
            problems.append(f"{path}: a tool call must follow a user turn or a tool result")
        before = (path, message)
    if before and before[1].calls:
        name = before[1].calls[0].name
        problems.append(f"{before[0]}: tool call {quote(name)} has no result in the next turn")
    return problems


def _same_calls(called: Message, answers: Message) -> bool:
    """Return whether results match calls, by id or else by name: Gemini's results have names."""
    keys = {call.id or call.name for call in called.calls} | {call.name for call in called.calls}
    return all(result.call_id in keys for result in answers.results)
