"""What a span is, by the conventions of those who made it, and its attributes by our names.

    type_of(span)              # llm, tool, embedding, retriever, step, ...
    attributes, rest = ...     # see `named`

Read are the GenAI conventions (`gen_ai.*`), OpenInference (`openinference.span.kind`, `llm.*`),
Traceloop's OpenLLMetry (`traceloop.*`, `gen_ai.prompt.N`) and Logfire's pydantic-ai. A name that we
have for the same thing takes the place of theirs; everything else keeps its own.
"""

from __future__ import annotations

from typing import Any, Final

from vestige.formats.otlp.any_value import Object, decoded, int_of, text_of
from vestige.formats.otlp.parse_span import OtelSpan

RUN: Final = "run"
STEP: Final = "step"
LLM: Final = "llm"
TOOL: Final = "tool"

_OPENINFERENCE: Final = {
    "LLM": LLM, "TOOL": TOOL, "AGENT": STEP, "CHAIN": STEP, "RETRIEVER": "retriever",
    "EMBEDDING": "embedding", "RERANKER": "reranker", "GUARDRAIL": "guardrail",
    "EVALUATOR": "evaluator", "PROMPT": "prompt.assembly",
}  # fmt: skip
_OPERATIONS: Final = {
    "chat": LLM, "text_completion": LLM, "generate_content": LLM, "completion": LLM,
    "embeddings": "embedding", "execute_tool": TOOL, "invoke_agent": STEP, "create_agent": STEP,
    "invoke_workflow": STEP, "retrieval": "retriever",
}  # fmt: skip
_TRACELOOP: Final = {"workflow": STEP, "task": STEP, "agent": STEP, "tool": TOOL}
_REQUESTS: Final = {"chat": LLM, "completion": LLM, "embedding": "embedding", "rerank": "reranker"}
_BY_ATTRIBUTE: Final = (
    ("openinference.span.kind", _OPENINFERENCE),
    ("gen_ai.operation.name", _OPERATIONS),
    ("traceloop.span.kind", _TRACELOOP),
    ("llm.request.type", _REQUESTS),
)

ALIASES: Final[dict[str, tuple[str, ...]]] = {
    "model": ("gen_ai.request.model", "gen_ai.response.model", "llm.model_name", "embedding.model_name"),
    "provider": ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system"),
    "input_tokens": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt", "llm.usage.prompt_tokens"),
    "output_tokens": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion", "llm.usage.completion_tokens"),
    "cache_read_tokens": (
        "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens",
        "gen_ai.usage.details.cache_read_tokens", "llm.token_count.prompt_details.cache_read",
    ),
    "cache_write_tokens": (
        "gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_creation_input_tokens",
        "gen_ai.usage.cache_write.input_tokens", "gen_ai.usage.details.cache_write_tokens", "llm.token_count.prompt_details.cache_write",
    ),
    "finish_reason": ("gen_ai.response.finish_reasons", "llm.finish_reason", "gen_ai.completion.0.finish_reason", "anthropic.message.stop_reason"),
    "tool_name": ("gen_ai.tool.name", "tool.name"),
    "tool_call_id": ("gen_ai.tool.call.id", "tool_call.id", "tool.id"),
    "status_code": ("http.response.status_code", "http.status_code"),
}  # fmt: skip
"""Ours, and what it is called elsewhere: the first that is there counts."""

CONVERSATIONS: Final = (
    "gen_ai.conversation.id",
    "session.id",
    "traceloop.association.properties.session_id",
    "traceloop.association.properties.thread_id",
)
_COUNTS: Final = frozenset(
    name for name in ALIASES if name.endswith("_tokens") or name == "status_code"
)


def type_of(span: OtelSpan) -> str:
    """Its type among ours; `step` where nothing says more."""
    told = span.attributes
    for key, types in _BY_ATTRIBUTE:
        value = told.get(key)
        if isinstance(value, str):
            found = types.get(value) or types.get(value.upper()) or types.get(value.lower())
            if found is not None:
                return found
    if any(key in told for key in ALIASES["tool_name"]) or "gen_ai.tool.call.id" in told:
        return TOOL
    if "gen_ai.agent.name" not in told and any(key in told for key in ALIASES["model"]):
        return LLM
    if span.kind == "CLIENT" and ("http.request.method" in told or "http.method" in told):
        return "http"
    return STEP


def is_log(span: OtelSpan) -> bool:
    """Logfire sends what was logged as a span without a duration. One that nothing is around is all
    that there is of its trace, and stays one."""
    told = span.attributes.get("logfire.span_type") == "log"
    return told and bool(span.parent_id) and type_of(span) == STEP


def conversation_of(span: OtelSpan) -> str | None:
    for key in CONVERSATIONS:
        value = span.attributes.get(key)
        if isinstance(value, str) and value:
            return value
    return None


def component_of(resource: Object, scope: str, fallback: str) -> str:
    """The service, unless nobody gave it a name; then what made the span."""
    service = text_of(resource.get("service.name"))
    named = service and not service.startswith("unknown_service")
    return service if named else scope or fallback


def named(attributes: Object) -> tuple[Object, set[str]]:
    """What has a name among ours, and the keys that this stands for."""
    found: Object = {}
    used: set[str] = set()
    for ours, theirs in ALIASES.items():
        for key in theirs:
            value = _value(ours, attributes[key]) if key in attributes else None
            if value is None:
                continue
            if ours not in found:
                found[ours] = value
                used.add(key)
            elif found[ours] == value:
                used.add(key)  # the same, said twice
    return found, used


def _value(ours: str, value: Any) -> Any:
    if ours in _COUNTS:
        count = int_of(value)
        return count if count is not None and count >= 0 else None
    if ours == "finish_reason":
        value = decoded(value)
        if isinstance(value, list):
            value = next((each for each in value if isinstance(each, str)), None)
        return {"tool_call": "tool_calls"}.get(value, value) if isinstance(value, str) else None
    return value if isinstance(value, str) and value else None
