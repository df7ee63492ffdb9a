"""The last pass over what leaves: answers, pages, exports.

    redact_text(text)       redact_values(data)       redact_body(body)       redact_run(run)

Evidence is redacted before it is stored. This pass is there for what an older version, another
tool or a gap in a rule let through, and for a secret that is split where it is stored and
assembled where it is shown. It knows shapes and keys of secrets; a registered value is known only to
the process that registered it.

Each function returns the very object that it got if there is nothing to redact. Of JSON, only
strings change: never a key, never the structure. All of it is scanned at once, and only what is
suspicious is looked at part by part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import msgspec

from vestige.home import get_home
from vestige.limits import NESTING_MAX
from vestige.record.redaction.masking import is_secret_key
from vestige.record.redaction.redactor import Redactor
from vestige.record.redaction.stream_redaction import redact_stream
from vestige.record.run import LogInfo, Run, SpanInfo


@cache
def _redactor() -> Redactor:
    """One for this process. Its scanner was compiled by a recorder of the user's home, or is now."""
    kept_in = get_home(None).scanners
    redactor = Redactor(kept_in=kept_in if kept_in.is_dir() else None)
    redactor.whole = True
    _ = redactor.suspicious
    return redactor


def _is_suspicious(encoded: bytes) -> bool:
    """In windows: without hyperscan, the time of a look grows with the square of the length."""
    suspicious = _redactor().suspicious
    if len(encoded) <= _WINDOW or _redactor().engine == "hyperscan":
        return suspicious(encoded)
    starts = range(0, len(encoded), _WINDOW)
    return any(suspicious(encoded[at : at + _WINDOW + _OVERLAP]) for at in starts)


_WINDOW = 4096
_OVERLAP = 512
"""Bytes. What a secret leaves a trace of is shorter."""


def redact_text(text: str) -> str:
    return _redactor().text(text)


def redact_lines(lines: Sequence[str]) -> list[str]:
    """Each line by itself: a layout has put something before it."""
    redact = _redacting(lines)
    return list(map(redact, lines))


def redact_body(body: bytes) -> bytes:
    """A stored body, also as a stream."""
    body = bytes(redact_stream(body, _redactor()))
    text = body.decode(errors="surrogateescape")
    cleaned = _redactor().text(text)
    return body if cleaned is text else cleaned.encode(errors="surrogateescape")


def redact_values(value: Any) -> Any:
    """JSON as Python has it, with the secrets in its strings masked."""
    try:
        encoded = msgspec.json.encode(value)
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError):
        encoded = b""  # not all of it is JSON: look at each string
    if encoded and not _is_suspicious(encoded):
        return value
    strings = list(_strings(value, NESTING_MAX))
    return _redact_nested(value, "", _redacting(strings), NESTING_MAX)


def redact_run(run: Run) -> Run:
    """What a run says of itself: names, messages, attributes."""
    texts = [run.info.name, *(span.name for span in run.spans)]
    texts += [log.message for log in run.logs]
    told = [span.attributes for span in run.spans] + [log.attributes for log in run.logs]
    if _is_clean([*texts, *told]):
        return run
    info = msgspec.structs.replace(run.info, name=redact_text(run.info.name))
    spans = [_redact_span(span) for span in run.spans]
    return msgspec.structs.replace(
        run, info=info, spans=spans, logs=list(map(redact_log, run.logs))
    )


def redact_log(log: LogInfo) -> LogInfo:
    message, attributes = redact_text(log.message), redact_values(log.attributes)
    if message is log.message and attributes is log.attributes:
        return log
    return msgspec.structs.replace(log, message=message, attributes=attributes)


def _redact_span(span: SpanInfo) -> SpanInfo:
    name, attributes = redact_text(span.name), redact_values(span.attributes)
    if name is span.name and attributes is span.attributes:
        return span
    return msgspec.structs.replace(span, name=name, attributes=attributes)


def _is_clean(values: Any) -> bool:
    try:
        return not _is_suspicious(msgspec.json.encode(values))
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError):
        return False


def _strings(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list, tuple)) and depth:
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner, depth - 1)


def _redacting(texts: Sequence[str]) -> Callable[[str], str]:
    """A function that redacts one of these texts. Most of many are clean, and are found so together."""
    redactor = _redactor()
    changed: dict[str, str] = {}
    waiting = [list(dict.fromkeys(texts))]
    while waiting:
        some = waiting.pop()
        if not some or _is_clean(some):
            continue
        if len(some) > 1:
            middle = len(some) // 2
            waiting += some[:middle], some[middle:]
        elif (cleaned := redactor.text(some[0])) != some[0]:
            changed[some[0]] = cleaned
    return lambda text: changed.get(text, text)


def _redact_nested(value: Any, key: str, redact: Callable[[str], str], depth: int) -> Any:
    if isinstance(value, str):
        if key and is_secret_key(key):
            # The redactor may mask the key too; here it belongs to the structure.
            (value,) = _redactor().value({key: value}).values()
        return redact(value)
    if not depth or not isinstance(value, (dict, list, tuple)):
        return value
    if isinstance(value, dict):
        found = {
            name: _redact_nested(inner, name if isinstance(name, str) else "", redact, depth - 1)
            for name, inner in value.items()
        }
        return found if any(found[name] is not value[name] for name in value) else value
    items = [_redact_nested(inner, "", redact, depth - 1) for inner in value]
    return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
