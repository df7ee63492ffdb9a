"""Requests of ASGI and WSGI applications, one run each, named by their routes."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from vestige.emit.pending_run import PendingRun

_FAILED_STATUS = 500


def install_starlette(module: ModuleType) -> None:
    """Wrap applications of Starlette and FastAPI. `module` is starlette.applications."""
    _wrap_asgi(module.Starlette)


def install_django_async(module: ModuleType) -> None:
    _wrap_asgi(module.ASGIHandler)


def install_flask(module: ModuleType) -> None:
    """Wrap applications of Flask. `module` is flask.app."""
    _wrap_wsgi(module.Flask, "wsgi_app", _flask_route)


def install_django(module: ModuleType) -> None:
    """Wrap applications of Django. `module` is django.core.handlers.wsgi."""
    _wrap_wsgi(module.WSGIHandler, "__call__", _django_route)


# --- ASGI -----------------------------------------------------------------------------------------


def _wrap_asgi(owner: Any) -> None:
    original = owner.__call__

    @functools.wraps(original)
    async def call(self: Any, scope: Any, receive: Any, send: Any) -> None:
        if scope.get("type") not in ("http", "websocket") or "vestige.run" in scope:
            await original(self, scope, receive, send)  # also an application in another
            return
        scope["vestige.run"] = True
        pending = PendingRun(functools.partial(_asgi_name, scope))
        found: dict[str, Any] = {}

        async def send_and_note(message: Any) -> None:
            if message.get("type") == "http.response.start":
                found["status_code"] = message.get("status")
            await send(message)

        try:
            with pending.active():
                await original(self, scope, receive, send_and_note)
        except BaseException as error:
            pending.end(error, found)
            raise
        pending.end(None, found, status=_status_of(found.get("status_code")))

    owner.__call__ = call


def _asgi_name(scope: Mapping[str, Any]) -> str:
    path = getattr(scope.get("route"), "path", None)
    if path is None:
        path = str(scope.get("path", ""))
        for name, value in (scope.get("path_params") or {}).items():
            path = path.replace(f"/{value}", f"/{{{name}}}", 1)
    if scope.get("type") == "http" and path == scope.get("path"):
        path = _django_path(path)
    return f"{scope.get('method', 'WebSocket')} {path}"


# --- WSGI -----------------------------------------------------------------------------------------


def _wrap_wsgi(
    owner: Any, method: str, find_route: Callable[[Any, Mapping[str, Any]], str]
) -> None:
    original = getattr(owner, method)

    @functools.wraps(original)
    def call(self: Any, environ: Any, start_response: Any) -> Any:
        verb = environ.get("REQUEST_METHOD", "")
        pending = PendingRun(lambda: f"{verb} {find_route(self, environ)}")
        found: dict[str, Any] = {}

        def note_status(status: str, *args: Any, **kwargs: Any) -> Any:
            code = status.partition(" ")[0]
            found["status_code"] = int(code) if code.isdecimal() else None
            return start_response(status, *args, **kwargs)

        try:
            with pending.active():
                response = original(self, environ, note_status)
        except BaseException as error:
            pending.end(error, found)
            raise
        return _Response(response, pending, found)

    setattr(owner, method, call)


class _Response:
    """The chunks of a response. The server closes it after the last one."""

    def __init__(self, response: Any, pending: PendingRun, found: dict[str, Any]) -> None:
        self._response, self._pending, self._found = response, pending, found

    def __iter__(self) -> Iterator[bytes]:
        chunks = iter(self._response)
        while True:
            with self._pending.active():
                try:
                    chunk = next(chunks)
                except StopIteration:
                    self._end()
                    return
                except BaseException as error:
                    self._pending.end(error, self._found)
                    raise
            yield chunk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._response, name)

    def close(self) -> None:
        try:
            close = getattr(self._response, "close", None)
            if close is not None:
                with self._pending.active():
                    close()
        finally:
            self._end()

    def _end(self) -> None:
        status = _status_of(self._found.get("status_code"))
        self._pending.end(None, self._found, status=status)


def _status_of(code: int | None) -> str | None:
    return "error" if code is not None and code >= _FAILED_STATUS else None


def _flask_route(app: Any, environ: Mapping[str, Any]) -> str:
    rule, _ = app.url_map.bind_to_environ(environ).match(return_rule=True)
    return str(rule.rule)


def _django_route(handler: Any, environ: Mapping[str, Any]) -> str:
    return _django_path(str(environ.get("PATH_INFO", "")))


def _django_path(path: str) -> str:
    urls = sys.modules.get("django.urls")
    try:
        return path if urls is None else "/" + urls.resolve(path).route
    except Exception:  # noqa: BLE001  # no route, or no settings
        return path
