"""Details of a machine never leave it; text that only looks similar stays."""

from __future__ import annotations

import json

import pytest

from vestige.formats.openwop.host_redaction import HostDetails, is_private_key
from vestige.formats.openwop.redaction_modes import Privacy


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("dial tcp 10.0.3.7:5432: refused", "dial tcp [INTERNAL]:5432: refused"),
        ("at 192.168.1.20, 172.16.0.1 and 127.0.0.1", "at [INTERNAL], [INTERNAL] and [INTERNAL]"),
        ("169.254.169.254/latest", "[INTERNAL]/latest"),
        ("fe80::1ff:fe23:4567:890a is up", "[INTERNAL] is up"),
        ("fd12:3456:789a:1::1", "[INTERNAL]"),
        ("see 10.0.0.3.", "see [INTERNAL]."),
        ("db7.prod.internal is slow", "[INTERNAL] is slow"),
        ("api.svc.cluster.local:80", "[INTERNAL]:80"),
        ("http://printer.local/x", "http://[INTERNAL]/x"),
        ("postgresql+psycopg://u:p@h:1/db?x=1 failed", "[INTERNAL] failed"),
        ("jdbc:postgresql://h/db", "[INTERNAL]"),
        ("redis://cache:6379", "[INTERNAL]"),
        # stays
        ("version 10.2", "version 10.2"),
        ("8.8.8.8 and 172.15.0.1 and 192.169.0.1", "8.8.8.8 and 172.15.0.1 and 192.169.0.1"),
        ("threading.local()", "threading.local()"),
        ("https://api.openai.com/v1", "https://api.openai.com/v1"),
        ("numpy.core.internal.fn", "numpy.core.internal.fn"),
    ],
)
def test_addresses_names_and_connection_strings_are_taken_out(text: str, left: str) -> None:
    assert HostDetails().text(text) == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('File "/home/me/my app/a.py", line 3, in f', 'File "a.py", line 3, in f'),
        ("f@/x@C:\\me\\a.js:3 /xfile:///home/me/b.js:4", "f@/x@a.js:3 /xfile://b.js:4"),
        ('File "C:\\\\Users\\\\me\\\\a.py", line 3', 'File "a.py", line 3'),
        ("    at f (/srv/app/x.js:10:5)", "    at f (x.js:10:5)"),
        ("    at file:///srv/app/x.mjs:1:2", "    at file://x.mjs:1:2"),
        ("No such file: '/home/me/secret/x.txt'", "No such file: 'x.txt'"),
        ("and/or, 1/2, https://a.b/c/d", "and/or, 1/2, https://a.b/c/d"),
    ],
)
def test_errors_name_files_without_their_folders(text: str, left: str) -> None:
    assert HostDetails().error(text) == left


def test_what_is_known_of_the_run_is_taken_out_too() -> None:
    """Its working directory, its user's home, and the name of its machine."""
    machine = HostDetails({"cwd": "/home/jane/project", "hostname": "build-7"})

    assert machine.text("in /home/jane/project/src on build-7") == "in ./src on [INTERNAL]"
    assert machine.text("/home/jane/.netrc") == "./.netrc"
    assert machine.text("build-70 and rebuild-7") == "build-70 and rebuild-7"


def test_a_folder_that_json_writes_otherwise_is_taken_out_too() -> None:
    privacy = Privacy("mask", HostDetails({"cwd": '/srv/the "shop"/app'}))

    raw = privacy.render({"said": 'in /srv/the "shop"/app/orders'})

    assert json.loads(raw) == {"said": "in ./orders"}


def test_attributes_about_the_machine_are_known_by_their_key() -> None:
    assert all(
        map(
            is_private_key,
            ("cwd", "argv", "host.name", "environment.user", "Hostname", "server.address"),
        )
    )
    assert not any(map(is_private_key, ("model", "status_code", "hostile", "environmental")))


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    [" /", "(/a", 'File "/', "/a", "10.", "a.", "fd00:", "://", "C:\\\\", "@/x:", "a.local."],
)
def test_a_text_made_to_hurt_takes_no_longer_than_another(piece: str) -> None:
    """Every expression is bounded: a quadratic one would not end here."""
    text = piece * (500_000 // len(piece))
    machine = HostDetails({"cwd": "/home/jane/project"})

    assert machine.text(machine.error(text)) is not None


@pytest.mark.slow
def test_a_table_by_address_takes_no_longer_than_another() -> None:
    """All keys become the same and get numbers, without trying each number again."""
    table = {f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}": n for n in range(100_000)}

    left = json.loads(Privacy("mask", HostDetails()).render({"inputs": table}))["inputs"]

    assert list(left)[:3] == ["[INTERNAL]", "[INTERNAL] (2)", "[INTERNAL] (3)"]
    assert list(left.values()) == list(table.values())
