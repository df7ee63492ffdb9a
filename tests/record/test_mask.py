"""Masks and the keys that ask for one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.record.redaction.masking import MARK, KeyRule, is_secret_key, mask

SECRET_KEYS = (
    "api_key apiKey x-api-key apikey APIKey API_KEY OPENAI_API_KEY authorization Authorization "
    "proxy-authorization cookie set-cookie password passwd pwd passphrase secret secrets "
    "client_secret clientSecret token access_token accessToken refresh_token auth_token id_token "
    "x-amz-security-token credential credentials private_key access_key AWS_SECRET_ACCESS_KEY "
    "secret_key session_key bearer jwt connection_string db.password DB_PASSWORD_PROD token2 "
    "X-Goog-Api-Key AccountKey llm.headers.authorization api_key_1 dbpassword adminpassword "
    "smtppassword keystorepassword mypassword appsecret jwtsecret webhooksecret sharedsecret "
    "bottoken slacktoken npmtoken cookiestring sessioncookie PGPASSWORD DBPASSWORD PresharedKey"
).strip()
OTHER_KEYS = (
    "prompt_tokens max_tokens completion_tokens token_count cache_read_tokens token_type "
    "token_limit tokens total_tokens max_token tokenizer "
    "secret_name key keys inputTokens maxTokens "
    "primary_key cache_key cookie_policy authorization_url api_key_name page_token tokenization "
    "passwordless secretary monkey token_budget first_token_ms keyboard author maxtoken nexttoken "
    "cookiecutter SecretArn password_field prompttokens"
).strip()


@pytest.mark.parametrize(
    ("value", "masked"),
    [
        ("a" * 5 + "b" * 8, f"aaa{MARK}bbb"),
        ("a" * 6 + "b" * 6, f"aa{MARK}bb"),
        ("a" * 5 + "b" * 6, f"aa{MARK}bb"),
        ("a" * 5 + "b" * 5, f"a{MARK}b"),
        ("a" * 4 + "b" * 4, f"a{MARK}b"),
        ("abcdefg", MARK),
        ("", MARK),
        ("Bearer abcdefgh", f"Bearer a{MARK}h"),
        ("basic abc", f"basic {MARK}"),
    ],
)
def test_a_mask_shows_less_of_a_shorter_secret(value: str, masked: str) -> None:
    """Tiers: 13 and more 3+3, 11-12 2+2, 8-10 1+1, below nothing; a scheme stays and does not
    count.
    """
    assert mask(value) == masked


class _Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize("value", [None, 12, b"\xff\xfe", _Hostile(), ["x"], {"a": object()}])
def test_any_object_can_be_masked(value: object) -> None:
    """`mask` is called on the way out of a program: it never raises."""
    assert MARK in mask(value)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40))
def test_masking_a_mask_changes_nothing(value: str) -> None:
    assert mask(mask(value)) == mask(value)


@pytest.mark.parametrize("key", SECRET_KEYS.split())
def test_a_key_with_a_secrets_word_is_a_secrets_key(key: str) -> None:
    assert is_secret_key(key)


@pytest.mark.parametrize("key", OTHER_KEYS.split())
def test_a_key_that_counts_or_names_is_no_secrets_key(key: str) -> None:
    """Usage counters are what cost and caching are computed from: they must survive."""
    assert not is_secret_key(key)


def test_an_added_key_is_known_in_every_spelling() -> None:
    rule = KeyRule(["employee_number"])

    assert rule.find("employeeNumber") == rule.find("X-Employee-Number") == "employee_number"
    assert rule.find("employee") is None


def test_an_added_key_matches_inside_a_key_and_spares_counters() -> None:
    rule = KeyRule(["password", "ssn", "token"])

    assert rule.find("mypassword") == "password"
    assert rule.find("userssn") == rule.find("ssn2") == "ssn"
    assert [rule.find(key) for key in ("prompt_tokens", "max_tokens", "tokenizer")] == [None] * 3
