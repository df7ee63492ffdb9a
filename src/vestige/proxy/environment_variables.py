"""The environment variables that lead a program to the proxy.

Each value may contain `{parent}`, the place of the run and the span that start the program. The
file `variables.json` of the proxy's folder has the values, and those of the user that they replace
(boot/child_proxy.py reads it).
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

PARENT = "{parent}"

BASE_URLS = (
    "ANTHROPIC_BASE_URL",
    "OPENAI_BASE_URL",
    "OPENAI_API_BASE",
    "GOOGLE_GEMINI_BASE_URL",
    "GEMINI_BASE_URL",
    "OLLAMA_HOST",
    "OPENROUTER_BASE_URL",
    "MISTRAL_BASE_URL",
    "GROQ_BASE_URL",
    "DEEPSEEK_BASE_URL",
    "KIMI_BASE_URL",
)
_BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "CODEX_CA_CERTIFICATE")
"""Variables whose file replaces the certificates of the system."""
_BUNDLE_MAX = 16 * 1024 * 1024


def find_bases(env: Mapping[str, str]) -> dict[str, str]:
    """Return the base URLs without TLS, by variable: programs call loopback without a proxy."""
    return {
        name: env[name] for name in BASE_URLS if env.get(name, "").lower().startswith("http://")
    }


def find_hosts(env: Mapping[str, str]) -> list[str]:
    """Return the hosts of base URLs with TLS: these are model hosts of the user."""
    urls = [env[name] for name in BASE_URLS if env.get(name, "").lower().startswith("https://")]
    return [host for url in urls if (host := urlsplit(url).hostname)]


def make_variables(
    env: Mapping[str, str], folder: Path, authority: bytes, port: int, token: str
) -> dict[str, Any]:
    """Write the certificates, and return the variables with the values that they replace."""
    proxy = f"http://{PARENT}:{token}@127.0.0.1:{port}"
    values = dict.fromkeys(("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"), proxy)
    values.update(_write_certificates(env, folder, authority))
    for name in find_bases(env):
        values[name] = f"http://127.0.0.1:{port}/{token}.{name}.{PARENT}"
    preload = Path(__file__).parent / "node_preload.cjs"
    quoted = str(preload).replace("\\", "\\\\").replace('"', '\\"')
    options = env.get("NODE_OPTIONS", "")
    values["NODE_OPTIONS"] = f'{options} --require "{quoted}"'.strip()
    values["VESTIGE_PROXY_URL"] = proxy
    return {"set": values, "before": {name: env.get(name) for name in values}}


def _write_certificates(env: Mapping[str, str], folder: Path, authority: bytes) -> dict[str, str]:
    """Write files with the run's certificate and those that the program would have trusted."""
    values = {}
    default = _read(env.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().openssl_cafile)
    if default is None:
        default = _read("/etc/ssl/certs/ca-certificates.crt") or _read("/etc/ssl/cert.pem")
    for name in _BUNDLES:
        content = _read(env[name]) if env.get(name) else default
        if content is not None:
            values[name] = _write(folder / f"{name.lower()}.pem", content + b"\n" + authority)
    extra = _read(env.get("NODE_EXTRA_CA_CERTS")) or b""
    values["NODE_EXTRA_CA_CERTS"] = _write(folder / "node.pem", extra + b"\n" + authority)
    return values


def _read(path: str | None) -> bytes | None:
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            content = file.read(_BUNDLE_MAX)
    except OSError:
        return None
    return content if b"-----BEGIN" in content else None


def _write(path: Path, content: bytes) -> str:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
    return str(path)
