"""The environment of a suite: all of it without secrets, and the part that a replay needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vestige.artifacts.text_sanitizer import MARKER, TextSanitizer, is_withheld
from vestige.record.redaction.masking import MARK

_REPLAYED = frozenset(
    ("TZ", "LANG", "LANGUAGE", "SOURCE_DATE_EPOCH", "PYTEST_ADDOPTS", "PYTEST_PLUGINS", "CI")
)
_REPLAYED_PREFIXES = ("LC_", "PYTHON", "E2E_", "HYPOTHESIS_")


def redacted(environment: Mapping[str, str], texts: TextSanitizer) -> dict[str, str]:
    """Return all variables, without the values that are secret by their name or content."""
    found = {}
    for name, value in sorted(environment.items()):
        cleaned = MARKER if is_withheld(name, value) else texts.clean(value)
        found[texts.clean(name)] = cleaned
    return found


def replayed(
    environment: Mapping[str, str], texts: TextSanitizer, more: Sequence[str] = ()
) -> dict[str, str]:
    """Return the variables that change how tests behave, and `more` by name. Never a secret: a
    replay takes that from where it runs."""
    found = {}
    for name, value in sorted(environment.items()):
        is_needed = name in _REPLAYED or name in more or name.startswith(_REPLAYED_PREFIXES)
        if not is_needed or not name.isidentifier() or is_withheld(name, value):
            continue
        cleaned = texts.clean(value)
        if MARK not in cleaned and "\n" not in cleaned:
            found[name] = cleaned
    return found
