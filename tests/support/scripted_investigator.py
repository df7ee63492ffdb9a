"""A model on loopback that investigates by a script, in both API shapes, and counts tokens.

    model = ScriptedInvestigator("openai", [[query("check", id="r3")], [report(claim(...))]])
    with Server(model) as server: ...       # --model server.url + "/v1/scripted"
    model.tokens                            # of all requests and answers, as a provider counts

A step is a list of calls, a text, a whole reply, or a function of the request's text that returns
one of these.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from support.provider_server import Reply, Seen

CHARACTERS_A_TOKEN = 3.0


@dataclass(frozen=True)
class Query:
    """A tool call of the model."""

    tool: str
    arguments: Any


Step = Sequence[Query] | str | Reply | Callable[[str], Any]


def query(tool: str, **arguments: Any) -> Query:
    return Query(tool, arguments)


def claim(span: str, quote: str, statement: str = "It is wrong.", verdict: str = "cause") -> Any:
    evidence = [{"span": span, "quote": quote}]
    return {"verdict": verdict, "statement": statement, "evidence": evidence}


def report(*claims: Any) -> list[Query]:
    return [query("report", claims=list(claims))]


class ScriptedInvestigator:
    """Answers by the script; after its end, with the last step."""

    def __init__(
        self,
        api: str,
        steps: Sequence[Step],
        *,
        characters_a_token: float = CHARACTERS_A_TOKEN,
        fills_answers: bool = False,
        with_usage: bool = True,
    ) -> None:
        self.api, self.steps = api, list(steps)
        self.requests: list[dict[str, Any]] = []
        self.tokens = 0
        self._characters = characters_a_token
        self._fills, self._with_usage = fills_answers, with_usage

    def __call__(self, seen: Seen) -> Reply:
        text = seen.body.decode()
        request = json.loads(text)
        self.requests.append(request)
        step = self.steps[min(len(self.requests), len(self.steps)) - 1]
        if callable(step):
            step = step(text)
        if isinstance(step, Reply):
            return step
        path = "/v1/messages" if self.api == "anthropic" else "/v1/chat/completions"
        assert seen.path == path
        limit = request.get("max_tokens") or request["max_completion_tokens"]
        output = limit if self._fills else min(limit, 60)
        read = round(len(text) / self._characters)
        self.tokens += read + output
        make = _anthropic if self.api == "anthropic" else _openai
        usage = (read, output) if self._with_usage else None
        answer = make(step, len(self.requests), usage)
        return Reply(body=json.dumps(answer).encode())

    @property
    def sent(self) -> str:
        """Everything that was sent to the model."""
        return json.dumps(self.requests, ensure_ascii=False)


def _openai(step: Sequence[Query] | str, number: int, usage: tuple[int, int] | None) -> Any:
    message: dict[str, Any] = {"role": "assistant", "content": step}
    if not isinstance(step, str):
        message["content"] = None
        message["tool_calls"] = [
            {
                "id": f"call_{number}_{place}",
                "type": "function",
                "function": {"name": each.tool, "arguments": _to_text(each.arguments)},
            }
            for place, each in enumerate(step)
        ]
    finish = "stop" if isinstance(step, str) else "tool_calls"
    answer: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
    }
    if usage is not None:
        counts = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
        answer["usage"] = {**counts, "total_tokens": sum(usage)}
    return answer


def _anthropic(step: Sequence[Query] | str, number: int, usage: tuple[int, int] | None) -> Any:
    if isinstance(step, str):
        content: list[Any] = [{"type": "text", "text": step}]
    else:
        content = [
            {
                "type": "tool_use",
                "id": f"toolu_{number}_{place}",
                "name": each.tool,
                "input": each.arguments,
            }
            for place, each in enumerate(step)
        ]
    answer: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": content,
        "stop_reason": "end_turn" if isinstance(step, str) else "tool_use",
    }
    if usage is not None:
        answer["usage"] = {"input_tokens": usage[0], "output_tokens": usage[1]}
    return answer


def _to_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)
