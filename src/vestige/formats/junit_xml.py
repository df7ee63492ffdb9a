"""Parse and render the XML of a JUnit report. Pure.

The parser never expands an entity. Text that XML cannot contain is escaped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

from vestige.formats.suite_records import CaseOutcome

DEPTH_MAX: Final = 64
"""Limit of nested elements; a report has five or six."""

_RESULTS: Final = ("failure", "error", "skipped")
_OUTPUTS: Final = ("system-out", "system-err")
_CASE_TAGS: Final = (*_RESULTS, *_OUTPUTS, "rerun", "flaky")
_SUITE_TAGS: Final = ("failure", "error", *_OUTPUTS)
"""Elements of a suite outside of its cases: Ant and Gradle write all output there."""
_NOT_RUN: Final = frozenset(("notrun", "disabled", "suppressed", "skipped"))
"""Values of `status` or `result`: GoogleTest has no element for a disabled test."""
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_CASE_ATTRIBUTES: Final = ("classname", "file", "line")


class XmlError(Exception):
    """The bytes are not a JUnit report."""


@dataclass(slots=True)
class JunitCase:
    """A `testcase` element."""

    classname: str
    name: str
    duration_ns: int = 0
    outcome: CaseOutcome = "pass"
    type: str = ""
    message: str = ""
    text: str = ""
    output: str = ""
    messages: list[tuple[str, str]] = field(default_factory=list)
    """Level and text of further failures and reruns."""
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.classname}.{self.name}" if self.classname else self.name


@dataclass(slots=True)
class Report:
    name: str = ""
    timestamp: str = ""
    cases: list[JunitCase] = field(default_factory=list)
    output: str = ""
    """Output of the suites, outside of cases."""
    errors: list[str] = field(default_factory=list)
    """Failures outside of cases, such as the setup of a suite."""


def parse_report(data: bytes) -> Report:
    """Parse a report. Raise XmlError if it is not one, or is not safe to parse."""
    target = _Target()
    parser = ElementTree.XMLParser(target=target)
    try:
        parser.feed(data)
        parser.close()
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise XmlError(f"is not XML: {error}.") from None
    if not target.is_report:
        raise XmlError("is not a JUnit report (expected a testsuite element).")
    return target.report


class _Target:
    """Builds a report from the parser's events."""

    def __init__(self) -> None:
        self.report = Report()
        self.is_report = False
        self._case: JunitCase | None = None
        self._depth = 0
        self._open: list[tuple[str, dict[str, str], list[str]]] = []
        """Open results and outputs: tag, attributes, parts of the text so far."""
        self._output: list[str] = []
        self._suite_output: list[str] = []

    def doctype(self, name: str, public: str | None, system: str | None) -> None:
        # Called before its content is read, so no entity is defined or expanded.
        raise XmlError("has a DOCTYPE, which is not allowed. Remove it from the report.")

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise XmlError(f"is nested more than {DEPTH_MAX} deep.")
        tag = tag.rpartition("}")[2]
        if tag in ("testsuites", "testsuite"):
            self.is_report = True
            self.report.name = self.report.name or attributes.get("name", "")
            self.report.timestamp = self.report.timestamp or attributes.get("timestamp", "")
        elif tag == "testcase":
            self._case = JunitCase(attributes.get("classname", ""), attributes.get("name", ""))
            self._open, self._output = [], []
            self._case.duration_ns = _duration(attributes.get("time", ""))
            self._case.attributes = {
                key: attributes[key] for key in _CASE_ATTRIBUTES if attributes.get(key)
            }
            if not _NOT_RUN.isdisjoint((attributes.get("status"), attributes.get("result"))):
                self._case.outcome = "skip"
        elif tag.startswith(_CASE_TAGS) if self._case is not None else tag in _SUITE_TAGS:
            # A rerun may contain output, which belongs to the case; then the rerun continues.
            self._open.append((tag, attributes, []))

    def data(self, text: str) -> None:
        if self._open:
            self._open[-1][2].append(text)

    def end(self, tag: str) -> None:
        self._depth -= 1
        tag = tag.rpartition("}")[2]
        if tag == "testcase" and self._case is not None:
            self._case.output = "".join(self._output)
            self.report.cases.append(self._case)
            self._case = None
        elif self._open and tag == self._open[-1][0]:
            tag, attributes, parts = self._open.pop()
            if self._case is not None:
                self._add_result(self._case, tag, attributes, "".join(parts))
            elif tag in _OUTPUTS:
                self._suite_output.append("".join(parts))
            else:
                self.report.errors.append(
                    attributes.get("message") or "".join(parts).strip() or tag
                )

    def close(self) -> None:
        self.report.output = "".join(self._suite_output)

    def _add_result(self, case: JunitCase, tag: str, attributes: dict[str, str], text: str) -> None:
        if tag in _OUTPUTS:
            self._output.append(text)
            return
        message = attributes.get("message") or text.strip().partition("\n")[0]
        if tag == "skipped":
            case.outcome = "skip" if case.outcome == "pass" else case.outcome
        elif tag in _RESULTS and case.outcome != "fail":
            case.outcome = "fail"
        else:
            case.messages.append(("error" if tag in _RESULTS else "warn", message or tag))
            return
        case.type, case.message, case.text = attributes.get("type", ""), message, text.strip()


def _duration(text: str) -> int:
    """Return nanoseconds from seconds such as `0.012` or `1,234.5`; 0 if they are invalid."""
    try:
        seconds = float(text.replace(",", ""))
    except ValueError:
        return 0
    return int(seconds * 1e9) if 0 <= seconds < 1e9 else 0


# --- rendering ------------------------------------------------------------------------------------


def render_report(report: Report) -> bytes:
    cases = report.cases
    failed = sum(case.outcome == "fail" for case in cases)
    skipped = sum(case.outcome == "skip" for case in cases)
    seconds = sum(case.duration_ns for case in cases) / 1e9
    head = {
        "name": report.name,
        "tests": str(len(cases)),
        "failures": str(failed),
        "errors": str(len(report.errors)),
        "skipped": str(skipped),
        "time": f"{seconds:.3f}",
        "timestamp": report.timestamp,
    }
    lines = ['<?xml version="1.0" encoding="utf-8"?>', "<testsuites>", _tag("testsuite", head)]
    for case in cases:
        lines += _render_case(case)
    lines += [f"{_tag('error', {'message': message})}</error>" for message in report.errors]
    if report.output:
        lines.append(f"<system-out>{_text(report.output)}</system-out>")
    lines += ["</testsuite>", "</testsuites>", ""]
    return "\n".join(lines).encode(errors="backslashreplace")


def _render_case(case: JunitCase) -> list[str]:
    own = {"classname": case.classname, "name": case.name, "time": f"{case.duration_ns / 1e9:.6f}"}
    lines = [_tag("testcase", own)]
    if case.outcome == "fail":
        start = _tag("failure", {"message": case.message, "type": case.type})
        lines.append(f"{start}{_text(case.text)}</failure>")
    elif case.outcome == "skip":
        lines.append(f"{_tag('skipped', {'message': case.message})}</skipped>")
    if case.output:
        lines.append(f"<system-out>{_text(case.output)}</system-out>")
    return [*lines, "</testcase>"]


def _tag(name: str, attributes: dict[str, str]) -> str:
    pairs = (f" {key}={quoteattr(_legal(value), _QUOTED)}" for key, value in attributes.items())
    return f"<{name}{''.join(pairs)}>"


def _text(text: str) -> str:
    return escape(_legal(text), {"\r": "&#13;"})  # parsers read a bare \r as a newline


def _legal(text: str) -> str:
    """Return the text with characters that XML 1.0 cannot contain as `\\x1b`."""
    return _ILLEGAL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


_QUOTED = {"\n": "&#10;", "\t": "&#9;", "\r": "&#13;"}
