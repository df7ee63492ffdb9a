"""Claims of a model about a run, accepted only with quotes that occur in the spans they cite.

    checked = check_claims(scope, arguments)
    checked.claims, checked.rejected

A quote is compared with the redacted text of the span, without regard to the kind and number of
blanks: name, attributes, input, output and log lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from vestige.errors import VestigeError
from vestige.explain.readable_runs import Scope
from vestige.query.body_text import render_body_text
from vestige.query.evidence import Evidence
from vestige.query.formatting import single_line
from vestige.record.redaction.output_redaction import redact_text
from vestige.record.run import SpanInfo

VERDICTS: Final = ("cause", "contributes", "ruled_out")
CLAIMS_MAX: Final = 12
EVIDENCE_MAX: Final = 4
STATEMENT_MAX: Final = 400
QUOTE_MIN: Final = 6
"""A shorter quote occurs almost anywhere, and proves nothing."""
QUOTE_MAX: Final = 300
HITS_SHOWN: Final = 3

_BLANKS: Final = re.compile(r"[\s⏎]+")
_IDS: Final = re.compile(r"\br\d+(?:\.s\d+)?\b|\b[0-9a-f]{16}\b")
_URLS: Final = re.compile(r"\bhttps?://[^\s\"'<>)\]]+")


@dataclass(frozen=True, slots=True)
class Citation:
    """A quote, and the span in which it occurs."""

    run_id: str
    span_id: str
    span: str
    """Short id of the span."""
    quote: str

    def data(self) -> dict[str, str]:
        return {
            "span": self.span,
            "span_id": self.span_id,
            "run_id": self.run_id,
            "quote": self.quote,
        }


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement whose quotes all occur in the spans they cite."""

    verdict: str
    """`cause`, `contributes` or `ruled_out`."""
    statement: str
    citations: tuple[Citation, ...]

    def data(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "statement": self.statement,
            "evidence": [each.data() for each in self.citations],
        }


@dataclass(frozen=True, slots=True)
class RejectedClaim:
    """A statement without proof, and why it is not one."""

    statement: str
    reason: str

    def data(self) -> dict[str, str]:
        return {"statement": self.statement, "reason": self.reason}


@dataclass(slots=True)
class CheckedClaims:
    """The claims of a report."""

    claims: list[Claim] = field(default_factory=list)
    rejected: list[RejectedClaim] = field(default_factory=list)


def check_claims(scope: Scope, arguments: Mapping[str, Any] | None) -> CheckedClaims:
    """Check each claim of a report against the store."""
    items = (arguments or {}).get("claims")
    checked = CheckedClaims()
    if not isinstance(items, list) or not items:
        checked.rejected.append(RejectedClaim("", "the report has no list of claims"))
        return checked
    for item in items[:CLAIMS_MAX]:
        fields = item if isinstance(item, dict) else {}
        raw = fields.get("statement")
        statement = single_line(redact_text(raw), STATEMENT_MAX) if isinstance(raw, str) else ""
        try:
            checked.claims.append(_check_claim(scope, fields, statement))
        except _RejectedError as error:
            checked.rejected.append(RejectedClaim(statement, str(error)))
    for _ in items[CLAIMS_MAX:]:
        checked.rejected.append(RejectedClaim("", f"a report has at most {CLAIMS_MAX} claims"))
    return checked


class _RejectedError(Exception):
    """The reason why a claim is not accepted."""


def _check_claim(scope: Scope, fields: Mapping[str, Any], statement: str) -> Claim:
    verdict, evidence = fields.get("verdict"), fields.get("evidence")
    if verdict not in VERDICTS:
        raise _RejectedError(f"the verdict is not one of {', '.join(VERDICTS)}")
    if not statement:
        raise _RejectedError("the statement is empty")
    if not isinstance(evidence, list) or not evidence:
        raise _RejectedError("the evidence is missing")
    if len(evidence) > EVIDENCE_MAX:
        raise _RejectedError(f"there are over {EVIDENCE_MAX} quotes")
    for name in _IDS.findall(statement):
        if scope.find_run(name) is None and scope.find_span(name) is None:
            raise _RejectedError(f"{name} does not exist")
    citations, texts = [], []
    for item in evidence:
        citation, text = _check_citation(scope, item if isinstance(item, dict) else {})
        citations.append(citation)
        texts.append(text)
    for url in _URLS.findall(statement):
        if not any(url in text for text in texts):
            raise _RejectedError("its address is not in the spans that it cites")
    return Claim(str(verdict), statement, tuple(citations))


def _check_citation(scope: Scope, item: Mapping[str, Any]) -> tuple[Citation, str]:
    """Return the citation, and the text of its span."""
    span_id, quote = item.get("span"), item.get("quote")
    if not isinstance(span_id, str) or not isinstance(quote, str):
        raise _RejectedError("evidence is a span and a quote")
    found = scope.find_span(span_id.strip())
    if found is None:
        raise _RejectedError(
            f"span {single_line(span_id, 40)!r} does not exist. {scope.describe()}"
        )
    evidence, span = found
    plain = _normalize(quote)
    if len(plain) < QUOTE_MIN or not any(char.isalnum() for char in plain):
        raise _RejectedError(f"a quote has under {QUOTE_MIN} characters")
    if len(plain) > QUOTE_MAX:
        raise _RejectedError(f"a quote has over {QUOTE_MAX} characters")
    text = "\n".join(map(_normalize, span_texts(evidence, span)))
    if plain not in text:
        hint = _find_elsewhere(scope, quote)
        raise _RejectedError(f"{single_line(quote, 80)!r} does not occur in {span.short_id}{hint}")
    citation = Citation(evidence.run.info.id, span.id, span.short_id, single_line(plain, QUOTE_MAX))
    return citation, text


def _normalize(text: str) -> str:
    return _BLANKS.sub(" ", text).strip()


def span_texts(evidence: Evidence, span: SpanInfo) -> Iterator[str]:
    """Yield the texts of a span: its name, attributes, input, output and log lines."""
    yield f"{span.type} {span.name}"
    yield from _attribute_texts(span.attributes)
    provider = span.attributes.get("provider")
    hint = provider if isinstance(provider, str) else None
    for side, body in (("input", evidence.input(span)), ("output", evidence.output(span))):
        if body:
            yield body
            yield render_body_text(body.encode(errors="replace"), side, hint)
    for log in evidence.logs_of.get(span.id, ()):
        yield f"{log.level}: {log.message}"
        yield from _attribute_texts(log.attributes)


def _attribute_texts(attributes: Mapping[str, Any]) -> Iterator[str]:
    for key, value in attributes.items():
        yield f"{key}={value}"
        yield f"{key}: {value}"
    kind, message = attributes.get("error.type"), attributes.get("error.message")
    if kind and message:
        yield f"{kind}: {message}"


def _find_elsewhere(scope: Scope, quote: str) -> str:
    """Return where a quote does occur in the run, as a hint for the next attempt."""
    try:
        hits = scope.debugger.grep(quote.strip()[:200], scope.run.short_id).searched.hits
    except VestigeError:
        return ""
    spans = list(dict.fromkeys(hit.span_ref.short_id for hit in hits))[:HITS_SHOWN]
    return f" (it occurs in {', '.join(spans)})" if spans else ""
