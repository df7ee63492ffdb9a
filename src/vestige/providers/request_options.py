"""Read the options of a request (temperature, limits, streaming) without its messages.

Names are as sent, except the limit of the response, which is always `max_tokens` here.
"""

from __future__ import annotations

from typing import Any

from vestige._runtime.msgspec_or_fallback import msgspec

Option = str | int | float | bool | None

VALUE_MAX = 200
"""Characters. An option is a word or a number; a longer one is part of the prompt."""

_LIMITS = ("max_completion_tokens", "max_output_tokens", "maxOutputTokens", "num_predict")


class _Options(msgspec.Struct):
    """The members that are decoded. The rest of the body is skipped, which costs almost nothing."""

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
    """Return the options that are set; none if the body is not a JSON object."""
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
