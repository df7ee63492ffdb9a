"""`vestige.capture_http()`: record what this process says to model providers, as it goes out.

    import vestige

    vestige.capture_http()                       # from here on; once is enough, twice does no harm
    with vestige.capture_http(http=True): ...    # all HTTP calls, for a while

Nothing is imported for it: a client is hooked when the program has imported it (vestige/_runtime/import_hooks.py).
Under `vestige run` this happens by itself, unless `--no-wire` is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from vestige._runtime.import_hooks import cancel_hook, when_imported

if TYPE_CHECKING:
    from vestige.emit.span import Span
    from vestige.recorder import Recorder

WARM: ContextVar[bool] = ContextVar("vestige_warm", default=False)

Undo = Callable[[], None]
Within = Callable[["Span | None"], "Span | None"]

_MODULES = {
    "httpx": "httpx_hook",
    "httpx2": "httpx_hook",
    "urllib3": "urllib3_hook",
    "aiohttp": "aiohttp_hook",
}
"""A client, and the module here that hooks it."""


class Policy:
    """Which calls are recorded."""

    __slots__ = ("_hosts", "_paths", "http", "recorder", "within")

    def __init__(
        self,
        http: bool,
        hosts: Sequence[str],
        paths: Sequence[str],
        recorder: Recorder | None,
    ) -> None:
        self.http = http
        self.recorder = recorder
        self.within: Within | None = None
        """Of the ambient span, the one that a call is recorded in; without it, the ambient one."""
        self._hosts = _Patterns(hosts)
        self._paths = _Patterns(paths)

    def allows(self, host: str, path: str) -> bool:
        name, _, port = host.rpartition(":")
        bare = name if port.isdecimal() and name else host
        return self._hosts.allow(bare, host) and self._paths.allow(path)


class _Patterns:
    """`*.example.com` is wanted, `!internal.example.com` is not; without the first kind, all are."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._wanted = [pattern for pattern in patterns if not pattern.startswith("!")]
        self._refused = [pattern[1:] for pattern in patterns if pattern.startswith("!")]

    def allow(self, *texts: str) -> bool:
        if not self._wanted and not self._refused:
            return True
        from fnmatch import fnmatchcase  # only for those who set patterns

        def fits(pattern: str) -> bool:
            return any(fnmatchcase(text.lower(), pattern.lower()) for text in texts)

        if any(map(fits, self._refused)):
            return False
        return not self._wanted or any(map(fits, self._wanted))


class Capture:
    """A capture in force. Remove it, or use it as a context manager."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def remove(self) -> None:
        """Stop. With the last capture the clients are as they were; a second time does nothing."""
        if self in _captures:
            _captures.remove(self)
            if not _captures:
                _uninstall()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()


_captures: list[Capture] = []
_undo: list[Undo] = []
_waiting: list[tuple[str, Callable[[ModuleType], None]]] = []


def active() -> Policy | None:
    """The policy in force: the latest one's."""
    captures = _captures
    return captures[-1].policy if captures else None


def capture_http(
    *,
    http: bool | None = None,
    hosts: Sequence[str] | None = None,
    paths: Sequence[str] | None = None,
    recorder: Recorder | None = None,
) -> Capture:
    """Record model calls at the HTTP transport, from now on. Returns a handle to stop.

    `http`: also record other HTTP calls, as spans of type `http`.
    `hosts`, `paths`: patterns such as `*.example.com`; with `!` in front, never those.
    `recorder`: for calls outside any span; the process's own by default.
    What is not given comes from the settings. Of several captures the latest decides; a call is
    recorded once.
    """
    return _begin(_make_policy(http, hosts, paths, recorder))


def capture_within(recorder: Recorder, within: Within) -> Capture | None:
    """As `capture_http`, for somebody who knows better than the ambient span where a call belongs.
    None where calls are recorded already, as the program or `vestige run` wanted it."""
    if _captures:
        return None
    policy = _make_policy(None, None, None, recorder)
    policy.within = within
    return _begin(policy)


def _begin(policy: Policy) -> Capture:
    capture = Capture(policy)
    _captures.append(capture)
    if len(_captures) == 1:
        _install()
    return capture


@contextmanager
def warm() -> Iterator[None]:
    """Model calls made inside only warm the provider's cache: they are marked `warm`."""
    token = WARM.set(True)
    try:
        yield
    finally:
        WARM.reset(token)


def _make_policy(
    http: bool | None,
    hosts: Sequence[str] | None,
    paths: Sequence[str] | None,
    recorder: Recorder | None,
) -> Policy:
    from vestige.home import get_home
    from vestige.settings import find_home

    _, given = find_home(recorder.home if recorder is not None else get_home(None))
    return Policy(
        given.wire_http if http is None else http,
        given.wire_hosts if hosts is None else tuple(hosts),
        given.wire_paths if paths is None else tuple(paths),
        recorder,
    )


def _install() -> None:
    for name, hook in _MODULES.items():
        do = _hooking(hook)
        _waiting.append((name, do))
        when_imported(name, do)


def _hooking(hook: str) -> Callable[[ModuleType], None]:
    def do(module: ModuleType) -> None:
        if not _captures:
            return
        try:
            from importlib import import_module

            install: Any = import_module(f"vestige.wire.{hook}").install
            _undo.append(install(module))
        except Exception as error:  # noqa: BLE001  # a client that we do not know that well
            _count(error)

    return do


def _count(error: Exception) -> None:
    from vestige.process_recorder import default_recorder

    recorder = default_recorder()
    if recorder.enabled:
        recorder._emitter.fault(f"wire: hook failed: {type(error).__name__}")


def _uninstall() -> None:
    for name, do in _waiting:
        cancel_hook(name, do)
    _waiting.clear()
    for undo in reversed(_undo):
        undo()
    _undo.clear()
