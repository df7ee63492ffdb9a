"""Failures of verifiers and tools that could not start, which are not the agent's fault."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vestige.query.checks import check, make_finding
from vestige.query.checks.finding_text import format_error, format_outcome, named
from vestige.query.checks.requested_calls import get_call_id
from vestige.query.evidence import Evidence
from vestige.record.finding import Finding
from vestige.record.run import SpanInfo

FINDINGS_MAX = 5

_FAILED = frozenset(["error", "timeout"])
_VERIFIER = re.compile(
    r"(?:^|[^a-z])(?:verif|grad(?:e|ing)|check(?!out|point)|evaluat|judge|scor(?:e|ing)"
    r"|tests?(?![a-z]))",
    re.IGNORECASE,
)
_START_ERRORS = frozenset(
    [
        "FileNotFoundError",
        "PermissionError",
        "ConnectionError",
        "ConnectionRefusedError",
        "ConnectionResetError",
        "TimeoutError",
        "TimeoutExpired",
        "ModuleNotFoundError",
        "ImportError",
        "BlockingIOError",
        "ConnectError",
        "ConnectTimeout",
        "BrokenPipeError",
    ]
)
_START_TEXT = re.compile(
    r"command not found|no such file or directory|permission denied|connection refused"
    r"|could not (?:start|connect)|cannot connect to|failed to start|exec format error"
    r"|exit (?:code|status) 12[67]\b|no module named",
    re.IGNORECASE,
)
# A tool may correctly report a missing file, so only texts that show that it did not run count.
_TOOL_START_TEXT = re.compile(
    r"command not found|connection refused|could not start|cannot connect to|failed to start"
    r"|exec format error|exit (?:code|status) 127\b",
    re.IGNORECASE,
)


@check(
    "infrastructure-failure",
    title="Infrastructure failure",
    looks_at="test, process, verifier and tool spans that could not start, in a failed run",
    severity="error",
    confidence=0.8,
    false_positives="an agent that broke the verifier itself, e.g. by deleting what it needs",
)
def infrastructure_failure(evidence: Evidence) -> Iterator[Finding]:
    if not _is_failed(evidence):
        return
    failed = [span for span in evidence.run.spans if could_not_start(evidence, span)]
    # Only the innermost spans are reported: their parents failed because of them.
    parent_ids = {span.parent_id for span in failed}
    for span in [span for span in failed if span.id not in parent_ids][:FINDINGS_MAX]:
        is_verifier = _is_verifier(span)
        parents = [parent.id for parent in failed if parent.id == span.parent_id]
        yield make_finding(
            evidence,
            "infrastructure-failure",
            kind=f"infrastructure/{'verifier' if is_verifier else 'tool'}",
            severity="error" if is_verifier else "warning",
            confidence=0.85 if is_verifier else 0.6,
            basis="hypothesis",
            cause=span.id,
            evidence=[span.id, *parents],
            message=f"{named(span)} could not run: {format_error(evidence, span)}. The failure of "
            f"the run ({format_outcome(evidence)}) may not be the agent's fault.",
        )


def could_not_start(evidence: Evidence, span: SpanInfo) -> bool:
    """Return whether a verifier or tool failed before it could do anything."""
    verifier = _is_verifier(span)
    if not verifier and span.type != "tool":
        return False
    code = span.attributes.get("exit_code")
    if code in (126, 127) and not isinstance(code, bool):
        return True
    if span.status not in _FAILED:
        return False
    error = str(span.attributes.get("error.type") or "").rpartition(".")[2]
    message = str(span.attributes.get("error.message") or "")
    if verifier:
        text = message or (evidence.output(span) or "")[:4000]
        return error in _START_ERRORS or _START_TEXT.search(text) is not None
    return error == "ConnectionRefusedError" or _TOOL_START_TEXT.search(message) is not None


def _is_failed(evidence: Evidence) -> bool:
    if evidence.run.info.outcome in _FAILED:
        return True
    verdicts = [span for span in evidence.run.spans if span is evidence.root or _is_verifier(span)]
    return any(
        span.attributes.get(name) in (False, 0, "fail", "failed")
        for span in verdicts
        for name in ("passed", "success", "reward", "score", "verdict")
        if name in span.attributes
    )


def _is_verifier(span: SpanInfo) -> bool:
    if span.type in ("test", "process"):
        return True
    # A call that a model requested is a tool, whatever its name.
    by_name = span.type not in ("llm", "run") and get_call_id(span) is None
    return by_name and _VERIFIER.search(span.name) is not None
