"""Read one conversation of a file as a run.

The run's id derives from the names of the file and its folder, and from the messages up to the
first answer. So a file that has grown is the same run, and two runs of one task are two.
"""

from __future__ import annotations

import hashlib
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from vestige.errors import UnreadableError
from vestige.formats.messages.conversation_facts import parse_conversation_facts
from vestige.formats.messages.detect import MessageFile, open_message_file, split_number
from vestige.formats.messages.parse_message import parse_message
from vestige.formats.messages.to_records import ConversationRecords, parse_time
from vestige.formats.protocol import Problem, Source

_OPENING_MAX: Final = 50
"""Messages that are searched for the first answer."""


def read_conversation(conversation_path: Path) -> Source:
    path, number = split_number(conversation_path)
    file = open_message_file(path)
    found = [each for each in file.conversations if not number or each.number == number]
    if not found:
        expected = f"conversation {number}" if number else "a list of chat messages"
        raise UnreadableError(f"{path}: no conversation found (expected {expected}).")
    conversation = found[0]
    problems: list[Problem] = list(file.problems)
    name = path.stem.removesuffix(".traj")
    if conversation.number and len(file.conversations) > 1:
        name += f"#{conversation.number}"
    opening = [message for _, message in islice(file.messages(conversation, []), _OPENING_MAX)]
    converter = ConversationRecords(
        f"{path.absolute().parent.name}/{path.name}#{number}-{_hash_opening(opening)}",
        name,
        parse_conversation_facts(file.members(conversation)),
        _find_time_ns(opening) or _get_time_ns(file),
    )
    records = converter.records(file.messages(conversation, problems))
    return Source(converter.run_id, converter.writer, records, problems, mergeable=True)


def _hash_opening(messages: list[dict[str, object]]) -> str:
    digest = hashlib.sha256()
    for message in messages:
        digest.update(msgspec.json.encode(message, order="deterministic"))
        if parse_message(message).role == "assistant":
            break
    return digest.hexdigest()


def _find_time_ns(messages: list[dict[str, object]]) -> int | None:
    """Return the first time of a message, also for the messages before it."""
    times = (parse_time(parse_message(message).time) for message in messages)
    return next((time for time in times if time is not None), None)


def _get_time_ns(file: MessageFile) -> int:
    """Return the time of the file's last change, for messages without times."""
    try:
        return max(0, file.path.stat().st_mtime_ns)
    except OSError:
        return 0
