"""The binary event stream of AWS (`application/vnd.amazon.eventstream`), as server-sent events.

Bedrock streams its answers in binary frames, which nobody can read, search or redact. They are
recorded as server-sent events with the same JSON, and framed again for a replay:

    event: contentBlockDelta
    data: {"contentBlockDelta":{"contentBlockIndex":0,"delta":{"text":"Hello"}}}

A `chunk` of InvokeModel has the JSON of the model's own API in base64; it is recorded decoded.
A frame: length, length of the headers, CRC; headers; payload; CRC. All numbers are big-endian.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.limits import MIB

CODING = "aws-eventstream"
"""Name of the framing among the codings of a response."""

CONTENT_TYPE = "application/vnd.amazon.eventstream"

FRAME_MAX = 32 * MIB
"""AWS allows 24 MiB."""

_PRELUDE = struct.Struct(">III")
_STRING = 7
_HEADER_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_CHUNK = "chunk"


class FrameDecoder:
    """Decodes frames as they arrive. Raises ValueError if the bytes are not an event stream."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def __call__(self, data: bytes) -> Iterator[bytes]:
        self._rest += data
        while len(self._rest) >= _PRELUDE.size:
            length, header_length, check = _PRELUDE.unpack_from(self._rest)
            if zlib.crc32(self._rest[:8]) != check or not 16 <= length <= FRAME_MAX:
                raise ValueError("not an AWS event stream")
            if len(self._rest) < length:
                return
            frame = bytes(self._rest[:length])
            del self._rest[:length]
            end = _PRELUDE.size + header_length
            yield _render(_parse_headers(frame[_PRELUDE.size : end]), frame[end:-4])


def _parse_headers(data: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    at = 0
    while at < len(data):
        name_end = at + 1 + data[at]
        name = data[at + 1 : name_end].decode(errors="replace")
        kind, at = data[name_end], name_end + 1
        if kind in (6, _STRING):
            size = int.from_bytes(data[at : at + 2], "big")
            headers[name] = data[at + 2 : at + 2 + size].decode(errors="replace")
            at += 2 + size
        elif kind in _HEADER_SIZES:
            at += _HEADER_SIZES[kind]
        else:
            raise ValueError("unknown type of header")
    return headers


def _render(headers: dict[str, str], payload: bytes) -> bytes:
    name = headers.get(":event-type") or headers.get(":exception-type") or "message"
    try:
        fields = msgspec.json.decode(payload or b"{}")
    except (ValueError, RecursionError):
        fields = {"payload": payload.decode(errors="replace")}
    if isinstance(fields, dict):
        fields.pop("p", None)  # padding of random length
    if name == _CHUNK and isinstance(fields, dict) and isinstance(fields.get("bytes"), str):
        data = base64.b64decode(fields["bytes"])
    else:
        data = msgspec.json.encode({name: fields})
    lines = b"".join(b"data: %b\n" % line for line in data.splitlines() or [b""])
    return b"event: %b\n%b\n" % (name.encode(), lines)


def encode_frames(body: bytes) -> list[bytes]:
    """Frame a recorded body again, one frame for each event."""
    frames = []
    for event in body.split(b"\n\n"):
        lines = event.split(b"\n")
        name = next((line[7:].decode() for line in lines if line.startswith(b"event: ")), "")
        data = b"\n".join(line[6:] for line in lines if line.startswith(b"data: "))
        if name:
            frames.append(_encode_frame(name, data))
    return frames


def _encode_frame(name: str, data: bytes) -> bytes:
    if name == _CHUNK:
        payload = msgspec.json.encode({"bytes": base64.b64encode(data).decode()})
    else:
        try:
            fields = msgspec.json.decode(data)
        except (ValueError, RecursionError):
            fields = {}
        payload = msgspec.json.encode(fields.get(name, {}) if isinstance(fields, dict) else {})
    failed = name.endswith("Exception")
    headers = {
        ":exception-type" if failed else ":event-type": name,
        ":content-type": "application/json",
        ":message-type": "exception" if failed else "event",
    }
    block = b"".join(_encode_header(key, value) for key, value in headers.items())
    prelude = struct.pack(">II", 16 + len(block) + len(payload), len(block))
    frame = prelude + struct.pack(">I", zlib.crc32(prelude)) + block + payload
    return frame + struct.pack(">I", zlib.crc32(frame))


def _encode_header(name: str, value: str) -> bytes:
    text = value.encode()
    return (
        struct.pack(">B", len(name)) + name.encode() + struct.pack(">BH", _STRING, len(text)) + text
    )
