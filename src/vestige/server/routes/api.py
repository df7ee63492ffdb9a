"""The API: each verb of the table in query/tool_table.py at /api/v1/<verb>.

    GET /api/v1/show?id=r7&errors=true           its data, with stable keys and a version
    GET /api/v1/show?id=r7&format=text&budget=500

Arguments are checked as for MCP, by the same table. An id is looked for in the store and
nowhere else: no path can be opened by one. A page that has another names it (`Link`, next).
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
from vestige.query.search.filters import AGES
from vestige.query.tool_table import TOOLS, Parameter, Tool, ask, check_arguments
from vestige.query.views.body_view import BodyAnswer
from vestige.server.auth import GuardedRoute, principal
from vestige.server.openapi_schemas import verb_operation
from vestige.server.responses import PRIVATE, encode, matches, packed
from vestige.server.server_state import Server

PREFIX = "/api/v1/"
HOME_WIDE = ("doctor", "sql", "trends")
"""Whose answers depend on more than rows and arguments: on journals, or on what time it is."""
HEAVY = ("sql", "grep")
"""What they compute is the client's own: a query, or an expression."""
PAGES = {"show": SHOW_ROWS_MAX}
"""Whose data is all there is unless a limit is given: here it always is."""


@dataclass(frozen=True, slots=True)
class Question:
    """One request, as a thread needs it."""

    who: Principal
    tool: Tool
    arguments: dict[str, Any]
    form: str
    accept_encoding: str
    if_none_match: str


def routes(server: Server) -> list[BaseRoute]:
    return [_door(server, tool) for tool in TOOLS]


def _door(server: Server, tool: Tool) -> GuardedRoute:
    async def answer(request: Request) -> Response:
        arguments, form = read_arguments(tool, request.query_params.multi_items())
        question = Question(
            principal(request),
            tool,
            arguments,
            form,
            request.headers.get("accept-encoding", ""),
            request.headers.get("if-none-match", ""),
        )
        return await server.in_thread(_answer, server, question, heavy=tool.name in HEAVY)

    return GuardedRoute(
        PREFIX + tool.name, answer, scope="runs:read", operation=verb_operation(tool)
    )


def _answer(server: Server, asked: Question) -> Response:
    """A store that was replaced under our connection is asked again, over a new one."""
    try:
        return _ask_once(server, asked)
    except StoreError:
        return _ask_once(server, asked)


def _ask_once(server: Server, asked: Question) -> Response:
    values = check_arguments(asked.tool, asked.arguments)
    budget = values.pop("budget", None)
    if asked.form == "json" and asked.tool.name in PAGES:
        most = PAGES[asked.tool.name]
        values["limit"] = min(values.get("limit", most), most)
    with server.asking(asked.who) as debugger:
        # Before we read: what is written meanwhile makes the tag too old, never the answer.
        etag = _state_tag(asked, server.state())
        if etag is not None and asked.if_none_match and matches(asked.if_none_match, etag):
            return _unchanged(etag)
        answer = ask(debugger, asked.tool, values)
        data = answer.data() if asked.form == "json" else {}
        body = encode(data) if asked.form == "json" else answer.text(budget).encode()
    if etag is None:
        etag = _tag(body)
        if asked.if_none_match and matches(asked.if_none_match, etag):
            return _unchanged(etag)
    body, headers = packed(body, asked.accept_encoding)
    following = _next_page(answer, data)
    if following is not None:
        query = urlencode([*_pairs(asked.arguments, _PLACES), following])
        headers["link"] = f'<{PREFIX}{asked.tool.name}?{query}>; rel="next"'
    kind = "application/json" if asked.form == "json" else "text/plain; charset=utf-8"
    return Response(
        body, headers={**headers, "content-type": kind, "etag": etag, "cache-control": PRIVATE}
    )


def _unchanged(etag: str) -> Response:
    return Response(
        status_code=304,
        headers={"etag": etag, "cache-control": PRIVATE, "vary": "accept-encoding"},
    )


def _state_tag(asked: Question, state: bytes) -> str | None:
    """Known before the answer is. None: it also depends on something else than the store."""
    told = repr((asked.tool.name, sorted(asked.arguments.items()), asked.who.tenant))
    if asked.form == "text" or asked.tool.name in HOME_WIDE:
        return None
    # Wherever it stands: a tag of the answer itself is never wrong, only later known.
    if any(age in told.lower() for age in AGES):
        return None
    return _tag(f"{__version__} {told} ".encode() + state)


def _tag(data: bytes) -> str:
    # Weak: the same answer is sent with gzip and without.
    return f'W/"{hashlib.blake2b(data, digest_size=12).hexdigest()}"'


_PLACES = frozenset(("after", "bytes", "lines", "head"))
"""Arguments that say which part is wanted: the next page has one of its own."""


def _next_page(answer: Answer, data: dict[str, Any]) -> tuple[str, str] | None:
    """The argument that the next page is asked with."""
    # Without more, `next` is where something new will be.
    following = data.get("next") if data.get("more", True) else None
    if following is None:
        return None
    if isinstance(answer, BodyAnswer):
        return "bytes", f"{following}:{answer.end}"
    return "after", str(following)


def _pairs(arguments: dict[str, Any], without: frozenset[str]) -> list[tuple[str, str]]:
    pairs = []
    for name, value in arguments.items():
        for each in value if isinstance(value, list) else [value]:
            text = str(each).lower() if isinstance(each, bool) else str(each)
            pairs += [(name, text)] if name not in without else []
    return pairs


# --- arguments ----------------------------------------------------------------------------------


def read_arguments(tool: Tool, pairs: Iterable[tuple[str, str]]) -> tuple[dict[str, Any], str]:
    """The query's texts as the kinds that the verb takes, and the form of the answer."""
    known = {one.name: one for one in tool.all_parameters}
    arguments: dict[str, Any] = {}
    form = "json"
    for name, text in pairs:
        if len(text) > ARGUMENT_MAX:
            raise UsageError(f"{tool.name}: an argument is longer than {ARGUMENT_MAX} characters.")
        if "\0" in text:
            raise UsageError(f"{tool.name}: an argument has a NUL in it (expected text).")
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
    digits = text.removeprefix("-")
    if parameter.kind == "integer" and digits.isdecimal() and digits.isascii():
        # Beyond what a store can count, but not beyond what it may be asked with.
        return max(-(2**53), min(2**53, int(text[:20])))
    return text
