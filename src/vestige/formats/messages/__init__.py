"""Lists of chat messages, as agents, benchmarks and fine-tuning files store them.

Reading:   detect.py (the conversations of a file), read.py (one conversation as a run)
Parsing:   parse_message.py (OpenAI, Anthropic and multi-agent shapes), conversation_facts.py (task
           and outcome, stored beside the messages), agent_steps.py (SWE-agent's steps)
Mapping:   to_records.py
Writing:   from_records.py (fine-tuning examples of OpenAI and Anthropic), write.py
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.formats.protocol import Problem, RunToWrite, Source

if TYPE_CHECKING:
    from vestige.formats.messages.from_records import Shape

_SNIFF_BYTES = 64 * 1024
_SIGNATURES = (b'"role"', b'"history"', b'"trajectory"', b'"from"', b'"source"')
_SUFFIXES = frozenset([".json", ".jsonl", ".ndjson", ".traj"])
_FILES_MAX = 200
"""Files of a folder that are sniffed."""


def is_readable(path: Path) -> bool:
    """Return whether the file, or a file directly in the folder, has lists of messages."""
    try:
        if path.is_dir():
            return any(map(_is_message_file, islice(_data_files(path), _FILES_MAX)))
        return _is_message_file(path)
    except OSError:
        return False


def _is_message_file(path: Path) -> bool:
    from vestige.formats.messages.detect import has_conversations

    if not path.is_file():
        return False
    with open(path, "rb") as file:
        head = file.read(_SNIFF_BYTES)
        file.seek(max(0, path.stat().st_size - _SNIFF_BYTES))
        tail = file.read(_SNIFF_BYTES)
    is_json = head.lstrip(b"\xef\xbb\xbf \r\n\t").startswith((b"{", b"["))
    # A long description may precede the messages, so the end of the file is searched, too.
    found = any(signature in head or signature in tail for signature in _SIGNATURES)
    return is_json and found and has_conversations(path)


def _data_files(folder: Path) -> Iterator[Path]:
    yield from sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES)


def find_runs(path: Path) -> Iterator[Path]:
    """Yield a path for each conversation: the file, or `FILE#n` where it has several."""
    from vestige.formats.messages.detect import find_conversation_paths

    if path.is_dir():
        for file in _data_files(path):
            if _is_message_file(file):
                yield from find_conversation_paths(file)
    else:
        yield from find_conversation_paths(path)


def read_run(path: Path) -> Source:
    from vestige.formats.messages.read import read_conversation

    return read_conversation(path)


def validate_run(path: Path) -> Sequence[Problem]:
    """Return the messages that cannot be read, as problems."""
    from vestige.errors import UnreadableError

    problems: list[Problem] = []
    try:
        for run_path in find_runs(path):
            source = read_run(run_path)
            for _ in source.records:
                pass
            problems.extend(source.problems)
    except UnreadableError as error:
        return [*problems, Problem(str(path), "", "messages-unreadable", str(error))]
    return problems


def write_run(run: RunToWrite, target: Path, shape: Shape = "openai") -> Path:
    """Write the run as fine-tuning examples, to a new file or into an existing folder."""
    from vestige.formats.messages.write import write_examples

    return write_examples(run, target, shape)
