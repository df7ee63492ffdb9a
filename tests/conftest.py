"""What every test may use: a home of its own, programs that record into it, and their runs.

- home: an empty home for this test; also $VESTIGE_HOME
- store: the empty store of `home`, open for writing
- data_dir: where AgentDbg's run directories are; also $AGENTDBG_DATA_DIR
- run_program: run(source, ...), a small Python program in its own process that records into `home`
- read_runs: read_runs(), every run in `home`, implicit ones too, oldest first
- small_disk: small_disk("64k"), a disk to fill or to make read-only; skips where it may not
- agentdbg: a Python with the published package agentdbg 0.3.0, and maida, its later name; full
- browser: a Chromium for this module's tests (tests/web); skips where no page was built
- clickhouse_server: a ClickHouse for all tests of this process; skips where chdb is missing
- golden: golden(name, text), compare with tests/golden/<name>; `--rewrite` writes it instead

Functions, servers and samples that tests import are in tests/support.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

import vestige.emit.hooks.thread_context
import vestige.process_recorder
import vestige.process_writer
import vestige.record.coercion
from support.clickhouse import ClickHouseServer
from support.process_tests import starts_process
from support.programs import Golden, ReadRuns, RunProgram, SmallDisk, load, run_in
from vestige.home import Home
from vestige.store.sqlite.sqlite_store import SqliteStore

# How long an example takes says something about the machine. What CI sees, CI sees again: there
# the examples are always the same (--hypothesis-profile=same); elsewhere each run looks further.
_any_speed = hypothesis.settings(
    deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True
)
hypothesis.settings.register_profile("any-speed", _any_speed)
hypothesis.settings.register_profile(
    "same", _any_speed, derandomize=True, database=None, max_examples=50
)
hypothesis.settings.load_profile("any-speed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the golden files")


def pytest_configure() -> None:
    """A shell ignores Ctrl-C for what it runs in the background, and each child inherits that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests that start processes as slow, and those with another's environment as full."""
    if "agentdbg" in getattr(item, "fixturenames", ()):
        item.add_marker("full")
    elif starts_process(item):
        item.add_marker("slow")


def pytest_collection_finish() -> None:
    """Forget the redactors of test modules: each would search every text that is truncated."""
    vestige.record.coercion._finders.clear()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """What a module's tests share is made in one worker, not in each; all other tests go
    anywhere.
    """
    from xdist.scheduler import LoadScopeScheduling

    files = Path(__file__).parent.rglob("test_*.py")
    texts = {path.relative_to(config.rootpath).as_posix(): path.read_text() for path in files}
    share = {name for name, text in texts.items() if re.search(r'scope="module"|\bbrowser:', text)}

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            name = nodeid.partition("::")[0]
            return name if name in share else nodeid

    return Scheduling(config, log) if config.getoption("dist") == "load" else None


@pytest.fixture(scope="session", autouse=True)
def _compiled_rules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compile the rules for secrets once. In each test's own home, it would take 0.1 s."""
    folder = tmp_path_factory.mktemp("rules") / "scanners"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Home, "scanners", property(lambda home: folder))
        yield


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """No setting and no recorder of one test reaches the next."""
    _clear_variables()
    vestige.process_recorder._default = None
    finders = len(vestige.record.coercion._finders)
    yield
    for writer in list(vestige.process_writer._alive.values()):
        for emitter in list(writer._emitters):
            emitter.send.__self__.close()  # type: ignore[attr-defined]
    while (
        vestige.emit.hooks.thread_context._users > 0
    ):  # fake recorders, which no test needs to close
        vestige.emit.hooks.thread_context.uninstall()
    _clear_variables()
    # Every redactor that is alive searches each text that is truncated: thousands take minutes.
    del vestige.record.coercion._finders[finders:]


def _clear_variables() -> None:
    for name in [name for name in os.environ if name.startswith("VESTIGE_")]:
        del os.environ[name]


@pytest.fixture
def home(tmp_path: Path, _alone: None) -> Home:
    os.environ["VESTIGE_HOME"] = str(tmp_path / "home")
    return Home(tmp_path / "home")


@pytest.fixture
def store(home: Home) -> Iterator[SqliteStore]:
    home.make()
    with SqliteStore.open(home.store) as opened:
        yield opened


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
    from support.browsing import launched  # in tests/web
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


@pytest.fixture(scope="session")
def clickhouse_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseServer]:
    pytest.importorskip("chdb", reason="needs the engine of ClickHouse: pip install chdb")
    server = ClickHouseServer(tmp_path_factory.mktemp("clickhouse"))
    yield server
    server.kill()
