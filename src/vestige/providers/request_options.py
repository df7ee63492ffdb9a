"""The options of a request: temperature, limits, streaming. Read without looking at the messages.

Names are as sent, except the limit of the answer, which every provider calls otherwise: `max_tokens`.
"""

from __future__ import annotations

from typing import Any

import msgspec

Option = str | int | float | bool | None

VALUE_MAX = 200
"""Characters. An option is a word or a number; a longer one is part of the prompt."""

_LIMITS = ("max_completion_tokens", "max_output_tokens", "maxOutputTokens", "num_predict")


class _Options(msgspec.Struct):
    """Only these members are decoded; the rest of the body is skipped, which costs next to nothing."""

    model: Any = None
    stream: Any = None
    temperature: Any = None
    top_p: Any = None
    top_k: Any = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
    max_output_tokens: Any = None
    n: Any = None
    seed: Any = None
    frequency_penalty: Any = None
    presence_penalty: Any = None
    reasoning_effort: Any = None
    parallel_tool_calls: Any = None
    service_tier: Any = None
    store: Any = None
    previous_response_id: Any = None
    tool_choice: Any = None
    reasoning: Any = None
    thinking: Any = None
    generationConfig: Any = None  # noqa: N815  # Google's spelling
    options: Any = None
    """Ollama's."""


_decoder = msgspec.json.Decoder(_Options)


def read_options(body: bytes) -> dict[str, Option]:
    """The options that are set; nothing for what is no JSON object."""
    try:
        options = _decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    found: dict[str, Option] = {}
    for name in _Options.__struct_fields__:
        value = getattr(options, name)
        if name in ("generationConfig", "options"):
            if isinstance(value, dict):
                for inner, each in value.items():
                    _add(found, inner, each)
        elif isinstance(value, dict):
            for inner, each in value.items():
                _add(found, f"{name}.{inner}", each)
        else:
            _add(found, name, value)
    return found


def _add(found: dict[str, Option], name: str, value: Any) -> None:
    if value is None or not isinstance(value, str | int | float | bool):
        return
    if isinstance(value, str) and len(value) > VALUE_MAX:
        return
    found["max_tokens" if name in _LIMITS else name[:60]] = value
