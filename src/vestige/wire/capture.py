"""`vestige.capture_http()`: record this process's HTTP calls to model providers.

    import vestige

    vestige.capture_http()                       # from now on; a second call does no harm
    with vestige.capture_http(http=True): ...    # all HTTP calls, inside this block

No client is imported for it: a client is hooked when the program imports it
(_runtime/import_hooks.py). `vestige run` calls it, unless `--no-wire` is set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from vestige._runtime.import_hooks import cancel_hook, when_imported

if TYPE_CHECKING:
    from typing import Self

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
    "http.client": "unrecorded_calls",
    "websockets.asyncio.client": "unrecorded_calls.install_websockets",
    "websockets.sync.client": "unrecorded_calls.install_websockets",
    "pycurl": "unrecorded_calls.install_pycurl",
}
"""Clients, and the modules of this package that hook them or report their calls."""


class Policy:
    """The calls to record, and the recorder."""

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
        """Maps the ambient span to the parent of a call. None: the ambient span is the parent."""
        self._hosts = Patterns(hosts)
        self._paths = Patterns(paths)

    def allows(self, host: str, path: str) -> bool:
        name, _, port = host.rpartition(":")
        bare = name if port.isdecimal() and name else host
        return self._hosts.allow(bare, host) and self._paths.allow(path)


class Patterns:
    """Patterns such as `*.example.com`, or `!internal.example.com` to exclude.

    Without a pattern that includes, everything is included.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._included = [pattern for pattern in patterns if not pattern.startswith("!")]
        self._excluded = [pattern[1:] for pattern in patterns if pattern.startswith("!")]

    def allow(self, *texts: str) -> bool:
        if not self._included and not self._excluded:
            return True
        from fnmatch import fnmatchcase  # imported only if patterns are set

        def matches(pattern: str) -> bool:
            return any(fnmatchcase(text.lower(), pattern.lower()) for text in texts)

        if any(map(matches, self._excluded)):
            return False
        return not self._included or any(map(matches, self._included))


class Capture:
    """A handle of an active capture. Remove it, or use it as a context manager."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def remove(self) -> None:
        """Stop capturing. The last capture unhooks the clients. A second call does nothing."""
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
    """Return the policy of the latest capture."""
    captures = _captures
    return captures[-1].policy if captures else None


def capture_http(
    *,
    http: bool | None = None,
    hosts: Sequence[str] | None = None,
    paths: Sequence[str] | None = None,
    recorder: Recorder | None = None,
) -> Capture:
    """Record model calls at the HTTP transport from now on, and return a handle to stop.

    `http`: also record other HTTP calls, as spans of type `http`.
    `hosts`, `paths`: patterns such as `*.example.com`; a leading `!` excludes.
    `recorder`: the recorder of calls outside any span; by default the process's own.
    Arguments that are None come from the settings. Of several captures the latest decides; a call
    is recorded once.
    """
    return _begin(_make_policy(http, hosts, paths, recorder))


def capture_within(recorder: Recorder, within: Within) -> Capture | None:
    """Capture with `within` choosing the parent of each call. None: a capture is active already."""
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
    """Mark model calls made inside as `warm`: they only warm the provider's cache."""
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

    _, settings = find_home(recorder.home if recorder is not None else get_home(None))
    return Policy(
        settings.wire_http if http is None else http,
        settings.wire_hosts if hosts is None else tuple(hosts),
        settings.wire_paths if paths is None else tuple(paths),
        recorder,
    )


def _install() -> None:
    for name, hook in _MODULES.items():
        callback = _make_callback(hook)
        _waiting.append((name, callback))
        when_imported(name, callback)


def _make_callback(hook: str) -> Callable[[ModuleType], None]:
    def install_hook(module: ModuleType) -> None:
        if not _captures:
            return
        try:
            from importlib import import_module

            name, _, function = hook.partition(".")
            hooks: Any = import_module(f"{__package__}.{name}")
            _undo.append(getattr(hooks, function or "install")(module))
        except Exception as error:  # noqa: BLE001  # an unsupported version of the client
            _report_fault(error)

    return install_hook


def _report_fault(error: Exception) -> None:
    from vestige.process_recorder import default_recorder

    recorder = default_recorder()
    if recorder.enabled:
        recorder._emitter.fault(f"wire: hook failed: {type(error).__name__}")


def _uninstall() -> None:
    for name, callback in _waiting:
        cancel_hook(name, callback)
    _waiting.clear()
    for undo in reversed(_undo):
        undo()
    _undo.clear()
