"""A provider that answers the refund agent of docs/guides/fix.md by what a request contains."""

from __future__ import annotations

import json

from support.provider_answers import chat, chat_call
from support.provider_server import Reply, Seen


def answer(seen: Seen) -> Reply:
    """Look up the order, refund it, and report. A careful prompt refunds what was paid."""
    messages = json.loads(seen.body)["messages"]
    last = messages[-1]
    if last["role"] == "user":
        return _call("call_1", "look_up", {"order": "A-17"})
    result = json.loads(last["content"])
    if last["tool_call_id"] == "call_1":
        is_careful = "Never refund more" in messages[0]["content"]
        amount = result["paid"] if is_careful else 499
        return _call("call_2", "refund", {"order": "A-17", "amount": amount})
    is_done = result.startswith("refunded")
    return chat(f"Done: {result}" if is_done else "I could not refund it.", model="gpt-4o")


def _call(call_id: str, name: str, arguments: object) -> Reply:
    return chat(model="gpt-4o", calls=[chat_call(call_id, name, json.dumps(arguments))])
