"""The conversations of a process, separated by the messages of their requests.

A service, a pool or a batch sends requests of many conversations from one process. A request
continues the conversation with which it shares most messages; one that shares only its system
prompt begins another.

    splitter = ConversationSplitter()
    splitter.assign(keys)      # index of the conversation; keys of the messages, in order
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from vestige.providers.chat_types import Message

VOTES_MAX: Final = 400
"""Messages of a request that are compared, the first and the last ones."""


@dataclass(frozen=True, slots=True)
class MessageKey:
    """A message for comparison: its role and the hash of its content."""

    role: str
    content: int


@dataclass(slots=True)
class _Known:
    first: tuple[int, ...]
    """The contents of its first request, without system prompts."""
    is_answered: bool = False
    """The last answer asked for no tool, which ends a turn."""


@dataclass(slots=True)
class ConversationSplitter:
    """Assigns the requests of one scope, in order."""

    _known: list[_Known] = field(default_factory=list)
    _of_content: dict[int, int] = field(default_factory=dict)
    """The conversation that had each content last."""

    def assign(self, keys: Sequence[MessageKey] | None, *, is_final: bool) -> int:
        """Return the index of a request's conversation. None: its messages are unknown."""
        contents = tuple(key.content for key in keys or () if key.role != "system")
        if not contents:
            if not self._known:
                self._known.append(_Known(()))
            return len(self._known) - 1
        index = self._find(contents)
        if index is None:
            index = len(self._known)
            self._known.append(_Known(contents[:VOTES_MAX]))
            self._of_content[contents[-1]] = index
        known = self._known[index]
        known.is_answered = is_final
        # Examples before the question are the same in many conversations.
        examples = frozenset(known.first[:-1])
        for content in _ends(contents):
            if content not in examples:
                self._of_content[content] = index
        return index

    def _find(self, contents: tuple[int, ...]) -> int | None:
        votes = Counter(
            index
            for content in _ends(contents)
            if (index := self._of_content.get(content)) is not None
        )
        if not votes:
            return None
        index = max(votes, key=lambda each: (votes[each], each))
        known = self._known[index]
        # The same question once more, after the first one was answered, is another conversation.
        if contents == known.first and known.is_answered:
            return None
        return index


def _ends(contents: tuple[int, ...]) -> tuple[int, ...]:
    """Return the first and the last contents of a long request."""
    if len(contents) <= VOTES_MAX:
        return contents
    half = VOTES_MAX // 2
    return contents[:half] + contents[-half:]


def raw_key(message: Message) -> int:
    """Return a hash of a message as it was sent."""
    if not message.calls and not message.results:
        return hash((message.role, message.text, len(message.parts)))
    return hash(
        (
            message.role,
            message.text,
            tuple((call.id, call.name, call.arguments) for call in message.calls),
            tuple((result.call_id, result.text) for result in message.results),
            len(message.parts),
        )
    )
