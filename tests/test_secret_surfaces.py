"""Every shape and form of the corpus, in every place that takes a text: no byte has a secret.

A program records each text as attributes, inputs, results, logs, exceptions, file names, streams,
base64 and parts of long bodies. Then every stored byte is searched, and every answer and export.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import re
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import ahocorasick_rs
import pytest

from support.commands import vestige
from support.credential_files import FILES
from support.http_server import served
from support.secret_corpus import SHAPES, TEXTS, Maker, fill, make
from support.secret_forms import FORMS, PASSWORD, SECRET
from vestige.collector.loop import catch_up
from vestige.formats import NAMES
from vestige.home import Home
from vestige.limits import BODY_CHUNK
from vestige.mcp.server import call
from vestige.query.command_tools import TOOLS, Tool
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore

pytestmark = pytest.mark.full

Case = dict[str, Any]
"""A name, a text, and the secrets in it."""

OWN_LINE = (
    *("form yaml block", "form csv column", "form markdown column", "form pgpass", "text pgpass"),
    *("file .pgpass", "file pure-ftpd", "file gluster", "file preseed"),
)
"""Texts that are recognized at the start of a line only, so nothing is before them."""
TOGETHER = (
    "multipart",
    "column",
    "form, doubtful",
    "yaml, doubtful",
    "swift",
    "expect",
    "octoprint",
)
"""Texts that are recognized in one text only, not in a list of its lines."""
NOT_IN_BASE64 = (
    *("vault old", "twilio", "mailchimp", "discord", "asana", "telegram", "azure ad", "sanity"),
    *("beamer", "jwk, private", "percent", "camel case", "setting in a message", "Terraform"),
    *("7z -p", "Chinese", "base64", "odbc.ini", "kaggle", "postfix", "php ini", "column"),
    *("yaml block", "pure-ftpd", "gluster", "text pw", "text admin pw"),
)
"""Texts without a literal of four characters, or encoded twice (decision 0320)."""
NOT_IN_URLS = (
    *("percent", "Spanish", "Chinese", "base64", "camel case, pass", "two words", "7z -p"),
    "in Unicode",
)
"""Texts that are encoded already, or have letters that a URL encodes in several bytes."""

BATCH = 24
"""Texts in a run. Each is recorded alone, and read together with the others."""
EDGE_EVERY = 8
"""One of this number of texts is in a long body, over the edge of two parts of it."""
SPAN_STEP = 7
"""One of this number of spans is asked for by its id; all are in the answers about their run."""
SECRET_MIN = 8
"""Characters. Shorter values occur by chance."""

PROGRAM = """
import base64, http.server, json, logging, sys, threading
from urllib.parse import quote

import httpx
import vestige
from vestige.debug import AgentInfo, DebugBundleBuilder, MemoryFilesystem, Session

inputs = json.loads(sys.stdin.read())
cases, folder, chunk = inputs["cases"], inputs["folder"], inputs["chunk"]
answer = [b""]

class Provider(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        stream = self.path.endswith("?stream")
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if stream else "application/json")
        self.send_header("Content-Length", str(len(answer[0])))
        self.end_headers()
        self.wfile.write(answer[0])

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/v1/chat/completions"
handler = vestige.LoggingHandler()
logging.getLogger("app").addHandler(handler)

def events(text, size):
    parts = [text[at:at + size] for at in range(0, len(text), size)]
    lines = [json.dumps({"object": "chat.completion.chunk", "choices": [
        {"index": 0, "delta": {"content": part}, "finish_reason": None}]}) for part in parts]
    return "".join(f"data: {line}\\n\\n" for line in [*lines, "[DONE]"]).encode()

def argument_events(text, size):
    arguments = json.dumps({"command": text})
    parts = [arguments[at:at + size] for at in range(0, len(arguments), size)]
    lines = [json.dumps({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {
        "tool_calls": [{"index": 0, "id": "call_1" if not number else None, "function": {
            "name": "bash" if not number else None, "arguments": part}}]}}]})
        for number, part in enumerate(parts)]
    return "".join(f"data: {line}\\n\\n" for line in lines).encode()

def raises(text):
    try:
        raise ValueError("input:" + text)
    except ValueError as error:
        raise RuntimeError("gave up:" + text) from error

recorder = vestige.Recorder()
with vestige.capture_http():
    for first in range(0, len(cases), inputs["batch"]):
        with recorder.run(f"batch {first}") as run:
            for case in cases[first:first + inputs["batch"]]:
                text = case["text"]
                raw = text.encode()
                span = run.span("read", "tool", {"note": text, "deep": {"a": [{"b": text}]}},
                                body={"command": text})
                span.end(body=text)
                run.span("lines", "tool", body=json.dumps({"n": 1, "text": text})).end(
                    body={"stdout": text, "lines": case["lines"] and text.splitlines()})
                run.span("nested", "tool", body=json.dumps({"a": json.dumps({"b": text})})).end()
                data = b"\\xff\\x00 " + (case["lead"] + text).encode()
                run.span("bytes", "tool", body=data).end()
                if case["base64"]:
                    run.span("base64", "tool", body={"data": base64.b64encode(raw).decode()}).end(
                        body="x " + base64.b64encode(b"a line before: " + raw).decode())
                if case["edge"]:
                    before = "x" * (chunk - len(raw) // 2) + case["lead"]
                    run.span("edge", "tool", body=f"{before}{text}\\n{'y' * 300_000}").end()
                path = "/tmp/" + (text if case["whole"] and case["lead"] == " " else "a")
                run.span("file", "file", {"path": path}).end(body=text)
                run.span(f"name{case['lead']}{text}", "tool").end()
                run.log.info(text, more=text)
                logging.getLogger("app").error("from logging:%s", case["lead"] + text)
                try:
                    raises(case["lead"] + text)
                except RuntimeError as error:
                    run.log.error("it failed", error=error)
                    run.span("failing", "tool").end(error=error)
                sent = {"model": "m", "messages": [{"role": "user", "content": text}]}
                reply = {"choices": [{"message": {"role": "assistant", "content": text}}]}
                answer[0] = json.dumps(reply).encode()
                headers = {"X-Note": quote(text)} if case["url"] else {}
                if case["whole"] and text.isprintable() and text.isascii():
                    headers["X-Line"] = text
                query = "?q=" + quote(text) if case["url"] else ""
                httpx.post(url + query, json=sent, headers=headers)
                for size in (3, 7):
                    for make in (events, argument_events):
                        answer[0] = make(text, size)
                        httpx.post(url + "?stream", json={**sent, "stream": True})
        vestige.Recorder.flush(recorder) if hasattr(recorder, "flush") else None
recorder.close()

bundle = DebugBundleBuilder(session=Session(), agent=AgentInfo("a", "b", "c"))
bundle.add_filesystem(MemoryFilesystem(
    {f"{number}.txt": case["text"].encode() for number, case in enumerate(cases)}))
for number, case in enumerate(cases):
    bundle.add_artifact(f"{number}.log", case["text"].encode())
bundle.finalize().export(folder + "/all.wink")

from vestige.artifacts import SuiteRecorder
with SuiteRecorder(folder + "/suites", "corpus") as suite:
    for number, case in enumerate(cases):
        with suite.case(f"case {number}") as one:
            one.check(False, case["text"])
        suite.log(f"log{number}", case["text"])

from vestige import agentdbg
@agentdbg.trace(name="corpus", max_events=1_000_000, max_tool_calls=1_000_000)
def traced():
    for case in cases:
        agentdbg.record_tool_call("bash", args={"command": case["text"]}, result=case["text"])
        agentdbg.record_llm_call("m", prompt=case["text"], response=case["text"])
        agentdbg.record_state(state={"text": case["text"]})
traced()
"""


def corpus() -> list[Case]:
    """Return all texts: shapes alone and in a sentence, forms, texts and files."""
    cases: list[Case] = []
    maker = Maker(22)

    def add(name: str, text: str, secrets: Iterable[str]) -> None:
        known = [each for each in secrets if len(each) >= SECRET_MIN]
        cases.append(
            {
                "name": name,
                "text": text,
                "secrets": known,
                "whole": len(text) < 300,
                "lead": "\n" if name in OWN_LINE else " ",
                "lines": not any(each in name for each in TOGETHER),
                "base64": not any(each in name for each in NOT_IN_BASE64),
                "url": len(text) < 300 and not any(each in name for each in NOT_IN_URLS),
                "edge": len(cases) % EDGE_EVERY == 0,
            }
        )

    for name, (template, _) in SHAPES.items():
        secret = make(template, maker)
        add(f"shape {name}", f"got {secret} here", [secret])
    for name, (template, value, _) in FORMS.items():
        # A value of its own, so that a leak has one name.
        unlike = {SECRET: "{A40}", PASSWORD: "Falcon-{D6}x!"}
        secret = make(unlike.get(value, value.replace("{", "")), maker)
        add(f"form {name}", template.format(secret), [secret])
    for name, template in TEXTS.items():
        add(f"text {name}", *fill(template, maker))
    for name, template in FILES.items():
        add(f"file {name}", *fill(template, maker))
    return cases


class Leaks:
    """Search bytes for the secrets of the corpus: plain, as JSON writes them, and in base64."""

    def __init__(self, cases: list[Case]) -> None:
        names: dict[bytes, str] = {}
        for case in cases:
            for secret in case["secrets"]:
                middle = secret[3:-3] if len(secret) >= 16 else secret
                plain = middle.encode()
                for form in {plain, json.dumps(middle)[1:-1].encode()}:
                    names.setdefault(form, case["name"])
        self._names = list(names.values())
        self._search = ahocorasick_rs.BytesAhoCorasick(list(names))

    def find(self, data: bytes) -> set[str]:
        """Return the names of the texts whose secret is in these bytes."""
        names: set[str] = set()
        for part in _unpacked(data):
            names |= {
                self._names[number] for number, _, _ in self._search.find_matches_as_indexes(part)
            }
        return names


_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{24,}={0,2}")
_PACKED_MIN = 10_000


def _unpacked(data: bytes) -> Iterator[bytes]:
    """Yield the bytes, and what they contain in base64, gzip or a ZIP archive."""
    if data.startswith(b"\x1f\x8b"):
        yield from _unpacked(gzip.decompress(data))
        return
    if data.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for name in archive.namelist():
                yield from _unpacked(archive.read(name))
        return
    yield data
    for run in _BASE64.finditer(data):
        raw = run[0].rstrip(b"=").replace(b"-", b"+").replace(b"_", b"/")
        decoded = base64.b64decode(raw + b"=" * (-len(raw) % 4) if len(raw) % 4 != 1 else raw[:-1])
        if decoded.startswith(b"\x1f\x8b") and len(raw) > _PACKED_MIN:
            yield from _unpacked(decoded)
        else:
            yield decoded


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return corpus()


@pytest.fixture(scope="module")
def leaks(cases: list[Case]) -> Leaks:
    return Leaks(cases)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory, cases: list[Case]) -> Home:
    """A home with all texts; its journals are not read yet."""
    folder = tmp_path_factory.mktemp("surfaces")
    inputs = {"cases": cases, "folder": str(folder / "out"), "chunk": BODY_CHUNK, "batch": BATCH}
    (folder / "out").mkdir()
    program = folder / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)],
        input=json.dumps(inputs),
        text=True,
        capture_output=True,
        timeout=1800,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "HOME": str(folder),
            "VESTIGE_HOME": str(folder / "home"),
            "AGENTDBG_DATA_DIR": str(folder / "out" / "agentdbg"),
        },
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return Home(folder / "home")


@pytest.fixture(scope="module")
def files_before(planted: Home) -> dict[str, bytes]:
    """Every file as the program left it: journals, bodies, bundles, run directories."""
    return _read_files(planted.root.parent)


def _read_files(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "program.py"
    }


@pytest.fixture(scope="module")
def collected(planted: Home, files_before: dict[str, bytes]) -> Home:
    catch_up(planted)
    return planted


def test_no_file_that_a_program_writes_holds_a_secret(
    files_before: dict[str, bytes], leaks: Leaks
) -> None:
    found = {path: leaks.find(data) for path, data in files_before.items()}

    assert {path.partition("/")[0] for path in files_before} >= {"home", "out"}
    assert {path: names for path, names in found.items() if names} == {}


def test_no_cell_and_no_body_of_the_store_holds_a_secret(collected: Home, leaks: Leaks) -> None:
    found: dict[str, set[str]] = {}
    connection = sqlite3.connect(collected.store)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]
    for table in tables:
        try:
            rows = connection.execute(f'SELECT * FROM "{table}"')
        except sqlite3.Error:
            continue  # an index
        for row in rows:
            for cell in row:
                data = cell if isinstance(cell, bytes) else str(cell).encode()
                if names := leaks.find(data):
                    found.setdefault(table, set()).update(names)
    with SqliteStore.open(collected.store, readonly=True) as store:
        numbers = [number for (number,) in connection.execute("SELECT id FROM bodies")]
        for number in numbers:
            if names := leaks.find(store.read_body(number)):
                found.setdefault("bodies, read", set()).update(names)

    assert len(numbers) > 1000
    assert found == {}


def _runs(home: Home) -> list[str]:
    with SqliteStore.open(home.store, readonly=True) as store:
        return [info.id for info in store.list_runs(RunFilter()) if info.name.startswith("batch ")]


def _is_about_a_run(tool: Tool) -> bool:
    required = {each.name for each in tool.parameters if each.required}
    return required <= {"id"} and any(each.name == "id" for each in tool.parameters)


def _span_ids(home: Home, run: str) -> list[str]:
    with SqliteStore.open(home.store, readonly=True) as store:
        return [span.id for span in store.load_run(run).spans]


def test_no_answer_over_http_or_mcp_holds_a_secret(
    collected: Home, cases: list[Case], leaks: Leaks
) -> None:
    """Notes first: they are answers, too. Spans and bodies one by one, all else by run."""
    found: dict[str, set[str]] = {}

    def search(where: str, data: bytes) -> None:
        if names := leaks.find(data):
            found.setdefault(where, set()).update(names)

    runs = _runs(collected)
    by_run = [tool for tool in TOOLS if _is_about_a_run(tool)]
    with served(collected) as site:
        for case in cases:
            note = json.dumps({"id": runs[0], "text": case["text"]}).encode()
            posted = site.ask("/api/v1/notes", method="POST", body=note)
            search("note", posted.body)
        for run in runs:
            for tool in by_run:
                for form in ("", "&format=text&budget=100000"):
                    reply = site.ask(f"/api/v1/{tool.name}?id={run}{form}")
                    assert reply.status < 500, (tool.name, reply.body)
                    search(f"GET {tool.name}", reply.body)
                text, _ = call(collected, tool.name, {"id": run, "budget": 20_000})
                search(f"MCP {tool.name}", text.encode())
            for span in _span_ids(collected, run)[::SPAN_STEP]:
                for path in (f"span?id={span}", f"body?id={span}&in=true", f"body?id={span}"):
                    search(f"GET {path.partition('?')[0]}", site.ask(f"/api/v1/{path}").body)
        for path in ("list?all=true", "grep?pattern=e&limit=1000", "notes"):
            search(f"GET {path}", site.ask(f"/api/v1/{path}").body)
        search("log of the server", json.dumps(site.lines).encode())

    assert len(by_run) > 8
    assert found == {}


@pytest.mark.parametrize("format", ["html", *NAMES])
def test_no_export_holds_a_secret(
    collected: Home, tmp_path: Path, format: str, leaks: Leaks
) -> None:
    found: set[str] = set()
    written = 0
    for number, run in enumerate(_runs(collected)):
        target = tmp_path / str(number)
        options = ("--format", format, "-o", target, "--home", collected.root)
        result = vestige("export", run, *options)
        found |= leaks.find(result.output.encode())
        paths = [target] if target.is_file() else target.rglob("*")
        for path in paths:
            if path.is_file():
                written += 1
                found |= leaks.find(path.read_bytes())

    # A run without a suite or a conversation has no form in some formats.
    assert written or (result.exit_code == 2 and result.output)
    assert found == set()
