"""`vestige body`: an exact slice of an input or output."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vestige.cli.options import Examples, Home
from vestige.cli.print_answer import answer_options, open_debugger, print_answer
from vestige.errors import UsageError

if TYPE_CHECKING:
    from vestige.query.views.body import Which


@click.command(
    "body",
    cls=Examples,
    examples="""
  vestige body r7.s12                        its input, or its output if it has no input
  vestige body r7.s12 --out --lines 1:40     lines of its output
  vestige body r7.s12 --bytes 4000:8000      an exact range of bytes
  vestige body r7.s12 --path '$.messages[0]' one value inside JSON
  vestige body r7.s12 --text                 its messages as text
  vestige body r7.s12 --raw | jq .model      the exact bytes
  vestige body r7.s12 -o request.json        the exact bytes in a file
""",
    exits="0 ok, 2 span, payload or JSON path not found, 3 store unreadable",
)
@click.argument("id")
@click.option("--in", "part", flag_value="input", help="Input.")
@click.option("--out", "part", flag_value="output", help="Output.")
@click.option("--head", is_flag=True, help="The first ten lines.")
@click.option("--lines", metavar="A:B", help="Lines A to B, inclusive; the first is 1.")
@click.option(
    "--bytes", "bytes_", metavar="A:B", help="Bytes A up to B, exclusive; the first is 0."
)
@click.option("--path", metavar="PATH", help="One value of a JSON body: $.messages[0].content.")
@click.option("--text", is_flag=True, help="Messages as text, strings without escapes.")
@click.option("--raw", is_flag=True, help="The exact bytes, without prefixes and budget.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write them to a file."
)
@answer_options
def body(
    id: str,
    part: Which | None,
    head: bool,
    lines: str | None,
    bytes_: str | None,
    path: str | None,
    text: bool,
    raw: bool,
    output: Path | None,
    home: Home,
    as_json: bool,
    budget: int | None,
) -> None:
    """Show the exact input or output of a span, or a part of it.

    Lines are prefixed with | and control characters are escaped. Binary data is shown in
    hexadecimal.
    """
    with open_debugger(home, id) as (debugger, found_id):
        answer = debugger.body(
            found_id or "", part=part, head=head, lines=lines, bytes=bytes_, path=path, text=text
        )
        if output is not None:
            _write(output, answer.raw())
        elif raw:
            sys.stdout.buffer.write(answer.raw())
        else:
            print_answer(answer, as_json, budget)


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written ({error.strerror}). Choose another file."
        ) from error
    click.echo(f"Wrote {len(data)} bytes to {path}")
