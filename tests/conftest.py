"""What every test may use: a home of its own, programs that record into it, and what came of it.

home          an empty home for this test; also $VESTIGE_HOME
data_dir      where AgentDbg's run directories are; also $AGENTDBG_DATA_DIR
run_program   run(source, ...): a small Python program in a process of its own, recording into `home`
read_runs     read_runs(): every run in `home`, implicit ones too, oldest first
agentdbg      a Python with the published package agentdbg 0.3.0 (and maida, its later name); slow
browser       a Chromium for this module's tests (tests/web); skips where no page was built
golden        golden(name, text): compare with tests/golden/<name>; `--rewrite` writes it instead

`from conftest import load` gives `load(home)`, the same as read_runs for any home.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

import vestige.emit.threads
import vestige.recorder
import vestige.writer
from vestige.collector.loop import catch_up
from vestige.home import Home
from vestige.record.run import Run
from vestige.store.base import RunFilter
from vestige.store.sqlite import SqliteStore

RunProgram = Callable[..., "subprocess.CompletedProcess[str]"]
ReadRuns = Callable[[], list[Run]]
Golden = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the golden files anew")


def load(home: Home) -> list[Run]:
    """Every run of a home, implicit ones too, oldest first, once its journals are taken in."""
    catch_up(home)
    with SqliteStore.open(home.store, readonly=True) as store:
        infos = store.list_runs(RunFilter(with_implicit=True))
        return [store.load_run(info.id) for info in reversed(infos)]


def run_in(
    home: Home,
    source: str,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 30.0,
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


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """No setting and no recorder of one test reaches the next."""
    _clear_variables()
    vestige.recorder._default = None
    yield
    for writer in list(vestige.writer._alive.values()):
        for emitter in list(writer._emitters):
            emitter.send.__self__.close()  # type: ignore[attr-defined]  # Recorder._send
    while vestige.emit.threads._users > 0:  # fake recorders, which no test needs to close
        vestige.emit.threads.uninstall()
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
    import fcntl

    folder = Path(__file__).parent.parent / "build" / "agentdbg-0.3.0"
    python = folder / "bin" / "python"
    folder.parent.mkdir(exist_ok=True)
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several workers may want it at once
        if not (folder / "made").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
            pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            subprocess.run([*pip, "agentdbg==0.3.0"], check=True)
            (folder / "made").touch()
    return python


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """Of a module, not of the session: while it is open, no other test can run an event loop."""
    from browsing import launched  # in tests/web

    from vestige.doors.http.viewer import is_built

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
