"""/api/v1/messages: a model call as a chat, for the viewer."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from vestige.errors import UsageError
from vestige.fleet.api_keys import Principal
from vestige.server.auth import GuardedRoute, principal
from vestige.server.responses import NO_STORE, compress, encode
from vestige.server.server_state import Server

PATH = "/api/v1/messages"
ID_MAX = 200
"""Maximum length in characters. A span's id is far shorter."""


def routes(server: Server) -> list[BaseRoute]:
    async def messages(request: Request) -> Response:
        query = request.query_params
        span = query.get("id", "")
        if query.keys() - {"id"} or not span or len(span) > ID_MAX:
            raise UsageError("messages: invalid arguments (expected id, e.g. r7.s12).")
        accepted = request.headers.get("accept-encoding", "")
        return await server.in_thread(_respond, server, principal(request), span, accepted)

    return [GuardedRoute(PATH, messages, scope="runs:read", operation=_OPERATION)]


def _respond(server: Server, caller: Principal, span: str, accepted: str) -> Response:
    with server.open_debugger(caller) as debugger:
        data = debugger.messages(span).data()
    body, headers = compress(encode(data), accepted)
    base = {"content-type": "application/json", "cache-control": NO_STORE}
    return Response(body, headers={**base, **headers})


_TEXT = {"type": ["string", "null"]}
_PART: dict[str, Any] = {
    "type": "object",
    "required": [
        "kind", "text", "size_bytes", "truncated", "name", "call_id", "is_error", "image", "side",
    ],
    "properties": {
        "kind": {
            "type": "string",
            "enum": [
                "text", "thinking", "tool_call", "tool_result", "code", "image", "audio", "file",
                "other",
            ],
        },
        "text": {"type": "string"},
        "size_bytes": {"type": "integer"},
        "truncated": {"type": "boolean"},
        "name": _TEXT,
        "call_id": _TEXT,
        "is_error": {"type": "boolean"},
        "image": {**_TEXT, "description": "A data: URL."},
        "side": {"type": "string", "enum": ["input", "output"]},
    },
}  # fmt: skip
_MESSAGE: dict[str, Any] = {
    "type": "object",
    "required": ["role", "size_bytes", "new", "parts"],
    "properties": {
        "role": {"type": "string"},
        "size_bytes": {"type": "integer"},
        "new": {"type": "boolean", "description": "No earlier call of the run sent it."},
        "parts": {"type": "array", "items": _PART},
    },
}
_LOST_HEAD: dict[str, Any] = {
    "type": "object",
    "required": ["messages", "span"],
    "description": "First messages of an earlier request that this one does not have.",
    "properties": {"messages": {"type": "integer"}, "span": {"type": "string"}},
}
_OPERATION: dict[str, Any] = {
    "operationId": "messages",
    "summary": "A model call as a chat: the messages of its request and its answer, in parts.",
    "parameters": [
        {
            "name": "id", "in": "query", "required": True, "description": "A span: r7.s12.",
            "schema": {"type": "string", "minLength": 1, "maxLength": ID_MAX},
        },
    ],
    "responses": {
        "200": {
            "description": "The messages.",
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": [
                            "version", "span", "previous", "model", "tools", "messages",
                            "messages_left_out", "lost_head", "answer", "finish_reason", "error",
                            "has_sizes",
                        ],
                        "properties": {
                            "version": {"type": "integer"},
                            "span": {"type": "string"},
                            "previous": _TEXT,
                            "model": _TEXT,
                            "tools": {"type": "array", "items": {"type": "string"}},
                            "messages": {"type": "array", "items": _MESSAGE},
                            "messages_left_out": {"type": "integer"},
                            "lost_head": {"oneOf": [_LOST_HEAD, {"type": "null"}]},
                            "has_sizes": {"type": "boolean"},
                            "answer": {"oneOf": [_MESSAGE, {"type": "null"}]},
                            "finish_reason": _TEXT,
                            "error": _TEXT,
                        },
                    }
                }
            },
        }
    },
}  # fmt: skip
