"""A browser where there are only keys: a form, a cookie, and nothing for anybody else."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from support.http_server import Reply, Site, record_collected, served
from vestige._runtime.clock import FakeClock
from vestige.fleet.api_keys import Keys
from vestige.home import Home
from vestige.limits import LOGIN_BODY_MAX

PERSON = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
FORM = {**PERSON, "Content-Type": "application/x-www-form-urlencoded"}


def log_in(site: Site, key: str, headers: dict[str, str] | None = None) -> Reply:
    body = f"key={quote(key)}".encode()
    return site.ask(
        "/login", key=None, method="POST", body=body, headers={**FORM, **(headers or {})}
    )


def cookie_of(reply: Reply) -> str:
    return reply.headers["set-cookie"].split(";")[0]


def test_a_person_without_a_key_gets_a_form_and_a_program_gets_json(home: Home) -> None:
    record_collected(home)
    Keys(home).add("eva", ["runs:read"])
    with served(home, token=False) as site:
        person = site.ask("/", key=None, headers=PERSON)
        program = site.ask("/", key=None)
        elsewhere = site.ask("/api/v1/list", key=None, headers=PERSON)

    assert person.status == 401
    assert person.headers["content-type"].startswith("text/html")
    assert person.headers["cache-control"] == "no-store"
    assert b'<form method="post" action="/login">' in person.body
    policy = person.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    for other in (program, elsewhere):
        assert other.status == 401
        assert other.json()["error"] == "unauthenticated"


def test_a_key_opens_the_page_and_the_questions_of_its_tenant_alone(home: Home) -> None:
    record_collected(home, "ours")
    keys = Keys(home)
    ours, theirs = keys.add("eva", ["runs:read"]), keys.add("bob", ["runs:read"], tenant="acme")
    seen = {}
    with served(home, token=False) as site:
        for name, key in (("ours", ours.key), ("theirs", theirs.key)):
            reply = log_in(site, f"  {key} ")
            assert (reply.status, reply.headers["location"]) == (303, "/")
            cookie = {"Cookie": cookie_of(reply)}
            assert site.ask("/", key=None, headers={**PERSON, **cookie}).status == 200
            seen[name] = site.ask("/api/v1/list", key=None, headers=cookie).json()["runs"]

    assert [run["name"] for run in seen["ours"]] == ["ours"]
    assert seen["theirs"] == []


def test_the_cookie_is_out_of_reach_of_scripts_and_ends_with_the_browser(home: Home) -> None:
    key = Keys(home).add("eva", ["runs:read"]).key
    with served(home, token=False) as site:
        cookie = log_in(site, key).headers["set-cookie"].lower()

    assert "httponly" in cookie and "samesite=lax" in cookie and "path=/" in cookie
    assert "max-age" not in cookie and "expires" not in cookie


@pytest.mark.parametrize("kind", ["unknown", "empty", "expired", "revoked", "not for reading"])
def test_what_opens_nothing_is_told_and_leaves_no_cookie(home: Home, kind: str) -> None:
    keys, then = Keys(home), Keys(home, FakeClock())
    keys.add("good", ["runs:read"])
    key = {
        "unknown": "vstg_00000000_" + "A" * 43,
        "empty": "",
        "expired": then.add("old", ["runs:read"], expires_ns=FakeClock().now_ns() + 10**12).key,
        "revoked": keys.add("gone", ["runs:read"]).key,
        "not for reading": keys.add("ci", ["runs:write"]).key,
    }[kind]
    keys.revoke("gone") if kind == "revoked" else None
    with served(home, token=False) as site:
        reply = log_in(site, key)
        lines = str(site.lines)

    assert reply.status == (403 if kind == "not for reading" else 401)
    assert b'role="alert"' in reply.body
    assert "set-cookie" not in reply.headers
    assert not key or (key.encode() not in reply.body and key not in lines)


def test_a_revoked_key_is_out_with_the_next_request(home: Home) -> None:
    keys = Keys(home)
    key = keys.add("eva", ["runs:read"]).key
    with served(home, token=False) as site:
        cookie = {"Cookie": cookie_of(log_in(site, key))}
        before = site.ask("/api/v1/list", key=None, headers=cookie).status
        keys.revoke("eva")
        after = site.ask("/api/v1/list", key=None, headers=cookie).status

    assert (before, after) == (200, 401)


def test_a_form_of_another_site_is_refused(home: Home) -> None:
    key = Keys(home).add("eva", ["runs:read"]).key
    with served(home, token=False) as site:
        own = log_in(site, key, {"Origin": f"http://127.0.0.1:{site.port}"})
        theirs = [
            log_in(site, key, {"Origin": "https://evil.example"}),
            log_in(site, key, {"Origin": "null"}),
            log_in(site, key, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}),
        ]

    assert own.status == 303
    assert [reply.status for reply in theirs] == [403, 403, 403]


@pytest.mark.parametrize(
    "body", [b"", b"\xff\xfe", b"key", b"&" * 100, b"a=1&" * 50, b"key=%00%ff"]
)
def test_a_body_that_makes_no_sense_is_a_wrong_key(home: Home, body: bytes) -> None:
    Keys(home).add("eva", ["runs:read"])
    with served(home, token=False) as site:
        reply = site.ask("/login", key=None, method="POST", body=body, headers=FORM)
        large = site.ask(
            "/login", key=None, method="POST", body=b"x" * (LOGIN_BODY_MAX + 1), headers=FORM
        )

    assert reply.status == 401
    assert large.status == 413


def test_the_printed_token_may_be_pasted_too_and_logging_out_forgets(home: Home) -> None:
    record_collected(home)
    with served(home) as site:
        assert site.server.token is not None
        reply = log_in(site, site.server.token)
        left = site.ask("/logout", key=None, headers={"Cookie": cookie_of(reply)})

    assert reply.status == 303
    assert left.status == 200
    assert "max-age=0" in left.headers["set-cookie"].lower()
