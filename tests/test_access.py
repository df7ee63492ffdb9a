"""Keys: shown once, stored as a hash, accepted only while they are valid."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys

import pytest

from vestige._runtime.clock import SYSTEM, FakeClock
from vestige.errors import AmbiguousIdError, KeysError, NotFoundError, UsageError
from vestige.fleet.api_keys import PREFIX, SCOPES, Keys, Principal
from vestige.home import Home
from vestige.limits import KEYS_MAX
from vestige.record.redaction.redactor import Redactor

NOW_NS = SYSTEM.now_ns()


def test_a_key_is_found_with_its_tenant_and_scopes(home: Home) -> None:
    """By this object, and by any other over the same home."""
    keys = Keys(home)
    new = keys.add("ci", ["runs:write", "runs:read"], tenant="acme")

    for each in (keys, Keys(home)):
        assert each.find(new.key, NOW_NS) == Principal(
            new.id, "acme", frozenset(("runs:read", "runs:write"))
        )
    found = keys.find(new.key, NOW_NS)
    assert found is not None and found.may("runs:read") and not found.may("debug-bundle:read")
    assert new.scopes == ("runs:read", "runs:write")


def test_no_part_of_a_key_is_kept_or_shown_but_its_id(home: Home) -> None:
    """Not in the file, not in a list, not where an object is printed; and our redactor knows
    one.
    """
    keys = Keys(home)
    new = keys.add("ci", SCOPES)
    secret = new.key.removeprefix(f"{PREFIX}{new.id}_")
    shown = f"{new!r} {keys.list()!r} {home.keys.read_text()}"

    assert len(secret) == 43
    assert not any(secret[at : at + 6] in shown for at in range(len(secret) - 6))
    assert secret[:8] not in Redactor().text(f"curl -H 'X-Key: {new.key}'")


def test_the_file_is_its_owners_alone(home: Home) -> None:
    """Also after a change, and whatever the umask is."""
    old = os.umask(0)
    try:
        Keys(home).add("ci", SCOPES)
        Keys(home).revoke("ci")
    finally:
        os.umask(old)

    assert stat.S_IMODE(home.keys.stat().st_mode) == 0o600
    assert not [path for path in home.root.iterdir() if path.name.endswith(".part")]


@pytest.mark.parametrize(
    "change", ["last", "first", "id", "short", "long", "empty", "upper", "odd"]
)
def test_what_is_not_the_key_is_nobodys(home: Home, change: str) -> None:
    """However near it is."""
    keys = Keys(home)
    key = keys.add("ci", SCOPES).key
    other = keys.add("other", SCOPES).key
    wrong_keys = {
        "last": key[:-1] + ("A" if key[-1] != "A" else "B"),
        "first": key[:14] + ("A" if key[14] != "A" else "B") + key[15:],
        "id": other[:13] + key[13:],
        "short": key[:-1],
        "long": f"{key}A",
        "empty": "",
        "upper": key.upper(),
        "odd": "\udcff\0" + key,
    }[change]

    assert keys.find(wrong_keys, NOW_NS) is None


def test_a_key_ends_when_it_expires(home: Home) -> None:
    """To the nanosecond; and one that would be dead at once is not made."""
    keys = Keys(home)
    until_ns = SYSTEM.now_ns() + 10**12
    key = keys.add("ci", SCOPES, expires_ns=until_ns).key

    assert keys.find(key, until_ns - 1) is not None
    assert keys.find(key, until_ns) is None
    assert not keys.has_active(until_ns)
    for never in (SYSTEM.now_ns(), 5, -1, 2**70):
        with pytest.raises(UsageError):
            keys.add("x", SCOPES, expires_ns=never)


def test_a_revoked_key_opens_nothing_also_in_a_process_that_knew_it(home: Home) -> None:
    """A server sees it with its next request."""
    server = Keys(home)
    new = server.add("ci", SCOPES)
    assert server.find(new.key, NOW_NS) is not None

    Keys(home).revoke("ci")

    assert server.find(new.key, NOW_NS) is None
    assert [key.state(NOW_NS) for key in server.list()] == ["revoked"]
    again = Keys(home).add("ci", SCOPES)  # the name is free again
    assert server.find(again.key, NOW_NS) is not None
    assert server.find(new.key, NOW_NS) is None


def test_revoking_is_by_id_or_name_and_never_a_guess(home: Home) -> None:
    """A key given in place of its id is not repeated in the error."""
    keys = Keys(home)
    one = keys.add("ci", SCOPES, expires_ns=SYSTEM.now_ns() + 10**12)
    late = Keys(home, FakeClock(start_ns=one_hour_after(keys)))
    two = late.add("ci", SCOPES)  # the first has expired by then: its name may be used

    with pytest.raises(AmbiguousIdError, match=one.id):
        keys.revoke("ci")
    with pytest.raises(NotFoundError, match="keys list"):
        keys.revoke("c")
    with pytest.raises(NotFoundError) as problem:
        keys.revoke(two.key)
    keys.revoke(two.id)

    assert two.key[14:] not in str(problem.value)
    assert keys.find(one.key, NOW_NS) is not None


def one_hour_after(keys: Keys) -> int:
    return keys.list()[0].created_ns + 3600 * 10**9


@pytest.mark.parametrize(
    ("name", "scopes", "tenant"),
    [
        ("", SCOPES, "a"),
        (" ", SCOPES, "a"),
        ("x\n", SCOPES, "a"),
        ("x" * 101, SCOPES, "a"),
        ("vstg_x", SCOPES, "a"),
        ("x", (), "a"),
        ("x", ("runs:all",), "a"),
        ("x", SCOPES, "A B"),
        ("x", SCOPES, ""),
        ("x", SCOPES, "a';--"),
        ("taken", SCOPES, "a"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(
    home: Home, name: str, scopes: tuple[str, ...], tenant: str
) -> None:
    keys = Keys(home)
    keys.add("taken", SCOPES)
    before = home.keys.read_bytes()

    with pytest.raises(UsageError):
        keys.add(name, scopes, tenant)

    assert home.keys.read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"version": 2, "keys": []}',
        b'{"version": 1, "keys": [{"id": 3}]}',
        b"\xff",
        b'{"version": 1, "keys": ' + b"[" * 100_000,
    ],
)
def test_a_damaged_file_lets_nobody_in_and_is_left_as_it_is(home: Home, content: bytes) -> None:
    """One line that says what to do; never a fresh, empty file in its place."""
    home.make()
    home.keys.write_bytes(content)
    home.keys.chmod(0o600)
    keys = Keys(home)

    for question in (
        lambda: keys.find(f"{PREFIX}{'0' * 8}_{'A' * 43}", NOW_NS),
        lambda: keys.add("x", SCOPES),
        lambda: keys.list(),
        lambda: keys.revoke("x"),
    ):
        with pytest.raises(KeysError, match=r"keys\.json") as problem:
            question()
        assert "\n" not in str(problem.value) and problem.value.exit_code == 3
    assert home.keys.read_bytes() == content


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o602])
def test_a_file_that_others_can_read_or_write_is_not_trusted(home: Home, mode: int) -> None:
    """Also when it is opened to them while a server runs."""
    keys = Keys(home)
    key = keys.add("ci", SCOPES).key
    assert keys.find(key, NOW_NS) is not None
    home.keys.chmod(mode)

    with pytest.raises(KeysError, match="chmod 600"):
        keys.find(key, NOW_NS)


def test_a_link_in_its_place_is_not_followed(home: Home) -> None:
    home.make()
    (home.root / "elsewhere").write_text('{"version": 1, "keys": []}')
    home.keys.symlink_to(home.root / "elsewhere")

    with pytest.raises(KeysError):
        Keys(home).list()


def test_processes_that_add_keys_at_once_lose_none(home: Home) -> None:
    """Each waits for the others; every key that was shown works."""
    program = (
        "import sys; from vestige.fleet.api_keys import Keys; from vestige.home import get_home\n"
        "keys = Keys(get_home(sys.argv[1]))\n"
        "for n in range(12): print(keys.add(f'{sys.argv[2]}-{n}', ['runs:read']).key, flush=True)\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(home.root), str(number)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    printed = [
        line for process in processes for line in process.communicate(timeout=120)[0].split()
    ]
    keys = Keys(home)

    assert len(printed) == 48
    assert all(keys.find(key, NOW_NS + 10**12) for key in printed)


def test_the_file_stays_small(home: Home) -> None:
    """Of too many, those go that open nothing; living ones never."""
    keys = Keys(home)
    first = keys.add("first", SCOPES)
    dead = json.loads(home.keys.read_text())["keys"][0]
    rows = [{**dead, "id": f"{n:08x}", "name": f"n{n}", "revoked_ns": 1} for n in range(KEYS_MAX)]
    home.keys.write_text(json.dumps({"version": 1, "keys": [dead, *rows]}))
    last = keys.add("last", SCOPES)

    assert len(keys.list()) == KEYS_MAX
    assert keys.find(first.key, NOW_NS) and keys.find(last.key, NOW_NS)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_a_file_of_another_user_is_not_believed(home: Home) -> None:
    """Its maker knows the keys in it."""
    key = Keys(home).add("ci", ["runs:read"]).key
    os.chown(home.keys, 65534, 65534)
    with pytest.raises(KeysError, match=r"belongs to user 65534 .*chown 0"):
        Keys(home).find(key, 1)
    os.chown(home.keys, 0, 0)
    assert Keys(home).find(key, 1) is not None
