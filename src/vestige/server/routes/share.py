"""/api/v1/share: what leaves the machine with a run. /api/v1/export: the run as a file.

GET /api/v1/share?id=r7                  counts and sizes, to be shown before a download
GET /api/v1/export?id=r7&format=html     the file; everything in it is redacted
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute

from vestige.errors import UsageError
from vestige.fleet.api_keys import Principal
from vestige.query.debugger import Debugger
from vestige.query.views.show import count_redactions
from vestige.server.auth import GuardedRoute, principal
from vestige.server.html_export import export_html
from vestige.server.responses import NO_STORE, encode
from vestige.server.server_state import Server
from vestige.transfer import export_run

ID_MAX: Final = 200
FORMATS: Final = {
    "html": ("html", "text/html; charset=utf-8"),
    "json": ("json", "application/json"),
    "otlp": ("otlp.jsonl", "application/x-ndjson"),
    "wink": ("wink", "application/zip"),
    "openwop": ("openwop.json", "application/json"),
}
"""Formats of a download: file name extension and content type."""
FILES_SHOWN: Final = 20


def routes(server: Server) -> list[BaseRoute]:
    async def share(request: Request) -> Response:
        run_id, _ = _parse(request, ("id",))
        data = await server.in_thread(_summarize, server, principal(request), run_id)
        return Response(
            encode(data), headers={"content-type": "application/json", "cache-control": NO_STORE}
        )

    async def export(request: Request) -> Response:
        parsed = _parse(request, ("id", "format"))
        return await server.in_thread(_export, server, principal(request), *parsed, heavy=True)

    return [
        GuardedRoute("/api/v1/share", share, scope="runs:read", operation=_SHARE),
        GuardedRoute("/api/v1/export", export, scope="runs:read", operation=_EXPORT),
    ]


def _parse(request: Request, names: tuple[str, ...]) -> tuple[str, str]:
    query = request.query_params
    run_id, name = query.get("id", ""), query.get("format", "html")
    if query.keys() - set(names) or not 0 < len(run_id) <= ID_MAX or "\0" in run_id:
        raise UsageError(f"invalid arguments (expected {' and '.join(names)}, e.g. id=r7).")
    if name not in FORMATS:
        raise UsageError(f"format: unknown (expected one of {', '.join(FORMATS)}).")
    return run_id, name


def _summarize(server: Server, caller: Principal, id: str) -> dict[str, Any]:
    with server.open_debugger(caller) as debugger:
        info = debugger.resolve(id, "run").run
        run = debugger.store.load_run(info.id)
        files = _file_names(debugger, info.id)
        return {
            "version": 1,
            "run": info.short_id,
            "spans": len(run.spans),
            "logs": len(run.logs),
            "payloads": sum(
                ref is not None for span in run.spans for ref in (span.input, span.output)
            ),
            "payload_bytes": debugger.store.sum_body_bytes(info.id),
            "secrets_redacted": count_redactions(run),
            "notes": len(debugger.store.notes(info.id)),
            "files": files[:FILES_SHOWN],
            "file_count": len(files),
        }


def _file_names(debugger: Debugger, run_id: str) -> list[str]:
    data = debugger.files(run_id).data()
    return [str(file.get("path", "")) for file in data.get("files", [])]


def _export(server: Server, caller: Principal, id: str, format: str) -> Response:
    folder = Path(tempfile.mkdtemp(prefix="vestige-export-"))
    try:
        with server.open_debugger(caller) as debugger:
            run = debugger.resolve(id, "run").run
            extension, kind = FORMATS[format]
            name = f"{re.sub(r'[^A-Za-z0-9]', '', run.short_id)}.{extension}"
            path = folder / name
            if format == "html":
                export_html(debugger, run.id, path)
            elif format == "json":
                path.write_bytes(encode(debugger.show(run.id).data()))
            else:
                export_run(debugger.store, run.id, format, path)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return FileResponse(
        path,
        media_type=kind,
        filename=name,
        headers={"cache-control": NO_STORE, "content-security-policy": "sandbox"},
        background=BackgroundTask(shutil.rmtree, folder, ignore_errors=True),
    )


_ID: Final[dict[str, Any]] = {
    "name": "id",
    "in": "query",
    "required": True,
    "description": "A run: r7.",
    "schema": {"type": "string", "minLength": 1, "maxLength": ID_MAX},
}
_COUNTS: Final = (
    "version", "spans", "logs", "payloads", "payload_bytes", "secrets_redacted", "notes",
    "file_count",
)  # fmt: skip
_SHARE: Final[dict[str, Any]] = {
    "operationId": "share",
    "summary": "What an export of a run contains: counts, sizes, redacted secrets, files.",
    "parameters": [_ID],
    "responses": {
        "200": {
            "description": "The counts.",
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": [*_COUNTS, "run", "files"],
                        "properties": {
                            **{name: {"type": "integer"} for name in _COUNTS},
                            "run": {"type": "string"},
                            "files": {"type": "array", "items": {"type": "string"}},
                        },
                    }
                }
            },
        }
    },
}
_EXPORT: Final[dict[str, Any]] = {
    "operationId": "export",
    "summary": "A run as a file. Secrets are redacted.",
    "parameters": [
        _ID,
        {
            "name": "format",
            "in": "query",
            "description": "The format of the file.",
            "schema": {"type": "string", "enum": list(FORMATS), "default": "html"},
        },
    ],
    "responses": {
        "200": {
            "description": "The file.",
            "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
}
