"""Check line-delimited JSON as a stream, with one line in memory at a time.

`Lines` gets chunks and checks that every line is JSON. `TraceLines` also checks the fields of each
trace line and their order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import Any

import msgspec

from vestige.formats.artifacts import constants
from vestige.formats.artifacts.bundle_json import Inventory, check_time
from vestige.formats.artifacts.file_structs import Counts, Scenario, TraceEvent
from vestige.formats.artifacts.finding_report import Report
from vestige.formats.artifacts.json_files.json_schemas import Schema, schema_of, trace_schema
from vestige.formats.artifacts.json_files.large_json import LargeJson
from vestige.formats.artifacts.json_files.parsing import DoubledKeyError, NotJsonError, parse_json
from vestige.formats.artifacts.json_files.schema_check import find_faults, shown
from vestige.limits import ARTIFACT_LINE_MAX, MIB

_quick = msgspec.json.Decoder().decode
_skim = msgspec.json.Decoder(msgspec.Raw).decode
_SKIMMED_MAX = 4000
"""Bytes. A shorter line cannot contain a number with more digits than Python accepts: other invalid
JSON is seen without making values of it, but for bytes that are no UTF-8."""
_quick_event = msgspec.json.Decoder(TraceEvent).decode


def _check_text(lines: list[bytes]) -> None:
    """UnicodeDecodeError if they are no UTF-8. Of keys that a struct does not have, nobody else
    looks at the bytes."""
    text = b"".join(lines)
    if not text.isascii():  # else, as nearly always, no copy of it need be made
        text.decode()


class Lines:
    """Any `*.jsonl` or `*.ndjson`."""

    too_large: str | None = None
    """The rule that a line breaks which is too long to be held; None: it is skimmed."""

    def __init__(self, path: str, report: Report) -> None:
        self.path = path
        self.report = report
        self.count = 0
        """Lines that are not empty."""
        self._line = 0
        self._rest = b""
        self._skipping = False
        self._large: LargeJson | None = None

    def feed(self, chunk: bytes) -> None:
        if self._large is not None:
            part, newline, chunk = chunk.partition(b"\n")
            self._large.feed(part)
            if not newline:
                return
            self._end_large()
        # Not `split`, which looks at bytes one by one: most of what validating a trace took.
        lines = BytesIO(self._rest + chunk).readlines()
        rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        if lines and not self._skipping and self.take_block(lines):
            self._line += len(lines)
            lines = []
        for line in lines:
            self._line += 1
            if self._skipping:
                self._skipping = False
            else:
                self._take(line[:-1])
        self._rest = b"" if self._skipping else rest
        if len(self._rest) > ARTIFACT_LINE_MAX and self.too_large is None:
            self._large = LargeJson()
            self._large.feed(self._rest)
            self._rest = b""
        elif len(self._rest) > ARTIFACT_LINE_MAX and self.too_large is not None:
            message = f"a line is longer than {ARTIFACT_LINE_MAX // MIB} MiB; it was not read."
            self.report.add(self.too_large, self.path, message, f"line {self._line + 1}")
            self._rest, self._skipping = b"", True

    def end(self) -> None:
        if self._large is not None:
            self._end_large()
        if self._rest:
            self._line += 1
            self._take(self._rest)

    def _end_large(self) -> None:
        assert self._large is not None
        self._line += 1
        self.count += 1
        large, self._large = self._large, None
        fault = large.find_fault()
        if fault is not None:
            self.report_line("jsonl-invalid", fault)
        elif large.unchecked is not None:
            self.report_line("json-unchecked", large.unchecked)

    def _take(self, line: bytes) -> None:
        if line and not line.isspace():
            self.count += 1
            self.check(line)

    def take_block(self, lines: list[bytes]) -> bool:
        """Check many complete lines at once.

        Return False if some are invalid, and must be checked one by one.
        """
        if self.report.profile == "strict":
            return False
        try:
            _check_text(lines)
            # Not `decode_lines`: it takes a value that goes on in the next line.
            self.count += len(
                [
                    _skim(line) if len(line) < _SKIMMED_MAX else _quick(line)
                    for line in lines
                    if line != b"\n"
                ]
            )
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return False
        return True

    def check(self, line: bytes) -> None:
        if self.report.profile != "strict":
            try:
                _quick(line)
                return
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                pass
        self.parse(line)

    def parse(self, line: bytes) -> Any:
        """Return the value; None, with a finding, if the line has none."""
        try:
            return parse_json(line, self.report.profile == "strict")
        except DoubledKeyError as error:
            self.report_line(error.rule, error.message)
            return error.value
        except NotJsonError as error:
            rule = "jsonl-invalid" if error.rule == "json-invalid" else error.rule
            self.report_line(rule, error.message)
            return None

    def report_line(self, rule: str, message: str, pointer: str = "") -> None:
        self.report.add(rule, self.path, message, f"line {self._line} {pointer}".strip())


class TypedLines(Lines):
    """Lines of a known shape, which name the suite and the timestamp."""

    too_large = "json-too-large"

    def __init__(
        self, path: str, inventory: Inventory, report: Report, schema: Callable[[], Schema]
    ) -> None:
        super().__init__(path, report)
        self.inventory = inventory
        self.schema = schema
        """Asked for when a line is not as its struct says: making it takes longer than most
        traces."""

    def take_block(self, lines: list[bytes]) -> bool:
        return False

    def check(self, line: bytes) -> None:
        value = self.parse(line)
        if value is None and line.strip() != b"null":
            return
        for fault in find_faults(value, self.schema()):
            self.report_line(fault.rule, fault.message, fault.pointer)
        if isinstance(value, dict):
            self.check_names(value.get("suite"), value.get("run_timestamp"))
            self.check_value(value)

    def check_names(self, suite: Any, timestamp: Any) -> None:
        head = self.inventory.head
        if suite != head.get("suite"):
            self._compare("suite-differs", suite, head.get("suite"), "/suite")
        if timestamp != head.get("timestamp"):
            self._compare("timestamp-differs", timestamp, head.get("timestamp"), "/run_timestamp")

    def check_value(self, value: dict[str, Any]) -> None:
        """Check a line beyond its schema."""

    def _compare(self, rule: str, own: Any, expected: Any, pointer: str) -> None:
        if isinstance(own, str) and isinstance(expected, str):
            self.report_line(rule, f"{shown(own)} is {shown(expected)} in bundle.json.", pointer)


_SCENARIO_KEYS = (
    ("artifact_dir",),
    ("trace", "events"),
    ("replay", "command"),
    ("replay", "environment"),
    ("replay", "metadata"),
    ("diagnostics", "env_redacted"),
)
"""The members of a scenario that validators of later eras require."""


class ScenarioLines(TypedLines):
    """`scenarios/scenarios.jsonl`, for the profile `latest`."""

    def __init__(self, path: str, inventory: Inventory, report: Report) -> None:
        super().__init__(path, inventory, report, partial(schema_of, Scenario))

    def check_value(self, value: dict[str, Any]) -> None:
        for keys in _SCENARIO_KEYS:
            inner: Any = value
            for key in keys:
                inner = inner.get(key) if isinstance(inner, dict) else None
            if not isinstance(inner, str):
                self.report_line(
                    "later-scenario", "is not there, or not a text.", "/" + "/".join(keys)
                )


class TraceLines(TypedLines):
    """`trace/events.jsonl`."""

    def __init__(self, inventory: Inventory, report: Report) -> None:
        self._versions = (1, 2) if report.profile == "latest" else (1,)
        super().__init__(constants.TRACE, inventory, report, partial(trace_schema, self._versions))
        self._strict = report.profile == "strict"
        self._kinds: set[str] = set()
        self._last_kind: str | None = None
        self._counters = (0, 0, 0, 0)

    def take_block(self, lines: list[bytes]) -> bool:
        if self._strict:
            return False
        suite, timestamp = self.inventory.head.get("suite"), self.inventory.head.get("timestamp")
        try:
            _check_text(lines)
            events = [_quick_event(line) for line in lines if line != b"\n"]
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return False
        names = {
            (each.suite, each.run_timestamp, each.schema_version, each.kind) for each in events
        }
        for own_suite, own_timestamp, version, _ in names:
            if (own_suite, own_timestamp) != (suite, timestamp) or version not in self._versions:
                return False
        self._kinds.update(kind for *_, kind in names)
        self.count += len(events)
        return True

    def check(self, line: bytes) -> None:
        if not self._strict:
            try:
                line.decode()
                event = _quick_event(line)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                super().check(line)
                return
            if event.schema_version in self._versions:
                self.check_names(event.suite, event.run_timestamp)
                self._kinds.add(event.kind)
                return
        super().check(line)

    def check_value(self, value: dict[str, Any]) -> None:
        kind = value.get("kind")
        if isinstance(kind, str):
            self._kinds.add(kind)
        if self._strict:
            self._check_order(kind)
            self._check_counters(value.get("counters"))
            if isinstance(value.get("ts"), str):
                check_time(value["ts"], f"line {self._line} /ts", self.path, self.report)

    def _check_order(self, kind: Any) -> None:
        if self.count == 1 and kind != "suite_start":
            self.report_line(
                "trace-order", f"the first event is {shown(kind)}, not suite_start.", "/kind"
            )
        if self.count > 1 and kind == "suite_start":
            self.report_line("trace-order", "suite_start comes again.", "/kind")
        if self._last_kind == "suite_end":
            self.report_line("trace-order", f"{shown(kind)} comes after suite_end.", "/kind")
        self._last_kind = kind if isinstance(kind, str) else None

    def _check_counters(self, counters: Any) -> None:
        try:
            now = msgspec.convert(counters, Counts)
        except (msgspec.ValidationError, UnicodeEncodeError):  # or a text with a lone surrogate
            return
        values = (now.total, now.passed, now.fail, now.skip)
        if any(new < old for new, old in zip(values, self._counters, strict=True)):
            self.report_line("counters-fall", f"{values} after {self._counters}.", "/counters")
        self._counters = values

    def end(self) -> None:
        super().end()
        for kind in ("suite_start", "suite_end"):
            if kind not in self._kinds:
                self.report.add("trace-kind-missing", self.path, f"there is no {kind}.")
