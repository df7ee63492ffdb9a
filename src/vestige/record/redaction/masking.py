"""Mask secrets, and recognize the keys whose values are secrets.

A mask is partial, so that two masks can be compared without knowing the secret. The
hidden middle has a fixed width, so that a mask does not reveal the length:

    mask("correct-horse-battery")       'cor…redacted…ery'
    mask("Bearer abcdefghij")           'Bearer a…redacted…j'
    mask("hunter2")                     '…redacted…'

A key is judged by its words, also if they are written without a separator (`dbpassword`).
`refreshToken` is the key of a secret; `prompt_tokens` and `tokenizer` are about usage.

Secrets with a known shape are in secret_patterns.py. key_value_secrets.py applies keys to text,
redactor.py to records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from vestige._runtime.re_compat import re
from vestige.record.coercion import safe_str, text_of_bytes

MARK: Final = "…redacted…"

# Not compiled here: that would take 5 % of `import vestige`, and few programs mask values.
_SCHEME: Final = r"(?i)(?:bearer|basic|token|digest|apikey|negotiate|bot)[ \t]+(?=\S)"
_MASKED: Final = rf"(?s)(?:{MARK}|.{MARK}.|..{MARK}..|...{MARK}...)"


def mask(value: object) -> str:
    """Return the partial mask of any object. Never raises. A mask is returned unchanged."""
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
    """Mask text inside quotes, where the shown ends must not contain half an escape."""
    masked = mask(value)
    if masked == value or ("\\" not in value[:9] and "\\" not in value[-9:]):
        return masked
    return MARK


def _shown(length: int) -> int:
    """Return the number of characters to show at each end."""
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
    "secret secrets token credential credentials bearer jwt psk passwort "
    # Written as one word:
    "apikey apikeys accesskey secretkey privatekey sessionkey accountkey authkey signingkey "
    "accesstoken authtoken refreshtoken idtoken apitoken bearertoken sessiontoken csrftoken "
    "clientsecret setcookie connectionstring connstr authtok mnemonic"
)
"""Words of a secret's key."""

KEY_OWNERS: Final = _set(
    "api access private secret session signing encryption decryption master account subscription "
    "auth ssh storage admin webhook preshared shared hmac deploy license licence functions"
)
"""Words before `key` or `keys` in a secret's key. `key` alone is not enough."""

COMPOUND_ENDS: Final = (
    *("password", "passwords", "passwd", "passphrase", "passcode", "passwort", "pwd"),
    *("secret", "secrets", "token", "cookie", "cookies", "credential", "credentials"),
    *(f"{owner}{key}" for key in ("key", "keys") for owner in sorted(KEY_OWNERS)),
)
"""Endings of a secret's key whose words have no separator: `dbpassword`."""

CODE_OWNERS: Final = _set("recovery backup scratch")
"""Words before `codes`: each logs in once."""

TOKEN_OWNERS: Final = _set("access auth api refresh bearer oauth")
"""Words before the plural `tokens` in a secret's key. Other tokens are units of usage."""

PAIR_GAPS: Final = ("", "_", "-", ".", " ", "__")
"""Separators between the two words of a pair. Few, so that the scanner can search for all."""

STEMS: Final = (
    *("passw", "passphrase", "passcode", "pwd", "secret", "token", "credential", "jwt", "bearer"),
    *(
        "authorization",
        "cookie",
        "connstr",
        "connection",
        "key",
        "psk",
        "phrase",
        "codes",
        "authtok",
    ),
)
"""Every secret's key contains one of these, in lower case."""

_COUNTED_BEFORE_TOKEN = _set(
    "max min num n per first last stop eos bos pad unk sep cls mask special start end begin next "
    "page continuation input output prompt completion total cached reasoning new prev previous "
    "count image audio text each single word sub by of cost price stopping ending pagination sync "
    "resume resumption cursor skip non de un starting lock change idempotency"
)
_PLAIN_AFTER_TOKEN = _set(
    "value values secret key string str raw header env old new current default plain hash text "
    "base b salt prod production staging dev development live test main data"
)
_ABOUT = _set(
    "name names count counts type types limit limits id ids url uri urls endpoint path paths file "
    "filename dir directory length len size policy provider manager format field fields label "
    "prompt prompts bits hint required enabled disabled expires expire expiry expiration ttl at "
    "age domain "
    "consent "
    "banner jar error errors status source sources store version schema index regex pattern "
    "patterns "
    "rule rules page form input reset strength usage callback description scope scopes server "
    "servers "
    "method methods arn config configs configuration settings setting options option class handler "
    "handlers helper util utils service client request requests response responses exception "
    "generator factory resolver mixin model list map dict validator validation validity "
    "property properties days minutes seconds last used uses attachment target resource resources "
    "rotation rotated rotate created updated date time timestamp algorithm alg issuer audience "
    "encoder decoder parser reader writer loader getter setter func function fn callable builder "
    "retries attempts min max repr exists present changed visible masked context ctx info state "
    "strategy mode kind lockers locker group groups role roles user users owner email supported "
    "middleware plugin module package lib fixture endpoints entry entries item items "
    "prefix suffix separator char chars re spec template tag tags title placeholder "
    "port ports encoding py js ts sh rb less free hasher fingerprint checksum stdin fd from so "
    "selection expression behavior behaviour"
)
"""Words after a secret's word in a key that is about the secret: `token_count`."""


def is_secret_key(key: str) -> bool:
    """Return whether the value of this key is a secret."""
    return secret_word(key) is not None


@lru_cache(maxsize=4096)
def secret_word(key: str) -> str | None:
    """Return the word of a key that makes its value a secret, or None."""
    for segment in _SEGMENT.finditer(key):
        name = segment[0].lower().rstrip("0123456789")
        if name in WORDS and name != "token" and not _is_about(key[segment.end() :]):
            return name
    words = [(match[0].lower(), match.start(), match.end()) for match in _WORD.finditer(key)]
    for place, (word, start, end) in enumerate(words):
        before, _, before_end = words[place - 1] if place else ("", 0, 0)
        owner = before if key[before_end:start] in PAIR_GAPS else ""
        after = [each for each, _, _ in words[place + 1 :]]
        found = _secret_at(word, before, owner, after) or _secret_in(word, after)
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
    if word == "codes":
        return f"{owner}_codes" if owner in CODE_OWNERS else None
    if word == "phrase":
        if owner in ("seed", "recovery"):
            return "mnemonic"
        return "passphrase" if owner == "pass" else None
    if word == "string":
        return "connection_string" if owner == "connection" else None
    if word in ("pwd", "bearer") and after:
        return None
    return word if word in WORDS else None


def _secret_in(word: str, after: list[str]) -> str | None:
    """Return the secret's word in a compound without separators, or None."""
    if len(word) < 6 or word in WORDS:
        return None
    for end in COMPOUND_ENDS:
        if word.endswith(end):
            before = word[: -len(end)]
            if end != "token":
                return end
            plain = all(each in _PLAIN_AFTER_TOKEN or each.isdigit() for each in after)
            return None if not plain or _ends_in_counted(before) else end
        if end in ("token", "pwd"):
            continue
        if word.startswith(end) and word[len(end) :] in _PLAIN_AFTER_TOKEN:
            return end
    return None


def _ends_in_counted(word: str) -> bool:
    return any(word.endswith(each) for each in _COUNTED_BEFORE_TOKEN if len(each) > 2)


def describes_secret(key: str) -> bool:
    """Return whether a key inside a secret is about it: `{"secret": {"secretName": "x"}}`."""
    return secret_word(key) is None and _is_about(key)


def _is_about(rest: str) -> bool:
    return any(match[0].lower() in _ABOUT for match in _WORD.finditer(rest))


_DOUBTFUL_LAST: Final = _set("pass pw pat")
_DOUBTFUL_END: Final = re.compile(
    r"(?:[_.-](?i:key|pat)|(?<=[a-z0-9])(?:Key|Pat)|(?i:pass|pw))(?:[_.-]data)?[0-9]*\Z"
)
"""The end of a doubtful key. The scanner searches for these forms only."""
_PASS_OWNERS: Final = _set(
    "db smtp imap mail ftp sftp ssh user usr root admin sudo mysql pg postgres redis mongo ldap "
    "vpn wifi proxy http app my keystore truststore remote rpc control bind relay auth enable "
    "archive "
    "pdf cert ssl tls pfx jks imap pop caldav"
)
"""Words before `pass` in a key without a separator: `dbpass`. Not `bypass`, `compass`."""
_KEY_NAMES: Final = _set(
    "primary foreign cache sort partition public idempotency dedup row hash index object registry "
    "hot translation group order lookup map dict json config feature flag message event routing "
    "unique composite natural surrogate candidate publishable range item cookie storage_object key "
    "dictionary query search param parameter header column field attribute label metric series "
    "resource bucket file path prefix shard span trace run request session_object tag license_id "
    "lock state context answer response result node edge vertex tool message job task queue topic "
    "s3 blob gcs image asset upload document doc entity record component react widget element menu "
    "tab issue ticket project i18n locale text string enum option setting env variable var host "
    "fingerprint gpg commit build artifact package theme style color icon page route url link "
    "socket site"
)


@lru_cache(maxsize=4096)
def doubtful_word(key: str) -> str | None:
    """Return the last word of a doubtful key: `pass`, `pat`, `stripe_key`.

    The value of such a key is a secret only if it looks like one."""
    if _DOUBTFUL_END.search(key) is None:
        return None
    words = words_of(key)
    while words and words[-1].isdigit():
        words = words[:-1]
    if words[-2:] == ("key", "data"):
        words = words[:-1]
    if not words:
        return None
    last = words[-1]
    if last in _DOUBTFUL_LAST:
        return last
    if last.removesuffix("pass").removesuffix("pw") in _PASS_OWNERS:
        return "pass"
    if last == "key" and len(words) > 1:
        owner = re.sub(r"(?i)[_.-]*key\Z", "", key.rstrip("0123456789")).rsplit("_")[-1].lower()
        return None if {words[-2], owner} & _KEY_NAMES else f"{words[-2]}_key"
    return None


def masks_numbers(word: str) -> bool:
    """Return whether a number is a secret too. Under `token` and plurals it is a count."""
    return word != "token" and not word.endswith("s")


def is_token_choice(value: Mapping[Any, Any]) -> bool:
    """Return whether an object is a token of a response: `{"token": "Hi", "logprob": -0.1}`."""
    return "token" in value and ("logprob" in value or "logProbability" in value)


def words_of(key: str) -> tuple[str, ...]:
    """Return the words of a key, in lower case."""
    return tuple(match[0].lower() for match in _WORD.finditer(key))


_COUNTS_TOKENS: Final = re.compile(
    r"(?i)tokens(?![a-z])|tokeni[sz]|token[_-]?(?:count|type|limit|budget|usage)"
)


class KeyRule:
    """The built-in keys (`secret_word`), and keys that a user added.

    An added key also matches a part of a key, in any case and with any separators: `password`
    matches `mypassword`. `token` does not match counters of tokens."""

    def __init__(self, extra: Iterable[str] = ()) -> None:
        self._extra = tuple(
            ("".join(words), "_".join(words)) for words in map(words_of, extra) if words
        )
        self.find = lru_cache(maxsize=4096)(self._find) if self._extra else secret_word

    def _find(self, key: str) -> str | None:
        joined = "".join(words_of(key))
        for added, name in self._extra:
            if added in joined and not (added in "tokens" and _COUNTS_TOKENS.search(key)):
                return name
        return secret_word(key)


def unused_key(key: str, taken: Collection[str], numbers: dict[str, int]) -> str:
    """Return a key that is not taken yet: two keys may have the same mask.

    `numbers`: the last number of each key, so that thousands of equal masks take linear time."""
    candidate = key
    while candidate in taken:
        numbers[key] = numbers.get(key, 1) + 1
        candidate = f"{key} ({numbers[key]})"
    return candidate
