"""Redact names and messages of a bundle, and make them valid UTF-8.

Besides keys and patterns, the redactor knows the values of environment variables with a secret's
name, and redacts them everywhere: in test ids and in output.

Elsewhere: record/redaction/redactor.py defines secret keys and patterns.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from urllib.parse import unquote, urlsplit

from vestige.limits import MESSAGE_MAX
from vestige.record.coercion import clean_text, truncate
from vestige.record.redaction.masking import is_secret_key
from vestige.record.redaction.redactor import Redactor
from vestige.record.redaction.secret_likelihood import is_placeholder

MARKER = "<redacted>"
"""The text that replaces a secret in bundles of this format."""

_REGISTERED_MIN = 8
"""Characters. `SECRET=test` must not mask every test's name; such a value is masked beside its name
only."""

_SHORT = 500
"""Characters: less than any bound on the way."""

_CONTROL = r"[\x00-\x1f\x7f-\x9f\u2028\u2029]"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class TextSanitizer:
    """Sanitize the texts of one bundle."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.redactor = Redactor()
        self.secrets = tuple(dict.fromkeys(secrets_of(environment)))
        self.redactor.add_secrets(self.secrets)
        self._expected: frozenset[str] = frozenset()
        """Known to be clean, as far as the redactor had learned then."""
        self._learned = 0

    def share(self, redactor: Redactor | None) -> None:
        """Use a recorder's redactor, which gets these secrets and finds new ones."""
        if redactor is not None:
            redactor.learn_from(self.redactor)
            self.redactor = redactor

    def expect(self, names: Iterable[str]) -> None:
        """Scan all names of a session at once. If one is suspicious, each is scanned when used."""
        short = list(filter(_is_plain, names))
        # First: a thread may teach it something meanwhile.
        self._learned = self.redactor.learned
        self._expected = frozenset(short if self.redactor.are_clean(short) else ())

    def clean(self, text: object) -> str:
        """Sanitize a text of any length.

        A short one is searched exactly, without building a scanner.
        """
        return self.redactor.text(clean_text(str(text)))

    def message(self, text: object) -> str:
        """Sanitize a text, and bound its length for a line of the trace."""
        if isinstance(text, str):
            if text in self._expected and self._learned == self.redactor.learned:
                return text
            if _is_plain(text) and self.redactor.is_clean(text):
                return text  # the names of tests, nearly all of them: one question instead of six
        return truncate(self.clean(text), MESSAGE_MAX)


def _is_plain(text: str) -> bool:
    """Return whether a text is short enough to be searched exactly."""
    return len(text) <= _SHORT and not text.startswith("base64:")


def secrets_of(environment: Mapping[str, str]) -> Iterator[str]:
    """Return the values of the environment that must appear nowhere."""
    for name, value in environment.items():
        if is_withheld(name, value) or "PRIVATE KEY-----" in value:
            yield from _worth_registering(value)
        elif "://" in value and "@" in value:
            yield from _worth_registering(_password(value))


def is_withheld(name: str, value: str) -> bool:
    """Return whether the name of a variable marks its value as secret."""
    if not value or not is_secret_key(name):
        return False
    return not (name.lower().endswith("pwd") and value[0] in "/~")


def _worth_registering(value: str) -> Iterator[str]:
    lines = [value, *value.split("\n")] if "\n" in value else [value]
    for text in map(str.strip, lines):
        known = text.startswith("-----") or is_placeholder(text) or os.path.exists(text)
        if len(text) >= _REGISTERED_MIN and not known:
            yield text


def _password(url: str) -> str:
    try:
        return unquote(urlsplit(url.strip()).password or "")
    except ValueError:
        return ""


def single_line(text: str) -> str:
    """Put a text on one line, without control characters."""
    # Nearly all are printable, and then the expression, which takes its time, need not be compiled.
    return text if text.isprintable() else re.sub(_CONTROL, _escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def file_name(text: str, length_max: int = 80) -> str:
    """Return a name that is valid on every file system. Not unique; see `file_key`."""
    name = _UNSAFE.sub("_", text).strip("._")
    return name[:length_max].rstrip("._") or "_"


def file_key(text: str) -> str:
    """Return a folder name for any text: readable, and different for different texts."""
    digest = sha256(text.encode(errors="surrogatepass")).hexdigest()[:10]
    # Parameters may have slashes of their own.
    test, bracket, parameters = text.partition("[")
    return f"{file_name(test.rpartition('/')[2] + bracket + parameters, 60)}-{digest}"
