"""Check how a failed run ended: killed, crashed, uncaught exception, or abandoned.

Three witnesses: the collector's stamp (attribute `crash`), the process's own crash log
(attribute `last_words`), and an exception that left the run's root span. Each end is reported
once, by the witness with most details. The cause is the span that was in flight.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from vestige.limits import GIB
from vestige.query import formatting
from vestige.query.checks import check, make_finding
from vestige.query.checks.finding_text import named
from vestige.query.checks.process.stop_reason import STOPPED_KIND, describe_stop, find_stop
from vestige.query.evidence import Evidence
from vestige.query.failures.faulthandler_dump import format_threads
from vestige.query.failures.stall_report import find_last_stall, format_stall
from vestige.query.failures.traceback_parsing import format_location
from vestige.record.finding import Finding
from vestige.record.run import LogInfo, Node, SpanInfo
from vestige.record.types import OWN_COMPONENT, Attributes

OOM_RSS_MIN = GIB
"""Resident memory, last heard of, from which a SIGKILL looks like the kernel's OOM killer."""

FINDINGS_MAX = 20
"""A run may have as many processes, and threads that die, as it likes."""

WRAPPED_MAX = 200
"""Spans inside a failed one that are searched for the exception that it wraps."""
WRAPPED_TEXT = 120
"""Characters at the end of an error that the exception around it repeats."""
EVIDENCE_MAX = 10

_FAULTS = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Floating-point exception": "SIGFPE",
    "Floating point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
    "Stack overflow": "SIGSEGV",
    "terminated by SIGTERM": "SIGTERM",
}
"""Messages of a fatal fault, with their signals."""

_STOPPED = ("crash/SIGTERM", "crash/SIGKILL", "crash/unknown")
"""The rules of a child that its parent stopped: `terminate()`, `kill()`, or an unknown end."""


@check(
    "crash",
    title="The process died",
    looks_at="the collector's stamp, the crash log of the process, the signal of a command, and "
    "why Vestige stopped it",
    severity="error",
    confidence=0.98,
    false_positives="a process that was stopped on purpose (a hint, if its parent stopped it, or "
    "if it had no work of its own); "
    "whether a SIGKILL was the OOM killer is a guess",
    version=10,
)
def crash(evidence: Evidence) -> Iterator[Finding]:
    stop = find_stop(evidence)
    if stop is not None:
        yield describe_stop(evidence, stop)
    stamps = (log for log in evidence.run.logs if _is_stamp(log, died=True))
    for log in islice(stamps, FINDINGS_MAX):
        finding = _died(evidence, log)
        if stop is None or finding.kind not in (*_STOPPED, STOPPED_KIND):
            yield finding
    if stop is not None:
        return
    killed = _killed_command(evidence)
    if killed is not None:
        yield killed


def _killed_command(evidence: Evidence) -> Finding | None:
    """Report a command that is not Python and was killed: it has no journal to be stamped."""
    root = evidence.root
    if root is None or root.status != "interrupted" or not root.attributes.get("signal"):
        return None
    pid = root.attributes.get("pid")
    if any(span.attributes.get("pid") == pid for span in evidence.of_type("process")):
        return None
    signal = formatting.single_line(str(root.attributes["signal"]), 20)
    open_spans = [
        span
        for span in evidence.run.spans
        if span.status == "interrupted" and span.type not in ("run", "process")
    ]
    parents = {span.parent_id for span in open_spans}
    inner = [span for span in open_spans if span.id not in parents]
    cause = inner[-1] if inner else None
    where = f" in {named(cause)}" if cause is not None else ""
    return make_finding(
        evidence,
        "crash",
        kind=f"crash/{signal}",
        basis="measured",
        cause=cause.id if cause is not None else root.id,
        evidence=[span.id for span in inner[-EVIDENCE_MAX:]],
        message=f"{formatting.single_line(root.name, 60)} was killed by {signal}{where};"
        f" {formatting.pluralize(len(open_spans), 'span')} open.",
    )


def _died(evidence: Evidence, stamp: LogInfo) -> Finding:
    kind, basis, confidence = _kind(evidence, stamp)
    cause = _last_span(evidence, stamp)
    within = _in_flight(evidence, stamp.writer, cause)
    oom = " Probably out of memory." if (kind, basis) == ("crash/oom", "hypothesis") else ""
    fault = stamp.attributes.get("fault")
    details = f" Fault: {formatting.single_line(str(fault), 120)}." if fault else ""
    raw = evidence.raw(stamp.body) if stamp.body is not None else None
    if fault and kind == "crash/SIGTERM":
        stood = format_threads((raw or b"").decode(errors="replace"))
        details = f" It was at {stood}." if stood else ""
    stall = find_last_stall(evidence.run, stamp.writer)
    if stall is not None and not details:
        details = f" Before that {format_stall(stall)}."
    last = _find_crash_log(evidence, stamp.writer)
    if kind == "crash/exit" and last is not None and not details:
        details = f" It called {formatting.single_line(str(last.attributes['last_words']), 40)}."
    details += _describe_unanswered(evidence, stamp.writer)
    stopped = kind in _STOPPED and _is_idle_child(evidence, stamp)
    message = (
        f"{formatting.single_line(stamp.message, 200)}; "
        f"{formatting.pluralize(_count(stamp, 'open_spans'), 'span')} open.{oom}{details}"
    )
    if stopped:
        # A clean program looks like this: the words must not read like a crash.
        message = (
            f"a child process was stopped, probably by its parent, as pools do: {_child(stamp)}."
        )
        basis, confidence = "hypothesis", 0.5
    elif kind == "crash/SIGTERM" and _is_idle_service(evidence, stamp):
        stopped = True
        message = (
            f"{formatting.single_line(stamp.message, 200)}. It had no work of its own, so it was "
            "probably stopped on purpose."
        )
        basis, confidence = "hypothesis", 0.5
    return make_finding(
        evidence,
        "crash",
        kind=kind,
        severity="hint" if stopped else "error",
        basis=basis,
        confidence=confidence,
        cause=cause,
        evidence=within,
        message=message,
    )


def _describe_unanswered(evidence: Evidence, writer: str) -> str:
    """Name the tools that the last model call requested, if nothing was recorded after it.

    In a program that calls its tools itself, no span is open while a tool runs.
    """
    own = [span for span in evidence.run.spans if span.writer == writer]
    response = evidence.response(own[-1]) if own and own[-1].type == "llm" else None
    names = dict.fromkeys(call.name for call in response.calls) if response is not None else {}
    if not names:
        return ""
    shown = ", ".join(formatting.single_line(name, 40) for name in list(names)[:3])
    return f" Its last model call ({own[-1].short_id}) requested {shown}, which never returned."


def _child(stamp: LogInfo) -> str:
    """Return the name of the process that was stopped, and the signal if it is known."""
    name = str(stamp.attributes.get("open_span_names") or "process")
    fault = stamp.attributes.get("fault") or stamp.attributes.get("signal")
    return formatting.single_line(f"{name} ({fault})" if fault else name, 120)


def _is_idle_child(evidence: Evidence, stamp: LogInfo) -> bool:
    """A process with nothing in flight but itself, whose parent outlived it.

    The parent is known by the span that started the process: its own process span, or a span of
    the run that it had open. That span was closed by the parent, after the process was last heard
    of, or is open in a run that goes on.
    """
    own = [span for span in evidence.of_type("process") if span.writer == stamp.writer]
    if len(own) != 1 or _count(stamp, "open_spans") > 1:
        return False
    parent = evidence.spans.get(own[0].parent_id or "")
    if parent is None or parent.writer == stamp.writer or parent.status == "interrupted":
        return False
    if parent.status is None or parent.duration_ns is None:
        return evidence.root is not None and evidence.root.status is None
    return parent.started_ns + parent.duration_ns >= stamp.time_ns


def _is_idle_service(evidence: Evidence, stamp: LogInfo) -> bool:
    """A process whose only span in this run is its own: its requests and tasks are other runs.

    Servers such as uvicorn finish their requests at SIGTERM, then let the signal end them.
    """
    own = [span.type for span in evidence.run.spans if span.writer == stamp.writer]
    return own == ["process"]


def _kind(evidence: Evidence, stamp: LogInfo) -> tuple[str, str, float]:
    """Return how the process died: as its parent recorded, else from the evidence."""
    if stamp.attributes.get("stopped"):
        return STOPPED_KIND, "measured", 1.0
    last = _find_crash_log(evidence, stamp.writer)
    if last is not None and last.attributes.get("error.type") == "MemoryError":
        return "crash/oom", "measured", 0.95
    signal = stamp.attributes.get("signal") or _signal_of(stamp.attributes)
    if signal == "SIGKILL" and stamp.attributes.get("oom_kills"):
        return "crash/oom", "measured", 0.95
    if signal == "SIGKILL" and _rss_bytes(evidence, stamp.writer) >= OOM_RSS_MIN:
        return "crash/oom", "hypothesis", 0.6
    if signal:
        return f"crash/{formatting.single_line(str(signal), 20)}", "measured", 0.98
    if last is not None:
        return _kind_of_last_words(last), "measured", 0.95
    if "exit_code" in stamp.attributes:
        return "crash/exit", "measured", 0.98
    return "crash/unknown", "measured", 0.9  # that it died is sure, how nobody saw


def _kind_of_last_words(log: LogInfo) -> str:
    how = str(log.attributes.get("last_words"))
    if how.startswith("os._exit"):
        return "crash/exit"
    if how.startswith("terminated by "):
        return f"crash/{formatting.single_line(how.removeprefix('terminated by '), 20)}"
    return "crash/oom" if log.attributes.get("error.type") == "MemoryError" else "crash/uncaught"


def _signal_of(attributes: Attributes) -> str | None:
    """The fatal signal that faulthandler saw."""
    fault = str(attributes.get("fault") or "")
    return next((signal for text, signal in _FAULTS.items() if text in fault), None)


def _rss_bytes(evidence: Evidence, writer: str) -> int:
    """Resident memory when it was last heard of, in a log line or on a span."""
    heard = 0
    nodes: list[Node] = [*evidence.run.spans, *evidence.run.logs]
    for node in nodes:
        value = node.attributes.get("rss_bytes")
        if node.writer == writer and isinstance(value, int):
            heard = max(heard, value)
    return heard


# --- exceptions -------------------------------------------------------------------------------


@check(
    "uncaught-exception",
    title="Uncaught exception",
    looks_at="last words, and the error on the run's root span",
    severity="error",
    confidence=0.95,
    false_positives="an exception that leaves its run and is deliberately caught outside of it",
    version=8,
)
def uncaught_exception(evidence: Evidence) -> Iterator[Finding]:
    reported: set[tuple[object, object]] = set()
    found = 0
    stamped = {log.writer for log in evidence.run.logs if _is_stamp(log, died=True)}
    for log in evidence.run.logs:
        if _is_last_words(log) and "error.type" in log.attributes and log.writer not in stamped:
            found += 1
            reported.add(_error(log.attributes))
            if found <= FINDINGS_MAX:
                call = call_behind(evidence, log)
                how = log.message.removeprefix("last words: ")  # in records of Vestige 0.1
                yield _uncaught(evidence, log.attributes, log.span_id, how, 0.95, call)
    root = evidence.root
    if root is None or root.status not in ("error", "timeout"):
        return
    if "error.type" in root.attributes and _error(root.attributes) not in reported:
        # Only the process's own run shows whether the program caught it outside the run.
        yield _uncaught(evidence, root.attributes, root.id, "uncaught exception", 0.85)


def _uncaught(
    evidence: Evidence,
    attributes: Attributes,
    span_id: str | None,
    how: str,
    confidence: float,
    call: SpanInfo | None = None,
) -> Finding:
    chain = _chain_of(evidence, _error(attributes))
    if chain and call is None:
        wrapped = _find_wrapped(evidence, chain[0])
        chain = [wrapped, *chain] if wrapped is not None else chain
    kind, error_type = "crash/uncaught", str(attributes["error.type"])
    if "MemoryError" in (error_type, attributes.get("error.cause.type")):
        kind = "crash/oom"
    elif error_type == "SystemExit":
        kind = "crash/exit"
    elif error_type == "KeyboardInterrupt":
        kind, how = "stopped/keyboard", "stopped from the keyboard"
    # The full message of a failed call is at the call; here it leaves room for the location.
    text = formatting.single_line(str(attributes.get("error.message") or ""), 80 if call else 160)
    error = formatting.single_line(error_type, 60) + (f": {text}" if text else "")
    where = f", raised in {formatting.single_line(chain[0].name, 60)}" if chain else ""
    place = format_location(attributes.get("error.stack"))
    if call is not None and not chain:
        where = f", after {named(call)} failed,"
        place = place.rpartition("called from ")[2]  # not the line inside the SDK
    where += f" at {place}" if place else ""
    return make_finding(
        evidence,
        "uncaught-exception",
        kind=kind,
        severity="warning" if kind == "stopped/keyboard" else "error",
        confidence=confidence,
        cause=chain[0].id if chain else call.id if call else _known(evidence, span_id),
        evidence=[span.id for span in chain[:EVIDENCE_MAX]] or ([call.id] if call else []),
        message=f"{formatting.single_line(how, 80)}: {error}{where}.{_caused_by(attributes)}",
    )


def _caused_by(attributes: Attributes) -> str:
    """The innermost cause of a chained exception, or the first member of a group, and its place."""
    kind = attributes.get("error.cause.type")
    if not kind:
        return ""
    text = formatting.single_line(str(attributes.get("error.cause.message") or ""), 160)
    place = format_location(attributes.get("error.cause.stack"))
    cause = f"{formatting.single_line(str(kind), 60)}{f': {text}' if text else ''}"
    return f" Caused by {cause}{f' at {place}' if place else ''}."


def call_behind(evidence: Evidence, log: LogInfo) -> SpanInfo | None:
    """Return the last failed model call, if its error is the one in the SDK's exception."""
    failed = (span for span in reversed(evidence.model_calls) if span.status not in ("ok", None))
    message = str(log.attributes.get("error.message") or "")
    for call in failed:
        if call.writer != log.writer or "error.type" not in call.attributes:
            continue
        code, error = call.attributes.get("status_code"), call.attributes.get("error.message")
        same_code = isinstance(code, int) and code >= 400 and f"code: {code}" in message
        text = str(error or "").rpartition(": ")[2]
        same_text = len(text) >= 8 and text in message
        cause = log.attributes.get("error.cause.type")
        beneath = ("error.cause.type", "error.cause.message")  # both may wrap a third
        same_cause = cause == call.attributes["error.type"] or (
            cause is not None
            and all(log.attributes.get(name) == call.attributes.get(name) for name in beneath)
        )
        if same_code or same_text or same_cause:
            return call
    return None


def _chain_of(evidence: Evidence, error: tuple[object, object]) -> list[SpanInfo]:
    """The spans that this exception passed on its way up, the innermost first."""
    passed = [span for span in evidence.run.spans if _error(span.attributes) == error]
    ids = {span.id for span in passed}
    parents = {span.parent_id for span in passed if span.parent_id in ids}
    innermost = [span for span in passed if span.id not in parents]
    if not innermost:
        return []
    chain = [innermost[-1]]  # the same error may have been raised, and caught, before
    while (parent := evidence.spans.get(chain[-1].parent_id or "")) and parent.id in ids:
        ids.remove(parent.id)  # so that a circle ends
        chain.append(parent)
    return chain


def _find_wrapped(evidence: Evidence, span: SpanInfo) -> SpanInfo | None:
    """Return the failed call inside a span whose error the span's own exception repeats."""
    found: SpanInfo | None = None
    message = str(span.attributes.get("error.message") or "")
    inside = list(evidence.children.get(span.id, ()))
    for _ in range(WRAPPED_MAX):
        if not inside:
            break
        child = inside.pop()
        own = str(child.attributes.get("error.message") or "")
        text = own.strip()[-WRAPPED_TEXT:]
        if child.status in ("error", "timeout") and len(text) >= 8 and text in message:
            found = child
            inside = list(evidence.children.get(child.id, ()))
    return found


# --- what was left open -----------------------------------------------------------------------


@check(
    "in-flight-end",
    title="Unfinished work",
    looks_at="spans that are open, or were interrupted, in a run that is over",
    severity="error",
    confidence=0.8,
    false_positives="work that should outlive the run; a program that forgets to end its spans",
)
def in_flight_end(evidence: Evidence) -> Iterator[Finding]:
    stamps = (log for log in evidence.run.logs if _is_stamp(log, died=False))
    for log in islice(stamps, FINDINGS_MAX):
        cause = _last_span(evidence, log)
        yield make_finding(
            evidence,
            "in-flight-end",
            kind="in-flight/exited",
            # An exception in a program without `with` is reported in the process's run.
            severity="error" if log.attributes.get("exit_code") else "warning",
            cause=cause,
            evidence=_in_flight(evidence, log.writer, cause),
            message=f"{formatting.single_line(log.message, 200)}; "
            f"{formatting.pluralize(_count(log, 'open_spans'), 'span')} never ended.",
        )
    root = evidence.root
    if root is None or root.status is None:
        return
    left = [span for span in evidence.run.spans if span.status is None]
    if left:
        yield make_finding(
            evidence,
            "in-flight-end",
            kind="in-flight/open",
            severity="hint",
            cause=left[-1].id,
            evidence=[span.id for span in reversed(left)][:EVIDENCE_MAX],
            message=f"the run ended ({formatting.single_line(root.status, 20)}) while "
            f"{formatting.pluralize(len(left), 'span')} had not, the last "
            f"{formatting.single_line(left[-1].type, 20)} "
            f"{formatting.single_line(left[-1].name, 60)}.",
        )


# --- small things -----------------------------------------------------------------------------


def _is_stamp(log: LogInfo, *, died: bool) -> bool:
    """The collector's word on a process that died, or that exited and left something open."""
    return log.component == OWN_COMPONENT and log.attributes.get("crash") is died


def _is_last_words(log: LogInfo) -> bool:
    return log.component == OWN_COMPONENT and "last_words" in log.attributes


def _find_crash_log(evidence: Evidence, writer: str) -> LogInfo | None:
    """Find the crash log of the process itself: threads and tasks may die alone."""
    found = [
        log
        for log in evidence.run.logs
        if _is_last_words(log)
        and log.writer == writer
        and " in " not in str(log.attributes["last_words"])
    ]
    return found[-1] if found else None


def _error(attributes: Attributes) -> tuple[object, object]:
    return attributes.get("error.type"), attributes.get("error.message")


def _known(evidence: Evidence, span_id: object) -> str | None:
    return span_id if isinstance(span_id, str) and span_id in evidence.spans else None


def _last_span(evidence: Evidence, stamp: LogInfo) -> str | None:
    return _known(evidence, stamp.attributes.get("last_span")) or _known(evidence, stamp.span_id)


def _in_flight(evidence: Evidence, writer: str, first: str | None) -> list[str]:
    """Return the interrupted spans, innermost first."""
    left = [
        span.id
        for span in reversed(evidence.run.spans)
        if span.status == "interrupted" and span.writer == writer and span.id != first
    ]
    return ([first] if first else []) + left[: EVIDENCE_MAX - 1]


def _count(log: LogInfo, name: str) -> int:
    value = log.attributes.get(name)
    return value if isinstance(value, int) else 0
