"""Counts of calls without messages: embeddings, images, speech, transcription, moderation, rerank.

The counts come from the request and the response as far as they are JSON. Audio and multipart forms
have only a size.
"""

from __future__ import annotations

from typing import Any

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.limits import MIB
from vestige.providers.json_access import as_dict, as_list, dicts, error_text, find_int, find_str

BODY_MAX = 16 * MIB
"""A longer body is not decoded."""


def read_model_io(span_type: str, request: bytes, response: bytes) -> dict[str, Any]:
    """Return the counts of a call, and the provider's error if it failed."""
    sent, received = _decode(request), _decode(response)
    answer = as_dict(received)
    counts: dict[str, Any] = {}
    _add(counts, "response.model", find_str(answer.get("model")))
    _add(counts, "error.message", error_text(answer.get("error")))
    _add(counts, "input_tokens", _input_tokens(answer))
    _add(counts, "output_tokens", find_int(as_dict(answer.get("usage")).get("output_tokens")))
    if span_type == "embedding":
        _add(counts, "inputs", _count_inputs(as_dict(sent)))
        vectors = _find_vectors(received)
        _add(counts, "outputs", len(vectors) or None)
        _add(counts, "dimensions", _find_dimensions(vectors))
    elif span_type == "image":
        images = as_list(answer.get("data")) or as_list(answer.get("images"))
        images = images or as_list(answer.get("predictions"))
        _add(counts, "outputs", len(images) or None)
    elif span_type == "speech":
        _add(counts, "input.characters", _length(as_dict(sent).get("input")))
        if response and not answer:
            counts["output.bytes"] = len(response)
    elif span_type == "transcription":
        _add(counts, "output.characters", _length(answer.get("text")))
        _add(counts, "audio.seconds", _number(answer.get("duration")))
    elif span_type == "moderation":
        results = dicts(answer.get("results"))
        if results:
            counts["flagged"] = any(result.get("flagged") is True for result in results)
    elif span_type == "rerank":
        _add(counts, "inputs", len(as_list(as_dict(sent).get("documents"))) or None)
        _add(counts, "outputs", len(as_list(answer.get("results"))) or None)
    return counts


def _decode(body: bytes) -> Any:
    if not body or len(body) > BODY_MAX or body[:1] not in (b"{", b"["):
        return None
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return None


def _add(counts: dict[str, Any], name: str, value: object) -> None:
    if value is not None:
        counts[name] = value


def _input_tokens(answer: dict[str, Any]) -> int | None:
    """Tokens of OpenAI, Mistral, Ollama, Cohere, Voyage and Bedrock's Titan."""
    usage = as_dict(answer.get("usage"))
    billed = as_dict(as_dict(answer.get("meta")).get("billed_units"))
    found = (
        usage.get("prompt_tokens"),
        usage.get("input_tokens"),
        usage.get("total_tokens"),
        billed.get("input_tokens"),
        answer.get("prompt_eval_count"),
        answer.get("inputTextTokenCount"),
    )
    return next((count for count in map(find_int, found) if count is not None), None)


def _count_inputs(sent: dict[str, Any]) -> int | None:
    for key in ("input", "texts", "inputs", "requests", "content", "inputText", "prompt"):
        value = sent.get(key)
        if isinstance(value, list) and value and not isinstance(value[0], int):
            return len(value)
        if value:
            return 1
    return None


def _find_vectors(received: object) -> list[Any]:
    """The vectors of an answer, each a list of numbers or base64 text."""
    if isinstance(received, list):  # Hugging Face
        return received if received and isinstance(received[0], list) else [received]
    answer = as_dict(received)
    data = dicts(answer.get("data"))
    if data:
        return [item.get("embedding") for item in data]
    one = answer.get("embedding")
    if isinstance(one, list):
        return [one]
    if isinstance(one, dict):  # Gemini
        return [one.get("values")]
    many = answer.get("embeddings")
    if isinstance(many, dict):  # Cohere: by type of number
        many = next((value for value in many.values() if isinstance(value, list)), [])
    return [as_dict(v).get("values") if isinstance(v, dict) else v for v in as_list(many)]


def _find_dimensions(vectors: list[Any]) -> int | None:
    first = vectors[0] if vectors else None
    return len(first) if isinstance(first, list) and first else None


def _length(text: object) -> int | None:
    return len(text) if isinstance(text, str) else None


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
