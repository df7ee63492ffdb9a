"""Connections of the proxy to the real host, directly or through the user's own proxy."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

CONNECT_S = 60.0
HEAD_MAX = 256 * 1024
BUFFER = 256 * 1024

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class UpstreamError(Exception):
    """The real host could not be reached, or its certificate is not valid."""


class UnreachableError(UpstreamError):
    """The real host cannot be connected. The program would have failed without the proxy, too."""


class ParentProxy(NamedTuple):
    """A proxy of the user, which the connections of the program have to use."""

    host: str
    port: int
    tls: bool
    authorization: str


def find_parent(env: Mapping[str, str], scheme: str) -> str | None:
    """Return the URL of the user's own proxy for a scheme."""
    names = (f"{scheme}_proxy", f"{scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY")
    return next((env[name] for name in names if env.get(name)), None)


def parse_parent(url: str | None) -> ParentProxy | None:
    """Parse the URL of a proxy. ValueError: a kind of proxy that is not supported."""
    if not url:
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"a proxy of the kind {parts.scheme}")
    authorization = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        authorization = "Basic " + base64.b64encode(pair).decode()
    tls = parts.scheme == "https"
    return ParentProxy(parts.hostname, parts.port or (443 if tls else 80), tls, authorization)


class Upstream:
    """Opens connections as the program would have done without the recording proxy."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._parents = {scheme: find_parent(env, scheme) for scheme in ("http", "https")}
        excluded = env.get("no_proxy") or env.get("NO_PROXY") or ""
        self._excluded = {"no": excluded} if excluded else {}
        self._contexts: dict[bool, ssl.SSLContext] = {}

    def parent_for(self, scheme: str, host: str, port: int) -> ParentProxy | None:
        if self._excluded and proxy_bypass_environment(f"{host}:{port}", self._excluded):
            return None
        return parse_parent(self._parents[scheme])

    async def connect(self, scheme: str, host: str, port: int) -> Streams:
        """Open a connection to a host. Through the user's proxy, it is a tunnel."""
        try:
            async with asyncio.timeout(CONNECT_S):
                parent = self.parent_for(scheme, host, port)
                if parent is None:
                    return await asyncio.open_connection(host, port, limit=BUFFER)
                return await self._tunnel(parent, host, port)
        except TimeoutError:
            raise UnreachableError(
                f"no connection to {host}:{port} within {CONNECT_S:.0f} s"
            ) from None
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            raise UnreachableError(f"no connection to {host}:{port}: {error}") from None

    async def connect_proxy(self, parent: ParentProxy) -> Streams:
        """Open a connection to the user's proxy itself."""
        context = ssl.create_default_context() if parent.tls else None
        return await asyncio.open_connection(parent.host, parent.port, ssl=context, limit=BUFFER)

    async def _tunnel(self, parent: ParentProxy, host: str, port: int) -> Streams:
        reader, writer = await self.connect_proxy(parent)
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n"
        if parent.authorization:
            head += f"Proxy-Authorization: {parent.authorization}\r\n"
        writer.write(f"{head}\r\n".encode("latin-1"))
        answer = await reader.readuntil(b"\r\n\r\n")
        status = answer.split(b" ", 2)[1:2]
        if status != [b"200"]:
            writer.close()
            line = answer.partition(b"\r\n")[0].decode("latin-1")
            raise UpstreamError(f"the proxy {parent.host}:{parent.port} answered {line}")
        return reader, writer

    async def start_tls(self, streams: Streams, host: str, http2: bool) -> None:
        """Encrypt a connection. The certificate of the host is verified."""
        _, writer = streams
        try:
            async with asyncio.timeout(CONNECT_S):
                await writer.start_tls(self._context(http2), server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            writer.close()
            reason = f"the certificate of {host} is not valid: {error.verify_message}"
            raise UpstreamError(reason) from None
        except (OSError, TimeoutError) as error:
            writer.close()
            raise UpstreamError(f"TLS with {host} failed: {error or 'timeout'}") from None

    def _context(self, http2: bool) -> ssl.SSLContext:
        context = self._contexts.get(http2)
        if context is None:
            context = self._contexts[http2] = ssl.create_default_context()
            context.set_alpn_protocols(["h2", "http/1.1"] if http2 else ["http/1.1"])
        return context
