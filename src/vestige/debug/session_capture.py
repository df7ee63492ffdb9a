"""Capture a session from start to end into a spool.

Snapshots are taken at the five points of the lifecycle: entry, `PromptRendered`, `ToolInvoked`,
`PromptExecuted`, exit. The events come from the session's own dispatcher. Delivery is by exact
class there, so the classes are looked up by name in the dispatcher's own package: another library's
session is watched without importing that library.

Nothing here raises into the program. Failures are counted in the spool.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from vestige._runtime.clock import SYSTEM
from vestige._version import __version__
from vestige.debug.agent_filesystem import chunks, walk
from vestige.debug.capture_facts import FAILED, FILE_SKIPPED, CapturedRun, Ending, Opening, error_of
from vestige.debug.copy_recorded_run import keep_records
from vestige.debug.logging_capture import Sink, listening
from vestige.debug.snapshot_writer import SnapshotWriter, family
from vestige.debug.spool import COMPONENT, LogRotationConfig, SpoolRecorder, create_spool
from vestige.debug.spool_content import SpoolContent
from vestige.emit.exception_attributes import error_attributes, status_of
from vestige.emit.span import Span
from vestige.formats.wink.log_records import to_iso
from vestige.formats.wink.manifest import Agent
from vestige.limits import BODY_CHUNK
from vestige.record.coercion import clean_text, safe_str
from vestige.record.json_render import json_text

T = TypeVar("T")
EVENTS: Final = ("PromptRendered", "ToolInvoked", "PromptExecuted")
OUTCOME_OF: Final = {
    "ok": "success",
    "error": "failure",
    "timeout": "timeout",
    "cancelled": "cancelled",
}
STATUS_OF: Final = {outcome: status for status, outcome in OUTCOME_OF.items()}


class Capture:
    """Made by the builder when it is first needed."""

    def __init__(
        self,
        session: Any,
        agent: Any,
        tags: Mapping[str, str],
        *,
        rotation: LogRotationConfig | None,
        log_level: int,
        spool: str | os.PathLike[str] | None,
        run: CapturedRun | None,
    ) -> None:
        self.bundle_id = SYSTEM.run_id()
        self._owner = os.getpid()
        self._session = session
        self._ended_ns: int | None = None
        self._error: BaseException | None = None
        self.spool = create_spool(self.bundle_id, spool)
        self._recorder = SpoolRecorder(self.spool.home, rotation)
        self.content = SpoolContent(self.spool)
        session_id = safe_str(getattr(session, "session_id", ""))
        opening = Opening(
            self.bundle_id,
            session_id,
            _agent(agent),
            _texts(tags),
            describe_environment(),
            to_iso(SYSTEM.now_ns()),
            run,
        )
        encoded = msgspec.json.encode(opening).decode()
        self.content.opening = _masked(self._recorder, encoded, Opening)
        self._run = self._recorder.run(
            opening.agent.name,
            session_id,
            {"bundle_id": self.bundle_id, "session_id": session_id},
            component=COMPONENT,
            body=encoded,
        )
        self._snapshots = SnapshotWriter(self._recorder, self._run)
        self._recorder.run_id = self._run.run_id
        self._sink = Sink(self._recorder.write_log, log_level)

    # --- while it runs ------------------------------------------------------------------------

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Record the log, and snapshots at the points of the life cycle, until the block ends."""
        with listening(self._sink), self._subscribed():
            self.add_snapshot("capture entry")
            try:
                yield
            except BaseException as error:
                self._failed(error)
                raise
            finally:
                self._ended_ns = SYSTEM.now_ns()
                self.add_snapshot("capture exit")

    def add_snapshot(self, reason: str) -> None:
        if self._is_ours():
            self._guarded("snapshot", lambda: self._snapshots.add(self._session, reason))

    def add_files(self, fs: Any, prefix: str, size_max: int | None, exclude: Sequence[str]) -> None:
        if not self._is_ours():
            return
        excluded = _matcher(exclude)
        for found in walk(fs):
            path = _joined(prefix, found.path)
            if found.error is not None:
                self._skip(path, f"unreadable: {safe_str(found.error)}", None)
            elif excluded(found.path):
                self._skip(path, "excluded", found.size_bytes)
            elif size_max is not None and (found.size_bytes or 0) > size_max:
                self._skip(path, f"larger than {size_max} bytes", found.size_bytes)
            else:
                self.add_file(path, chunks(fs, found.path, BODY_CHUNK))

    def add_file(self, path: str, content: Iterable[bytes]) -> None:
        if not self._is_ours():
            return
        span = Span(
            self._recorder._emitter,
            self._run.run_id,
            self._run.id,
            COMPONENT,
            path,
            "file",
            {"path": path},
        )
        try:
            info, masked = self._recorder.write_file(content)
        except Exception as error:  # noqa: BLE001  # a foreign filesystem, or the disk
            span.end(error)
            self._skip(path, f"unreadable: {safe_str(error)}", None)
            return
        attributes: dict[str, Any] = {"size_bytes": info.spilled_bytes, "sha256": info.sha256}
        if masked:
            attributes["redacted"] = ", ".join(sorted(masked))
        span.end(attributes=attributes)

    def _skip(self, path: str, reason: str, size: int | None) -> None:
        fact = {"path": clean_text(path), "reason": reason, "size_bytes": size}
        self._recorder.write_fact(self._run.run_id, FILE_SKIPPED, fact)

    def _failed(self, error: BaseException) -> None:
        self._error = error
        if self._is_ours():
            self._guarded("error", lambda: self._record_failure(error))

    def _record_failure(self, error: BaseException) -> None:
        self._recorder.write_fact(self._run.run_id, FAILED, dict(error_attributes(error)))

    # --- events -------------------------------------------------------------------------------

    @contextmanager
    def _subscribed(self) -> Iterator[None]:
        dispatcher: Any = None
        found: list[type] = []

        def look() -> None:
            nonlocal dispatcher
            dispatcher = getattr(self._session, "dispatcher", None)
            found.extend(find_event_types(dispatcher, self._session))

        def subscribe(kind: type) -> None:
            dispatcher.subscribe(kind, self._on_event)

        def unsubscribe(kind: type) -> None:
            dispatcher.unsubscribe(kind, self._on_event)

        self._guarded("dispatcher", look)
        subscribed = [
            kind for kind in found if self._guarded("subscribe", partial(subscribe, kind))
        ]
        try:
            yield
        finally:
            for kind in subscribed:
                self._guarded("unsubscribe", partial(unsubscribe, kind))

    def _on_event(self, event: Any) -> None:
        """Take an event. Never raises: a foreign dispatcher may pass on what its handlers raise."""
        self._guarded("event", lambda: self._take_event(event))

    def _take_event(self, event: Any) -> None:
        """Take an event of our session, or of no session: dispatchers are shared."""
        whose = getattr(event, "session_id", None)
        if whose is not None:
            ours = {safe_str(getattr(one, "session_id", "")) for one in family(self._session)}
            if safe_str(whose) not in ours:
                return
        self.add_snapshot(type(event).__name__)

    def keep_records(self, run: CapturedRun | None) -> None:
        """Copy what a recorder recorded of this execution."""
        if run is not None and self._is_ours():
            home = self.spool.home
            self._guarded("records", lambda: keep_records(home, run.home, run.run_id))

    # --- its end --------------------------------------------------------------------------------

    def finish(self, outcome: str | None, error: Mapping[str, object] | None) -> None:
        """Write how it ended. Without an outcome, the exception that ended it decides."""
        found = None
        if self._error is not None:
            found = error_of(dict(error_attributes(self._error)))
        if outcome is None:
            outcome = OUTCOME_OF.get(status_of(self._error), "failure")
        if outcome != "success" or error is not None:
            found = {**(found or {}), **(dict(error) if error else {})} or None
        else:
            found = None
        now = SYSTEM.now_ns()
        lost, lost_logs = self._recorder.unwritten
        ending = Ending(
            outcome,
            _json(found),
            to_iso(self._ended_ns or now),
            to_iso(now),
            lost,
            lost_logs + self._sink.failed,
        )
        if self._sink.failed:
            self._recorder.fault(f"log records lost: {self._sink.failed}")
        encoded = msgspec.json.encode(ending).decode()
        self.content.ending = _masked(self._recorder, encoded, Ending)
        if self._is_ours():  # else it is how a forked child ended, and not what its parent captures
            self._run.end(status=STATUS_OF.get(outcome, "error"), body=encoded)
        self._recorder.close()

    # --- inside ---------------------------------------------------------------------------------

    def _is_ours(self) -> bool:
        """Return False in a forked child: the capture belongs to its parent."""
        return os.getpid() == self._owner

    def _guarded(self, what: str, call: Callable[[], object]) -> bool:
        """Call a function, and return whether it succeeded."""
        try:
            call()
        except Exception as error:  # noqa: BLE001  # the program goes on, whatever this is
            self._recorder.fault(f"{what} failed: {type(error).__name__}")
            return False
        return True


def find_event_types(dispatcher: Any, session: Any) -> list[type]:
    """Return the event classes of EVENTS in the packages of the dispatcher and the session."""
    found: dict[type, None] = {}
    if dispatcher is None:
        return []
    for owner in (*type(dispatcher).__mro__, *type(session).__mro__):
        if owner.__module__ == "builtins":
            continue
        parts = owner.__module__.split(".")
        for length in range(len(parts), 0, -1):
            module = sys.modules.get(".".join(parts[:length]))
            for name in EVENTS:
                kind = getattr(module, name, None)
                if isinstance(kind, type):
                    found[kind] = None
    return list(found)


def describe_environment() -> dict[str, Any]:
    """Return the environment in a manifest's keys."""
    import platform
    from importlib import metadata

    environment = {
        "platform": sys.platform,
        "python_version": platform.python_version(),
        "vestige_version": __version__,
    }
    try:
        environment["weakincentives_version"] = metadata.version("weakincentives")
    except metadata.PackageNotFoundError:
        pass
    return environment


def _masked(recorder: SpoolRecorder, text: str, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(recorder.redact(text), type=kind)
    except msgspec.DecodeError:
        return None


def _agent(agent: Any) -> Agent:
    version = getattr(agent, "version", None)
    return Agent(
        name=clean_text(safe_str(agent.name)),
        version=None if version is None else clean_text(safe_str(version)),
        adapter=clean_text(safe_str(getattr(agent, "adapter", ""))),
        model=clean_text(safe_str(getattr(agent, "model", ""))),
    )


def _texts(tags: Mapping[str, str]) -> dict[str, str]:
    return {clean_text(safe_str(key)): clean_text(safe_str(value)) for key, value in tags.items()}


def _json(error: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a caller's error details as JSON values."""
    if error is None:
        return None
    found: dict[str, Any] = msgspec.json.decode(json_text(error))
    return found


def _joined(prefix: str, path: str) -> str:
    prefix = prefix.strip("/")
    return f"{prefix}/{path}" if prefix else path


def _matcher(patterns: Sequence[str]) -> Callable[[str], bool]:
    """`*.bin` fits a name anywhere, `node_modules/**` a place; `**` crosses folders, `*` does
    not."""
    expressions = [re.compile(_expression(pattern), re.DOTALL) for pattern in patterns]

    def matches(path: str) -> bool:
        return any(expression.fullmatch(path) for expression in expressions)

    return matches


def _expression(pattern: str) -> str:
    anchored = "/" in pattern.rstrip("/")
    text = re.escape(pattern.strip("/"))
    text = text.replace(r"\*\*/", "(?:.*/)?").replace(r"\*\*", ".*")
    text = text.replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
    # A folder's name matches everything in it.
    return f"{'' if anchored else '(?:.*/)?'}{text}(?:/.*)?"
