"""Size, type and dimensions of media in a message, without decoding all of it.

Images arrive as base64 text or as a `data:` URL. Their size follows from the length of the text,
their dimensions from the first bytes. Nothing is fetched from a URL.
"""

from __future__ import annotations

import base64
import binascii
import struct
from typing import NamedTuple

HEADER_BYTES = 64
"""Enough for the dimensions of PNG, GIF and WebP."""

JPEG_HEADER_BYTES = 256 * 1024
"""A JPEG has its dimensions after its metadata, which may contain a preview image."""

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
)


class Media(NamedTuple):
    """Facts about media, as far as they are known."""

    mime_type: str | None = None
    size_bytes: int | None = None
    width: int | None = None
    height: int | None = None
    url: str | None = None


def describe_base64(text: str, mime_type: str | None = None) -> Media:
    """Describe base64 text."""
    head = _decode_head(text, HEADER_BYTES)
    found = find_mime_type(head)
    size: tuple[int, int] | None = None
    if found == "image/jpeg":
        size = find_dimensions(_decode_head(text, JPEG_HEADER_BYTES))
    elif found is not None:
        size = find_dimensions(head)
    width, height = size or (None, None)
    return Media(mime_type or found, find_base64_size(text), width, height)


def describe_url(url: str, mime_type: str | None = None) -> Media:
    """Describe a URL: the data that a `data:` URL contains, or the address."""
    if not url.startswith("data:"):
        return Media(mime_type, url=url or None)
    head, _, data = url[5:].partition(",")
    name, *options = head.split(";")
    if "base64" in options:
        return describe_base64(data, mime_type or name or None)
    return Media(mime_type or name or "text/plain", len(data.encode(errors="replace")))


def find_base64_size(text: str) -> int:
    """Return the number of bytes that base64 text decodes to."""
    length = len(text) - text.count("\n") - text.count("\r")
    padding = 2 if text.endswith("==") else 1 if text.endswith("=") else 0
    return max(0, length * 3 // 4 - padding)


def find_mime_type(head: bytes) -> str | None:
    """Return the media type that the first bytes indicate."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
        return "audio/wav"
    return next((name for start, name in _SIGNATURES if head.startswith(start)), None)


def find_dimensions(head: bytes) -> tuple[int, int] | None:
    """Return width and height of an image in pixels, if its header is in the bytes."""
    try:
        if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR":
            width, height = struct.unpack(">II", head[16:24])
            return width, height
        if head.startswith((b"GIF87a", b"GIF89a")):
            width, height = struct.unpack("<HH", head[6:10])
            return width, height
        if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
            return _find_webp_dimensions(head)
        if head.startswith(b"\xff\xd8"):
            return _find_jpeg_dimensions(head)
    except struct.error:  # the header is incomplete
        return None
    return None


def _find_webp_dimensions(head: bytes) -> tuple[int, int] | None:
    form = head[12:16]
    if form == b"VP8X" and len(head) >= 30:
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if form == b"VP8L" and len(head) >= 25 and head[20] == 0x2F:
        bits = int.from_bytes(head[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + ((bits >> 14) & 0x3FFF)
    if form == b"VP8 " and head[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack("<HH", head[26:30])
        return width & 0x3FFF, height & 0x3FFF
    return None


def _find_jpeg_dimensions(head: bytes) -> tuple[int, int] | None:
    """Walk over the segments of a JPEG up to the frame header."""
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        marker = head[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", head[at + 5 : at + 9])
            return width, height
        at += 2 + int.from_bytes(head[at + 2 : at + 4], "big")
    return None


def _decode_head(text: str, size: int) -> bytes:
    """Decode the first bytes of base64 text, also of its URL-safe form."""
    head = "".join(text[: size * 3 // 2].split())
    head = head[: len(head) // 4 * 4]
    try:
        return base64.b64decode(head.replace("-", "+").replace("_", "/"))
    except (binascii.Error, ValueError):
        return b""
