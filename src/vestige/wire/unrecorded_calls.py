"""Report model calls of clients that are not hooked: http.client, WebSockets, pycurl.

Python raises an audit event for each request that `http.client` sends, and `urllib.request` uses
`http.client`. A request with the path of a model API is reported on its run as missing, with its
host. urllib3 also uses `http.client`, but has a hook of its own. The hook of an audit event stays
for the life of the process; without a capture it does nothing. libcurl raises no such event, so
the handles of `pycurl` report the address that they are given.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from vestige.providers.endpoints import find_endpoint, provider_of
from vestige.record.types import OWN_COMPONENT, VERSION, Log
from vestige.wire import capture
from vestige.wire.outgoing_request import SpanContext
from vestige.wire.patching import Patch

_REQUEST = re.compile(rb"(POST) (\S{1,2000}) HTTP/1\.[01]\r\n")

_installed = False


def install(module: ModuleType) -> Callable[[], None]:
    """Report calls of `http.client` from now on."""
    global _installed
    if not _installed:
        _installed = True
        sys.addaudithook(_on_audit)
    return _do_nothing


def _do_nothing() -> None:
    """An audit hook cannot be removed."""


def _on_audit(event: str, args: tuple[Any, ...]) -> None:
    if event != "http.client.send" or capture.active() is None:
        return
    try:
        _check(*args)
    except Exception:  # noqa: BLE001  # the program's request must not fail
        return


def _check(connection: Any, data: Any) -> None:
    found = _REQUEST.match(data) if isinstance(data, bytes) else None
    if found is None or _is_hooked(connection):
        return
    host = (
        connection.host if connection.port in (80, 443) else f"{connection.host}:{connection.port}"
    )
    path = found[2].decode("latin-1").partition("?")[0]
    endpoint = find_endpoint("POST", host, path)
    if endpoint is not None and endpoint.is_model_call:
        report(host, "http.client")


def _is_hooked(connection: Any) -> bool:
    return any(cls.__module__.startswith("urllib3.") for cls in type(connection).__mro__)


def report(host: str, client: str) -> None:
    """Record on the run that one of its model calls is missing."""
    from vestige.wire import call_selection

    policy = capture.active()
    if policy is None or call_selection._OFF.get():
        return
    context = call_selection.find_span_context(policy)
    if context is None:
        return
    record_gap(context, f"a model call was not recorded: {host} ({client})")


def record_gap(context: SpanContext, reason: str) -> None:
    """Record on a run why a part of it is missing."""
    record_warning(context, reason, {"gap": reason, "count": 1})


def record_warning(
    context: SpanContext, message: str, attributes: dict[str, Any] | None = None
) -> None:
    """Record a warning of Vestige itself on a run."""
    emitter = context.emitter
    emitter.send(
        Log(
            VERSION,
            emitter.writer,
            next(emitter.seq),
            emitter.now_ns(),
            context.run_id,
            OWN_COMPONENT,
            "warn",
            message,
            context.parent_id,
            attributes or {},
        )
    )


def install_websockets(module: ModuleType) -> Callable[[], None]:
    """Report sessions with providers that a client of `websockets` opens."""
    patch = Patch()
    target: Any = module.connect
    if isinstance(target, type):
        patch.wrap(target, "__init__", _watch_session)
    else:
        patch.wrap(module, "connect", _watch_connect)
    return patch.undo


def _watch_session(call: Callable[..., None]) -> Callable[..., None]:
    def init(self: Any, uri: Any, *args: Any, **kwargs: Any) -> None:
        _check_uri(uri)
        call(self, uri, *args, **kwargs)

    return init


def _watch_connect(call: Callable[..., Any]) -> Callable[..., Any]:
    def connect(uri: Any, *args: Any, **kwargs: Any) -> Any:
        _check_uri(uri)
        return call(uri, *args, **kwargs)

    return connect


def _check_uri(uri: Any) -> None:
    try:
        from urllib.parse import urlsplit

        parts = urlsplit(str(uri))
        if provider_of(parts.netloc) is not None or parts.path.endswith("/realtime"):
            report(parts.hostname or "", "websockets")
    except Exception:  # noqa: BLE001  # the program's session must not fail
        return


def install_pycurl(module: ModuleType) -> Callable[[], None]:
    """Report the calls of handles of `pycurl` to providers."""
    target: Any = module
    before, url_option = target.Curl, target.URL

    def setopt(self: Any, option: Any, *value: Any) -> Any:
        if option == url_option and value:
            _check_url(value[0])
        return before.setopt(self, option, *value)

    # A class of the extension cannot be changed.
    watched = type("Curl", (before,), {"setopt": setopt, "__module__": before.__module__})
    target.Curl = watched

    def undo() -> None:
        if target.Curl is watched:
            target.Curl = before

    return undo


def _check_url(url: str | bytes) -> None:
    try:
        from urllib.parse import urlsplit

        parts = urlsplit(url.decode("latin-1") if isinstance(url, bytes) else url)
        endpoint = find_endpoint("POST", parts.netloc, parts.path)
        if endpoint is not None and endpoint.is_model_call:
            report(parts.netloc.rpartition("@")[2], "pycurl")
    except Exception:  # noqa: BLE001  # the program's request must not fail
        return
