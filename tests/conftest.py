"""What every test may use: a home of its own, programs that record into it, and what came of it.

home          an empty home for this test; also $VESTIGE_HOME
data_dir      where AgentDbg's run directories are; also $AGENTDBG_DATA_DIR
run_program   run(source, ...): a small Python program in a process of its own, recording into `home`
read_runs     read_runs(): every run in `home`, implicit ones too, oldest first
small_disk    small_disk("64k"): a disk of that size, to fill or to make read-only; skips where it may not
agentdbg      a Python with the published package agentdbg 0.3.0 (and maida, its later name); slow
browser       a Chromium for this module's tests (tests/web); skips where no page was built
golden        golden(name, text): compare with tests/golden/<name>; `--rewrite` writes it instead

`from conftest import load` gives `load(home)`, the same as read_runs for any home; `free_port()`
gives a port that no other test and no client of one gets; `WAIT_S` bounds a wait for something that comes.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import hypothesis
import pytest

import vestige.emit.hooks.thread_context
import vestige.process_recorder
import vestige.process_writer
from vestige.collector.loop import catch_up
from vestige.home import Home
from vestige.record.run import Run
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore

RunProgram = Callable[..., "subprocess.CompletedProcess[str]"]
ReadRuns = Callable[[], list[Run]]
Golden = Callable[[str, str], None]
SmallDisk = Callable[[str], Path]

WAIT_S = 120.0
"""For what is certain to come: only a test that fails waits as long, on whatever machine."""

# How long an example takes says something about the machine. What CI sees, CI sees again: there
# the examples are always the same (--hypothesis-profile=same); elsewhere each run looks further.
_any_speed = hypothesis.settings(
    deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True
)
hypothesis.settings.register_profile("any-speed", _any_speed)
hypothesis.settings.register_profile("same", _any_speed, derandomize=True, database=None)
hypothesis.settings.load_profile("any-speed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the golden files anew")


def pytest_configure() -> None:
    """A shell ignores Ctrl-C for what it runs in the background, and each child inherits that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """What a module's tests share is made in one worker, not in each; all other tests go anywhere."""
    from xdist.scheduler import LoadScopeScheduling

    files = Path(__file__).parent.rglob("test_*.py")
    texts = {path.relative_to(config.rootpath).as_posix(): path.read_text() for path in files}
    share = {name for name, text in texts.items() if re.search(r'scope="module"|\bbrowser:', text)}

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            name = nodeid.partition("::")[0]
            return name if name in share else nodeid

    return Scheduling(config, log) if config.getoption("dist") == "load" else None


def load(home: Home) -> list[Run]:
    """Every run of a home, implicit ones too, oldest first, once its journals are taken in."""
    with pytest.MonkeyPatch.context() as patient:
        patient.setattr(
            "vestige.collector.loop.CATCH_UP_WAIT_S", WAIT_S
        )  # who else is at it may be slow
        catch_up(home)
    with SqliteStore.open(home.store, readonly=True) as store:
        infos = store.list_runs(RunFilter(with_implicit=True))
        return [store.load_run(info.id) for info in reversed(infos)]


def run_in(
    home: Home,
    source: str,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    timeout_s: float = WAIT_S,
    command: Sequence[str] = (sys.executable,),
) -> subprocess.CompletedProcess[str]:
    """Run a program's text to its end, as a file beside the home."""
    program = home.root.parent / "program.py"
    text = textwrap.dedent(source)
    if not program.exists() or program.read_text(encoding="utf-8") != text:
        program.write_text(text, encoding="utf-8")
    return subprocess.run(
        [*command, str(program), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, "VESTIGE_HOME": str(home.root), **(env or {})},
        cwd=home.root.parent,
    )


_ports: list[IO[str]] = []


def free_port() -> int:
    """A port to listen at, again and again: ours until this process ends.

    Not one that the kernel gives: it may give the same one to a client while nobody listens.
    """
    given = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(given.read_text().split()[0]) if given.exists() else 49152
    places = Path(tempfile.gettempdir(), f"vestige-test-ports-{os.getuid()}")
    places.mkdir(exist_ok=True)
    for port in range(first - 1, 1023, -1):
        place = open(places / str(port), "w")  # noqa: SIM115  # open for as long as it is ours
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            place.close()  # another test's, or a server's
            continue
        _ports.append(place)
        return port
    raise AssertionError("no port is free")


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """No setting and no recorder of one test reaches the next."""
    _clear_variables()
    vestige.process_recorder._default = None
    yield
    for writer in list(vestige.process_writer._alive.values()):
        for emitter in list(writer._emitters):
            emitter.send.__self__.close()  # type: ignore[attr-defined]  # Recorder._send
    while (
        vestige.emit.hooks.thread_context._users > 0
    ):  # fake recorders, which no test needs to close
        vestige.emit.hooks.thread_context.uninstall()
    _clear_variables()


def _clear_variables() -> None:
    for name in [name for name in os.environ if name.startswith("VESTIGE_")]:
        del os.environ[name]


@pytest.fixture
def home(tmp_path: Path, _alone: None) -> Home:
    os.environ["VESTIGE_HOME"] = str(tmp_path / "home")
    return Home(tmp_path / "home")


@pytest.fixture
def data_dir(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where AgentDbg's run directories of this test are; no settings of the user's reach it."""
    for name in [name for name in os.environ if name.startswith("AGENTDBG_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("AGENTDBG_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "data"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disks: list[Path] = []

    def mount(size: str) -> Path:
        folder = tmp_path / f"disk{len(disks)}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("mount is not permitted here: no disk can be filled or made read-only")
        disks.append(folder)
        return folder

    yield mount
    for folder in disks:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def run_program(home: Home) -> RunProgram:
    def run(source: str, *arguments: str, **more: object) -> subprocess.CompletedProcess[str]:
        return run_in(home, source, *arguments, **more)  # type: ignore[arg-type]

    return run


@pytest.fixture
def read_runs(home: Home) -> ReadRuns:
    return lambda: load(home)


@pytest.fixture(scope="session")
def agentdbg() -> Path:
    """An environment of its own under build/, made once: that package's pins are old."""
    folder = Path(__file__).parent.parent / "build" / "agentdbg-0.3.0"
    python = folder / "bin" / "python"
    folder.parent.mkdir(exist_ok=True)
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several workers may want it at once
        if not (folder / "made").exists():
            # By our pip, and what is never imported is never compiled: half the work.
            venv = [sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)]
            subprocess.run(venv, check=True)
            pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q"]
            quiet = ["--disable-pip-version-check", "--no-compile"]
            subprocess.run([*pip, *quiet, "agentdbg==0.3.0"], check=True)
            (folder / "made").touch()
    return python


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """Of a module, not of the session: while it is open, no other test can run an event loop."""
    from browsing import launched  # in tests/web

    from vestige.server.viewer_assets import is_built

    if not is_built():
        pytest.skip("the viewer is not built: run `python hatch_build.py`")
    with launched() as browser:
        yield browser


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    folder = Path(__file__).parent / "golden"

    def compare(name: str, text: str) -> None:
        path = folder / name
        if request.config.getoption("--rewrite"):
            path.write_text(text, encoding="utf-8")
        expected = path.read_text(encoding="utf-8") if path.exists() else ""

        assert text == expected, f"{path} differs. Rewrite with `pytest tests/golden --rewrite`."

    return compare
