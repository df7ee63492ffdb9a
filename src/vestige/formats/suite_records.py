"""Build the records of a test suite, for every format that contains one.

    suite = SuiteRecords("junit", identity, "checkout")
    yield suite.open(time_ns)
    yield suite.open_case("t1", "test_pay", time_ns)
    yield suite.log("t1", "error", "3 != 4", time_ns)
    yield suite.close_case("t1", "fail", time_ns, 12_000_000, {"error.message": "3 != 4"})
    yield suite.close("error", time_ns)

A suite is a run, a case is a span of type `test` whose attribute `outcome` is `pass`, `fail`,
`skip` or `unknown`. Records follow the order of the source, so a source that has grown only adds
records. Records whose position may change between two reads have a writer of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from vestige.formats.protocol import derived_run_id, derived_span_id, derived_uuid, derived_writer
from vestige.formats.times_and_outcomes import (
    CaseOutcome,
    parse_outcome,
    parse_time_ns,
    render_time,
)
from vestige.record.coercion import clean_message, clean_name, inline_bytes
from vestige.record.types import (
    VERSION,
    Attributes,
    KnownRecord,
    Link,
    Log,
    SpanClose,
    SpanOpen,
)

TEST: Final = "test"
_STATUS: Final = {"pass": "ok", "skip": "ok", "fail": "error", "unknown": "interrupted"}


class SuiteRecords:
    """Builds the records of one suite. Ids derive from the source, never from chance."""

    def __init__(self, format: str, identity: str, name: str, run_id: str | None = None) -> None:
        self.format = format
        self.identity = identity
        self.name = clean_name(name) or format
        self.run_id = (
            derived_uuid(format, identity) if run_id is None else derived_run_id(format, run_id)
        )
        self.writer = derived_writer(format, identity)
        self.root = derived_span_id(format, identity, "suite")
        self._seq = 0
        self._opened: dict[str, int] = {self.root: 0}

    def case_span_id(self, key: str) -> str:
        return derived_span_id(self.format, self.identity, "case", key)

    def open(self, time_ns: int, attributes: Attributes | None = None) -> SpanOpen:
        self._opened[self.root] = time_ns
        return self._open(self.root, None, "run", self.name, time_ns, attributes or {})

    def open_case(
        self,
        key: str,
        name: str,
        time_ns: int,
        attributes: Attributes | None = None,
        link: Link | None = None,
    ) -> SpanOpen:
        span = self.case_span_id(key)
        self._opened[span] = time_ns
        return self._open(span, self.root, TEST, name, time_ns, attributes or {}, link)

    def log(
        self,
        key: str | None,
        level: str,
        message: str,
        time_ns: int,
        attributes: Attributes | None = None,
    ) -> Log:
        """Return a log record of a case, or of the suite if `key` is None."""
        return Log(
            VERSION,
            self.writer,
            self._next(),
            time_ns,
            self.run_id,
            self.name,
            level,
            clean_message(message),
            self.root if key is None else self.case_span_id(key),
            attributes or {},
        )

    def close_case(
        self,
        key: str,
        outcome: CaseOutcome,
        time_ns: int,
        duration_ns: int | None = None,
        attributes: Attributes | None = None,
        body: str | None = None,
    ) -> SpanClose:
        attributes = {"outcome": outcome, **(attributes or {})}
        span = self.case_span_id(key)
        return self._close(span, _STATUS[outcome], time_ns, duration_ns, attributes, body)

    def close(
        self,
        status: str,
        time_ns: int,
        attributes: Attributes | None = None,
        body: str | None = None,
    ) -> SpanClose:
        return self._close(self.root, status, time_ns, None, attributes or {}, body)

    def interrupt(
        self, keys: list[str], time_ns: int, attributes: Attributes
    ) -> Iterator[SpanClose]:
        """Yield the ends of running cases and of the suite, for a source without an end.

        They have another writer, so that a later read of the completed source can replace them.
        """
        writer, seq = self.writer, self._seq
        self.writer, self._seq = derived_writer(self.format, f"{self.identity}\0{seq}"), 0
        try:
            for key in keys:
                yield self.close_case(key, "unknown", time_ns)
            yield self.close("interrupted", time_ns, attributes)
        finally:
            self.writer, self._seq = writer, seq

    def file(
        self,
        path: str,
        key: str | None,
        time_ns: int,
        size_bytes: int,
        sha256: str,
        data: bytes | None,
        attributes: Attributes | None = None,
    ) -> Iterator[KnownRecord]:
        """Yield the records of a file of a case, or of the suite if `key` is None.

        Each file has its own writer: files may appear at any time, while the trace only grows.
        """
        writer = derived_writer(self.format, f"{self.identity}\0{path}")
        span = derived_span_id(self.format, self.identity, "file", path)
        parent = self.root if key is None else self.case_span_id(key)
        attributes = {
            "path": path,
            "size_bytes": size_bytes,
            "sha256": sha256,
            **(attributes or {}),
        }
        body, info = (None, None) if data is None else inline_bytes(data)
        yield SpanOpen(
            VERSION,
            writer,
            1,
            time_ns,
            self.run_id,
            span,
            self.name,
            "file",
            clean_name(path),
            parent,
            None,
            attributes,
            None,
            body,
            info,
        )
        yield SpanClose(VERSION, writer, 2, time_ns, self.run_id, span, "ok", 0)

    def _open(
        self,
        span: str,
        parent: str | None,
        type: str,
        name: str,
        time_ns: int,
        attributes: Attributes,
        link: Link | None = None,
    ) -> SpanOpen:
        return SpanOpen(
            VERSION,
            self.writer,
            self._next(),
            time_ns,
            self.run_id,
            span,
            self.name,
            type,
            clean_name(name),
            parent,
            None,
            attributes,
            [link] if link else None,
        )

    def _close(
        self,
        span: str,
        status: str,
        time_ns: int,
        duration_ns: int | None,
        attributes: Attributes,
        body: str | None = None,
    ) -> SpanClose:
        if duration_ns is None:
            duration_ns = max(0, time_ns - self._opened.get(span, time_ns))
        return SpanClose(
            VERSION,
            self.writer,
            self._next(),
            time_ns,
            self.run_id,
            span,
            status,
            duration_ns,
            attributes,
            body,
        )

    def _next(self) -> int:
        self._seq += 1
        return self._seq


__all__ = ["TEST", "CaseOutcome", "SuiteRecords", "parse_outcome", "parse_time_ns", "render_time"]
