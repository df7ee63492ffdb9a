"""Render a request as a curl or Python script. Pure functions.

Recorded text cannot run commands or control a terminal. In a curl script it is one quoted word,
or base64 if it has control characters. Python literals escape them.
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
"""Control and invisible characters, and surrogates."""

_SURROGATE = re.compile("[\ud800-\udfff]")
"""Bytes that are not UTF-8. A Python literal can escape everything else."""


# --- curl ---------------------------------------------------------------------------------------


def render_curl(request: Request) -> str:
    """Render a script for sh. The body goes through a pipe, as arguments have a length limit."""
    lines = ["#!/bin/sh", *(f"# {line}" for line in _comments(request))]
    lines += [f': "${{{secret.name}:?is not set}}"' for secret in request.secrets]
    command = [
        "curl --globoff --silent --show-error --no-buffer",
        f"--request {_shell_word([request.method])} {_shell_word(request.url)}",
        *(
            f"--header {_shell_word(_prepend(f'{name}: ', value))}"
            for name, value in request.headers
        ),
    ]
    if request.body:
        names = {name for name, _ in request.headers}
        # An empty header keeps curl from adding one that the recorded request did not have.
        command += [
            f"--header '{name}:'" for name in ("content-type", "expect") if name not in names
        ]
        command.append("--data-binary @-")
        lines.append(_shell_body(request.body))
    lines.append(" \\\n  ".join(command))
    return "\n".join(lines) + "\n"


def _shell_body(pieces: Sequence[Piece]) -> str:
    if not any(isinstance(piece, str) and _UNSAFE.search(piece) for piece in pieces):
        return f"printf '%s' {_shell_word(pieces)} |"
    steps = []
    for piece in pieces:
        if isinstance(piece, str) and _UNSAFE.search(piece):
            steps.append(f"  printf '%s' '{_base64(piece)}' | base64 -d")
        else:
            steps.append(f"  printf '%s' {_shell_word([piece])}")
    return "\n".join(["{", *steps, "} |"])


def _prepend(text: str, pieces: Sequence[Piece]) -> list[Piece]:
    if pieces and isinstance(pieces[0], str):
        return [text + pieces[0], *pieces[1:]]
    return [text, *pieces]


def _shell_word(pieces: Sequence[Piece]) -> str:
    """Quote the pieces as one word, in which only the variables of secrets are expanded."""
    return "".join(
        f'"${{{piece.name}}}"'
        if isinstance(piece, Secret)
        else "'" + piece.replace("'", "'\\''") + "'"
        for piece in pieces
    )


# --- Python -------------------------------------------------------------------------------------

_SEND = """\
request = urllib.request.Request(url, data=body, headers=headers, method=method)
try:
    response = urllib.request.urlopen(request)
except urllib.error.HTTPError as error:
    response = error  # An error response has a body, too.
print(response.status, response.reason, file=sys.stderr)
for line in response:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
"""


def render_python(request: Request) -> str:
    """Render a script for Python 3 without dependencies."""
    lines = ["#!/usr/bin/env python3", *(f"# {line}" for line in _comments(request))]
    lines += ["import base64, os, sys, urllib.error, urllib.request", ""]
    for secret in request.secrets:
        problem = f"{secret.name} is not set"
        lines.append(f"{secret.name} = os.environ.get({secret.name!r}) or sys.exit({problem!r})")
    lines += [f"method = {request.method!r}", f"url = {_python_text(request.url)}", "headers = {"]
    lines += [f"    {name!r}: {_python_text(value)}," for name, value in request.headers]
    lines += ["}", f"body = {_python_bytes(request.body)}", "", _SEND]
    return "\n".join(lines)


def _python_text(pieces: Sequence[Piece]) -> str:
    terms = [piece.name if isinstance(piece, Secret) else repr(piece) for piece in pieces]
    return " + ".join(terms) or "''"


def _python_bytes(pieces: Sequence[Piece]) -> str:
    if not pieces:
        return "None"
    if not any(isinstance(piece, str) and _SURROGATE.search(piece) for piece in pieces):
        return f"({_python_text(pieces)}).encode()"
    return " + ".join(
        f"{piece.name}.encode()"
        if isinstance(piece, Secret)
        else f"base64.b64decode('{_base64(piece)}')"
        for piece in pieces
    )


# --- both ---------------------------------------------------------------------------------------


def _comments(request: Request) -> list[str]:
    variables = [
        f"Set {secret.name} (recorded as {single_line(secret.mask, 40)})"
        for secret in request.secrets
    ]
    return [single_line(request.title, 300), *variables, *request.notes]


def _base64(piece: str) -> str:
    return base64.b64encode(piece.encode("utf-8", "surrogateescape")).decode()
