"""Secrets planted everywhere a program can put them: a grep of every byte finds none.

One program plants them all and is killed. Then every file of the home is searched, before and
after collection, and so is whatever the commands print.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.programs import load, run_in
from vestige.home import Home
from vestige.limits import BODY_INLINE_MAX
from vestige.store.sqlite.sqlite_store import SqliteStore

# Each in the shape of its kind, and each with a middle that nothing else contains.
SECRETS = {
    "openai": "sk-proj-CANARYopenai7Zq4Xw9Tb2Lk8Mv5Rn3",
    "anthropic": "sk-ant-api03-CANARYanthropic5Hj8Qp2Wd6Yx",
    "github": "ghp_CANARYgithub4Zt7Kq9Bw3Lm6Xc8Vn2Pd",
    "aws": "AKIACANARYAWSQ7XW4Z2",
    "slack": "xoxb-110022003300-CANARYslackQw8Er4Ty",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJDQU5BUllqd3QifQ.CANARYjwtS1gnaturePart0fIt99",
    "bearer": "CANARYbearer8Kd3Lw0Zx7Qv5",
    "url": "CANARYurlPassw0rd",
    "password": "CANARYpasswordHunter2x",
    "cookie": "CANARYcookieSess10nId77",
    "registered": "CANARY registered: correct horse battery",
    "pem": "MIIEvCANARYpemBase64Body/7Q+9Zx3Kw1Lm5Tn8Vb2",
}

PROGRAM = """
import json, logging, os, signal, sys
import vestige

s = json.loads(sys.stdin.read())
recorder = vestige.Recorder()
recorder.secret(s["registered"])
pem = "-----BEGIN PRIVATE KEY-----\\n" + s["pem"] + "\\n-----END PRIVATE KEY-----"
bearer = "Bearer " + s["bearer"]
url = "postgres://admin:" + s["url"] + "@db.internal:5432/app"
headers = {"Authorization": bearer, "Cookie": "session=" + s["cookie"], "X-Api-Key": s["password"]}
inner = json.dumps({"headers": headers, "password": s["password"], "url": url})
nested = json.dumps({"outer": inner})
everything = "\\n".join([s["openai"], s["anthropic"], s["github"], s["aws"], s["slack"], s["jwt"],
                        bearer, url, pem, s["registered"]])

with recorder.run("agent", attributes={"password": s["password"], "note": everything}) as run:
    # attributes: by key, by value, nested, as a key, and set later
    body = json.dumps({
        "messages": [{"role": "user", "content": everything}], "headers": headers,
    })
    with run.span("chat", type="llm", attributes={
        "api_key": s["password"], "headers": headers,
        "deep": {"a": [{"client_secret": s["password"]}]},
        "json": nested, "key is " + s["openai"]: "value", "url": url, "pem": pem, "aws": s["aws"],
    }, body=body) as span:
        span.set_attributes(token=s["password"], text="use " + s["anthropic"] + " please")
        span.end(
            attributes={"input_tokens": 1234, "prompt_tokens": 1234, "max_tokens": 4096,
                        "token_count": 77, "output_tokens": 56},
            body="answer: " + everything,
        )
    # a long body: a file of its own, secrets on both sides of its steps
    long = ("x" * 1000 + " ") * 600
    run.span("read", type="tool", body=everything + long + nested + long + everything).end(
        body={"headers": headers, "long": long, "more": everything})
    edge = "x" * (512 * 1024 - 20)                    # a secret that lies across two steps
    run.span("edge", type="tool", body=edge + " " + s["openai"] + " " + edge + pem + edge).end()
    run.span("bytes", type="tool", body=b"\\xff\\x00 " + everything.encode()).end()
    # names, messages, exceptions with causes, notes and stacks
    run.span("fetch " + url, type="http").end()
    run.log.info("signing in with " + bearer, detail=nested, cookie=s["cookie"])
    run.log.child(session_token=s["password"]).warn("child " + s["jwt"])
    def raises():
        try:
            raise ValueError("bad key " + s["openai"] + " for " + url)
        except ValueError as error:
            raise RuntimeError("gave up on " + s["github"] + " " + s["registered"]) from error
    try:
        raises()
    except RuntimeError as error:
        run.log.error("it failed", error=error)
        run.span("failing", type="tool").end(error=error)
    handler = vestige.LoggingHandler()
    logging.getLogger("app").addHandler(handler)
    logging.getLogger("app").error("from logging: %s", s["slack"], extra={"api_key": s["password"]})
    with open(os.environ["HOME_COPY"], "w") as copy:
        copy.write("ready")
    run.child("in flight with " + s["aws"], type="tool", body=everything)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def needles() -> dict[str, list[bytes]]:
    """Each secret as it may hide: plain, and escaped as inside JSON."""
    found = {}
    for name, secret in SECRETS.items():
        middle = secret[4:-4]
        found[name] = [middle.encode(), json.dumps(middle)[1:-1].encode()]
    return found


def leaks(data: bytes) -> list[str]:
    return [name for name, shapes in needles().items() if any(shape in data for shape in shapes)]


def files_of(home: Home) -> dict[str, bytes]:
    return {
        str(path.relative_to(home.root)): path.read_bytes()
        for path in sorted(home.root.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A home in which the program died; its journal is not taken in yet."""
    folder = tmp_path_factory.mktemp("canary")
    home = Home(folder / "home")
    (folder / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [
            sys.executable,
            str(folder / "program.py"),
            "--api-key",
            SECRETS["password"],
            f"--token={SECRETS['password']}",
            f"https://u:{SECRETS['url']}@host/x",
            SECRETS["openai"],
            f"MY_KEY={SECRETS['github']}",
        ],
        input=json.dumps(SECRETS),
        text=True,
        capture_output=True,
        timeout=120,
        env={
            **{key: value for key, value in os.environ.items() if not key.startswith("VESTIGE_")},
            "VESTIGE_HOME": str(home.root),
            "HOME_COPY": str(folder / "ready"),
            "OPENAI_API_KEY": SECRETS["openai"],
            "DATABASE_URL": f"postgres://admin:{SECRETS['url']}@db/app",
        },
    )
    assert done.returncode == -9, done.stderr
    assert (folder / "ready").exists(), done.stderr
    yield home


@pytest.fixture(scope="module")
def journal_bytes(planted: Home) -> dict[str, bytes]:
    """All files as the dead program left them."""
    return files_of(planted)


@pytest.fixture(scope="module")
def collected(planted: Home, journal_bytes: dict[str, bytes]) -> Home:
    load(planted)
    return planted


def test_the_journal_and_the_spilled_bodies_hold_no_secret(
    journal_bytes: dict[str, bytes],
) -> None:
    """Nothing in clear ever reaches the disk, not even for the moment before collection."""
    sizes = {name: len(data) for name, data in journal_bytes.items()}

    assert any(name.startswith("journal/") for name in sizes)
    assert (
        sum(name.startswith("bodies/") and size > BODY_INLINE_MAX for name, size in sizes.items())
        == 3
    )
    assert {name: leaks(data) for name, data in journal_bytes.items() if leaks(data)} == {}


def test_the_store_holds_no_secret_in_any_cell_or_byte(collected: Home) -> None:
    """Bodies are compressed in there, so every one is read back and searched too."""
    files = files_of(collected)
    texts: list[str] = []
    connection = sqlite3.connect(collected.store)
    for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
        texts += [f"{table}: {row}" for row in connection.execute(f"SELECT * FROM {table}")]
    with SqliteStore.open(collected.store, readonly=True) as store:
        bodies = [
            store.read_body(number) for (number,) in connection.execute("SELECT id FROM bodies")
        ]

    assert "store.db" in files
    assert {name: leaks(data) for name, data in files.items() if leaks(data)} == {}
    assert [text for text in texts if leaks(text.encode())] == []
    assert [leaks(body) for body in bodies if leaks(body)] == []
    assert max(map(len, bodies)) > BODY_INLINE_MAX


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "--all"],
        ["list", "--json"],
        ["show"],
        ["show", "--json"],
        ["show", "--no-fold"],
        ["show", "r1", "--json"],
        ["doctor"],
        ["doctor", "--json"],
    ],
    ids=" ".join,
)
def test_what_the_commands_print_holds_no_secret(collected: Home, arguments: list[str]) -> None:
    """The terminal is the last place where one would want to find it."""
    done = subprocess.run(
        [sys.executable, "-m", "vestige", *arguments, "--home", str(collected.root)],
        capture_output=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr
    assert leaks(done.stdout + done.stderr) == []


def test_usage_counters_survive_with_their_values(collected: Home) -> None:
    """A key with `token` in it is not a secret when it counts tokens."""
    (run,) = [run for run in load(collected) if run.info.name == "agent"]
    chat = next(span for span in run.spans if span.name == "chat")

    assert {
        key: chat.attributes[key] for key in ("prompt_tokens", "max_tokens", "token_count")
    } == {
        "prompt_tokens": 1234,
        "max_tokens": 4096,
        "token_count": 77,
    }
    assert run.info.tokens == 1234 + 56


def test_what_was_masked_can_be_told_apart_and_was_counted(collected: Home) -> None:
    """A mask shows that something was there, and each record says how often which rule acted."""
    (run,) = [run for run in load(collected) if run.info.name == "agent"]
    chat = next(span for span in run.spans if span.name == "chat")

    assert "…redacted…" in str(chat.attributes["api_key"])
    assert "…redacted…" in str(chat.attributes["token"])
    assert "please" in str(chat.attributes["text"])
    assert "db.internal:5432/app" in str(chat.attributes["url"])
    assert sum(chat.redacted.values()) >= 10
    assert all(count > 0 for count in chat.redacted.values())


def test_argv_of_the_process_is_masked_word_by_word(collected: Home) -> None:
    """`--token value`, `--token=value` and bare keys; the rest of the command line is kept."""
    processes = [span for run in load(collected) for span in run.spans if span.type == "process"]
    argv = json.loads(str(processes[0].attributes["argv"]))

    assert argv[1] == "--api-key"
    assert argv[3].startswith("--token=")
    assert argv[4].endswith("@host/x")
    assert leaks(json.dumps(argv).encode()) == []


def test_the_canary_would_sing(tmp_path: Path) -> None:
    """Without the central pass the same grep finds the secret: the search itself works."""
    home = Home(tmp_path / "home")
    run_in(
        home,
        """
        import sys, vestige
        recorder = vestige.Recorder(redact=False)
        recorder.run(sys.argv[1]).end()
        """,
        SECRETS["openai"],
    )

    assert "openai" in {name for data in files_of(home).values() for name in leaks(data)}
