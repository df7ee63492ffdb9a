"""/api/v1/<verb>: each verb of query/command_tools.py as a GET request.

    GET /api/v1/show?id=r7&errors=true           JSON with stable keys and a version
    GET /api/v1/show?id=r7&format=text&budget=500

The table validates the arguments, as for MCP. An id is looked up only in the store and never
opened as a path. A response with a next page links to it (`Link`, rel=next).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from vestige._version import __version__
from vestige.errors import StoreError, UsageError
from vestige.fleet.api_keys import Principal
from vestige.limits import ARGUMENT_MAX, SHOW_ROWS_MAX
from vestige.query.answer import Answer
from vestige.query.command_tools import TOOLS, Parameter, Tool, check_arguments
from vestige.query.command_tools import ask as call_tool
from vestige.query.search.filters import AGES
from vestige.query.views.body import BodyAnswer
from vestige.server.auth import GuardedRoute, principal
from vestige.server.openapi_schemas import verb_operation
from vestige.server.responses import PRIVATE, compress, encode, matches
from vestige.server.server_state import Server

PREFIX = "/api/v1/"
HOME_WIDE = ("doctor", "sql", "trends")
"""Verbs whose responses also depend on journals or the current time, not only on the store."""
HEAVY = ("sql", "grep", "groups")
"""Verbs that execute a user-supplied query or expression, or examine many runs."""
PAGES = {"show": SHOW_ROWS_MAX}
"""Verbs that return everything without a limit, and the limit that applies here."""


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """The parts of a request that the reader thread needs."""

    principal: Principal
    tool: Tool
    arguments: dict[str, Any]
    format: str
    accept_encoding: str
    if_none_match: str


def routes(server: Server) -> list[BaseRoute]:
    return [_make_route(server, tool) for tool in TOOLS]


def _make_route(server: Server, tool: Tool) -> GuardedRoute:
    async def endpoint(request: Request) -> Response:
        arguments, response_format = parse_arguments(tool, request.query_params.multi_items())
        tool_request = ToolRequest(
            principal(request),
            tool,
            arguments,
            response_format,
            request.headers.get("accept-encoding", ""),
            request.headers.get("if-none-match", ""),
        )
        return await server.in_thread(_respond, server, tool_request, heavy=tool.name in HEAVY)

    return GuardedRoute(
        PREFIX + tool.name, endpoint, scope="runs:read", operation=verb_operation(tool)
    )


def _respond(server: Server, request: ToolRequest) -> Response:
    """Respond, with one retry over a new connection: the store may have been replaced."""
    try:
        return _respond_once(server, request)
    except StoreError:
        return _respond_once(server, request)


def _respond_once(server: Server, request: ToolRequest) -> Response:
    values = check_arguments(request.tool, request.arguments)
    budget = values.pop("budget", None)
    is_json = request.format == "json"
    if is_json and request.tool.name in PAGES:
        most = PAGES[request.tool.name]
        values["limit"] = min(values.get("limit", most), most)
    with server.open_debugger(request.principal) as debugger:
        # Computed before reading: a concurrent write makes the ETag stale, never the response.
        etag = _state_tag(request, server.state())
        if etag is not None and request.if_none_match and matches(request.if_none_match, etag):
            return _not_modified(etag)
        answer = call_tool(debugger, request.tool, values)
        data = answer.data() if is_json else {}
        body = encode(data) if is_json else answer.text(budget).encode()
    if etag is None:
        etag = _tag(body)
        if request.if_none_match and matches(request.if_none_match, etag):
            return _not_modified(etag)
    body, headers = compress(body, request.accept_encoding)
    cursor = _next_page(answer, data)
    if cursor is not None:
        query = urlencode([*_pairs(request.arguments, _CURSORS), cursor])
        headers["link"] = f'<{PREFIX}{request.tool.name}?{query}>; rel="next"'
    kind = "application/json" if is_json else "text/plain; charset=utf-8"
    return Response(
        body, headers={**headers, "content-type": kind, "etag": etag, "cache-control": PRIVATE}
    )


def _not_modified(etag: str) -> Response:
    return Response(
        status_code=304,
        headers={"etag": etag, "cache-control": PRIVATE, "vary": "accept-encoding"},
    )


def _state_tag(request: ToolRequest, state: bytes) -> str | None:
    """Return an ETag of request and store. None: the response depends on more than these."""
    if request.format == "text" or request.tool.name in HOME_WIDE:
        return None
    if "seconds" in request.arguments:  # the next response has more
        return None
    tool, arguments = request.tool.name, sorted(request.arguments.items())
    key = repr((tool, arguments, request.principal.tenant))
    # An age anywhere in the arguments makes the response depend on the current time. A false
    # match only costs speed: an ETag of the response itself is always correct.
    if any(age in key.lower() for age in AGES):
        return None
    return _tag(f"{__version__} {key} ".encode() + state)


def _tag(data: bytes) -> str:
    # A weak ETag: the same response is sent with and without gzip.
    return f'W/"{hashlib.blake2b(data, digest_size=12).hexdigest()}"'


_CURSORS = frozenset(("after", "bytes", "lines", "head"))
"""Arguments that select a part of the data. The next page has its own."""


def _next_page(answer: Answer, data: dict[str, Any]) -> tuple[str, str] | None:
    """Return the argument that requests the next page."""
    # If `more` is false, `next` is the cursor of data that does not exist yet.
    cursor = data.get("next") if data.get("more", True) else None
    if cursor is None:
        return None
    if isinstance(answer, BodyAnswer):
        return "bytes", f"{cursor}:{answer.end}"
    return "after", str(cursor)


def _pairs(arguments: dict[str, Any], without: frozenset[str]) -> list[tuple[str, str]]:
    pairs = []
    for name, value in arguments.items():
        for each in value if isinstance(value, list) else [value]:
            text = str(each).lower() if isinstance(each, bool) else str(each)
            pairs += [(name, text)] if name not in without else []
    return pairs


# --- arguments ----------------------------------------------------------------------------------


def parse_arguments(tool: Tool, pairs: Iterable[tuple[str, str]]) -> tuple[dict[str, Any], str]:
    """Convert the query's texts to the parameters' types; also return the response format."""
    known = {parameter.name: parameter for parameter in tool.all_parameters}
    arguments: dict[str, Any] = {}
    response_format = "json"
    for name, text in pairs:
        if len(text) > ARGUMENT_MAX:
            raise UsageError(f"{tool.name}: an argument is longer than {ARGUMENT_MAX} characters.")
        if "\0" in text:
            raise UsageError(f"{tool.name}: an argument contains a NUL (expected text).")
        if name == "format":
            if text not in ("json", "text"):
                raise UsageError(f"format: {text[:40]!r} is invalid (expected json or text).")
            response_format = text
            continue
        parameter = known.get(name)
        if parameter is not None and parameter.kind == "array":
            arguments.setdefault(name, []).append(text)
            continue
        if name in arguments:
            raise UsageError(f"{tool.name}: {name[:60]!r} occurs twice (expected once).")
        arguments[name] = text if parameter is None else _parse_value(parameter, text)
    return arguments, response_format


_FLAGS = {"true": True, "1": True, "": True, "false": False, "0": False}


def _parse_value(parameter: Parameter, text: str) -> Any:
    """Parse a number or flag. Invalid text is returned as is, and refused by `check_arguments`."""
    if parameter.kind == "boolean":
        return _FLAGS.get(text.lower(), text)
    digits = text.removeprefix("-")
    if parameter.kind == "integer" and digits.isdecimal() and digits.isascii():
        # Clamped to integers that JSON and SQLite represent exactly.
        return max(-(2**53), min(2**53, int(text[:20])))
    return text
