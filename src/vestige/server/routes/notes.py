"""POST /api/v1/notes: add a note to a run or a span.

    {"id": "r7.s12", "text": "wrong customer", "author": "eva"}

Elsewhere: the verb `notes` reads notes, at the same path (server/routes/api.py).
"""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from vestige.errors import UsageError
from vestige.fleet.api_keys import Principal
from vestige.limits import NAME_MAX, NOTE_BODY_MAX, NOTE_MAX
from vestige.query.views.notes import note_data
from vestige.server.auth import GuardedRoute, principal
from vestige.server.responses import NO_STORE, encode
from vestige.server.routes.api import PREFIX
from vestige.server.server_state import LOCAL, Server


class NewNote(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request."""

    id: str
    text: str
    author: str | None = None


def routes(server: Server) -> list[BaseRoute]:
    async def post_note(request: Request) -> Response:
        body = await request.body()
        data = await server.in_thread(_add_note, server, principal(request), body)
        headers = {"content-type": "application/json", "cache-control": NO_STORE}
        return Response(encode(data), 201, headers)

    return [
        GuardedRoute(
            PREFIX + "notes",
            post_note,
            methods=("POST",),
            scope="runs:write",
            body_max=NOTE_BODY_MAX,
            operation=_OPERATION,
        )
    ]


def _add_note(server: Server, caller: Principal, body: bytes) -> dict[str, Any]:
    from vestige.transfer import add_note
    from vestige.transfer.write_note import find_author

    try:
        new = msgspec.json.decode(body, type=NewNote)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"note: the body is invalid ({error}; expected an object with id and text)."
        ) from None
    if not new.id.strip() or "\0" in new.id:
        raise UsageError("note: id is missing (expected a run or a span).")
    with server.open_debugger(caller) as debugger:
        author = new.author or (find_author() if caller is LOCAL else caller.key_id)
        note = add_note(server.home, debugger, new.id, new.text, author=author)
        run = debugger.store.load_run(note.run_id)
    (data,) = note_data(run.spans, [note])
    return {"version": 1, "run_id": note.run_id, "note": data}


_OPERATION: dict[str, Any] = {
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
                        "text": {"type": "string", "minLength": 1, "maxLength": NOTE_MAX},
                        "author": {"type": ["string", "null"], "maxLength": NAME_MAX},
                    },
                    "additionalProperties": False,
                }
            }
        },
    },
    "responses": {
        "201": {
            "description": "The note is stored.",
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": ["version", "run_id", "note"],
                        "properties": {
                            "version": {"type": "integer"},
                            "run_id": {"type": "string"},
                            "note": {"type": "object"},
                        },
                    }
                }
            },
        }
    },
}
