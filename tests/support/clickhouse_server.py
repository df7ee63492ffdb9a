"""A ClickHouse server for tests: the engine of chdb behind the part of the HTTP interface in use.

    python clickhouse_server.py FOLDER [PORT]       # prints its port, serves until it is killed

The engine is a real ClickHouse with its data in FOLDER, so a killed server can be started again.
Settings of a request apply to its own query only. Requests are answered one at a time.
"""

from __future__ import annotations

import gzip
import os
import re
import sys
import tempfile
import threading
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

_NOT_SETTINGS = frozenset(
    [
        "query",
        "database",
        "default_format",
        "session_id",
        "session_timeout",
        "query_id",
        "client_protocol_version",
        "enable_http_compression",
        "compress",
        "decompress",
        "quota_key",
        "wait_end_of_query",
        "user",
        "password",
        "role",
        "send_progress_in_http_headers",
        "http_headers_progress_interval_ms",
        "cancel_http_readonly_queries_on_client_close",
    ]
)
_INSERT = re.compile(r"(?is)\s*(insert\s+into\s+.*?)\s+format\s+(\w+)\s*$")
_FORMAT = re.compile(r"(?is)\s+format\s+(\w+)\s*;?\s*$")
_PLAIN = re.compile(r"-?\d+(\.\d+)?")


class Engine:
    """One session of chdb."""

    def __init__(self, folder: str) -> None:
        from chdb import session

        self._session = session.Session(folder)
        self._lock = threading.Lock()
        self._settings: dict[str, str] = {}
        self._database = ""

    def run(
        self, sql: str, data: bytes, format_name: str, options: dict[str, str]
    ) -> tuple[bytes, str]:
        """Return the result of a query and its format."""
        params = {k[6:]: v for k, v in options.items() if k.startswith("param_")}
        settings = {
            name: value
            for name, value in options.items()
            if name not in _NOT_SETTINGS and not name.startswith("param_")
        }
        with self._lock:
            readonly = settings.pop("readonly", None)
            self._apply(settings)
            if (database := options.get("database", "default")) != self._database:
                self._session.query(f"USE `{database}`")
                self._database = database
            return self._run(sql, data, format_name, params, readonly)

    def _apply(self, settings: dict[str, str]) -> None:
        """Change the settings of the session to those of a request."""
        for name in self._settings.keys() - settings.keys():
            self._session.query(f"SET {name} = DEFAULT")
        for name, value in settings.items():
            if self._settings.get(name) != value:
                self._session.query(f"SET {name} = {_render(value)}")
        self._settings = settings

    def _run(
        self, sql: str, data: bytes, format_name: str, params: dict[str, str], readonly: str | None
    ) -> tuple[bytes, str]:
        insert = _INSERT.match(sql)
        if insert and data:
            with tempfile.NamedTemporaryFile(delete=False) as file:
                file.write(data)
            try:
                source = f"SELECT * FROM file('{file.name}', '{insert[2]}')"
                self._session.query(f"{insert[1]} {source}")
            finally:
                os.unlink(file.name)
            return b"", format_name
        if found := _FORMAT.search(sql):
            sql, format_name = sql[: found.start()], found[1]
        if readonly is not None:
            # The embedded session has no read-only mode that could be left again.
            if not re.match(r"(?is)\s*(\(|select\b|with\b|explain\b|describe\b|show\b)", sql):
                raise RuntimeError(
                    "Code: 164. DB::Exception: Cannot execute query in readonly mode."
                )
            if re.search(r"(?is)\bsettings\s+\w+\s*=", sql):
                raise RuntimeError(
                    "Code: 164. DB::Exception: Cannot modify setting in readonly mode."
                )
        result = self._session.query(sql, format_name, params=params or None)
        return (bytes(result.bytes()) if result else b""), format_name


def _parse_form(kind: str, body: bytes) -> dict[str, str]:
    """Return the fields of a form."""
    head = f"Content-Type: {kind}\r\n\r\n".encode()
    fields = {}
    for part in BytesParser(policy=HTTP).parsebytes(head + body).iter_parts():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        assert isinstance(name, str) and isinstance(content, bytes)
        fields[name] = content.decode()
    return fields


def _render(value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # the head and the body of an answer in one packet
    engine: Engine

    def log_message(self, *_args: Any) -> None:
        pass

    def do_GET(self) -> None:
        if urlsplit(self.path).path == "/ping":
            self._answer(200, b"Ok.\n", "TabSeparated")
        else:
            self._query(b"")

    def do_POST(self) -> None:
        self._query(self._read())

    def _read(self) -> bytes:
        if "chunked" in (self.headers.get("transfer-encoding") or ""):
            parts = []
            while size := int(self.rfile.readline().strip() or b"0", 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            body = b"".join(parts)
        else:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
        encoding = self.headers.get("content-encoding")
        if encoding == "gzip":
            return gzip.decompress(body)
        if encoding == "zstd":
            from vestige._runtime.zstd import zstd

            return bytes(zstd.decompress(body))
        if encoding == "lz4":
            import lz4.frame

            return bytes(lz4.frame.decompress(body))
        return body

    def _query(self, body: bytes) -> None:
        options = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        kind = self.headers.get("content-type") or ""
        if kind.startswith("multipart/form-data"):  # how long parameters are sent
            options |= _parse_form(kind, body)
            body = b""
        sql, data = options.get("query", ""), body
        if not sql:
            head, newline, rest = body.partition(b"\n")
            if newline and _INSERT.match(head.decode(errors="replace")):
                sql, data = head.decode(), rest
            else:
                sql, data = body.decode(), b""
        default = self.headers.get("X-ClickHouse-Format") or options.get("default_format")
        try:
            answer, used = self.engine.run(sql, data, default or "TabSeparated", options)
        except Exception as error:
            self._answer(500, str(error).encode(), "", ("X-ClickHouse-Exception-Code", "1"))
        else:
            self._answer(200, answer, used)

    def _answer(self, status: int, body: bytes, used: str, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if used:
            self.send_header("X-ClickHouse-Format", used)
            self.send_header("X-ClickHouse-Summary", "{}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def main(folder: str, port: str = "0") -> None:
    Handler.engine = Engine(folder)
    server = Server(("127.0.0.1", int(port)), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
