"""Write a run as JSONL: one line for each thread of model calls."""

from __future__ import annotations

from pathlib import Path

from vestige.errors import UsageError
from vestige.formats.atomic_file import create_file, resolve_target
from vestige.formats.messages.from_records import SHAPES, Shape, run_to_examples
from vestige.formats.protocol import RunToWrite
from vestige.formats.record_builder import encode_json
from vestige.record.run_id import file_name_of


def write_examples(source: RunToWrite, target: Path, shape: Shape) -> Path:
    """Write to a new file, or into an existing folder. Return the path."""
    if shape not in SHAPES:
        raise UsageError(f"shape: {shape!r} is unknown (expected {', '.join(SHAPES)}).")
    path = resolve_target(target, f"{file_name_of(source.run.info.id)}.messages.jsonl")
    examples = list(run_to_examples(source, shape))
    if not examples:
        raise UsageError(f"run {source.run.info.id}: has no model call with an answer.")
    with create_file(path) as file:
        for example in examples:
            file.write(encode_json(example).encode() + b"\n")
    return path
