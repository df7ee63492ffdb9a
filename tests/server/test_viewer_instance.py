"""The viewer's lasting key: links survive a restart, and only the same home's viewer is reused."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread

import pytest

from support.scene import fill
from vestige.home import Home
from vestige.server.open_browser import LaunchCodes, make_launch_code
from vestige.server.viewer_instance import is_viewer_at, prove, read_viewer_key


@contextmanager
def viewer(home: Home, *arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run `vestige ui` and yield the URL that it prints."""
    command = [sys.executable, "-m", "vestige", "ui", "--no-browser", "--home", str(home.root)]
    with subprocess.Popen([*command, *arguments], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            url = ""
            for line in process.stderr:
                if found := re.search(r"http://\S+", line):
                    url = found[0]
                    break
            assert url, "no URL was printed"
            yield url, process
        finally:
            process.terminate()


def fetch(url: str, cookie: str = "") -> tuple[int, str]:
    """Return the status and the cookie of a response."""
    host, _, rest = url.removeprefix("http://").partition("/")
    connection = HTTPConnection(host, timeout=20)
    connection.request("GET", "/" + rest.partition("#")[0], headers={"Cookie": cookie})
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status, (response.getheader("set-cookie") or "").partition(";")[0]


@pytest.mark.slow
def test_a_link_and_a_cookie_stay_valid_after_a_restart(home: Home) -> None:
    fill(home)
    with viewer(home, "--port", "0") as (url, _):
        port = url.split(":")[2].split("/")[0]
        status, cookie = fetch(url)
        assert status == 303
    with viewer(home, "--port", port) as (again, _):
        assert again == url
        assert fetch(f"http://127.0.0.1:{port}/api/v1/list", cookie)[0] == 200
        assert fetch(f"http://127.0.0.1:{port}/api/v1/list")[0] == 401
    key = read_viewer_key(home)
    assert key not in cookie
    assert stat.S_IMODE(os.stat(home.viewer_key).st_mode) == 0o600


@pytest.mark.slow
def test_only_a_viewer_of_the_same_home_is_recognized(home: Home, tmp_path: Path) -> None:
    fill(home)
    with viewer(home, "--port", "0") as (url, _):
        port = int(url.split(":")[2].split("/")[0])
        assert is_viewer_at(port, read_viewer_key(home))
        assert not is_viewer_at(port, read_viewer_key(Home(tmp_path)))
    assert not is_viewer_at(port, read_viewer_key(home))


def test_a_program_that_answers_anything_is_not_taken_for_the_viewer(home: Home) -> None:
    from http.server import BaseHTTPRequestHandler, HTTPServer

    seen: list[str] = []

    class Liar(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name that the base class calls
            seen.append(self.path + str(self.headers))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"proof": "' + b"0" * 64 + b'"}')

        def log_message(self, *_: object) -> None:
            pass

    home.make()
    key = read_viewer_key(home)
    with HTTPServer(("127.0.0.1", 0), Liar) as server:
        thread = Thread(target=server.handle_request, daemon=True)
        thread.start()
        assert not is_viewer_at(server.server_port, key)
        thread.join(10)
    assert seen and key not in seen[0] and prove(key, "") not in seen[0]


def test_a_launch_code_is_accepted_once_and_only_for_its_key() -> None:
    codes, code = LaunchCodes(), make_launch_code("key", "#/run/r7")

    assert codes.redeem("other", code) is None
    assert codes.redeem("key", code[:-1] + ("0" if code[-1] != "0" else "1")) is None
    assert codes.redeem("key", code) == "#/run/r7"
    assert codes.redeem("key", code) is None
    assert codes.redeem("key", "") is None
    assert codes.redeem("key", "1.2.3.4.5") is None
