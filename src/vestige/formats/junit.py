"""JUnit XML: what nearly every test runner can write, and every CI can read.

A report is a run, a `testcase` a span of type `test`. Files that a case names in its output as
`[[ATTACHMENT|path]]` come along, if they lie beside the report; on the way out they are put there.

The one hard fact: XML is not trusted. A report with a DOCTYPE is refused before any entity is
read, and attachments outside the report's own folder are passed over.

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
from vestige.formats.test_suites import TEST, SuiteRecords, parse_time_ns, render_time
from vestige.limits import ARTIFACT_BODY_MAX, JUNIT_MAX, MIB, PROBLEMS_MAX, STACK_MAX
from vestige.record.run import SpanInfo
from vestige.record.types import Attributes, KnownRecord

_ATTACHMENT = re.compile(r"\[\[ATTACHMENT\|((?:(?!\[\[ATTACHMENT\|)[^\]\n]){1,4096})\]\]")
"""Never across the beginning of the next one: a thousand without an end would be read a thousand times."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_SUITE_FAILED = "SuiteFailed"
_SNIFFED = 4096
_NAME_MAX = 100


def is_readable(path: Path) -> bool:
    try:
        if not path.is_file():
            return False
        with open(path, "rb") as file:
            start = file.read(_SNIFFED)
    except OSError:
        return False
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        start = start.decode("utf-16", "replace").encode(errors="replace")
    return b"<testsuite" in start and start.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"<")


def find_runs(path: Path) -> Iterator[Path]:
    """The report; in a folder, every report in it."""
    if path.is_dir():
        yield from (place for place in sorted(path.glob("*.xml")) if is_readable(place))
    else:
        yield path


def read_run(path: Path) -> Source:
    report, digest = _parse(path)
    name = report.name or path.stem
    suite = SuiteRecords("junit", digest, name)
    problems: list[Problem] = []
    return Source(suite.run_id, suite.writer, _records(report, suite, path, problems), problems)


def validate_run(path: Path) -> Sequence[Problem]:
    """Is it a report, and are the attachments there?"""
    try:
        source = read_run(path)
    except UnreadableError as error:
        return [Problem(str(path), "", "junit-unreadable", str(error))]
    for _ in source.records:
        pass
    return source.problems


def write_run(run: RunToWrite, target: Path) -> Path:
    """The cases of a run as a report; the target is a file that is not there yet."""
    tests = [span for span in run.run.spans if span.type == TEST]
    if not tests:
        raise UsageError(
            f"{run.run.info.short_id}: no spans of type `test` in it: it is no suite. Export it as another format."
        )
    if target.is_dir():
        raise UsageError(f"{target}: is a directory (expected a file). Name one in it.")
    report = Report(run.run.info.name, render_time(run.run.info.started_ns))
    report.cases = [_case_of(span, run) for span in tests]
    _add_suite(report, run)
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
            f"{folder}: is in the way of the attachments. Remove it, or name another target."
        )
    half = target.with_name(f".{target.name}.part")
    try:
        if files:
            folder.mkdir()
        for number, span in enumerate(files, 1):
            name = f"{number}-{_safe_name(span.name.rpartition('/')[2])}"
            (folder / name).write_bytes(run.body(span.input) or b"")
            cases[span.parent_id or ""].output += f"\n[[ATTACHMENT|{folder.name}/{name}]]"
        half.write_bytes(render_report(report))
        os.replace(half, target)
    except BaseException:
        half.unlink(missing_ok=True)
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
        raise UnreadableError(f"{path}: cannot be read: {error.strerror}.") from None
    if len(data) > JUNIT_MAX:
        raise UnreadableError(f"{path}: larger than {JUNIT_MAX // MIB} MiB.")
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
    """One after the other: a report has durations, and at best when a suite began."""
    # Some tools write no time (Surefire): then it ended when its file was written.
    now_ns = parse_time_ns(report.timestamp) or _written_ns(path)
    yield suite.open(now_ns, {"suite": suite.name, "report": path.name})
    failed = 0
    attached: set[str] = set()
    for number, case in enumerate(report.cases, 1):
        key = str(number)
        attributes: Attributes = dict(case.attributes)
        yield suite.open_case(key, case.title, now_ns, attributes)
        ended_ns = min(now_ns + case.duration_ns, TIME_MAX_NS)
        for level, text in case.said:
            yield suite.log(key, level, text, ended_ns)
        failed += case.outcome == "fail"
        yield suite.close_case(
            key, case.outcome, ended_ns, case.duration_ns, _facts(case), case.output or None
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


def _facts(case: JunitCase) -> Attributes:
    facts: Attributes = {}
    if case.outcome == "fail":
        facts["error.type"] = case.type or "TestFailed"
    if case.message:
        facts["error.message" if case.outcome == "fail" else "message"] = case.message
    if case.text:
        facts["error.stack" if case.outcome == "fail" else "reason"] = case.text[:STACK_MAX]
    return facts


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
        if name not in attached:  # read once, whoever names it
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
    place = os.path.realpath(os.path.join(folder, name))
    if not place.startswith(folder + os.sep):
        _note(
            problems,
            report,
            "attachment-outside",
            f"the attachment {name!r} lies outside the report's folder.",
            "Copy it beside the report.",
        )
        return
    try:
        if not os.path.isfile(place):
            raise OSError
        size = os.path.getsize(place)
        with open(place, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            data = file.read() if size <= ARTIFACT_BODY_MAX else None
    except OSError:
        _note(problems, report, "attachment-missing", f"the attachment {name!r} is not there.")
        return
    yield from suite.file(os.path.relpath(place, folder), key, time_ns, size, digest, data)


def _note(problems: list[Problem], report: Path, rule: str, message: str, hint: str = "") -> None:
    if len(problems) < PROBLEMS_MAX:
        problems.append(Problem(str(report), "", rule, message, hint, "warning"))


def _add_suite(report: Report, run: RunToWrite) -> None:
    """What a report said outside of its cases."""
    root = next(
        (span for span in run.run.spans if span.type == "run" and span.parent_id is None), None
    )
    output = run.body(root.output) if root is not None else None
    report.output = output.decode(errors="replace") if output else ""
    report.errors = [
        log.message for log in run.run.logs if log.attributes.get("error.type") == _SUITE_FAILED
    ]


def _case_of(span: SpanInfo, run: RunToWrite) -> JunitCase:
    told = span.attributes
    classname = told.get("classname")
    prefix = f"{classname}." if isinstance(classname, str) else ""
    outcome = told.get("outcome")
    case = JunitCase(str(classname or ""), span.name.removeprefix(prefix))
    case.duration_ns = span.duration_ns or 0
    if outcome in ("pass", "fail", "skip"):
        case.outcome = outcome  # type: ignore[assignment]  # one of the three
    else:
        case.outcome = "pass" if span.status == "ok" else "fail"
    case.type = str(told.get("error.type") or "")
    case.message = str(told.get("error.message") or told.get("message") or "")
    if case.outcome == "fail" and not case.message and span.status != "ok":
        case.message = span.status or "did not end"
    case.text = str(told.get("error.stack") or "")
    output = run.body(span.output)
    case.output = output.decode(errors="replace") if output else ""
    return case
