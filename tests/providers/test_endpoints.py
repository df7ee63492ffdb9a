"""Which URLs are model calls, and whose."""

from __future__ import annotations

import pytest

from vestige.providers.endpoints import OTHER, find_endpoint


@pytest.mark.parametrize(
    ("url", "provider", "api", "model"),
    [
        ("api.openai.com/v1/chat/completions", "openai", "chat.completions", None),
        ("api.openai.com/v1/responses", "openai", "responses", None),
        ("api.openai.com/v1/completions", "openai", "completions", None),
        ("api.anthropic.com/v1/messages", "anthropic", "messages", None),
        (
            "generativelanguage.googleapis.com/v1beta/models/gemini-2.5-pro:generateContent",
            "gemini",
            "generateContent",
            "gemini-2.5-pro",
        ),
        (
            "europe-west1-aiplatform.googleapis.com/v1/projects/p/locations/l/publishers/google/"
            "models/gemini-x:streamGenerateContent",
            "vertex",
            "streamGenerateContent",
            "gemini-x",
        ),
        (
            "us-aiplatform.googleapis.com/v1/projects/p/locations/l/publishers/anthropic/"
            "models/claude-x:streamRawPredict",
            "vertex",
            "messages",
            "claude-x",
        ),
        (
            "me.openai.azure.com/openai/deployments/gpt%2D5/chat/completions",
            "azure",
            "chat.completions",
            "gpt-5",
        ),
        ("me.openai.azure.com/openai/v1/responses", "azure", "responses", None),
        ("me.services.ai.azure.com/models/chat/completions", "azure", "chat.completions", None),
        ("openrouter.ai/api/v1/chat/completions", "openrouter", "chat.completions", None),
        ("localhost:11434/api/chat", "ollama", "chat", None),
        ("localhost:11434/v1/chat/completions", "ollama", "chat.completions", None),
        ("10.0.0.7:8000/v1/chat/completions", "openai", "chat.completions", None),
        ("litellm.corp:4000/chat/completions", "openai", "chat.completions", None),
        ("gateway.corp/anthropic/v1/messages", "anthropic", "messages", None),
        (
            "bedrock-runtime.us-east-1.amazonaws.com/model/anthropic.claude-v2%3A1/invoke",
            "bedrock",
            "invoke",
            "anthropic.claude-v2:1",
        ),
    ],
)
def test_a_model_call_is_known_by_its_url(
    url: str, provider: str, api: str, model: str | None
) -> None:
    """The path says what is spoken, the host whose it is."""
    host, _, path = url.partition("/")
    found = find_endpoint("POST", host, "/" + path)

    assert found is not None
    assert (found.provider, found.api, found.model) == (provider, api, model)


@pytest.mark.parametrize(
    "url",
    [
        "api.openai.com/v1/files",
        "api.openai.com/v1/responses/resp_1/cancel",
        "api.openai.com/v1/responses/input_tokens",
        "api.anthropic.com/v1/messages/count_tokens",
        "api.anthropic.com/v1/messages/batches",
        "us-aiplatform.googleapis.com/v1/projects/p/locations/l/publishers/anthropic/"
        "models/count-tokens:rawPredict",
        "generativelanguage.googleapis.com/v1beta/models/x:countTokens",
    ],
)
def test_other_endpoints_of_a_provider_are_no_model_calls(url: str) -> None:
    """Counting tokens looks like a request, and is none."""
    host, _, path = url.partition("/")
    found = find_endpoint("POST", host, "/" + path)

    assert found is not None
    assert found.api == OTHER


@pytest.mark.parametrize("url", ["example.com/orders", "example.com/api/chat", "example.com/files"])
def test_elsewhere_only_the_body_can_tell(url: str) -> None:
    """A path that any application may have."""
    host, _, path = url.partition("/")

    assert find_endpoint("POST", host, "/" + path) is None


def test_only_a_post_is_a_model_call() -> None:
    """A stored answer that is fetched again was recorded when it was made."""
    found = find_endpoint("GET", "api.openai.com", "/v1/responses")

    assert found is not None
    assert found.api == OTHER


@pytest.mark.parametrize(
    ("url", "span_type", "provider"),
    [
        ("api.openai.com/v1/embeddings", "embedding", "openai"),
        ("localhost:4000/v1/embeddings", "embedding", "openai"),
        ("localhost:11434/api/embed", "embedding", "ollama"),
        ("api.cohere.com/v2/embed", "embedding", "cohere"),
        ("generativelanguage.googleapis.com/v1beta/models/e:embedContent", "embedding", "gemini"),
        (
            "bedrock-runtime.us-east-1.amazonaws.com/model/amazon.titan-embed-text-v2%3A0/invoke",
            "embedding",
            "bedrock",
        ),
        ("api.openai.com/v1/images/generations", "image", "openai"),
        ("api.openai.com/v1/audio/speech", "speech", "openai"),
        ("api.groq.com/openai/v1/audio/transcriptions", "transcription", "groq"),
        ("api.mistral.ai/v1/moderations", "moderation", "mistral"),
        ("api.cohere.com/v2/rerank", "rerank", "cohere"),
        ("api.cohere.com/v2/chat", "llm", "cohere"),
        ("api.groq.com/openai/v1/chat/completions", "llm", "groq"),
        ("router.huggingface.co/v1/chat/completions", "llm", "huggingface"),
        ("api.mistral.ai/v1/fim/completions", "llm", "mistral"),
        ("api.openai.com/v1/files", "http", "openai"),
    ],
)
def test_each_endpoint_has_a_span_type(url: str, span_type: str, provider: str) -> None:
    host, _, path = url.partition("/")
    found = find_endpoint("POST", host, "/" + path)

    assert found is not None
    assert (found.span_type, found.provider) == (span_type, provider)


@pytest.mark.parametrize("path", ["/api/chat", "/generate", "/v2/chat", "/api/embed"])
def test_common_words_are_an_endpoint_only_if_the_body_is_a_request(path: str) -> None:
    assert find_endpoint("POST", "shop.example.com", path) is None
    assert find_endpoint("POST", "shop.example.com", path, is_request=True) is not None


def test_a_bedrock_model_may_be_the_arn_of_a_profile() -> None:
    arn = "arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fus.anthropic.claude-x-v1%3A0"
    found = find_endpoint("POST", "bedrock.amazonaws.com", f"/model/{arn}/converse-stream")

    assert found is not None
    assert found.api == "converse-stream"
    assert found.model == "arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-x-v1:0"
