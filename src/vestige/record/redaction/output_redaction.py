"""Redact all output once more: responses, pages, exports.

    redact_text(text)       redact_values(data)       redact_body(body)       redact_run(run)

Records are redacted before they are stored. This pass covers secrets that an older version,
another tool or a gap in a rule let through, and secrets that are split in storage and assembled
for display. It knows the shapes and keys of secrets, and the secrets in the environment of this
process. A registered value is known only to the process that registered it.

Each function returns the same object if there is nothing to redact. In JSON, only strings
change, never the structure. A key changes only if it is itself a secret. The data is scanned at
once, and searched part by part only if it is suspicious.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.home import get_home
from vestige.limits import NESTING_MAX
from vestige.record.redaction.environment_secrets import secrets_in_environment
from vestige.record.redaction.masking import is_secret_key, is_token_choice, unused_key
from vestige.record.redaction.redactor import Redactor
from vestige.record.redaction.stream_redaction import redact_stream
from vestige.record.run import LogInfo, Run, SpanInfo


@cache
def output_redactor() -> Redactor:
    """Return the redactor for all output, which knows the secrets of the environment."""
    cache_folder = get_home(None).scanners
    redactor = Redactor(cache_folder=cache_folder if cache_folder.is_dir() else None)
    redactor.add_secrets(secrets_in_environment(os.environ))
    _ = redactor.scanner
    return redactor


def _is_suspicious(encoded: bytes) -> bool:
    """Scan in windows: without hyperscan, the time grows with the square of the length."""
    redactor = output_redactor()
    redactor.complete_scanner()
    suspicious = redactor.suspicious
    if len(encoded) <= _WINDOW or redactor.engine == "hyperscan":
        return suspicious(encoded)
    starts = range(0, len(encoded), _WINDOW)
    return any(suspicious(encoded[at : at + _WINDOW + _OVERLAP]) for at in starts)


_WINDOW = 4096
_OVERLAP = 512
"""Bytes. The markers of secrets are shorter."""


def redact_text(text: str) -> str:
    return output_redactor().text(text)


def redact_lines(lines: Sequence[str]) -> list[str]:
    """Redact each line by itself: a layout may have put text before it."""
    redact = _redacting(lines)
    return list(map(redact, lines))


def redact_body(body: bytes) -> bytes:
    """Redact a stored body, also if it is a stream."""
    body = bytes(redact_stream(body, output_redactor()))
    text = body.decode(errors="surrogateescape")
    cleaned = output_redactor().text(text)
    return body if cleaned is text else cleaned.encode(errors="surrogateescape")


def redact_values(value: Any) -> Any:
    """Mask the secrets in the strings of a JSON value."""
    try:
        encoded = msgspec.json.encode(value)
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError):
        encoded = b""  # some values are not JSON: search each string
    if encoded and not _is_suspicious(encoded):
        return value
    strings = list(_strings(value, NESTING_MAX))
    return _redact_nested(value, "", _redacting(strings), NESTING_MAX)


def redact_run(run: Run) -> Run:
    """Redact the names, messages and attributes of a run."""
    texts = [run.info.name, *(span.name for span in run.spans)]
    texts += [log.message for log in run.logs]
    attributes = [span.attributes for span in run.spans] + [log.attributes for log in run.logs]
    if _is_clean([*texts, *attributes]):
        return run
    info = msgspec.structs.replace(run.info, name=redact_text(run.info.name))
    spans = [redact_span(span) for span in run.spans]
    return msgspec.structs.replace(
        run, info=info, spans=spans, logs=list(map(redact_log, run.logs))
    )


def redact_log(log: LogInfo) -> LogInfo:
    message, attributes = redact_text(log.message), redact_values(log.attributes)
    if message is log.message and attributes is log.attributes:
        return log
    return msgspec.structs.replace(log, message=message, attributes=attributes)


def redact_span(span: SpanInfo) -> SpanInfo:
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
        if isinstance(value, dict):
            yield from (name for name in value if isinstance(name, str))
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner, depth - 1)


def _redacting(texts: Sequence[str]) -> Callable[[str], str]:
    """Return a function that redacts one of these texts. Clean ones are recognized in groups."""
    redactor = output_redactor()
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
            (value,) = output_redactor().value({key: value}).values()
        return redact(value)
    if not depth or not isinstance(value, (dict, list, tuple)):
        return value
    if isinstance(value, dict):
        return _redact_object(value, redact, depth)
    items = [_redact_nested(inner, "", redact, depth - 1) for inner in value]
    return items if any(new is not old for new, old in zip(items, value, strict=True)) else value


def _redact_object(value: dict[Any, Any], redact: Callable[[str], str], depth: int) -> Any:
    """Redact the values of an object, and keys that are themselves secrets: keys may be data."""
    found: dict[Any, Any] = {}
    numbers: dict[str, int] = {}
    for name, inner in value.items():
        is_text = isinstance(name, str)
        new_name = unused_key(redact(name), found, numbers) if is_text else name
        key = name if is_text and not (name == "token" and is_token_choice(value)) else ""
        found[new_name] = _redact_nested(inner, key, redact, depth - 1)
    is_same = all(new is old for new, old in zip(found, value, strict=True)) and all(
        found[name] is value[name] for name in value
    )
    return value if is_same else found
