"""The API: each verb of the table in doors/verbs.py at /api/v1/<verb>.

GET /api/v1/show?id=r7&errors=true           its data, with stable keys and a version
GET /api/v1/show?id=r7&format=text&budget=500
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from vestige.access import Principal
from vestige.doors.http.answers import PRIVATE, encode, packed
from vestige.doors.http.guard import Door, principal
from vestige.doors.http.server import Server
from vestige.doors.verbs import TOOLS, Parameter, Tool, ask, check_arguments
from vestige.errors import UsageError

PREFIX = "/api/v1/"


def routes(server: Server) -> list[BaseRoute]:
    return [_door(server, tool) for tool in TOOLS]


def _door(server: Server, tool: Tool) -> Door:
    async def answer(request: Request) -> Response:
        arguments, form = read_arguments(tool, request.query_params.multi_items())
        accepted = request.headers.get("accept-encoding", "")
        who = principal(request)
        body, headers = await server.in_thread(
            _answer, server, who, tool, arguments, form, accepted
        )
        kind = "text/plain; charset=utf-8" if form == "text" else "application/json"
        return Response(body, headers={**headers, "content-type": kind, "cache-control": PRIVATE})

    return Door(PREFIX + tool.name, answer, scope="runs:read")


def _answer(
    server: Server,
    who: Principal,
    tool: Tool,
    arguments: dict[str, Any],
    form: str,
    accepted: str,
) -> tuple[bytes, dict[str, str]]:
    values = check_arguments(tool, arguments)
    budget = values.pop("budget", None)
    with server.asking(who) as debugger:
        answer = ask(debugger, tool, values)
        body = answer.text(budget).encode() if form == "text" else encode(answer.data())
    return packed(body, accepted)


def read_arguments(tool: Tool, pairs: Iterable[tuple[str, str]]) -> tuple[dict[str, Any], str]:
    """The query's texts as the kinds that the verb takes, and the form of the answer."""
    known = {one.name: one for one in tool.all_parameters}
    arguments: dict[str, Any] = {}
    form = "json"
    for name, text in pairs:
        if name == "format":
            if text not in ("json", "text"):
                raise UsageError(f"format: {text[:40]!r} does not fit (expected json or text).")
            form = text
            continue
        parameter = known.get(name)
        if parameter is not None and parameter.kind == "array":
            arguments.setdefault(name, []).append(text)
            continue
        if name in arguments:
            raise UsageError(f"{tool.name}: {name[:60]!r} is given twice (expected once).")
        arguments[name] = text if parameter is None else _value(parameter, text)
    return arguments, form


_FLAGS = {"true": True, "1": True, "": True, "false": False, "0": False}


def _value(parameter: Parameter, text: str) -> Any:
    """A text that is no number or flag stays one: the check then says what was expected."""
    if parameter.kind == "boolean":
        return _FLAGS.get(text.lower(), text)
    if parameter.kind == "integer" and text.lstrip("-").isdecimal() and len(text) <= 20:
        return int(text)
    return text
