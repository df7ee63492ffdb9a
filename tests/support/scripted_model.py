"""A model that follows a script, in the protocols of four providers, and counts its tokens.

    model = ScriptedModel({"Fix calc.py": [Turn("I read it.", calls=[Call("Read", {...})]), ...]})
    with Server(model) as server: ...          # ANTHROPIC_BASE_URL=server.url
    model.answers                              # what each answer cost: the truth for readers

The prompt in a request selects the script, and the number of answers since then the turn. So
requests may come in any order, and a sub-agent has a script of its own.
"""

from __future__ import annotations

import gzip
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from support.provider_server import Reply, Seen

Object = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """A tool call; text as arguments is the input of a free-form tool."""

    tool: str
    arguments: Mapping[str, Any] | str


@dataclass(frozen=True)
class Turn:
    """One answer of the model, or an error of the provider."""

    text: str = ""
    thinking: str = ""
    calls: Sequence[Call] = ()
    error: int = 0

    def count_tokens(self) -> int:
        return 7 + len(self.text) // 4 + 11 * len(self.calls)


TITLE = Turn("A title")
"""The answer to a request without a script."""


@dataclass(frozen=True)
class Answer:
    """Tokens of one answer, as the provider counts them."""

    id: str
    model: str
    input: int
    """Without cached tokens."""
    output: int
    cache_read: int = 0
    cache_write: int = 0


class ScriptedModel:
    """Answers requests; pass it to `Server`."""

    def __init__(self, scripts: Mapping[str, Sequence[Turn]]) -> None:
        self._scripts = scripts
        self._numbers = itertools.count(1)
        self.answers: list[Answer] = []
        """Answers to requests of the agent, without titles and token counts."""

    def __call__(self, seen: Seen) -> Reply:
        path = seen.path.partition("?")[0]
        if seen.method == "GET":
            return _json({"object": "list", "data": [], "models": []})
        body: Object = json.loads(decompress(seen) or b"{}")
        if path.endswith("/count_tokens"):
            return _json({"input_tokens": 100})
        if path.endswith("/messages"):
            return self._anthropic(body)
        if path.endswith("/responses"):
            return self._responses(body)
        if path.endswith("/chat/completions"):
            return self._chat(body)
        if "enerateContent" in path:
            return self._gemini(body, path)
        return _json({})

    def _find_turn(self, messages: Iterable[tuple[str, str]], *, is_agent: bool) -> Turn:
        """Return the next turn. Messages are pairs of a role and a text."""
        script: Sequence[Turn] = ()
        count = 0
        for role, text in messages:
            if role == "assistant":
                count += 1
                continue
            found = next((prompt for prompt in self._scripts if prompt in text), None)
            if found is not None:
                script, count = self._scripts[found], 0
        if not is_agent or not script:
            return TITLE
        return script[min(count, len(script) - 1)]

    def _count(self, model: str, turn: Turn, *, writes: bool = False) -> Answer:
        number = next(self._numbers)
        output = turn.count_tokens()
        cache = {"cache_read": 1000 + number, "cache_write": 300 + number if writes else 0}
        answer = Answer(f"msg_{number:04}", model, 10 + number, output, **cache)
        self.answers.append(answer)
        return answer

    # --- Anthropic ------------------------------------------------------------------------------

    def _anthropic(self, body: Object) -> Reply:
        messages = [(each["role"], _text(each["content"])) for each in body["messages"]]
        # A summary is requested without tools, or with an instruction not to use them.
        is_summary = "create a detailed summary" in messages[-1][1]
        turn = self._find_turn(messages, is_agent=bool(body.get("tools")) or is_summary)
        if is_summary:
            turn = Turn("<summary>calc.py has add and subtract; the tests pass.</summary>")
        if turn.error:
            error = {"type": "invalid_request_error", "message": "The request is not valid."}
            return _json({"type": "error", "error": error}, turn.error)
        answer = self._count(body["model"], turn, writes=True)
        blocks: list[Object] = []
        if turn.thinking:
            blocks.append({"type": "thinking", "thinking": turn.thinking, "signature": "c2ln"})
        if turn.text:
            blocks.append({"type": "text", "text": turn.text})
        for place, call in enumerate(turn.calls):
            call_id = f"toolu_{answer.id[4:]}_{place}"
            block = {"type": "tool_use", "id": call_id, "name": call.tool}
            blocks.append({**block, "input": call.arguments})
        usage = {
            "input_tokens": answer.input,
            "cache_creation_input_tokens": answer.cache_write,
            "cache_read_input_tokens": answer.cache_read,
            "output_tokens": 1,
        }
        reason = "tool_use" if turn.calls else "end_turn"
        message = {
            "id": answer.id,
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": blocks,
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": {**usage, "output_tokens": answer.output},
        }
        if not body.get("stream"):
            return _json(message)
        started = {**message, "content": [], "stop_reason": None, "usage": usage}
        events: list[Object] = [{"type": "message_start", "message": started}]
        for index, block in enumerate(blocks):
            events += _anthropic_block(index, block)
        delta = {"stop_reason": reason, "stop_sequence": None}
        usage = {"output_tokens": answer.output}
        events.append({"type": "message_delta", "delta": delta, "usage": usage})
        events.append({"type": "message_stop"})
        return _stream([(event["type"], event) for event in events])

    # --- OpenAI ---------------------------------------------------------------------------------

    def _responses(self, body: Object) -> Reply:
        items = body.get("input")
        items = items if isinstance(items, list) else []
        names = json.dumps(body.get("tools") or [])
        turn = self._find_turn(_response_messages(items), is_agent="exec_command" in names)
        if turn.error:
            return _json({"error": {"message": "The request is not valid."}}, turn.error)
        answer = self._count(body["model"], turn)
        output: list[Object] = []
        if turn.thinking:
            summary = [{"type": "summary_text", "text": turn.thinking}]
            output.append({"type": "reasoning", "id": f"rs_{answer.id}", "summary": summary})
        if turn.text:
            content = [{"type": "output_text", "text": turn.text, "annotations": []}]
            output.append(
                {"type": "message", "id": answer.id, "role": "assistant", "content": content}
            )
        for place, call in enumerate(turn.calls):
            found = {"id": f"fc_{answer.id}_{place}", "call_id": f"call_{answer.id[4:]}_{place}"}
            if isinstance(call.arguments, str):
                item = {"type": "custom_tool_call", "name": call.tool, "input": call.arguments}
            else:
                found_agent = re.findall(
                    r'agent_id[\\\\]*": ?[\\\\]*"([^"\\\\]+)', json.dumps(items)
                )
                arguments = json.dumps(call.arguments)
                if found_agent:  # of the latest sub-agent that was started
                    arguments = arguments.replace("$AGENT", found_agent[-1])
                namespace, _, name = call.tool.rpartition("/")
                item = {"type": "function_call", "name": name, "arguments": arguments}
                if namespace:
                    item["namespace"] = namespace
            output.append({**item, **found})
        read = answer.input + answer.cache_read
        usage = {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": answer.cache_read},
            "output_tokens": answer.output,
            "output_tokens_details": {"reasoning_tokens": 3},
            "total_tokens": read + answer.output,
        }
        done = {
            "id": f"resp_{answer.id}",
            "object": "response",
            "status": "completed",
            "model": body["model"],
            "output": output,
            "usage": usage,
        }
        created = {**done, "status": "in_progress", "output": [], "usage": None}
        events = [{"type": "response.created", "response": created}]
        for index, item in enumerate(output):
            events.append(
                {"type": "response.output_item.done", "output_index": index, "item": item}
            )
        events.append({"type": "response.completed", "response": done})
        return _stream([(event["type"], event) for event in events])

    def _chat(self, body: Object) -> Reply:
        messages = [(each["role"], _text(each.get("content"))) for each in body["messages"]]
        turn = self._find_turn(messages, is_agent=bool(body.get("tools")))
        if turn.error:
            return _json({"error": {"message": "The request is not valid."}}, turn.error)
        answer = self._count(body["model"], turn)
        calls = [
            {
                "index": place,
                "id": f"call_{answer.id[4:]}_{place}",
                "type": "function",
                "function": {"name": call.tool, "arguments": json.dumps(call.arguments)},
            }
            for place, call in enumerate(turn.calls)
        ]
        read = answer.input + answer.cache_read
        usage = {
            "prompt_tokens": read,
            "completion_tokens": answer.output,
            "total_tokens": read + answer.output,
            "prompt_tokens_details": {"cached_tokens": answer.cache_read},
        }
        message: Object = {"role": "assistant", "content": turn.text or None}
        if turn.thinking:
            message = {"role": "assistant", "reasoning_content": turn.thinking, **message}
        if calls:
            message["tool_calls"] = calls
        reason = "tool_calls" if calls else "stop"
        base = {"id": answer.id, "created": 1_700_000_000, "model": body["model"]}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            return _json({**base, "object": "chat.completion", "choices": [choice], "usage": usage})
        base["object"] = "chat.completion.chunk"
        deltas = [{name: value} for name, value in message.items() if value and name != "role"]
        choices = [
            {"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}
            for delta in deltas
        ]
        last = {"index": 0, "delta": {}, "finish_reason": reason}
        chunks = [{**base, "choices": [choice]} for choice in choices]
        chunks.append({**base, "choices": [last], "usage": usage})
        return _stream([("", chunk) for chunk in chunks] + [("", "[DONE]")])

    # --- Gemini ---------------------------------------------------------------------------------

    def _gemini(self, body: Object, path: str) -> Reply:
        request = body.get("request", body)
        messages = [
            ("assistant" if each.get("role") == "model" else "user", _text(each.get("parts")))
            for each in request.get("contents", [])
        ]
        turn = self._find_turn(messages, is_agent="functionDeclarations" in json.dumps(request))
        if turn.error:
            error = {"code": turn.error, "message": "The request is not valid.", "status": "X"}
            return _json({"error": error}, turn.error)
        model = path.rpartition("/")[2].partition(":")[0]
        answer = self._count(model, turn)
        parts: list[Object] = []
        if turn.thinking:
            parts.append({"text": turn.thinking, "thought": True})
        if turn.text:
            parts.append({"text": turn.text})
        parts += [
            {"functionCall": {"name": call.tool, "args": call.arguments}} for call in turn.calls
        ]
        read = answer.input + answer.cache_read
        usage = {
            "promptTokenCount": read,
            "candidatesTokenCount": answer.output,
            "cachedContentTokenCount": answer.cache_read,
            "totalTokenCount": read + answer.output,
        }
        content = {"role": "model", "parts": parts}
        found = {
            "candidates": [{"index": 0, "content": content, "finishReason": "STOP"}],
            "usageMetadata": usage,
            "modelVersion": model,
            "responseId": answer.id,
        }
        return _stream([("", found)]) if "stream" in path else _json(found)


def _anthropic_block(index: int, block: Object) -> list[Object]:
    """Return the events of a streamed block."""
    kind = block["type"]
    if kind == "tool_use":
        empty: Object = {**block, "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
    elif kind == "thinking":
        empty = {"type": kind, "thinking": "", "signature": ""}
        deltas = [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    else:
        empty = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": block["text"]}]
    started = {"type": "content_block_start", "index": index, "content_block": empty}
    changes = [{"type": "content_block_delta", "index": index, "delta": each} for each in deltas]
    return [started, *changes, {"type": "content_block_stop", "index": index}]


def _response_messages(items: list[Object]) -> Iterable[tuple[str, str]]:
    """Yield the messages of an OpenAI input; the items of one answer are one message."""
    before = ""
    for item in items:
        kind = item.get("type", "message")
        is_answer = item.get("role") == "assistant" or kind in (
            "reasoning",
            "function_call",
            "custom_tool_call",
        )
        if is_answer and before != "assistant":
            yield "assistant", ""
        elif not is_answer:
            yield "user", _text(item.get("content")) if kind == "message" else ""
        before = "assistant" if is_answer else "user"


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(each["text"] for each in parts if isinstance(each, dict) and "text" in each)


def decompress(seen: Seen) -> bytes:
    encoding = next((v for k, v in seen.headers.items() if k.lower() == "content-encoding"), "")
    if encoding == "gzip":
        return gzip.decompress(seen.body)
    if encoding == "zstd":
        from vestige.store.compression import zstd

        return zstd.decompress(seen.body)
    return seen.body


def _json(value: Object, status: int = 200) -> Reply:
    return Reply(status, json.dumps(value).encode())


def _stream(events: list[tuple[str, Any]]) -> Reply:
    chunks = []
    for name, data in events:
        text = data if isinstance(data, str) else json.dumps(data)
        chunks.append((f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode())
    return Reply(chunks=chunks, type="text/event-stream", headers={"request-id": "req_1"})
