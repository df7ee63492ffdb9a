"""Build the records of a run that another tool stored: ids, sequence numbers, times, limits.

    builder = RecordBuilder("atif", source_id, file_time_ns)
    yield builder.open(builder.root_id, "run", "fix the bug", component="agent", body=task)
    yield builder.open(span_id, "llm", "agent", component="agent", parent_id=builder.root_id)
    yield builder.close(span_id, body=answer)
    yield builder.end_run("ok", count, body=result)

Records are numbered in the order in which they are built, so a file that has grown gives the
same records and new ones. The end of a run changes with each growth, so it has its own writer.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from vestige.formats.protocol import (
    TIME_MAX_NS,
    derived_run_id,
    derived_span_id,
    derived_writer,
)
from vestige.limits import BODY_MAX
from vestige.record.coercion import (
    clean_attributes,
    clean_message,
    clean_name,
    clean_text,
    truncate,
)
from vestige.record.types import VERSION, Attributes, Log, SpanClose, SpanOpen

STEP_NS: Final = 1_000_000
"""Time between events whose times are not known."""

Object = dict[str, Any]
R = TypeVar("R", SpanOpen, SpanClose, Log)


class RecordBuilder:
    """Builds records of one run, in order."""

    def __init__(self, format: str, source_id: str, time_ns: int) -> None:
        self.run_id = derived_run_id(format, source_id)
        self.writer = derived_writer(format, source_id)
        self.root_id = derived_span_id(format, source_id, "run")
        self.time_ns = max(0, min(time_ns, TIME_MAX_NS - 10**15))
        self.began_ns = 0
        self._has_times = False
        self._end_writer = derived_writer(format, f"{source_id} end")
        self._format, self._source_id = format, source_id
        self._seq = 0

    def span_id(self, *parts: str) -> str:
        """Return the id of a span, which depends only on the source and the parts."""
        return derived_span_id(self._format, self._source_id, *parts)

    def advance(self, found_ns: int | None) -> None:
        """Move the time to that of the next event, or a little if it is not known."""
        self._has_times |= found_ns is not None
        if found_ns is not None and (not self.began_ns or found_ns >= self.time_ns):
            self.time_ns = found_ns
        elif self.began_ns:
            self.time_ns += STEP_NS
        self.began_ns = self.began_ns or self.time_ns

    def open(
        self,
        span_id: str,
        type: str,
        name: str,
        *,
        component: str,
        parent_id: str | None = None,
        attributes: Object | None = None,
        body: str | None = None,
        conversation_id: str | None = None,
        time_ns: int | None = None,
    ) -> SpanOpen:
        """Return the start of a span, now or at another time."""
        return SpanOpen(
            VERSION,
            self.writer,
            self._next_seq(),
            self.time_ns if time_ns is None else time_ns,
            self.run_id,
            span_id,
            clean_name(component),
            type,
            clean_name(name) or type,
            parent_id,
            None if conversation_id is None else clean_name(conversation_id),
            clean_attributes(attributes or {}),
            body=_limit(body),
        )

    def close(
        self,
        span_id: str,
        status: str = "ok",
        *,
        attributes: Object | None = None,
        body: str | None = None,
        duration_ns: int = 0,
        time_ns: int | None = None,
    ) -> SpanClose:
        """Return the end of a span."""
        return SpanClose(
            VERSION,
            self.writer,
            self._next_seq(),
            self.time_ns if time_ns is None else time_ns,
            self.run_id,
            span_id,
            status,
            max(0, duration_ns),
            clean_attributes(attributes or {}),
            _limit(body),
        )

    def log(
        self,
        level: str,
        message: str,
        *,
        component: str,
        span_id: str | None = None,
        attributes: Object | None = None,
        body: str | None = None,
    ) -> Log:
        """Return a log record."""
        return Log(
            VERSION,
            self.writer,
            self._next_seq(),
            self.time_ns,
            self.run_id,
            clean_name(component),
            level,
            clean_message(message),
            span_id or self.root_id,
            clean_attributes(attributes or {}),
            _limit(body),
        )

    def end_run(
        self, status: str, count: int, *, attributes: Object | None = None, body: str | None = None
    ) -> SpanClose:
        """Return the end of the run after `count` events, which replaces an earlier end.

        Without any recorded time, times only order the events, and the duration is 0: unknown.
        """
        end = self.close(self.root_id, status, attributes=attributes, body=body)
        if self._has_times:
            end.duration_ns = max(0, self.time_ns - (self.began_ns or self.time_ns))
        return self.move_to_end(end, 3 * count + 2)

    def move_to_end(self, record: R, seq: int) -> R:
        """Give a record to the writer of the run's end, because a longer file has another one."""
        record.writer, record.seq = self._end_writer, seq
        return record

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq


def encode_json(value: Any) -> str:
    """Return JSON text. Text that UTF-8 cannot represent is written out."""
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, OverflowError, TypeError):
        return msgspec.json.encode(_clean(value)).decode()


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(str(key)): _clean(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(each) for each in value]
    return (
        value if value is None or isinstance(value, (bool, int, float)) else clean_text(str(value))
    )


def _limit(body: str | None) -> str | None:
    return None if body is None else truncate(clean_text(body), BODY_MAX)


def usage_attributes(usage: Object) -> Attributes:
    """Return the token counts of a usage object in the form of any provider.

    Anthropic's `input_tokens` leaves out what was read from or written to the cache. Ours
    includes it, like OpenAI's.
    """
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    total = _count(usage.get("prompt_tokens"))
    read = _count(usage.get("cache_read_input_tokens"))
    written = _count(usage.get("cache_creation_input_tokens"))
    if total is None:
        fresh = _count(usage.get("input_tokens"))
        total = None if fresh is None else fresh + (read or 0) + (written or 0)
    output = _count(usage.get("completion_tokens"))
    found = {
        "input_tokens": total,
        "output_tokens": output if output is not None else _count(usage.get("output_tokens")),
        "cache_read_tokens": read if read is not None else _count(cached),
        "cache_write_tokens": written,
    }
    return {name: count for name, count in found.items() if count is not None}


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= 2**62 else None
