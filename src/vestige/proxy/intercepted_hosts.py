"""The hosts whose TLS connections are intercepted. All others are tunnelled."""

from __future__ import annotations

import re
from collections.abc import Iterable

from vestige.providers.endpoints import provider_of
from vestige.wire.capture import Patterns

_SERVICES = (
    # Hosts of vendors' own programs, which call models there when the user has signed in.
    "chatgpt.com",
    "cloudcode-pa.googleapis.com",
    "opencode.ai",
    "api.githubcopilot.com",
)
_MODEL_WORDS = re.compile(
    r"(?:^|[.-])(?:llm|openai|anthropic|claude|gemini|inference|litellm|bedrock)(?=[.-]|$)"
)


class HostRules:
    """Decides which hosts are intercepted."""

    def __init__(self, patterns: Iterable[str]) -> None:
        """`patterns`: of the setting proxy_hosts, and the hosts of base URLs."""
        patterns = list(patterns)
        self._excluded = Patterns([pattern for pattern in patterns if pattern.startswith("!")])
        self._included = [pattern for pattern in patterns if not pattern.startswith("!")]

    def intercepts(self, host: str, port: int) -> bool:
        name = host.lower()
        full = f"{name}:{port}"
        if not self._excluded.allow(name, full):
            return False
        if self._included and Patterns(self._included).allow(name, full):
            return True
        return port != 80 and is_model_host(name)


def is_model_host(name: str) -> bool:
    """Return whether models are called at a host. Not all of amazonaws.com is Bedrock."""
    if name in _SERVICES or name.endswith(tuple(f".{service}" for service in _SERVICES)):
        return True
    provider = provider_of(name)
    return provider is not None and (provider != "bedrock" or "bedrock" in name)


def looks_like_model_host(name: str) -> bool:
    """Return whether the name of an unknown host suggests that models are called there."""
    return _MODEL_WORDS.search(name.lower()) is not None
