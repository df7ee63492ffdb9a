"""Which HTTP calls are model calls, and whose: by method, host and path alone.

    find_endpoint("POST", "api.openai.com", "/v1/chat/completions")     # openai, chat.completions
    find_endpoint("POST", "127.0.0.1", "/v1/messages")                  # anthropic, messages
    find_endpoint("POST", "example.com", "/orders")                     # None: ask the body

The path says which API is spoken, the host whose service it is. Many servers speak another
one's API (vLLM, Ollama, LiteLLM, OpenRouter, Azure), so a path counts on any host.

Elsewhere: requests known by the shape of their body in providers/parsing.py.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

import msgspec


class Endpoint(msgspec.Struct, frozen=True, gc=False):
    """What is spoken at a URL."""

    provider: str
    """Whose service: `openai`, `anthropic`, `gemini`, `azure`, `openrouter`, `ollama`, ..."""
    api: str
    """`chat.completions`, `responses`, `messages`, `generateContent`, ...; OTHER: no model call."""
    model: str | None = None
    """Where the path names it."""

    @property
    def is_model_call(self) -> bool:
        return self.api != OTHER


OTHER: Final = "other"
"""A provider's endpoint that is no model call: files, embeddings, counting tokens."""

_HOSTS: Final = (
    # The end of a host's name; the first that fits.
    ("openai.azure.com", "azure"),
    ("services.ai.azure.com", "azure"),
    ("cognitiveservices.azure.com", "azure"),
    ("api.openai.com", "openai"),
    ("api.anthropic.com", "anthropic"),
    ("generativelanguage.googleapis.com", "gemini"),
    ("aiplatform.googleapis.com", "vertex"),
    ("amazonaws.com", "bedrock"),
    ("openrouter.ai", "openrouter"),
    ("api.mistral.ai", "mistral"),
    ("api.groq.com", "groq"),
    ("api.deepseek.com", "deepseek"),
    ("api.x.ai", "xai"),
    ("api.together.xyz", "together"),
    ("api.fireworks.ai", "fireworks"),
)

_PATHS: Final = tuple(
    (re.compile(expression), provider, api)
    for expression, provider, api in (
        # Never anything else, also below `/models` (Azure).
        (r"/deployments/(?P<model>[^/]+)/chat/completions$", "azure", "chat.completions"),
        (r"/chat/completions$", "openai", "chat.completions"),
        # What looks like a model call and is none.
        (r"/messages/(?:count_tokens|batches)\b", "anthropic", OTHER),
        (r"/models/count-tokens:rawPredict$", "anthropic", OTHER),
        (r"/responses/(?:[^/]+/?(?:cancel|input_items)?|input_tokens)$", "openai", OTHER),
        (
            r":(?:countTokens|embedContent|batchEmbedContents|batchGenerateContent|predict)$",
            "gemini",
            OTHER,
        ),
        (
            r"/(?:embeddings|moderations|models|files|images|audio|batches|fine_tuning|vector_stores)(?:$|/[^:]*$)",
            "openai",
            OTHER,
        ),
        (r"/api/(?:tags|show|embed|embeddings|pull|ps|version)$", "ollama", OTHER),
        # Model calls.
        (r"/v\d+(?:beta\w*)?/responses$|/openai/(?:v1/)?responses$", "openai", "responses"),
        (r"/models/(?P<model>[^/:]+):(?:streamRawPredict|rawPredict)$", "anthropic", "messages"),
        (r"/v\d+/messages$", "anthropic", "messages"),
        (
            r"/models/(?P<model>[^/:]+):(?P<api>generateContent|streamGenerateContent)$",
            "gemini",
            "generateContent",
        ),
        (
            r"/model/(?P<model>[^/]+)/(?P<api>invoke|invoke-with-response-stream|converse|converse-stream)$",
            "bedrock",
            "invoke",
        ),
        (r"/api/(?P<api>chat|generate)$", "ollama", "chat"),
        (r"/v\d+/completions$", "openai", "completions"),
    )
)

_OLLAMA_PORT: Final = ":11434"


def find_endpoint(method: str, host: str, path: str) -> Endpoint | None:
    """The endpoint; nothing if only the body can tell. `host` may carry a port."""
    if method.upper() != "POST":
        return Endpoint("", OTHER)
    owner = _owner(host)
    for expression, provider, api in _PATHS:
        found = expression.search(path)
        if found is None:
            continue
        if provider == "ollama" and api != OTHER and not host.endswith(_OLLAMA_PORT):
            return None
        if api == OTHER and owner is None and provider != "anthropic":
            return None  # `/files` on somebody's own server says nothing
        groups = found.groupdict()
        model = groups.get("model")
        return Endpoint(
            owner or provider, groups.get("api") or api, None if model is None else unquote(model)
        )
    return None


def provider_of(host: str) -> str | None:
    """Whose host it is, if it is known."""
    return _owner(host)


def _owner(host: str) -> str | None:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    name = name.lower()
    for ending, provider in _HOSTS:
        if name == ending or name.endswith(("." + ending, "-" + ending)):
            return provider
    return "ollama" if host.endswith(_OLLAMA_PORT) else None
