"""Export a run as one HTML file: the viewer and all API responses that it needs.

    export_html(debugger, "r7", Path("crash.html"))

The responses come from the API's verbs (query/command_tools.py), under the key that `keyOf` in
web/src/api.ts computes for the same request. The file opens from file://; its policy forbids
all network requests. Details that are too large are left out, and the page shows how many.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from vestige._runtime.clock import SYSTEM
from vestige.errors import UsageError, VestigeError
from vestige.formats.atomic_file import create_file
from vestige.limits import (
    EXPORT_BODY_BYTES_MAX,
    EXPORT_BYTES_MAX,
    EXPORT_CALLS_MAX,
    EXPORT_PAGES_MAX,
    EXPORT_SPANS_MAX,
    EXPORT_WHY_SPANS_MAX,
)
from vestige.query import formatting
from vestige.query.command_tools import BY_NAME, check_arguments
from vestige.query.command_tools import ask as call_tool
from vestige.query.debugger import Debugger
from vestige.record.run import Run, SpanInfo
from vestige.server.cached_debugger import CachedDebugger
from vestige.server.responses import encode
from vestige.server.viewer_assets import ANSWERS, Viewer, read_viewer

Progress = Callable[[int, int], None]
"""Called with the number of responses so far and their size in bytes."""


def export_html(debugger: Debugger, id: str, target: Path, report: Progress | None = None) -> Path:
    """Write the run to a new file, completely or not at all."""
    viewer = read_viewer()
    if target.exists():
        raise UsageError(f"{target}: already exists. Choose another name.")
    cached = CachedDebugger(debugger.store, debugger.resolve(id, "run").run)
    html = render(viewer, cached, report)
    with create_file(target) as file:
        file.write(html)
    return target


def render(viewer: Viewer, debugger: CachedDebugger, report: Progress | None = None) -> bytes:
    collected, run = _Responses(debugger, report), debugger.run
    _collect_run(collected, run)
    main = collected.pack()
    left_out = _collect_spans(collected, run)
    detail = collected.pack()
    collected.responses["export"] = encode(
        {
            "made_at": formatting.timestamp(SYSTEM.now_ns()),
            "body_bytes_max": EXPORT_BODY_BYTES_MAX,
            "bytes_max": EXPORT_BYTES_MAX,
            "spans": len(run.spans),
            **left_out,
        }
    )
    about = collected.pack()
    short = run.info.short_id
    blocks = [_block("main", main, short), _block("about", about), _block("detail", detail)]
    # A file has no headers. The policy must come first in the head, before any script.
    policy = viewer.policy("'none'", framed=False)
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    html = viewer.html.replace("<head>", f"<head>\n{meta}", 1)
    return html.replace(ANSWERS, "\n".join(blocks), 1).encode()


def _block(name: str, packed: bytes, run: str = "") -> str:
    """Render a data block, which browsers do not execute. Base64 cannot contain its end tag."""
    about = f' data-run="{run}"' if run else ""
    text = base64.b64encode(packed).decode()
    return f'<script type="application/octet-stream" data-answers="{name}"{about}>{text}</script>'


def key_of(verb: str, **params: Any) -> str:
    """Return the same key as `keyOf` in web/src/api.ts: sorted, without empty or false values."""
    pairs = sorted(
        (name, _text(value)) for name, value in params.items() if value not in (None, False, "")
    )
    query = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in pairs)
    return f"{verb}?{query}" if query else verb


def _text(value: Any) -> str:
    return "true" if value is True else str(value)


def _quoted(text: str) -> str:
    return quote(text, safe="!~*'()")  # the characters that encodeURIComponent keeps


class _Responses:
    """The responses collected so far, as JSON, with their number and size."""

    def __init__(self, debugger: Debugger, report: Progress | None) -> None:
        self._debugger = debugger
        self._report = report
        self.responses: dict[str, bytes] = {}
        self.count = 0
        self.size_bytes = 0

    def add(self, verb: str, **params: Any) -> dict[str, Any] | None:
        """Call the verb, store its response and return it. None: the verb failed."""
        tool = BY_NAME.get(verb)
        if tool is None:
            return None
        try:
            values = check_arguments(tool, params)
            data = call_tool(self._debugger, tool, values).data()
        except VestigeError:
            return None  # the page shows that this response is not included
        return self._store(verb, params, data)

    def add_messages(self, span: str) -> None:
        """Store a model call as a chat, which is a route of its own (server/routes/messages.py)."""
        with contextlib.suppress(VestigeError):
            self._store("messages", {"id": span}, self._debugger.messages(span).data())

    def _store(self, verb: str, params: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
        text = encode(data)
        self.responses[key_of(verb, **params)] = text
        self.size_bytes += len(text)
        self.count += 1
        if self._report is not None:
            self._report(self.count, self.size_bytes)
        return data

    def pack(self) -> bytes:
        """Return the responses as one compressed JSON object, and start a new one."""
        items = b",".join(encode(key) + b":" + text for key, text in self.responses.items())
        self.responses = {}
        return gzip.compress(b"{" + items + b"}", 6, mtime=0)


def _collect_run(collected: _Responses, run: Run) -> None:
    short = run.info.short_id
    for verb in ("outline", "transcript"):
        _collect_pages(collected, verb, short)
    for verb in ("overview", "check", "files", "notes"):
        collected.add(verb, id=short)
    state = collected.add("state", id=short) or {}
    for snapshot in state.get("snapshots", ()):
        collected.add("state", id=f"{short}#{snapshot['index']}")


def _collect_pages(collected: _Responses, verb: str, id: str) -> None:
    after = None
    for _ in range(EXPORT_PAGES_MAX):
        data = collected.add(verb, id=id, after=after) or {}
        # An outline always has a cursor; `more` is true if there is another page.
        after = data.get("next") if data.get("more", True) else None
        if after is None:
            return


def _collect_spans(collected: _Responses, run: Run) -> dict[str, int]:
    """Add each span and its bodies, and the prompt of model calls; failed spans first."""
    left_out = {"spans_left_out": 0, "bodies_left_out": 0}
    calls = 0
    for number, span in enumerate(sorted(run.spans, key=lambda span: span.status == "ok")):
        if collected.size_bytes >= EXPORT_BYTES_MAX or number >= EXPORT_SPANS_MAX:
            left_out["spans_left_out"] += 1
            left_out["bodies_left_out"] += len(list(_bodies(span)))
            continue
        collected.add("span", id=span.short_id)
        if span.status != "ok" or len(run.spans) <= EXPORT_WHY_SPANS_MAX:
            collected.add("why", id=span.short_id)
        for which, size_bytes in _bodies(span):
            if size_bytes > EXPORT_BODY_BYTES_MAX:
                left_out["bodies_left_out"] += 1
            else:
                collected.add("body", id=span.short_id, **{which: True})
        if span.type == "llm" and (calls := calls + 1) <= EXPORT_CALLS_MAX:
            collected.add_messages(span.short_id)
            collected.add("segments", id=span.short_id)
            collected.add("diff", a=span.short_id, prev=True)
    return left_out


def _bodies(span: SpanInfo) -> Iterator[tuple[str, int]]:
    for which, body in (("in", span.input), ("out", span.output)):
        if body is not None and body.id is not None:
            yield which, body.size_bytes
