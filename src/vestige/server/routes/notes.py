"""Add, edit and delete notes of a run or a span.

    POST   /api/v1/notes             {"id": "r7.s12", "text": "wrong customer", "author": "eva"}
    PATCH  /api/v1/notes/NOTE?id=r7  {"text": "wrong order"}
    DELETE /api/v1/notes/NOTE?id=r7

Elsewhere: the verb `notes` reads notes, at the same path (server/routes/api.py).
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from vestige.errors import UsageError
from vestige.fleet.api_keys import Principal
from vestige.limits import NAME_MAX, NOTE_BODY_MAX, NOTE_MAX
from vestige.query.views.notes import note_data
from vestige.server.auth import Endpoint, GuardedRoute, principal
from vestige.server.responses import NO_STORE, encode
from vestige.server.routes.api import PREFIX
from vestige.server.server_state import LOCAL, Server

T = TypeVar("T")


class NewNote(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request."""

    id: str
    text: str
    author: str | None = None


class NewText(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request that edits a note."""

    text: str


_HEADERS: Final = {"content-type": "application/json", "cache-control": NO_STORE}


def routes(server: Server) -> list[BaseRoute]:
    async def post_note(request: Request) -> Response:
        body = await request.body()
        data = await server.in_thread(_add_note, server, principal(request), body)
        return Response(encode(data), 201, _HEADERS)

    async def change_note(request: Request) -> Response:
        target = request.query_params.get("id", ""), request.path_params["note"]
        body = await request.body() if request.method == "PATCH" else None
        data = await server.in_thread(_change_note, server, principal(request), target, body)
        return Response(encode(data), 200, _HEADERS)

    def route(path: str, endpoint: Endpoint, method: str, operation: dict[str, Any]) -> BaseRoute:
        return GuardedRoute(
            PREFIX + path,
            endpoint,
            methods=(method,),
            scope="runs:write",
            body_max=NOTE_BODY_MAX if method != "DELETE" else 0,
            operation=operation,
        )

    return [
        route("notes", post_note, "POST", _ADD),
        route("notes/{note}", change_note, "PATCH", _EDIT),
        route("notes/{note}", change_note, "DELETE", _DELETE),
    ]


def _add_note(server: Server, caller: Principal, body: bytes) -> dict[str, Any]:
    from vestige.transfer import add_note
    from vestige.transfer.write_note import find_author

    new = _decode(body, NewNote, "id and text")
    if not new.id.strip() or "\0" in new.id:
        raise UsageError("note: id is missing (expected a run or a span).")
    with server.open_debugger(caller) as debugger:
        author = new.author or (find_author() if caller is LOCAL else caller.key_id)
        note = add_note(server.home, debugger, new.id, new.text, author=author)
        run = debugger.store.load_run(note.run_id)
    (data,) = note_data(run.spans, [note])
    return {"version": 1, "run_id": note.run_id, "note": data}


def _change_note(
    server: Server, caller: Principal, target: tuple[str, str], body: bytes | None
) -> dict[str, Any]:
    """Edit a note, or delete it if there is no body."""
    from vestige.transfer.write_note import delete_note, edit_note

    place, which = target
    if not place.strip() or "\0" in place:
        raise UsageError("note: the parameter id is missing (expected a run or a span).")
    with server.open_debugger(caller) as debugger:
        if body is None:
            note = delete_note(server.home, debugger, place, which)
        else:
            text = _decode(body, NewText, "text").text
            note = edit_note(server.home, debugger, place, which, text)
        run = debugger.store.load_run(note.run_id)
    (data,) = note_data(run.spans, [note])
    return {"version": 1, "run_id": note.run_id, "note": data}


def _decode(body: bytes, kind: type[T], fields: str) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"note: the body is invalid ({error}; expected an object with {fields})."
        ) from None


_TEXT: Final = {"type": "string", "minLength": 1, "maxLength": NOTE_MAX}


def _reply(description: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "required": ["version", "run_id", "note"],
        "properties": {
            "version": {"type": "integer"},
            "run_id": {"type": "string"},
            "note": {"type": "object"},
        },
    }
    return {"description": description, "content": {"application/json": {"schema": schema}}}


_ID: Final[dict[str, Any]] = {
    "name": "id",
    "in": "query",
    "required": True,
    "description": "The run or the span.",
    "schema": {"type": "string", "minLength": 1},
}
_NOTE: Final[dict[str, Any]] = {
    "name": "note",
    "in": "path",
    "required": True,
    "description": "The id of the note, or its number in the list of notes.",
    "schema": {"type": "string", "minLength": 1},
}
_EDIT: Final[dict[str, Any]] = {
    "operationId": "editNote",
    "summary": "Replace the text of a note. Secrets are redacted before it is stored.",
    "parameters": [_NOTE, _ID],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["text"],
                    "properties": {"text": _TEXT},
                    "additionalProperties": False,
                }
            }
        },
    },
    "responses": {"200": _reply("The note as stored.")},
}
_DELETE: Final[dict[str, Any]] = {
    "operationId": "deleteNote",
    "summary": "Delete a note.",
    "parameters": [_NOTE, _ID],
    "responses": {"200": _reply("The note that was deleted.")},
}
_ADD: Final[dict[str, Any]] = {
    "operationId": "note",
    "summary": "Add a note to a run or a span. Secrets are redacted before it is stored.",
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["id", "text"],
                    "properties": {
                        "id": {"type": "string", "minLength": 1},
                        "text": _TEXT,
                        "author": {"type": ["string", "null"], "maxLength": NAME_MAX},
                    },
                    "additionalProperties": False,
                }
            }
        },
    },
    "responses": {"201": _reply("The note is stored.")},
}
