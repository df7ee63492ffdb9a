"""DebugBundleBuilder: capture an execution, then have it as one bundle.

    builder = DebugBundleBuilder(session=session, agent=AgentInfo(...))
    with builder.capture():
        response = adapter.evaluate(prompt, session=session)
    builder.add_filesystem(fs)
    builder.finalize().export("./debug/")

Everything is written to a spool as it happens (spool.py), so memory stays small and a kill loses
nothing: `vestige store recover` makes the bundle then. Not thread-safe itself: one builder an
execution.

The session, its dispatcher and the filesystem may be ours or any of the same shape.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from vestige.debug.agent_filesystem import as_filesystem
from vestige.debug.bundle import AgentInfo, DebugBundle
from vestige.debug.capture_facts import CapturedRun
from vestige.debug.session_capture import OUTCOME_OF, Capture
from vestige.debug.spool import LogRotationConfig
from vestige.emit.span import Span
from vestige.errors import DebugBundleError, UsageError
from vestige.formats.wink.manifest import INTERRUPTED
from vestige.record.coercion import safe_str
from vestige.recorder import Recorder

UNTOLD: Final = "".join(("suc", "cess"))
"""`success`, but known from a caller's own: then an exception that was seen decides."""


class DebugBundleBuilder:
    """Builds one bundle.

    `log_rotation`: bounds the log of a long execution. `log_level`: the least level that is kept.
    `recorder`, `run`: a run whose spans and bodies travel in the bundle; with a recorder alone, a
    run is opened for the time of the capture.
    `spool`: the folder for what is captured until then; default `spool/` in the home.
    """

    def __init__(
        self,
        *,
        session: Any,
        agent: AgentInfo,
        tags: Mapping[str, str] | None = None,
        log_rotation: LogRotationConfig | None = None,
        log_level: int = logging.DEBUG,
        recorder: Recorder | None = None,
        run: Span | None = None,
        spool: str | os.PathLike[str] | None = None,
    ) -> None:
        if run is not None and recorder is None:
            raise UsageError("run: needs its recorder too (expected recorder=...).")
        if not hasattr(agent, "name"):
            raise TypeError(
                f"agent: {agent!r:.60} (expected AgentInfo(name=..., adapter=..., model=...))."
            )
        self._session = session
        self._agent = agent
        self._tags = dict(tags or {})
        self._rotation = log_rotation
        self._level = log_level
        self._recorder = recorder
        self._run = run
        self._place = spool
        self._capture: Capture | None = None
        self._bundle: DebugBundle | None = None

    @contextmanager
    def capture(self) -> Iterator[DebugBundle]:
        """Capture logs and snapshots until the block ends.

        Return the bundle, which grows meanwhile.
        """
        with ExitStack() as stack:
            if self._recorder is not None and self._run is None:
                name, session_id = self._agent.name, safe_str(self._session.session_id)
                self._run = stack.enter_context(self._recorder.run(name, session_id))
            capture = self._begun()
            with capture.watch():
                yield DebugBundle.of_content(capture.content)

    def add_snapshot(self) -> None:
        """Take a snapshot of the session and its children now."""
        self._begun().add_snapshot("manual")

    def add_filesystem(
        self,
        fs: Any,
        *,
        prefix: str = "workspace",
        max_file_size: int | None = None,
        exclude_patterns: Sequence[str] = (),
    ) -> None:
        """Add a filesystem's files under `files/<prefix>/`. The manifest lists files that are left
        out.

        `fs` may be the path of a directory, too. TypeError or NotADirectoryError if it is neither.
        Secrets in them are masked, as everywhere; the manifest says in which.
        """
        files = as_filesystem(fs)
        self._begun().add_files(files, prefix, max_file_size, exclude_patterns)

    def add_artifact(self, path: str, content: bytes | str) -> None:
        """Add a file under `files/artifacts/`. A text is written as UTF-8."""
        if isinstance(content, str):
            content = content.encode(errors="surrogatepass")
        if not isinstance(content, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"content: {type(content).__name__} (expected bytes, or text) for {path!r}."
            )
        self._begun().add_file(f"artifacts/{os.fspath(path)}", (bytes(content),))

    def finalize(
        self, *, outcome: str = UNTOLD, error: Mapping[str, object] | None = None
    ) -> DebugBundle:
        """Complete the bundle. Without an outcome, an exception that left `capture` decides it.

        Again, it gives the same bundle.
        """
        if self._bundle is not None:
            return self._bundle
        checked_outcome, error = _checked(outcome, error)
        capture = self._begun()
        capture.keep_records(self._captured_run())
        capture.finish(checked_outcome, error)
        self._bundle = DebugBundle.of_content(capture.content)
        return self._bundle

    def _begun(self) -> Capture:
        if self._bundle is not None:
            raise DebugBundleError("the bundle is finalized. Make a new builder for more.")
        if self._capture is None:
            self._capture = Capture(
                self._session,
                self._agent,
                self._tags,
                rotation=self._rotation,
                log_level=self._level,
                spool=self._place,
                run=self._captured_run(),
            )
        return self._capture

    def _captured_run(self) -> CapturedRun | None:
        run, recorder = self._run, self._recorder
        if run is None or recorder is None or not run.run_id:
            return None
        return CapturedRun(str(recorder.home.root), run.run_id)


def _checked(
    outcome: str, error: Mapping[str, object] | None
) -> tuple[str | None, Mapping[str, object] | None]:
    if outcome is UNTOLD:
        return None, error
    if outcome == "interrupted":  # no outcome of the format: how it is written there
        return "failure", {"type": INTERRUPTED, **(error or {})}
    known = tuple(OUTCOME_OF.values())
    if outcome not in known:
        raise UsageError(f"outcome: {outcome!r} is not known (expected {', '.join(known)}).")
    return outcome, error
