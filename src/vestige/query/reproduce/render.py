"""How a request is written down as a script. Pure: a request in, text out.

What a shell or a terminal would obey never stands in the script as it is: in curl's script text
is one quoted word, and what cannot be shown safely is base64; Python's literals have escapes.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence

from vestige.query.formatting import single_line
from vestige.query.reproduce.request import Piece, Request, Secret

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
"""What a terminal obeys or hides, and bytes that are no text."""

_NO_TEXT = re.compile("[\ud800-\udfff]")
"""Bytes that are no UTF-8; a Python literal has escapes for all else."""


# --- curl -----------------------------------------------------------------------------------------


def render_curl(request: Request) -> str:
    """For bash and sh. The body comes through a pipe: an argument could not be as long."""
    lines = ["#!/bin/sh", *(f"# {line}" for line in _about(request))]
    lines += [f': "${{{secret.name}:?is not set}}"' for secret in request.secrets]
    command = [
        "curl --globoff --silent --show-error --no-buffer",
        f"--request {_quoted([request.method])} {_quoted(request.url)}",
        *(f"--header {_quoted(_after(f'{name}: ', value))}" for name, value in request.headers),
    ]
    if request.body:
        names = {name for name, _ in request.headers}
        # What curl would add by itself, and the recorded request did not have.
        command += [
            f"--header '{name}:'" for name in ("content-type", "expect") if name not in names
        ]
        command.append("--data-binary @-")
        lines.append(_shell_body(request.body))
    lines.append(" \\\n  ".join(command))
    return "\n".join(lines) + "\n"


def _shell_body(pieces: Sequence[Piece]) -> str:
    if not any(isinstance(piece, str) and _UNSAFE.search(piece) for piece in pieces):
        return f"printf '%s' {_quoted(pieces)} |"
    steps = []
    for piece in pieces:
        if isinstance(piece, str) and _UNSAFE.search(piece):
            steps.append(f"  printf '%s' '{_base64(piece)}' | base64 -d")
        else:
            steps.append(f"  printf '%s' {_quoted([piece])}")
    return "\n".join(["{", *steps, "} |"])


def _after(text: str, pieces: Sequence[Piece]) -> list[Piece]:
    if pieces and isinstance(pieces[0], str):
        return [text + pieces[0], *pieces[1:]]
    return [text, *pieces]


def _quoted(pieces: Sequence[Piece]) -> str:
    """One word of the shell, in which nothing but our variables is expanded."""
    told = []
    for piece in pieces:
        if isinstance(piece, Secret):
            told.append(f'"${{{piece.name}}}"')
        else:
            told.append("'" + piece.replace("'", "'\\''") + "'")
    return "".join(told)


# --- Python ---------------------------------------------------------------------------------------

_SEND = """\
request = urllib.request.Request(url, data=body, headers=headers, method=method)
try:
    response = urllib.request.urlopen(request)
except urllib.error.HTTPError as error:
    response = error  # a refusal is an answer too
print(response.status, response.reason, file=sys.stderr)
for line in response:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
"""


def render_python(request: Request) -> str:
    """For any Python 3, with nothing installed."""
    lines = ["#!/usr/bin/env python3", *(f"# {line}" for line in _about(request))]
    lines += ["import base64, os, sys, urllib.error, urllib.request", ""]
    for secret in request.secrets:
        problem = f"{secret.name} is not set"
        lines.append(f"{secret.name} = os.environ.get({secret.name!r}) or sys.exit({problem!r})")
    lines += [f"method = {request.method!r}", f"url = {_joined(request.url)}", "headers = {"]
    lines += [f"    {name!r}: {_joined(value)}," for name, value in request.headers]
    lines += ["}", f"body = {_body(request.body)}", "", _SEND]
    return "\n".join(lines)


def _joined(pieces: Sequence[Piece]) -> str:
    told = [piece.name if isinstance(piece, Secret) else repr(piece) for piece in pieces]
    return " + ".join(told) or "''"


def _body(pieces: Sequence[Piece]) -> str:
    if not pieces:
        return "None"
    if not any(isinstance(piece, str) and _NO_TEXT.search(piece) for piece in pieces):
        return f"({_joined(pieces)}).encode()"
    told = [
        f"{piece.name}.encode()"
        if isinstance(piece, Secret)
        else f"base64.b64decode('{_base64(piece)}')"
        for piece in pieces
    ]
    return " + ".join(told)


# --- both -----------------------------------------------------------------------------------------


def _about(request: Request) -> list[str]:
    needed = [
        f"Set {secret.name}: it was recorded as {single_line(secret.mask, 40)}"
        for secret in request.secrets
    ]
    return [single_line(request.title, 300), *needed, *request.notes]


def _base64(piece: str) -> str:
    return base64.b64encode(piece.encode("utf-8", "surrogateescape")).decode()
