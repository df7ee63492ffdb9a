"""An HTTP request before it is sent, and the span that it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vestige.emit.emitter import Emitter

if TYPE_CHECKING:
    from vestige.wire.inferred_tools import InferredTools
    from vestige.wire.replaying.response_player import Answer

Headers = Sequence[tuple[str, str]]


class SpanContext:
    """The parent of a call: a span, or the process."""

    __slots__ = ("component", "emitter", "parent_id", "program", "run_id", "tools")

    def __init__(
        self,
        emitter: Emitter,
        run_id: str,
        parent_id: str | None,
        component: str,
        tools: InferredTools | None = None,
        program: str = "",
    ) -> None:
        self.emitter = emitter
        self.run_id = run_id
        self.parent_id = parent_id
        self.component = component
        self.tools = tools
        """Infers the tools of a program of which only the model calls are seen."""
        self.program = program
        """The name of its agents. Empty if it works for an agent that is recorded itself."""


class OutgoingRequest:
    """A request that the client is about to send."""

    __slots__ = (
        "answer",
        "body",
        "headers",
        "host",
        "is_changed",
        "is_sent",
        "level",
        "method",
        "path",
        "plain",
        "url",
    )

    def __init__(
        self, method: str, url: str, host: str, path: str, headers: Headers, body: bytes | None
    ) -> None:
        self.method = method
        self.url = url
        self.host = host
        """Host name, with the port unless it is the default."""
        self.path = path
        """Path without the query."""
        self.headers = headers
        self.body = body
        """The body. None: it is streamed, and known only once it is sent."""
        self.plain = False
        """True if the body is decoded, although the headers name a coding."""
        self.answer: Answer | None = None
        """The recorded answer, in a replay."""
        self.is_sent = False
        """True if a fork sends the request."""
        self.is_changed = False
        """True if a fork has changed the body."""
        self.level = 0
        """Number of forks whose changes apply to the request."""
