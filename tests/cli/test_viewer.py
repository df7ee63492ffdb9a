"""The built page and the command that shows it, as far as no browser is needed."""

from __future__ import annotations

import ast
import gzip
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path
from time import monotonic, sleep

import pytest

from vestige.errors import UnreadableError
from vestige.home import Home
from vestige.server import viewer_assets

ROOT = Path(__file__).parent.parent.parent
PAGE_BYTES_MAX = 500_000
"""Gzip, first load: what the page may weigh."""

built = pytest.mark.skipif(not viewer_assets.is_built(), reason="run `python hatch_build.py`")


@built
def test_the_page_is_one_file_within_its_budget() -> None:
    """No other file, no other origin: script and style are inside."""
    html = viewer_assets.read_viewer().html

    assert len(gzip.compress(html.encode())) <= PAGE_BYTES_MAX
    markup = re.sub(r"(?s)<script[^>]*>.*?</script>", "<script></script>", html)
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=\"(?!data:)", markup)
    assert html.count(viewer_assets.ANSWERS) == 1


@built
def test_the_policy_names_the_very_script_and_nothing_else() -> None:
    """No 'unsafe-' anything, no host, no markup from text."""
    policy = viewer_assets.read_viewer().policy("'self'")

    assert re.search(r"script-src 'sha256-[\w+/=]+';", policy)
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "trusted-types 'none'" in policy


def test_without_a_page_the_error_says_how_to_build_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(viewer_assets, "PAGE", tmp_path / "index.html")
    with pytest.raises(UnreadableError, match=r"hatch_build\.py"):
        viewer_assets.read_viewer()


def test_the_lock_file_holds_no_addresses_and_every_optional_package() -> None:
    """Packages come from whatever registry is configured; a missing platform package breaks npm
    ci.
    """
    packages = json.loads((ROOT / "web" / "package-lock.json").read_text())["packages"]
    optional = {name for one in packages.values() for name in one.get("optionalDependencies", {})}
    known = {path.rpartition("node_modules/")[2] for path in packages}

    assert not [path for path, one in packages.items() if "resolved" in one]
    assert optional <= known
    declared = json.loads((ROOT / "web" / "package.json").read_text())
    assert all(
        re.fullmatch(r"\d+\.\d+\.\d+", version)
        for version in (*declared["dependencies"].values(), *declared["devDependencies"].values())
    )


@built
@pytest.mark.slow
def test_ui_serves_what_is_at_a_path_to_whoever_has_the_address(tmp_path: Path) -> None:
    """A file of any format: read into a home of its own, which is gone when it ends."""
    path = ROOT / "tests" / "data" / "wink" / "snapshots.jsonl"
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "vestige", "ui", "--no-browser", str(path)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary), "VESTIGE_HOME": str(tmp_path / "home")},
    )
    assert process.stderr is not None
    try:
        words = process.stderr.readline().split()
        url, _, place = next(word for word in words if word.startswith("http")).partition("#")
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        with opener.open(url) as answer:
            policy, html = answer.headers["content-security-policy"], answer.read()
        with opener.open(url.partition("?")[0] + "api/v1/list") as answer:
            runs = json.load(answer)["runs"]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(url.partition("?")[0])
    finally:
        process.terminate()
        process.wait(120)
        process.stderr.close()

    assert b"<title>Vestige</title>" in html
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert place == f"/run/{runs[0]['short_id']}"
    assert process.returncode == 0
    assert list(temporary.iterdir()) == []
    assert not Home(tmp_path / "home").store.exists()


@built
@pytest.mark.slow
def test_a_browser_that_stays_in_the_foreground_is_served(tmp_path: Path) -> None:
    """`BROWSER` may name a program that returns only when it is closed, and shows the page till
    then.
    """
    browser, seen = tmp_path / "browser.py", tmp_path / "seen"
    browser.write_text(
        f"#!{sys.executable}\n"
        "import os, re, stat, sys, urllib.request\n"
        "from http.cookiejar import CookieJar\n"
        "cookies = urllib.request.HTTPCookieProcessor(CookieJar())\n"
        "browse = urllib.request.build_opener(cookies).open\n"
        "file = sys.argv[1].removeprefix('file://')\n"
        "mode = stat.S_IMODE(os.stat(file).st_mode), "
        "stat.S_IMODE(os.stat(os.path.dirname(file)).st_mode)\n"
        "url = re.search(r'url=([^\"]+)', open(file).read())[1]\n"
        "landed = browse(url, timeout=30).read().decode()\n"
        "base = url.partition('?')[0]\n"
        "status = browse(base, timeout=30).status\n"
        "try:\n"
        "    urllib.request.urlopen(url, timeout=30)\n"
        "    again = 200\n"
        "except urllib.error.HTTPError as error:\n"
        "    again = error.code\n"
        f"open({str(seen)!r}, 'w').write(repr((sys.argv[1:], mode,"
        f" status, again, 'url=/' in landed)))\n"
    )
    browser.chmod(0o700)
    process = subprocess.Popen(
        [sys.executable, "-m", "vestige", "ui", "--port", "0", "--home", str(tmp_path / "home")],
        stderr=subprocess.PIPE,
        env={**os.environ, "BROWSER": str(browser)},
    )
    try:
        deadline = monotonic() + 60
        while not (seen.exists() and seen.read_text()) and monotonic() < deadline:
            sleep(0.05)  # another process does it
    finally:
        process.terminate()
        process.communicate(timeout=120)

    arguments, modes, status, again, landed = ast.literal_eval(seen.read_text())
    assert (modes, status, again, landed) == ((0o600, 0o700), 200, 401, True)
    # Every user of the machine can read a command line: no token is on it, nor a code.
    assert len(arguments) == 1 and re.fullmatch(r"file://[\w/.-]+/open\.html", arguments[0])
    assert not Path(arguments[0].removeprefix("file://")).exists()
    assert process.returncode == 0
