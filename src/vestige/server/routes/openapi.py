"""/v1/openapi.json: the API as it is, made of the routes themselves.

Each `Door` with an `operation` is in it: its path, parameters and answers are the route's own,
and what is the same everywhere (errors, keys, limits) is added here. So a route that is not in
it, or takes something else than it says, is a bug that a test finds.
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
from vestige.server.responses import PRIVATE, encode, packed, takes_gzip
from vestige.server.server_state import Server

PATH = "/v1/openapi.json"

_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error", "message"],
    "properties": {
        "error": {"type": "string", "minLength": 1, "description": "A word for programs."},
        "message": {"type": "string", "minLength": 1, "description": "A line for people."},
        "details": {"type": "object"},
    },
    "additionalProperties": False,
}
_ERRORS = {
    "400": "The request makes no sense: the message says what was expected.",
    "401": "No key, or one that is wrong, expired or revoked.",
    "403": "The key is not for this (`details.scope`), or the request comes from another site.",
    "404": "What was asked for is not there, or not this tenant's.",
    "408": "The body did not arrive in time.",
    "413": "The body is too long.",
    "429": "Too many requests or streams (`details.retryAfter`, seconds).",
    "503": "Too busy, or the store cannot be read just now.",
}


def routes(server: Server) -> list[BaseRoute]:
    # Made once: anybody may ask for it.
    made: dict[bool, tuple[bytes, dict[str, str]]] = {}

    async def openapi(request: Request) -> Response:
        accepted = request.headers.get("accept-encoding", "")
        wants_gzip = takes_gzip(accepted)
        if wants_gzip not in made:
            made[wants_gzip] = packed(encode(document(request.app.routes)), accepted)
        body, headers = made[wants_gzip]
        return Response(
            body,
            headers={**headers, "content-type": "application/json", "cache-control": PRIVATE},
        )

    return [GuardedRoute(PATH, openapi, public=True, operation=_OPERATION)]


def document(routes: Sequence[BaseRoute]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if isinstance(route, GuardedRoute) and route.operation is not None:
            methods = sorted((route.methods or set()) - {"HEAD"})
            for method in methods:
                told = _operation(route, method)
                paths.setdefault(route.path_format, {})[method.lower()] = told
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
                    "description": "A key of `vestige keys add`, or the token of the printed URL.",
                },
                "cookie": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "vestige-PORT",
                    "description": "What the token in the printed URL is exchanged for.",
                },
            },
        },
    }


def error(meaning: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Error"}
    return {"description": meaning, "content": {"application/json": {"schema": schema}}}


def _operation(route: GuardedRoute, method: str) -> dict[str, Any]:
    """The route's own words, and what holds for every route."""
    given = route.operation or {}
    own = dict(given.get(method.lower(), given))
    own.setdefault("operationId", _identifier(method, route.path_format))
    own.setdefault("parameters", [])
    own["parameters"] = [*_in_path(route, own["parameters"]), *own["parameters"]]
    own["responses"] = {
        **dict(own.get("responses", {"200": {"description": "Done."}})),
        **{
            status: {"$ref": f"#/components/responses/{status}"}
            for status in _ERRORS
            if status not in own.get("responses", {}) and (status != "408" or route.body_max)
        },
    }
    if route.public:
        own["security"] = []
    elif route.needs is not None:
        own["x-vestige-scope"] = route.needs
    return own


def _in_path(route: GuardedRoute, told: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    names = {one.get("name") for one in told if one.get("in") == "path"}
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in route.param_convertors
        if name not in names
    ]


def _identifier(method: str, path: str) -> str:
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
