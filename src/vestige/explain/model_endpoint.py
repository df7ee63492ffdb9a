"""The model that an investigation uses: address, API, name and key.

    parse_endpoint("openai/gpt-5-mini", None, plain_http=False, environ=os.environ)
    parse_endpoint("http://127.0.0.1:11434/v1/qwen3", ...)      # a server on this machine

The key comes from the environment. The key of a provider is sent only to that provider;
VESTIGE_MODEL_KEY is sent to any address that the user names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import SplitResult, urlsplit

from vestige._runtime.http_url import LOOPBACK, parse_http_url, reject_plain_http
from vestige.errors import UsageError

Api = Literal["openai", "anthropic"]

KEY_VARIABLE: Final = "VESTIGE_MODEL_KEY"


_PROVIDERS: Final[Mapping[Api, tuple[str, str, str]]] = {
    "openai": ("https://api.openai.com/v1", "OPENAI_BASE_URL", "OPENAI_API_KEY"),
    "anthropic": ("https://api.anthropic.com/v1", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
}
"""Address of each provider, and the variables with another address and with the key."""

_PATHS: Final[Mapping[Api, str]] = {"openai": "/chat/completions", "anthropic": "/messages"}
_VERSION: Final = re.compile(r"v\d+(alpha|beta)?\d*")
_EXPECTED: Final = "expected openai/NAME, anthropic/NAME or https://HOST/v1/NAME"
_NAME_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model behind an OpenAI- or Anthropic-compatible chat API."""

    api: Api
    url: str
    """The address that requests are sent to."""
    host: str
    model: str
    key: str | None = field(default=None, repr=False)

    @property
    def is_loopback(self) -> bool:
        return self.host in LOOPBACK


def parse_endpoint(
    text: str, api: Api | None, *, plain_http: bool, environ: Mapping[str, str]
) -> Endpoint:
    """Parse the value of `--model`. Raise UsageError if it cannot be used."""
    provider, _, name = text.partition("/")
    if provider in _PROVIDERS and name:
        found: Api = "openai" if provider == "openai" else "anthropic"
        base = _base_url(found, environ)
        parts, path = _split(base), urlsplit(base).path
        api = api or found
    else:
        parts = _split(text)
        path, name = _split_path(parts.path)
        api = api or _guess_api(parts)
    if not name or len(name) > _NAME_MAX or not name.isprintable() or " " in name:
        raise UsageError(f"--model: {text!r} has no valid model name ({_EXPECTED}).")
    host = parts.hostname or ""
    if not plain_http:
        reject_plain_http("--model", text, parts, "run")
    url = f"{parts.scheme}://{parts.netloc}{_api_path(api, path)}"
    return Endpoint(api, url, host, name, _find_key(api, host, environ))


def _split(text: str) -> SplitResult:
    return parse_http_url(
        "--model",
        text,
        kind=f"a model ({_EXPECTED})",
        expected="host, path and name",
        key_variable=KEY_VARIABLE,
    )


def _split_path(path: str) -> tuple[str, str]:
    """Split the path of the API from the name, which may contain slashes.

    >>> _split_path("/api/v1/meta/llama-4"), _split_path("/qwen3")
    (('/api/v1', 'meta/llama-4'), ('', 'qwen3'))
    """
    words = path.strip("/").split("/")
    versions = [number for number, word in enumerate(words[:-1]) if _VERSION.fullmatch(word)]
    end = versions[0] + 1 if versions else len(words) - 1
    if versions and words[end] == "openai" and len(words) > end + 1:
        end += 1  # Google's compatible API: /v1beta/openai/NAME
    return "".join(f"/{word}" for word in words[:end]), "/".join(words[end:])


def _guess_api(parts: SplitResult) -> Api:
    names = [*(parts.hostname or "").split("."), *parts.path.split("/")[:-1]]
    return "anthropic" if "anthropic" in names else "openai"


def _api_path(api: Api, path: str) -> str:
    path = path.rstrip("/")
    has_version = any(_VERSION.fullmatch(word) for word in path.split("/"))
    if not has_version and (not path or api == "anthropic"):
        path += "/v1"
    return path + _PATHS[api]


def _base_url(api: Api, environ: Mapping[str, str]) -> str:
    default, variable, _ = _PROVIDERS[api]
    return environ.get(variable) or default


def _find_key(api: Api, host: str, environ: Mapping[str, str]) -> str | None:
    variable = _PROVIDERS[api][2]
    own_hosts = {urlsplit(url).hostname for url in (_PROVIDERS[api][0], _base_url(api, environ))}
    key = environ.get(KEY_VARIABLE)
    if not key and host in own_hosts:
        key = environ.get(variable)
    if not key and host not in LOOPBACK:
        names = f"{variable} or {KEY_VARIABLE}" if host in own_hosts else KEY_VARIABLE
        raise UsageError(f"--model: no API key for {host}. Set {names}.")
    if key and not (key.isascii() and key.isprintable()):
        raise UsageError("--model: the API key has characters that no header can have.")
    return key or None
