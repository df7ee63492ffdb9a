"""The `generate` API of Hugging Face's Text Generation Inference: `inputs` and `generated_text`.

Its chat API has the form of chat completions. Prompt tokens are counted only if the request asks
for `details` with `decoder_input_details`.
"""

from __future__ import annotations

from typing import Any

from vestige.providers.chat_types import Message, Request, Response, Usage
from vestige.providers.json_access import as_dict, as_list, as_str, error_text, find_int, find_str
from vestige.providers.json_offsets import Layout
from vestige.providers.message_parts import read_parts

PROVIDER = "huggingface"

FINISH = {"eos_token": "stop", "stop_sequence": "stop", "length": "length"}


def read_request(body: bytes, data: dict[str, Any]) -> Request:
    """Parse a generate request; `data` is `body`, decoded."""
    layout = Layout(body)
    begin, end = layout.span("inputs")
    text = as_str(data.get("inputs"))
    message = Message(role="user", text=text, parts=read_parts(text), begin=begin, end=end)
    parameters = as_dict(data.get("parameters"))
    return Request(
        provider=PROVIDER,
        model=find_str(data.get("model")),
        messages=[message],
        tools=[],
        breakpoints=[],
        prefix_end=end,
        max_output_tokens=find_int(parameters.get("max_new_tokens")),
        prompt=[layout.part("message", "inputs", "user", (begin, end))] if end else [],
    )


def read_response(data: dict[str, Any]) -> Response:
    """Parse a complete answer, or an error body."""
    return read_stream([data])


def read_stream(events: list[dict[str, Any]]) -> Response:
    """Assemble the tokens of a streamed answer; the last event has the complete text."""
    texts: list[str] = []
    final: str | None = None
    details: dict[str, Any] = {}
    error: str | None = None
    for event in events:
        token = as_dict(event.get("token"))
        if token.get("special") is not True:
            texts.append(as_str(token.get("text")))
        final = find_str(event.get("generated_text")) or final
        details = as_dict(event.get("details")) or details
        error = error_text(event.get("error")) or error
    text = final or "".join(texts)
    reason = details.get("finish_reason")
    finish = FINISH.get(reason, "other") if isinstance(reason, str) else None
    prefill = as_list(details.get("prefill"))
    counted = find_int(details.get("input_length"))
    return Response(
        provider=PROVIDER,
        model=None,
        text=text,
        calls=[],
        parts=read_parts(text),
        finish_reason="error" if error else finish,
        usage=Usage(
            input_tokens=(len(prefill) or None) if counted is None else counted,
            output_tokens=find_int(details.get("generated_tokens")),
        ),
        error=error,
    )
