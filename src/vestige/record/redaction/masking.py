"""What a masked secret looks like, and which keys hold one.

A mask is partial, so that two masks can be compared without knowing the secret,
and the hidden middle has one width, so that a mask does not tell a length:

    mask("correct-horse-battery")       'cor…redacted…ery'
    mask("Bearer abcdefghij")           'Bearer a…redacted…j'
    mask("hunter2")                     '…redacted…'

A key is judged by its whole words, never by a part of one: `refreshToken` holds
a secret, `prompt_tokens` and `tokenizer` are what usage and cost are made of.

Elsewhere: secrets known by their own shape in record/redaction/secret_patterns.py; both rules put
to work on text in record/redaction/key_value_secrets.py, on records in record/redaction/redactor.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import Final

from vestige.record.coercion import safe_str, text_of_bytes

MARK: Final = "…redacted…"

# Not compiled here: these two would be a twentieth of `import vestige`, and few programs mask.
_SCHEME: Final = r"(?i)(?:bearer|basic|token|digest|apikey|negotiate|bot)[ \t]+(?=\S)"
_MASKED: Final = rf"(?s)(?:{MARK}|.{MARK}.|..{MARK}..|...{MARK}...)"


def mask(value: object) -> str:
    """The partial mask of a secret. Any object, never an exception; a mask stays as it is."""
    try:
        text = text_of_bytes(value) if isinstance(value, bytes) else safe_str(value)
    except Exception:  # noqa: BLE001  # even a class name may be code that raises
        return MARK
    scheme = re.match(_SCHEME, text)
    start = scheme.end() if scheme else 0
    secret = text[start:]
    if re.fullmatch(_MASKED, secret):
        return text
    shown = _shown(len(secret))
    return text[:start] + secret[:shown] + MARK + secret[len(secret) - shown :]


def mask_escaped(value: str) -> str:
    """`mask` for text that stands inside quotes, where a cut must not halve an escape."""
    masked = mask(value)
    if masked == value or ("\\" not in value[:9] and "\\" not in value[-9:]):
        return masked
    return MARK


def _shown(length: int) -> int:
    """Characters shown at each end."""
    if length >= 13:
        return 3
    if length >= 11:
        return 2
    return 1 if length >= 8 else 0


# --- keys -------------------------------------------------------------------------------


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_SEGMENT = re.compile(r"[A-Za-z0-9]+")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

WORDS: Final = _set(
    "authorization cookie cookies password passwords passwd pwd passphrase passphrases passcode "
    "secret secrets token credential credentials bearer jwt "
    # written as one word
    "apikey apikeys accesskey secretkey privatekey sessionkey accountkey authkey signingkey "
    "accesstoken authtoken refreshtoken idtoken apitoken bearertoken sessiontoken csrftoken "
    "clientsecret setcookie connectionstring connstr"
)
"""Words that make a key a secret's."""

KEY_OWNERS: Final = _set(
    "api access private secret session signing encryption decryption master account subscription "
    "auth ssh storage admin webhook"
)
"""Words that make the word `key` (or `keys`) after them a secret's. A bare `key` is any key."""

TOKEN_OWNERS: Final = _set("access auth api refresh bearer oauth")
"""Words that make even the plural `tokens` a secret's. Other tokens are counted, not kept."""

PAIR_GAPS: Final = ("", "_", "-", ".", " ", "__")
"""What may stand between the two words of a pair. Few, so that the scanner can know them all."""

STEMS: Final = (
    *("passw", "passphrase", "passcode", "pwd", "secret", "token", "credential", "jwt", "bearer"),
    *("authorization", "cookie", "connstr", "connection", "key"),
)
"""In lower case. Every secret's key has one of these in it."""

_COUNTED_BEFORE_TOKEN = _set(
    "max min num n per first last stop eos bos pad unk sep cls mask special start end begin next "
    "page continuation input output prompt completion total cached reasoning new prev previous "
    "count image audio text each single word sub by of cost price"
)
_PLAIN_AFTER_TOKEN = _set(
    "value values secret key string str raw header env old new current default plain hash"
)
_ABOUT = _set(
    "name names count counts type types limit limits id ids url uri urls endpoint path paths file "
    "filename dir directory length len size policy provider manager format field fields label "
    "prompt hint required enabled expires expiry expiration ttl at age domain consent banner jar "
    "error errors status source store version schema index regex pattern rules page form input "
    "reset strength usage callback description scope scopes server servers method methods"
)
"""Words after a secret's word that make the key speak about the secret instead of holding it."""


def is_secret_key(key: str) -> bool:
    """Whether a value under this key is a secret."""
    return secret_word(key) is not None


@lru_cache(maxsize=4096)
def secret_word(key: str) -> str | None:
    """The word of a key that makes its value a secret, or None."""
    for segment in _SEGMENT.finditer(key):
        whole = segment[0].lower().rstrip("0123456789")
        if whole in WORDS and whole != "token" and not _is_about(key[segment.end() :]):
            return whole
    words = [(match[0].lower(), match.start(), match.end()) for match in _WORD.finditer(key)]
    for place, (word, start, end) in enumerate(words):
        before, _, before_end = words[place - 1] if place else ("", 0, 0)
        owner = before if key[before_end:start] in PAIR_GAPS else ""
        found = _secret_at(word, before, owner, [after for after, _, _ in words[place + 1 :]])
        if found and not (found != "token" and _is_about(key[end:])):
            return found
    return None


def _secret_at(word: str, before: str, owner: str, after: list[str]) -> str | None:
    if word == "token":
        plain = all(each in _PLAIN_AFTER_TOKEN or each.isdigit() for each in after)
        return "token" if plain and before not in _COUNTED_BEFORE_TOKEN else None
    if word == "tokens":
        return "token" if owner in TOKEN_OWNERS and not after else None
    if word in ("key", "keys"):
        return f"{owner}_key" if owner in KEY_OWNERS else None
    if word == "string":
        return "connection_string" if owner == "connection" else None
    if word in ("pwd", "bearer") and after:
        return None
    return word if word in WORDS else None


def _is_about(rest: str) -> bool:
    return any(match[0].lower() in _ABOUT for match in _WORD.finditer(rest))


def masks_numbers(word: str) -> bool:
    """Whether a number under such a key is a secret too. Tokens, and things in the plural, are counted."""
    return word != "token" and not word.endswith("s")


def words_of(key: str) -> tuple[str, ...]:
    """The words of a key, in lower case."""
    return tuple(match[0].lower() for match in _WORD.finditer(key))


class KeyRule:
    """`secret_word`, and the keys that a user added to it."""

    def __init__(self, extra: Iterable[str] = ()) -> None:
        self._extra = tuple(filter(None, map(words_of, extra)))
        self.find = lru_cache(maxsize=4096)(self._find) if self._extra else secret_word

    def _find(self, key: str) -> str | None:
        words = words_of(key)
        for wanted in self._extra:
            if any(part == wanted for part in _runs(words, len(wanted))):
                return "_".join(wanted)
        return secret_word(key)


def unused_key(key: str, taken: Collection[str], numbers: dict[str, int]) -> str:
    """A key for what was masked: two may become one, and neither's value may replace the other's.
    `numbers`: how far each was counted, so that thousands of the same mask are not counted anew."""
    candidate = key
    while candidate in taken:
        numbers[key] = numbers.get(key, 1) + 1
        candidate = f"{key} ({numbers[key]})"
    return candidate


def _runs(words: tuple[str, ...], length: int) -> Iterator[tuple[str, ...]]:
    for start in range(len(words) - length + 1):
        yield words[start : start + length]
