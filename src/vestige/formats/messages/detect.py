"""The conversations of a file: one JSON document, or one JSON value per line.

    file = open_message_file(path)
    file.conversations                      # one, or several in a list or in lines
    file.messages(conversation)             # (index, message), decoded one at a time

A document is decoded to its members only, and a message when it is read. Files with a message
per line have one conversation and are read line by line.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

import msgspec

from vestige.errors import UnreadableError
from vestige.formats.bounded_lines import BOM, iter_lines
from vestige.formats.lenient_json import (
    decode_items,
    decode_members,
    decode_value,
    read_document,
)
from vestige.formats.messages.agent_steps import is_step, iter_opening, step_to_messages
from vestige.formats.messages.conversation_facts import LIST_KEYS
from vestige.formats.messages.parse_message import Object, is_message
from vestige.formats.protocol import Problem
from vestige.limits import DOCUMENT_MESSAGES_MAX, EVENT_LINE_MAX, FOREIGN_RUNS_MAX, PROBLEMS_MAX

NUMBER_SEPARATOR: Final = "#"
_ADVICE: Final = " Store one message or one conversation per line (JSONL)."
_ROLE: Final = b'"role"'
_OPENING_BYTES: Final = 65_536
_TRIED_MAX: Final = 20
"""Values at the beginning that decide whether a file has messages."""

Items = list[msgspec.Raw]


class Conversation(msgspec.Struct, frozen=True, gc=False):
    """The position of a conversation in its file."""

    kind: Literal["list", "object", "lines"]
    number: int
    """1, 2, ... among several in a file; 0 if it is the only one."""
    raw: msgspec.Raw | None = None
    offset: int = 0
    size: int = 0


class MessageFile:
    """A file and its conversations."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[Problem] = []
        self.conversations: list[Conversation] = []
        try:
            with open(path, "rb") as file:
                if _has_value_per_line(file):
                    self._index_lines(file)
                else:
                    self._index_document()
        except OSError as error:
            raise UnreadableError(f"{path}: cannot be read ({error.strerror}).") from None

    # --- index ----------------------------------------------------------------------------------

    def _index_document(self) -> None:
        data = read_document(self.path, _ADVICE)
        # Quotes inside of texts are escaped, so this counts no texts.
        if data.count(_ROLE) > DOCUMENT_MESSAGES_MAX:
            raise UnreadableError(
                f"{self.path}: more than {DOCUMENT_MESSAGES_MAX:,} messages in one document."
                f"{_ADVICE}"
            )
        if data[:1] == b"{":
            if _find_list(decode_members(data)) is not None:
                self.conversations = [Conversation("object", 0, msgspec.Raw(data))]
            return
        items = decode_items(data)
        if any(is_message(decode_value(item)) for item in items[:_TRIED_MAX]):
            self.conversations = [Conversation("list", 0, msgspec.Raw(data))]
            return
        found = [item for item in items[:FOREIGN_RUNS_MAX] if _is_conversation(bytes(item))]
        self.conversations = [
            Conversation("list" if bytes(item)[:1] == b"[" else "object", number, item)
            for number, item in enumerate(found, 1)
        ]

    def _index_lines(self, file: BinaryIO) -> None:
        for line in iter_lines(file):
            if line.data and is_message(decode_value(line.data)):
                self.conversations = [Conversation("lines", 0)]
                return
            if _is_conversation(line.data) and len(self.conversations) < FOREIGN_RUNS_MAX:
                kind: Literal["list", "object"] = "list" if line.data[:1] == b"[" else "object"
                number = len(self.conversations) + 1
                place = Conversation(kind, number, None, line.offset, line.size)
                self.conversations.append(place)

    # --- messages -------------------------------------------------------------------------------

    def members(self, conversation: Conversation) -> Object:
        """Return what is stored beside the messages."""
        if conversation.kind != "object":
            return {}
        members = decode_members(self._data(conversation))
        name = _find_list(members)
        skipped = {name, "history"} if name == "trajectory" else {name}
        return {key: decode_value(raw) for key, raw in members.items() if key not in skipped}

    def messages(
        self, conversation: Conversation, problems: list[Problem]
    ) -> Iterator[tuple[int, Object]]:
        """Yield the index in the list and the message. What is not a message is a problem."""
        if conversation.kind == "lines":
            values = self._iter_line_values()
        else:
            data = self._data(conversation)
            members = {} if conversation.kind == "list" else decode_members(data)
            name = _find_list(members)
            items = decode_items(
                data if conversation.kind == "list" else bytes(members[name or ""])
            )
            if name == "trajectory":
                yield from _iter_steps(items, members)
                return
            values = iter(map(decode_value, items))
        for index, value in enumerate(values):
            if is_message(value):
                yield index, value
            elif len(problems) < PROBLEMS_MAX:
                problems.append(
                    Problem(
                        str(self.path),
                        f"message {index}",
                        "not-a-message",
                        "not a chat message (expected role and content); skipped.",
                        severity="warning",
                    )
                )

    def _data(self, conversation: Conversation) -> bytes:
        if conversation.raw is not None:
            return bytes(conversation.raw)
        with open(self.path, "rb") as file:
            file.seek(conversation.offset)
            return file.read(conversation.size).removeprefix(BOM).strip()

    def _iter_line_values(self) -> Iterator[Any]:
        with open(self.path, "rb") as file:
            for line in iter_lines(file):
                if line.data:
                    yield decode_value(line.data)


def _iter_steps(items: Items, members: dict[str, msgspec.Raw]) -> Iterator[tuple[int, Object]]:
    """Yield the messages of an agent's steps, with the index of the step."""
    history = decode_value(members["history"]) if "history" in members else None
    for message in iter_opening(history):
        if is_message(message):
            yield 0, message
    for index, item in enumerate(items):
        step = decode_value(item)
        if is_step(step):
            for message in step_to_messages(step, index):
                yield index, message


# --- what is in a file ----------------------------------------------------------------------------


def _is_conversation(data: bytes) -> bool:
    data = data.strip()
    if data[:1] == b"[":
        return any(is_message(decode_value(item)) for item in decode_items(data)[:_TRIED_MAX])
    return data[:1] == b"{" and _find_list(decode_members(data)) is not None


def _find_list(members: dict[str, msgspec.Raw]) -> str | None:
    """Return the member with the messages or steps."""
    if "trajectory" in members and any(map(is_step, _first_values(members["trajectory"]))):
        return "trajectory"
    for name in LIST_KEYS:
        if name in members and any(map(is_message, _first_values(members[name]))):
            return name
    return None


def _first_values(raw: msgspec.Raw) -> list[Any]:
    data = bytes(raw)
    return (
        [decode_value(item) for item in decode_items(data)[:_TRIED_MAX]] if data[:1] == b"[" else []
    )


def _has_value_per_line(file: BinaryIO) -> bool:
    """Return whether the first line is a JSON value and others follow. Rewind the file."""
    line = file.readline(EVENT_LINE_MAX + 1)
    rest = file.read(4096)
    file.seek(0)
    text = line.removeprefix(BOM).strip()
    return bool(rest.strip()) and text[:1] in (b"{", b"[") and decode_value(text) is not None


# --- paths ----------------------------------------------------------------------------------------


def has_conversations(path: Path) -> bool:
    """Return whether a file has messages. Never raises for damaged content."""
    try:
        with open(path, "rb") as file:
            if _has_value_per_line(file):
                lines = [line.data for line in islice(iter_lines(file), _TRIED_MAX)]
                return any(
                    is_message(decode_value(line)) or _is_conversation(line) for line in lines
                )
        return bool(open_message_file(path).conversations)
    except UnreadableError:
        return _begins_with_messages(path)  # reading it explains why it is refused
    except OSError:
        return False


def _begins_with_messages(path: Path) -> bool:
    """Return whether the first characters of a document are those of a list of messages."""
    try:
        with open(path, "rb") as file:
            data = file.read(_OPENING_BYTES).removeprefix(BOM).strip()
    except OSError:
        return False
    is_list = data[:1] == b"[" or any(f'"{name}"'.encode() in data for name in LIST_KEYS)
    return data[:1] in (b"[", b"{") and is_list and _ROLE in data and b'"content"' in data


def find_conversation_paths(path: Path) -> Iterator[Path]:
    """Yield the path of each conversation: the file, or `FILE#n` if it has several."""
    conversations = open_message_file(path).conversations
    for conversation in conversations:
        if conversation.number and len(conversations) > 1:
            yield path.with_name(f"{path.name}{NUMBER_SEPARATOR}{conversation.number}")
        else:
            yield path


def split_number(path: Path) -> tuple[Path, int]:
    """Return the file and the number of a conversation, 0 for the first."""
    if path.exists():
        return path, 0
    name, _, number = path.name.rpartition(NUMBER_SEPARATOR)
    return (path.with_name(name), int(number)) if name and number.isdecimal() else (path, 0)


def open_message_file(path: Path) -> MessageFile:
    """Open a file. The latest one is cached until it changes."""
    try:
        stat = path.stat()
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read ({error.strerror}).") from None
    return _open_cached(path, stat.st_mtime_ns, stat.st_size, stat.st_ino)


@lru_cache(maxsize=1)
def _open_cached(path: Path, _mtime_ns: int, _size: int, _inode: int) -> MessageFile:
    return MessageFile(path)
