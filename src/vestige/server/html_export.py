"""A run as one HTML file: the viewer, and every answer that it would ask a server for.

    export_html(debugger, "r7", Path("crash.html"))

The answers are the API's own, asked through the same table of verbs, and kept under the key that
the page's `keyOf` (web/src/api.ts) makes of the same question. The file opens from file://, and
its policy forbids it every request. What is too large is left out, and the page says so.
"""

from __future__ import annotations

import base64
import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from vestige._runtime.clock import SYSTEM
from vestige.errors import UsageError, VestigeError
from vestige.limits import (
    EXPORT_BODY_BYTES_MAX,
    EXPORT_BYTES_MAX,
    EXPORT_CALLS_MAX,
    EXPORT_PAGES_MAX,
    EXPORT_SPANS_MAX,
    EXPORT_WHY_SPANS_MAX,
)
from vestige.query import formatting
from vestige.query.debugger import Debugger
from vestige.query.tool_table import BY_NAME, ask, check_arguments
from vestige.record.run import Run, SpanInfo
from vestige.server.cached_debugger import CachedDebugger
from vestige.server.responses import encode
from vestige.server.viewer_assets import ANSWERS, Viewer, read_viewer

Tell = Callable[[int, int], None]
"""Answers so far, and their bytes: for who waits."""


def export_html(debugger: Debugger, id: str, target: Path, tell: Tell | None = None) -> Path:
    """Write the run to a file of its own, whole or not at all."""
    viewer = read_viewer()
    if target.exists():
        raise UsageError(f"{target}: is there already. Choose another name.")
    one = CachedDebugger(debugger.store, debugger.resolve(id, "run").run)
    html = render(viewer, one, tell)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with open(os.open(part, flags, 0o600), "wb") as file:
            file.write(html)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return target


def render(viewer: Viewer, one: CachedDebugger, tell: Tell | None = None) -> bytes:
    kept, run = _Kept(one, tell), one.run
    _ask_about_run(kept, run)
    main = kept.pack()
    left_out = _ask_about_spans(kept, run)
    detail = kept.pack()
    kept.answers["export"] = encode(
        {
            "made_at": formatting.timestamp(SYSTEM.now_ns()),
            "body_bytes_max": EXPORT_BODY_BYTES_MAX,
            "bytes_max": EXPORT_BYTES_MAX,
            "spans": len(run.spans),
            **left_out,
        }
    )
    about = kept.pack()
    short = run.info.short_id
    blocks = [_block("main", main, short), _block("about", about), _block("detail", detail)]
    # The page's own policy, as a file can say it: first in its head, before anything can run.
    policy = viewer.policy("'none'", framed=False)
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    html = viewer.html.replace("<head>", f"<head>\n{meta}", 1)
    return html.replace(ANSWERS, "\n".join(blocks), 1).encode()


def _block(name: str, packed: bytes, run: str = "") -> str:
    """A block of data: no browser runs it. Base64 has no character that could end it."""
    about = f' data-run="{run}"' if run else ""
    text = base64.b64encode(packed).decode()
    return f'<script type="application/octet-stream" data-answers="{name}"{about}>{text}</script>'


def key_of(verb: str, **params: Any) -> str:
    """As `keyOf` in web/src/api.ts: parameters by name, empty and false ones left out."""
    told = sorted(
        (name, _text(value)) for name, value in params.items() if value not in (None, False, "")
    )
    query = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in told)
    return f"{verb}?{query}" if query else verb


def _text(value: Any) -> str:
    return "true" if value is True else str(value)


def _quoted(text: str) -> str:
    return quote(text, safe="!~*'()")  # what encodeURIComponent leaves as it is


class _Kept:
    """The answers so far, as JSON, and how much they are."""

    def __init__(self, debugger: Debugger, tell: Tell | None) -> None:
        self._debugger = debugger
        self._tell = tell
        self.answers: dict[str, bytes] = {}
        self.count = 0
        self.size_bytes = 0

    def ask(self, verb: str, **params: Any) -> dict[str, Any] | None:
        """Ask, and keep the answer; None where there is none."""
        tool = BY_NAME.get(verb)
        if tool is None:
            return None
        try:
            values = check_arguments(tool, params)
            data = ask(self._debugger, tool, values).data()
        except VestigeError:
            return None  # the page says that it has no such answer
        text = encode(data)
        self.answers[key_of(verb, **params)] = text
        self.size_bytes += len(text)
        self.count += 1
        if self._tell is not None:
            self._tell(self.count, self.size_bytes)
        return data

    def pack(self) -> bytes:
        """All of them as one object, compressed; the next ones begin a new one."""
        inside = b",".join(encode(key) + b":" + text for key, text in self.answers.items())
        self.answers = {}
        return gzip.compress(b"{" + inside + b"}", 6, mtime=0)


def _ask_about_run(kept: _Kept, run: Run) -> None:
    short = run.info.short_id
    for verb in ("outline", "transcript"):
        _ask_pages(kept, verb, short)
    for verb in ("overview", "check", "files", "notes"):
        kept.ask(verb, id=short)
    state = kept.ask("state", id=short) or {}
    for snapshot in state.get("snapshots", ()):
        kept.ask("state", id=f"{short}#{snapshot['index']}")


def _ask_pages(kept: _Kept, verb: str, id: str) -> None:
    after = None
    for _ in range(EXPORT_PAGES_MAX):
        data = kept.ask(verb, id=id, after=after) or {}
        # The outline's cursor is always there: `more` says whether to follow it.
        after = data.get("next") if data.get("more", True) else None
        if after is None:
            return


def _ask_about_spans(kept: _Kept, run: Run) -> dict[str, int]:
    """Each span, its bodies, and of model calls what the prompt was made of; telling ones first."""
    left_out = {"spans_left_out": 0, "bodies_left_out": 0}
    calls = 0
    for number, span in enumerate(_telling_first(run)):
        if kept.size_bytes >= EXPORT_BYTES_MAX or number >= EXPORT_SPANS_MAX:
            left_out["spans_left_out"] += 1
            left_out["bodies_left_out"] += len(list(_bodies(span)))
            continue
        kept.ask("span", id=span.short_id)
        if span.status != "ok" or len(run.spans) <= EXPORT_WHY_SPANS_MAX:
            kept.ask("why", id=span.short_id)
        for which, size_bytes in _bodies(span):
            if size_bytes > EXPORT_BODY_BYTES_MAX:
                left_out["bodies_left_out"] += 1
            else:
                kept.ask("body", id=span.short_id, **{which: True})
        if span.type == "llm" and (calls := calls + 1) <= EXPORT_CALLS_MAX:
            kept.ask("segments", id=span.short_id)
            kept.ask("diff", a=span.short_id, prev=True)
    return left_out


def _telling_first(run: Run) -> list[SpanInfo]:
    return sorted(run.spans, key=lambda span: span.status == "ok")


def _bodies(span: SpanInfo) -> Iterator[tuple[str, int]]:
    for which, body in (("in", span.input), ("out", span.output)):
        if body is not None and body.id is not None:
            yield which, body.size_bytes
