"""/v1/openapi.json: the OpenAPI document, generated from the routes.

Each GuardedRoute with an `operation` is listed with its own path, parameters and responses. The
common parts (errors, keys, limits) are added here. Tests compare the document with the routes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from vestige._version import __version__
from vestige.server.auth import GuardedRoute
from vestige.server.responses import PRIVATE, accepts_gzip, compress, encode
from vestige.server.server_state import Server

PATH = "/v1/openapi.json"

_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error", "message"],
    "properties": {
        "error": {"type": "string", "minLength": 1, "description": "A stable code."},
        "message": {"type": "string", "minLength": 1, "description": "A readable message."},
        "details": {"type": "object"},
    },
    "additionalProperties": False,
}
_ERRORS = {
    "400": "The request is invalid. The message contains what was expected.",
    "401": "The key is missing, unknown, expired or revoked.",
    "403": "The key lacks the scope (`details.scope`), or the request comes from another site.",
    "404": "Not found, or another tenant's.",
    "408": "The body did not arrive in time.",
    "413": "The body is too long.",
    "429": "Too many requests or streams (`details.retryAfter`, seconds).",
    "503": "The server is too busy, or the store cannot be read now.",
}


def routes(server: Server) -> list[BaseRoute]:
    # Rendered once per encoding, because requests for it need no key.
    cache: dict[bool, tuple[bytes, dict[str, str]]] = {}

    async def openapi(request: Request) -> Response:
        accepted = request.headers.get("accept-encoding", "")
        use_gzip = accepts_gzip(accepted)
        if use_gzip not in cache:
            cache[use_gzip] = compress(encode(render_document(request.app.routes)), accepted)
        body, headers = cache[use_gzip]
        return Response(
            body,
            headers={**headers, "content-type": "application/json", "cache-control": PRIVATE},
        )

    return [GuardedRoute(PATH, openapi, public=True, operation=_OPERATION)]


def render_document(routes: Sequence[BaseRoute]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if isinstance(route, GuardedRoute) and route.operation is not None:
            operations = paths.setdefault(route.path_format, {})
            for method in sorted((route.methods or set()) - {"HEAD"}):
                operations[method.lower()] = _operation(route, method)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Vestige",
            "version": __version__,
            "summary": "Recorded runs of AI agents: the debugger's verbs over HTTP.",
        },
        "paths": dict(sorted(paths.items())),
        "security": [{"key": []}, {"cookie": []}],
        "components": {
            "schemas": {"Error": _ERROR_SCHEMA},
            "responses": {status: error(meaning) for status, meaning in _ERRORS.items()},
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A key of the server, or the token of the printed URL.",
                },
                "cookie": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "vestige-PORT",
                    "description": "Set in exchange for the token in the printed URL.",
                },
            },
        },
    }


def error(description: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Error"}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _operation(route: GuardedRoute, method: str) -> dict[str, Any]:
    """Return the route's operation together with the common parts."""
    declared = route.operation or {}
    operation = dict(declared.get(method.lower(), declared))
    operation.setdefault("operationId", _operation_id(method, route.path_format))
    parameters = operation.get("parameters", [])
    operation["parameters"] = [*_path_parameters(route, parameters), *parameters]
    responses = operation.get("responses", {})
    operation["responses"] = {
        **(responses or {"200": {"description": "Done."}}),
        **{
            status: {"$ref": f"#/components/responses/{status}"}
            for status in _ERRORS
            if status not in responses and (status != "408" or route.body_max)
        },
    }
    if route.public:
        operation["security"] = []
    elif route.scope is not None:
        operation["x-vestige-scope"] = route.scope
    return operation


def _path_parameters(
    route: GuardedRoute, declared: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the parameters of the path that the operation does not declare itself."""
    names = {parameter.get("name") for parameter in declared if parameter.get("in") == "path"}
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in route.param_convertors
        if name not in names
    ]


def _operation_id(method: str, path: str) -> str:
    return "_".join([method.lower(), *re.findall(r"\w+", path)])


_OPERATION: dict[str, Any] = {
    "summary": "This document.",
    "responses": {
        "200": {
            "description": "OpenAPI 3.1.",
            "content": {"application/json": {"schema": {"type": "object"}}},
        }
    },
}
