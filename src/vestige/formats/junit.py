"""JUnit XML reports, which most test runners write and every CI reads.

A report is a run, a `testcase` is a span of type `test`. Files that the output of a case names as
`[[ATTACHMENT|path]]` are imported, and exported to a folder beside the report.

XML is not trusted: a report with a DOCTYPE is rejected before any entity is read, and attachments
outside of the report's folder are skipped.

Elsewhere: the XML itself in junit_xml.py.
"""

from __future__ import annotations

import codecs
import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from vestige.errors import UnreadableError, UsageError
from vestige.formats.junit_xml import JunitCase, Report, XmlError, parse_report, render_report
from vestige.formats.protocol import TIME_MAX_NS, Problem, RunToWrite, Source
from vestige.formats.suite_records import TEST, SuiteRecords, parse_time_ns, render_time
from vestige.limits import ARTIFACT_BODY_MAX, JUNIT_MAX, MIB, PROBLEMS_MAX, STACK_MAX
from vestige.record.run import SpanInfo
from vestige.record.types import Attributes, KnownRecord

_ATTACHMENT = re.compile(r"\[\[ATTACHMENT\|((?:(?!\[\[ATTACHMENT\|)[^\]\n]){1,4096})\]\]")
"""A match never contains the start of another, so that unclosed markers stay linear to scan."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_SUITE_FAILED = "SuiteFailed"
_SNIFF_BYTES = 4096
_NAME_MAX = 100


def is_readable(path: Path) -> bool:
    try:
        if not path.is_file():
            return False
        with open(path, "rb") as file:
            start = file.read(_SNIFF_BYTES)
    except OSError:
        return False
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        start = start.decode("utf-16", "replace").encode(errors="replace")
    return b"<testsuite" in start and start.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"<")


def find_runs(path: Path) -> Iterator[Path]:
    """Yield the report, or every report in a folder."""
    if path.is_dir():
        yield from filter(is_readable, sorted(path.glob("*.xml")))
    else:
        yield path


def read_run(path: Path) -> Source:
    report, digest = _parse(path)
    name = report.name or path.stem
    suite = SuiteRecords("junit", digest, name)
    problems: list[Problem] = []
    return Source(suite.run_id, suite.writer, _records(report, suite, path, problems), problems)


def validate_run(path: Path) -> Sequence[Problem]:
    """Return whether the file is a report whose attachments exist, as problems."""
    try:
        source = read_run(path)
    except UnreadableError as error:
        return [Problem(str(path), "", "junit-unreadable", str(error))]
    for _ in source.records:
        pass
    return source.problems


def write_run(run: RunToWrite, target: Path) -> Path:
    """Write the test spans of a run as a report, with attachments in a folder beside it."""
    tests = [span for span in run.run.spans if span.type == TEST]
    if not tests:
        raise UsageError(
            f"{run.run.info.short_id}: not a test suite (expected spans of type `test`)."
            " Export it as another format."
        )
    if target.is_dir():
        raise UsageError(f"{target}: is a directory (expected a file). Name a file in it.")
    report = Report(run.run.info.name, render_time(run.run.info.started_ns))
    report.cases = [_span_to_case(span, run) for span in tests]
    _add_suite_output(report, run)
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = target.with_name(f"{_safe_name(target.stem)}-files")
    cases = dict(zip((span.id for span in tests), report.cases, strict=True))
    files = [
        span
        for span in run.run.spans
        if span.type == "file" and span.parent_id in cases and span.input is not None
    ]
    if files and os.path.lexists(folder):
        raise UsageError(
            f"{folder}: exists, but is needed for attachments. Remove it, or choose another target."
        )
    partial = target.with_name(f".{target.name}.part")
    try:
        if files:
            folder.mkdir()
        for number, span in enumerate(files, 1):
            name = f"{number}-{_safe_name(span.name.rpartition('/')[2])}"
            (folder / name).write_bytes(run.body(span.input) or b"")
            cases[span.parent_id or ""].output += f"\n[[ATTACHMENT|{folder.name}/{name}]]"
        partial.write_bytes(render_report(report))
        os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        if files:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return target


def _safe_name(name: str) -> str:
    return _UNSAFE.sub("_", name)[-_NAME_MAX:] or "_"


def _parse(path: Path) -> tuple[Report, str]:
    try:
        with open(path, "rb") as file:
            data = file.read(JUNIT_MAX + 1)
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read ({error.strerror}).") from None
    if len(data) > JUNIT_MAX:
        raise UnreadableError(f"{path}: is larger than {JUNIT_MAX // MIB} MiB.")
    try:
        return parse_report(data), hashlib.sha256(data).hexdigest()
    except XmlError as error:
        raise UnreadableError(f"{path}: {error}") from None


def _written_ns(path: Path) -> int:
    try:
        return max(0, path.stat().st_mtime_ns)
    except OSError:
        return 0


def _records(
    report: Report, suite: SuiteRecords, path: Path, problems: list[Problem]
) -> Iterator[KnownRecord]:
    """Yield the cases one after the other. A report has durations, but no start times of cases."""
    # Some tools write no time (Surefire). Their suite ended when the file was written.
    now_ns = parse_time_ns(report.timestamp) or _written_ns(path)
    yield suite.open(now_ns, {"suite": suite.name, "report": path.name})
    failed = 0
    attached: set[str] = set()
    for number, case in enumerate(report.cases, 1):
        key = str(number)
        attributes: Attributes = dict(case.attributes)
        yield suite.open_case(key, case.title, now_ns, attributes)
        ended_ns = min(now_ns + case.duration_ns, TIME_MAX_NS)
        for level, text in case.messages:
            yield suite.log(key, level, text, ended_ns)
        failed += case.outcome == "fail"
        yield suite.close_case(
            key,
            case.outcome,
            ended_ns,
            case.duration_ns,
            _result_attributes(case),
            case.output or None,
        )
        yield from _attach_all(case.output, attached, key, ended_ns, suite, path, problems)
        now_ns = ended_ns
    for message in report.errors:
        yield suite.log(None, "error", message, now_ns, {"error.type": _SUITE_FAILED})
    failed += len(report.errors)
    yield from _attach_all(report.output, attached, None, now_ns, suite, path, problems)
    counts = {
        outcome: sum(case.outcome == outcome for case in report.cases)
        for outcome in ("pass", "fail", "skip")
    }
    yield suite.close(
        "error" if failed else "ok",
        now_ns,
        {"total": len(report.cases), **counts},
        report.output or None,
    )


def _result_attributes(case: JunitCase) -> Attributes:
    attributes: Attributes = {}
    if case.outcome == "fail":
        attributes["error.type"] = case.type or "TestFailed"
    if case.message:
        attributes["error.message" if case.outcome == "fail" else "message"] = case.message
    if case.text:
        attributes["error.stack" if case.outcome == "fail" else "reason"] = case.text[:STACK_MAX]
    return attributes


def _attach_all(
    output: str,
    attached: set[str],
    key: str | None,
    time_ns: int,
    suite: SuiteRecords,
    report: Path,
    problems: list[Problem],
) -> Iterator[KnownRecord]:
    for name in map(os.path.normpath, map(str.strip, _ATTACHMENT.findall(output))):
        if name not in attached:
            attached.add(name)
            yield from _attach(name, key, time_ns, suite, report, problems)


def _attach(
    name: str,
    key: str | None,
    time_ns: int,
    suite: SuiteRecords,
    report: Path,
    problems: list[Problem],
) -> Iterator[KnownRecord]:
    folder = os.path.realpath(report.parent)
    path = os.path.realpath(os.path.join(folder, name))
    if not path.startswith(folder + os.sep):
        _add_warning(
            problems,
            report,
            "attachment-outside",
            f"the attachment {name!r} is outside of the report's folder.",
            "Copy it into that folder.",
        )
        return
    try:
        if not os.path.isfile(path):
            raise OSError
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            data = file.read() if size <= ARTIFACT_BODY_MAX else None
    except OSError:
        message = f"the attachment {name!r} does not exist."
        _add_warning(problems, report, "attachment-missing", message)
        return
    yield from suite.file(os.path.relpath(path, folder), key, time_ns, size, digest, data)


def _add_warning(
    problems: list[Problem], report: Path, rule: str, message: str, hint: str = ""
) -> None:
    if len(problems) < PROBLEMS_MAX:
        problems.append(Problem(str(report), "", rule, message, hint, "warning"))


def _add_suite_output(report: Report, run: RunToWrite) -> None:
    """Add output and errors that belong to no case."""
    root = next(
        (span for span in run.run.spans if span.type == "run" and span.parent_id is None), None
    )
    output = run.body(root.output) if root is not None else None
    report.output = output.decode(errors="replace") if output else ""
    report.errors = [
        log.message for log in run.run.logs if log.attributes.get("error.type") == _SUITE_FAILED
    ]


def _span_to_case(span: SpanInfo, run: RunToWrite) -> JunitCase:
    attributes = span.attributes
    classname = attributes.get("classname")
    prefix = f"{classname}." if isinstance(classname, str) else ""
    outcome = attributes.get("outcome")
    case = JunitCase(str(classname or ""), span.name.removeprefix(prefix))
    case.duration_ns = span.duration_ns or 0
    if outcome in ("pass", "fail", "skip"):
        case.outcome = outcome  # type: ignore[assignment]  # one of three literals
    else:
        case.outcome = "pass" if span.status == "ok" else "fail"
    case.type = str(attributes.get("error.type") or "")
    case.message = str(attributes.get("error.message") or attributes.get("message") or "")
    if case.outcome == "fail" and not case.message and span.status != "ok":
        case.message = span.status or "did not end"
    case.text = str(attributes.get("error.stack") or "")
    output = run.body(span.output)
    case.output = output.decode(errors="replace") if output else ""
    return case
