"""Find the model API that an HTTP call uses, from its method, host and path alone.

    find_endpoint("POST", "api.openai.com", "/v1/chat/completions")     # openai, chat.completions
    find_endpoint("POST", "127.0.0.1", "/v1/messages")                  # anthropic, messages
    find_endpoint("POST", "example.com", "/orders")                     # None: look at the body

The path names the API, the host names the owner of the service. Many servers implement another
provider's API (vLLM, Ollama, LiteLLM, OpenRouter, Azure), so a path counts on any host.

See also providers/parsing.py, which recognises requests by the shape of their body.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige._runtime.re_compat import re


class Endpoint(msgspec.Struct, frozen=True, gc=False):
    """The API that a URL serves."""

    provider: str
    """Owner of the service: `openai`, `anthropic`, `gemini`, `azure`, `bedrock`, `cohere`, ..."""
    api: str
    """`chat.completions`, `responses`, `messages`, `embeddings`, ...; OTHER: not a model call."""
    model: str | None = None
    """The model, if the path names it."""

    @property
    def is_model_call(self) -> bool:
        return self.api != OTHER

    @property
    def span_type(self) -> str:
        """Return the type of the span: `llm`, or another one for a model without messages."""
        if self.api == OTHER:
            return "http"
        return _SPAN_TYPES.get(self.api, "llm")


OTHER: Final = "other"
"""A provider's endpoint that does not call a model: files, batches, token counts."""

_SPAN_TYPES: Final = {
    "embeddings": "embedding",
    "images": "image",
    "speech": "speech",
    "transcriptions": "transcription",
    "moderations": "moderation",
    "rerank": "rerank",
}
"""Calls that have no messages. All others are of type `llm`."""

_HOSTS: Final = (
    # The end of a host's name. The first match counts.
    ("openai.azure.com", "azure"),
    ("services.ai.azure.com", "azure"),
    ("cognitiveservices.azure.com", "azure"),
    ("api.openai.com", "openai"),
    ("api.anthropic.com", "anthropic"),
    ("generativelanguage.googleapis.com", "gemini"),
    ("aiplatform.googleapis.com", "vertex"),
    ("amazonaws.com", "bedrock"),
    ("api.cohere.com", "cohere"),
    ("api.cohere.ai", "cohere"),
    ("router.huggingface.co", "huggingface"),
    ("api-inference.huggingface.co", "huggingface"),
    ("endpoints.huggingface.cloud", "huggingface"),
    ("api.cerebras.ai", "cerebras"),
    ("api.perplexity.ai", "perplexity"),
    ("api.voyageai.com", "voyage"),
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
        # Unambiguous, also below `/models` (Azure).
        (r"/deployments/(?P<model>[^/]+)/chat/completions$", "azure", "chat.completions"),
        (r"/chat/completions$", "openai", "chat.completions"),
        # Calls of models that have no messages.
        (r"/deployments/(?P<model>[^/]+)/embeddings$", "azure", "embeddings"),
        (r"/(?:v\d+\w*|openai|inference)/embeddings$", "openai", "embeddings"),
        (r"/v[12]/embed$", "cohere", "embeddings"),
        (r"/models/(?P<model>[^/:]+):(?:batchE|e)mbedContents?$", "gemini", "embeddings"),
        (r"/models/(?P<model>.+)/pipeline/feature-extraction$", "huggingface", "embeddings"),
        (r"/api/(?:embed|embeddings)$", "ollama", "embeddings"),
        (r"/model/(?P<model>[^/]*embed[^/]*)/invoke$", "bedrock", "embeddings"),
        (r"/images/(?:generations|edits|variations)$", "openai", "images"),
        (r"/models/(?P<model>imagen[^/:]*):predict$", "gemini", "images"),
        (r"/model/(?P<model>[^/]*(?:image|canvas|stability)[^/]*)/invoke$", "bedrock", "images"),
        (r"/audio/speech$", "openai", "speech"),
        (r"/audio/(?:transcriptions|translations)$", "openai", "transcriptions"),
        (r"/v\d+/moderations$", "openai", "moderations"),
        (r"/v\d+/rerank$", "cohere", "rerank"),
        # Paths that look like a model call and are not.
        (r"/messages/(?:count_tokens|batches)\b", "anthropic", OTHER),
        (r"/models/count-tokens:rawPredict$", "anthropic", OTHER),
        (r"/responses/(?:[^/]+/?(?:cancel|input_items)?|input_tokens)$", "openai", OTHER),
        (r":(?:countTokens|batchGenerateContent|predict)$", "gemini", OTHER),
        (
            r"/(?:embeddings|moderations|models|files|images|audio|batches|fine_tuning"
            r"|vector_stores)(?:$|/[^:]*$)",
            "openai",
            OTHER,
        ),
        (r"/api/(?:tags|show|pull|ps|version)$", "ollama", OTHER),
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
            r"/model/(?P<model>.+)/"
            r"(?P<api>invoke|invoke-with-response-stream|converse|converse-stream)$",
            "bedrock",
            "invoke",
        ),
        (r"/v2/chat$", "cohere", "chat"),
        (r"/api/(?P<api>chat|generate)$", "ollama", "chat"),
        (r"/v\d+/(?:fim|agents)/completions$", "mistral", "completions"),
        (r"/v\d+/completions$", "openai", "completions"),
        (r"/generate(?:_stream)?$", "huggingface", "generate"),
    )
)

_AMBIGUOUS: Final = frozenset(
    {
        ("ollama", "chat"),
        ("ollama", "embeddings"),
        ("cohere", "chat"),
        ("huggingface", "generate"),
    }
)
"""APIs whose paths are common words. On an unknown host the body has to confirm the call."""

_OLLAMA_PORT: Final = ":11434"


def find_endpoint(
    method: str, host: str, path: str, *, is_request: bool = False
) -> Endpoint | None:
    """Return the endpoint. None: only the body can tell. `host` may have a port.

    `is_request`: the body is known to be a model request.
    """
    if method.upper() != "POST":
        return Endpoint("", OTHER)
    owner = provider_of(host)
    for expression, provider, api in _PATHS:
        found = expression.search(path)
        if found is None:
            continue
        if owner is None and not is_request:
            if (provider, api) in _AMBIGUOUS:
                return None
            if api == OTHER and provider != "anthropic":
                return None  # `/files` on an unknown server means nothing
        groups = found.groupdict()
        model = groups.get("model")
        return Endpoint(
            owner or provider, groups.get("api") or api, None if model is None else unquote(model)
        )
    return None


def provider_of(host: str) -> str | None:
    """Return the owner of a host, if it is known."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    name = name.lower()
    for ending, provider in _HOSTS:
        if name == ending or name.endswith(("." + ending, "-" + ending)):
            return provider
    return "ollama" if host.endswith(_OLLAMA_PORT) else None
