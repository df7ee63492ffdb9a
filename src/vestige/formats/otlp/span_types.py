"""Types and attribute names of spans, from the conventions of their instrumentation.

    get_span_type(span)                               # llm, tool, agent, retriever, step, ...
    renamed, used = rename_attributes(attributes)     # gen_ai.request.model -> model

Supported are the GenAI conventions (`gen_ai.*`), OpenInference (`openinference.span.kind`,
`llm.*`), Traceloop's OpenLLMetry (`traceloop.*`, `gen_ai.prompt.N`) and Logfire's pydantic-ai.
Attributes without a Vestige name keep their own.
"""

from __future__ import annotations

from typing import Any, Final

from vestige.formats.otlp.any_value import Object, as_text, decode_json_text, parse_int
from vestige.formats.otlp.parse_span import OtelSpan

RUN: Final = "run"
STEP: Final = "step"
AGENT: Final = "agent"
LLM: Final = "llm"
TOOL: Final = "tool"

_OPENINFERENCE: Final = {
    "LLM": LLM, "TOOL": TOOL, "AGENT": AGENT, "CHAIN": STEP, "RETRIEVER": "retriever",
    "EMBEDDING": "embedding", "RERANKER": "reranker", "GUARDRAIL": "guardrail",
    "EVALUATOR": "evaluator", "PROMPT": "prompt.assembly",
}  # fmt: skip
_OPERATIONS: Final = {
    "chat": LLM, "text_completion": LLM, "generate_content": LLM, "completion": LLM,
    "embeddings": "embedding", "execute_tool": TOOL, "invoke_agent": AGENT, "create_agent": STEP,
    "invoke_workflow": STEP, "retrieval": "retriever",
}  # fmt: skip
_TRACELOOP: Final = {"workflow": STEP, "task": STEP, "agent": AGENT, "tool": TOOL}
_REQUESTS: Final = {"chat": LLM, "completion": LLM, "embedding": "embedding", "rerank": "reranker"}
_BY_ATTRIBUTE: Final = (
    ("openinference.span.kind", _OPENINFERENCE),
    ("gen_ai.operation.name", _OPERATIONS),
    ("traceloop.span.kind", _TRACELOOP),
    ("llm.request.type", _REQUESTS),
)

_NAME_PREFIXES: Final = {"execute_tool ": TOOL, "invoke_agent ": AGENT}
"""Beginnings of names, by the GenAI conventions, of spans that may have no attributes."""

ALIASES: Final[dict[str, tuple[str, ...]]] = {
    "model": (
        "gen_ai.request.model", "gen_ai.response.model", "llm.model_name", "embedding.model_name",
    ),
    "provider": ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system"),
    "input_tokens": (
        "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt",
        "llm.usage.prompt_tokens",
    ),
    "output_tokens": (
        "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens",
        "llm.token_count.completion", "llm.usage.completion_tokens",
    ),
    "cache_read_tokens": (
        "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens",
        "gen_ai.usage.details.cache_read_tokens", "llm.token_count.prompt_details.cache_read",
    ),
    "cache_write_tokens": (
        "gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_creation_input_tokens",
        "gen_ai.usage.cache_write.input_tokens", "gen_ai.usage.details.cache_write_tokens",
        "llm.token_count.prompt_details.cache_write",
    ),
    "finish_reason": (
        "gen_ai.response.finish_reasons", "llm.finish_reason", "gen_ai.completion.0.finish_reason",
        "anthropic.message.stop_reason",
    ),
    "tool_name": ("gen_ai.tool.name", "tool.name"),
    "tool_call_id": ("gen_ai.tool.call.id", "tool_call.id", "tool.id"),
    "status_code": ("http.response.status_code", "http.status_code"),
}  # fmt: skip
"""Names of other conventions for each Vestige attribute. The first that is present wins."""

CONVERSATION_KEYS: Final = (
    "gen_ai.conversation.id",
    "session.id",
    "traceloop.association.properties.session_id",
    "traceloop.association.properties.thread_id",
)
_COUNTS: Final = frozenset(
    name for name in ALIASES if name.endswith("_tokens") or name == "status_code"
)


def get_span_type(span: OtelSpan) -> str:
    """Return Vestige's type of the span: `step` if no convention applies."""
    keys = span.attributes
    for key, types in _BY_ATTRIBUTE:
        value = keys.get(key)
        if isinstance(value, str):
            span_type = types.get(value) or types.get(value.upper()) or types.get(value.lower())
            if span_type is not None:
                return span_type
    if any(key in keys for key in ALIASES["tool_name"]) or "gen_ai.tool.call.id" in keys:
        return TOOL
    if "gen_ai.agent.name" not in keys and any(key in keys for key in ALIASES["model"]):
        return LLM
    if span.kind == "CLIENT" and ("http.request.method" in keys or "http.method" in keys):
        return "http"
    for prefix, span_type in _NAME_PREFIXES.items():
        if span.name.startswith(prefix):
            return span_type
    return STEP


def get_span_name(name: str) -> str:
    """Return the name of the tool or agent if the span is named by the GenAI conventions."""
    for prefix in _NAME_PREFIXES:
        if name.startswith(prefix):
            return name[len(prefix) :].strip() or name
    return name


def is_log_span(span: OtelSpan) -> bool:
    """Return whether the span is a log record, which Logfire sends as a span without duration.

    One without a parent stays a span, because it is the only span of its trace.
    """
    is_log = span.attributes.get("logfire.span_type") == "log"
    return is_log and bool(span.parent_id) and get_span_type(span) == STEP


def find_conversation_id(span: OtelSpan) -> str | None:
    for key in CONVERSATION_KEYS:
        value = span.attributes.get(key)
        if isinstance(value, str) and value:
            return value
    return None


def get_component(resource: Object, scope: str, fallback: str) -> str:
    """Return the service name, or the instrumentation scope if the service has no name."""
    service = as_text(resource.get("service.name"))
    if service and not service.startswith("unknown_service"):
        return service
    return scope or fallback


def rename_attributes(attributes: Object) -> tuple[Object, set[str]]:
    """Return the attributes that have a Vestige name, and the keys that they replace."""
    renamed: Object = {}
    used: set[str] = set()
    for ours, theirs in ALIASES.items():
        for key in theirs:
            value = _convert(ours, attributes[key]) if key in attributes else None
            if value is None:
                continue
            if renamed.setdefault(ours, value) == value:
                used.add(key)  # also an alias with an equal value
    return renamed, used


def _convert(ours: str, value: Any) -> Any:
    if ours in _COUNTS:
        count = parse_int(value)
        return count if count is not None and count >= 0 else None
    if ours == "finish_reason":
        value = decode_json_text(value)
        if isinstance(value, list):
            value = next((each for each in value if isinstance(each, str)), None)
        return {"tool_call": "tool_calls"}.get(value, value) if isinstance(value, str) else None
    return value if isinstance(value, str) and value else None
