"""Services under `vestige run`: one run for each request and each task, named and finished."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest

import vestige
from support import frameworks
from support.frameworks import Provider
from support.programs import WAIT_S, load
from vestige.home import Home
from vestige.record.run import Run

SERVICES = Path(__file__).parent.parent / "data" / "services"
PACKAGES = ("openai", "flask", "django", "celery", "rq", "dramatiq", "redis")
CONVERSATIONS = 8
WEB = {
    "flask_app.py": ("<order_id>", "<order_id>"),
    "django_app.py": ("<str:order_id>", "<str:order_id>"),
}


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    with frameworks.start_provider(tmp_path_factory.mktemp("provider")) as started:
        yield started


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with the newest releases of the services, and nothing of Vestige."""
    folder = tmp_path_factory.mktemp("services") / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", *PACKAGES]
    if subprocess.run(install, capture_output=True, check=False).returncode:
        pytest.skip(f"{', '.join(PACKAGES)} cannot be installed here")
    return str(folder / "bin" / "python")


@pytest.mark.slow
def test_each_request_of_a_starlette_service_is_a_run(home: Home, provider: Provider) -> None:
    """Eight conversations at once are not mixed, and none of them is taken for a loop."""
    with serving(home, provider, sys.executable, "starlette_app.py") as url:
        answer_eight(url)
        assert post(f"{url}/stream/A1") == 200
        assert post(f"{url}/later") == 200
        assert post(f"{url}/boom") == 500

    runs = read_service_runs(home)
    assert count(runs) == {
        ("POST /refund/{order_id}", "ok"): CONVERSATIONS,
        ("POST /stream/{order_id}", "ok"): 1,
        ("POST /later", "ok"): 1,
        ("POST /boom", "error"): 1,
    }
    check_runs(home, runs)


@pytest.mark.full
@pytest.mark.parametrize("file", WEB)
def test_each_request_of_a_wsgi_service_is_a_run(
    home: Home, provider: Provider, python: str, file: str
) -> None:
    with serving(home, provider, python, file) as url:
        answer_eight(url)
        assert post(f"{url}/stream/A1") == 200
        assert post(f"{url}/boom") == 500

    runs = read_service_runs(home)
    refund, stream = WEB[file]
    assert count(runs) == {
        (f"POST /refund/{refund}", "ok"): CONVERSATIONS,
        (f"POST /stream/{stream}", "ok"): 1,
        ("POST /boom", "error"): 1,
    }
    check_runs(home, runs)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["celery", "dramatiq", "rq"])
def test_each_task_is_a_run(
    home: Home, provider: Provider, python: str, tmp_path: Path, kind: str
) -> None:
    if kind != "celery" and shutil.which("redis-server") is None:
        pytest.skip("no redis-server (apt-get install redis-server)")
    port = free_port()
    env = {
        **provider.environment(),
        "PYTHONPATH": f"{SERVICES}:{frameworks.FOLDER}",
        "SCRATCH": str(tmp_path),
        "REDIS_PORT": str(port),
    }
    workers = {
        "celery": ["-m", "celery", "-A", "celery_app", "worker", "--concurrency", "2"],
        "dramatiq": ["-m", "dramatiq", "dramatiq_app", "-p", "1", "-t", "4"],
        "rq": ["-m", "rq.cli", "worker", "--url", f"redis://127.0.0.1:{port}"],
    }
    senders = {"celery": "celery_app.py", "dramatiq": "dramatiq_app.py", "rq": "rq_jobs.py"}
    redis = None
    if kind != "celery":
        redis = subprocess.Popen(
            ["redis-server", "--port", str(port), "--save", "", "--dir", str(tmp_path)],
            stdout=subprocess.DEVNULL,
        )
        wait_for_port(port)
    command = [*record(home), python, *workers[kind]]
    worker = subprocess.Popen(command, env=env, cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        subprocess.run([python, str(SERVICES / senders[kind])], env=env, cwd=tmp_path, check=True)
        deadline = monotonic() + WAIT_S
        while len(ended := read_service_runs(home)) < 4 and monotonic() < deadline:
            sleep(0.5)  # the worker is another process
        assert len(ended) == 4
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(WAIT_S) == 0, "a worker under `vestige run` stops as it would alone"
    finally:
        worker.kill()
        worker.wait()
        if redis is not None:
            redis.terminate()
            redis.wait()

    runs = read_service_runs(home)
    names = ("rq_jobs.refund_job", "rq_jobs.bad_job") if kind == "rq" else NAMES
    assert count(runs) == {(names[0], "ok"): 3, (names[1], "error"): 1}
    check_runs(home, runs)


@pytest.mark.full
def test_each_cell_of_a_notebook_is_a_run(home: Home, provider: Provider, tmp_path: Path) -> None:
    """Cells that call a model: plain, in a list, with `await`, and one that fails."""
    packages = ("ipykernel", "jupyter_client", "openai")
    python = frameworks.make_environment(tmp_path / "environment", packages)
    if python is None:
        pytest.skip(f"{', '.join(packages)} cannot be installed here")
    env = {
        **provider.environment(),
        "PYTHONPATH": f"{SERVICES}:{frameworks.FOLDER}",
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
    }
    done = subprocess.run(
        [*record(home), python, str(SERVICES / "notebook_cells.py")],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["ok"] * 4 + ["error"] * 2 + ["ok"]

    runs = read_service_runs(home)
    assert count(runs) == {
        ("cell 2", "ok"): 1,
        ("cell 3", "ok"): 1,
        ("cell 4", "ok"): 1,
        ("cell 5", "error"): 1,
    }
    cells = {run.info.name: run.spans[0].attributes["cell"] for run in runs}
    assert cells["cell 4"] == "answer = await asyncio.to_thread(refund, 'A2')"
    check_runs(home, runs)
    others = [
        run.info.outcome for run in load(home) if run.info.id not in {r.info.id for r in runs}
    ]
    assert set(others) == {"ok"}, "a kernel that is shut down has not crashed"


NAMES = ("shop.refund", "shop.bad")


def record(home: Home) -> list[str]:
    return [sys.executable, "-m", "vestige", "run", "-q", "--home", str(home.root), "--"]


@contextmanager
def serving(home: Home, provider: Provider, python: str, file: str) -> Iterator[str]:
    """Yield the URL of a recorded service, which is stopped with SIGTERM."""
    port = free_port()
    env = {**provider.environment(), "PYTHONPATH": f"{SERVICES}:{frameworks.FOLDER}"}
    command = [*record(home), python, str(SERVICES / file), str(port)]
    process = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)
    try:
        wait_for_port(port)
        urllib.request.urlopen(f"http://127.0.0.1:{port}/health").close()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(WAIT_S)


def answer_eight(url: str) -> None:
    with ThreadPoolExecutor(CONVERSATIONS) as pool:
        paths = [f"{url}/refund/A{number}" for number in range(CONVERSATIONS)]
        assert list(pool.map(post, paths)) == [200] * CONVERSATIONS


def post(url: str) -> int:
    request = urllib.request.Request(url, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as response:
            response.read()
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def wait_for_port(port: int) -> None:
    deadline = monotonic() + WAIT_S
    while monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return
        except OSError:
            sleep(0.1)
    raise AssertionError(f"nothing listens on port {port}")


def read_service_runs(home: Home) -> list[Run]:
    """The finished runs with model calls."""
    return [
        run
        for run in load(home)
        if run.info.ended_ns is not None and any(span.type == "llm" for span in run.spans)
    ]


def count(runs: list[Run]) -> dict[tuple[str, str], int]:
    return dict(Counter((run.info.name, run.info.outcome) for run in runs))


def check_runs(home: Home, runs: list[Run]) -> None:
    """Every run has one conversation; only the planted failure is worse than a hint."""
    with vestige.open(home.root) as debugger:
        for run in runs:
            calls = sum(span.type == "llm" for span in run.spans)
            assert calls in (4, 5), "the rate service fails once, for one of them"
            findings = debugger.check(run.info.id).report.findings
            serious = [each.message for each in findings if each.severity != "hint"]
            assert len(serious) == (run.info.outcome != "ok"), serious
            assert all("ValueError: no such customer" in each for each in serious)
