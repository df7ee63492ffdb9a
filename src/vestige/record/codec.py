"""Encode records as journal lines, and decode them.

    line = render_line(record)          # one JSON object and a newline
    record = parse_line(line)           # raises BadLineError, never anything else

Known lines take one strict, fast decode. A line from a newer version (with an unknown
kind or field) takes a second, slower decode that preserves unknown fields, so that
they survive a round trip.

After a short write on a full disk, a line may begin with a fragment of another one:
`parse_line` then finds the complete record at its end. That is safe, because a quote
inside a JSON string is always escaped, so no string contains the opening of a record.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.limits import LINE_MAX
from vestige.record.types import (
    VERSION,
    AnyRecord,
    KnownRecord,
    Log,
    SpanClose,
    SpanOpen,
    SpanUpdate,
    Unknown,
)

_OPENING = b'{"kind":"'
_BY_KIND: dict[str, type[KnownRecord]] = {
    "span-open": SpanOpen,
    "span-update": SpanUpdate,
    "span-close": SpanClose,
    "log": Log,
}
encode = msgspec.json.Encoder().encode_lines
"""The hot path's encoder: `encode((record,))` is a line. Only for records without `extra`."""


@cache
def _known() -> msgspec.json.Decoder[KnownRecord]:
    # Created on first use: it takes longer than importing this module, and a program that
    # records reads nothing.
    return msgspec.json.Decoder(KnownRecord)


@cache
def _anything() -> msgspec.json.Decoder[dict[str, Any]]:
    return msgspec.json.Decoder(dict[str, Any])


class BadLineError(ValueError):
    """A journal line that does not contain a record. The message is the reason."""


def render_line(record: AnyRecord) -> bytes:
    """Return the line of a record, with its newline and with unknown fields in their place."""
    if isinstance(record, Unknown):
        return msgspec.json.encode(record.fields) + b"\n"
    if record.extra:
        fields = msgspec.to_builtins(record)
        del fields["extra"]
        return msgspec.json.encode({**fields, **record.extra}) + b"\n"
    return encode((record,))


def parse_line(line: bytes) -> AnyRecord:
    """Return the record of a line."""
    if len(line) > LINE_MAX:
        raise BadLineError(f"line of {len(line)} bytes (at most {LINE_MAX})")
    try:
        return _parse(line)
    except BadLineError:
        inner = line.rfind(_OPENING)
        if inner <= 0:
            raise
        return _parse(line[inner:])


def parse_lines(data: bytes) -> tuple[list[AnyRecord], int]:
    """Return the records of many lines, and the number of lines without a record."""
    try:
        records = _known().decode_lines(data)
        if all(record.v == VERSION for record in records):
            return list(records), 0
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    found: list[AnyRecord] = []
    malformed = 0
    for line in data.split(b"\n"):
        if line and not line.isspace():
            try:
                found.append(parse_line(line))
            except BadLineError:
                malformed += 1
    return found, malformed


def _parse(line: bytes) -> AnyRecord:
    try:
        record: KnownRecord = _known().decode(line)
        # The strict decoder skips unknown fields silently. Counting the top-level fields
        # would cost more than the rare second decode that it saves, so the version
        # decides: only another version has other fields. The second decode may fail on
        # what the first one skipped.
        return record if record.v == VERSION else _keep_extra(record, line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # Not a record, or one of a newer kind.
        return _parse_unknown(line, error)


def _keep_extra(record: KnownRecord, line: bytes) -> KnownRecord:
    fields = _anything().decode(line)
    known = {field.encode_name for field in msgspec.structs.fields(record)}
    record.extra = {
        key: value for key, value in fields.items() if key not in known and key != "kind"
    } or None
    return record


def _parse_unknown(line: bytes, error: Exception) -> Unknown:
    try:
        fields = _anything().decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadLineError(f"not a record: {error}") from None
    kind, writer, seq = fields.get("kind"), fields.get("writer"), fields.get("seq")
    run_id = fields.get("run_id")
    if not (isinstance(kind, str) and isinstance(writer, str) and type(seq) is int):
        raise BadLineError(f"not a record: {error}")
    if not 0 <= seq <= 2**62:  # the range of Count, which the untyped decoder did not check
        raise BadLineError(f"seq {seq} is out of range (0 to 2**62)")
    if kind in _BY_KIND or not (run_id is None or isinstance(run_id, str)):
        raise BadLineError(f"not a valid {kind}: {error}")
    return Unknown(kind, writer, seq, run_id, fields)
