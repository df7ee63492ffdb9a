"""Find secrets in the environment: values of variables that have a secret's name.

    redactor.add_secrets(secrets_in_environment(os.environ))

A value is used only if masking it everywhere does no harm: numbers, booleans, paths, URLs and
plain words are in many other texts. From a URL, the password is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vestige.record.redaction.masking import doubtful_word, secret_word

LEARNED_MIN = 8
"""Characters."""

_PLAIN_MIN = 20
"""Characters from which plain letters are a secret: words are shorter."""


def secrets_in_environment(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values to mask wherever they occur, without duplicates."""
    return tuple(dict.fromkeys(_find_secrets(environ)))


def _find_secrets(environ: Mapping[str, str]) -> Iterator[str]:
    for name, value in environ.items():
        if len(value) < LEARNED_MIN:
            continue
        if "://" in value:
            if password := _password(value):
                yield from _worth_learning(password)
        elif secret_word(name) is not None:
            for line in value.splitlines():
                yield from _worth_learning(line.strip())
        elif (word := doubtful_word(name)) is not None:
            from vestige.record.redaction.keyed.key_context import is_doubtful_secret

            if is_doubtful_secret(word, value):
                yield from _worth_learning(value)


def _worth_learning(value: str) -> Iterator[str]:
    if len(value) >= LEARNED_MIN and _is_secret(value):
        yield value


def _is_secret(value: str) -> bool:
    from vestige.record.redaction.secret_likelihood import (
        WEAK,
        grade,
        is_example,
        is_placeholder,
        is_template,
    )

    if value.startswith(("-----", "/", "~", "./", "../")) or value[1:3] in (":\\", ":/"):
        return False
    if is_placeholder(value) or is_template(value) or is_example(value):
        return False
    if value.replace(".", "").replace("-", "").isdigit():
        return False
    return grade(value) >= WEAK or (len(value) >= _PLAIN_MIN and not value.isalpha())


def _password(url: str) -> str:
    """Return the decoded password of a URL."""
    authority = url.partition("://")[2].partition("/")[0]
    credentials, at, _ = authority.rpartition("@")
    password = credentials.partition(":")[2] if at else ""
    if "%" not in password:
        return password
    from urllib.parse import unquote

    return unquote(password)
