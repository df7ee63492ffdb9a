"""The context of a key in a text, and the judgement of the value beside it."""

from __future__ import annotations

from vestige._runtime.re_compat import re
from vestige.record.redaction.masking import is_secret_key, mask, mask_escaped, words_of
from vestige.record.redaction.secret_likelihood import (
    CODE,
    STRONG,
    WEAK,
    WORD,
    grade,
    is_code_around,
    is_example,
    is_mixed_letters,
    is_password_like,
    is_placeholder,
    is_template,
)
from vestige.record.redaction.secret_patterns import Hit

_RAISED = re.compile(
    r"(?:^|\n|\\n)[\w.]{1,80}(?:Error|Exception|Warning|Exit|Timeout): "
    r"(?:[^\n]|\n(?!  File |Traceback|\n)){0,240}\Z"
)
_LINE_START = re.compile(
    r"(?:^|[\n\r]|\\n)[ \t]*(?:(?:export|set|setx|env|ENV|ARG|local|declare -x|-|\*|>|#|;|\d+[:"
    r"|])[ \t]+){0,2}$"
)
_EXPRESSION = re.compile(
    r"\(\?[:=!<P]|\][+*]|\[\^|[a-z0-9]-[a-z0-9][^\]]{0,40}\]|\A[\w$]{1,3}\?[^:]{1,40}:"
)
"""A part of a regular expression beside a name such as `token`, or `c?u:null` of minified code."""

_PART = 1024
"""Characters that are classified together as source code or not."""

_NAME_PART_MIN = 12
"""Characters of a name that is a part of its key."""

_DIGITS_MIN = 4
"""Digits of a password. Fewer are a count."""

_MNEMONIC_MIN = 12
"""Words from which the keys of a wallet are made."""

_SENTENCE_MIN = 3
"""Words of a sentence about a secret: `Forgot your password?`."""
_ESCAPES = re.compile(r"\\+(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[0abfnrtv])")
_PUBLIC_KEY = re.compile(r"(?:sk-)?(?:ssh|ecdsa)-[a-z0-9@.-]{2,40} AAAA")
_PLAIN_URL = re.compile(r"https?://[\w.:-]{1,253}(?P<path>/[^\s@]*)?")
_PASSWORDS = {"password", "passwd", "passphrase", "passcode", "pwd"}

CONTAINERS = {"cookie", "cookies", "credential", "credentials", "secret", "secrets"}
DESCRIBING = {
    *("name", "domain", "path", "samesite", "type", "description", "title", "format", "enum"),
    *(
        "items",
        "properties",
        "urls",
        "required",
        "id",
        "expires",
        "url",
        "ref",
        "provider",
        "scope",
        "key",
        "created",
        "updated",
    ),
}
"""Keys in such a container that describe the secret: a cookie's domain, a schema's type."""

_HARMLESS = {
    "credentials": {"include", "omit", "same-origin", "default", "same_origin"},
    "token": {"string", "bearer", "jwt", "read", "write"},
    "api_key": {"bearer", "basic"},
    "authorization": {"bearer", "basic"},
    "cookie": {"lax", "strict", "secure", "httponly"},
}
"""Values of these keys that are settings, not secrets."""

_TYPE_NAME = re.compile(
    r"(?:string|boolean|bool|number|integer|binary|array|object|any|int|float|str|bytes)(?:\[\]"
    r"|\?){0,2}"
)
"""Types that schemas write beside the key of a secret."""
_TYPE_OR_PATH = re.compile(
    r"V[0-9](?:alpha|beta)?[0-9]?(?:[A-Z][a-z]{2,}){2,8}|(?:/[a-z]{2,}(?:[_-][a-z]+){0,8}){2,8}"
    r"|(?:\.{1,2}/|~?/|[A-Za-z]:[/\\])[\w./\\ -]{1,200}"
    r"\.(?:json|ya?ml|toml|pem|crt|key|txt|[cm]?[jt]sx?|py|browser)"
    r"|[A-Za-z]:(?:\\{1,2}[A-Za-z][\w .-]{0,80}){1,12}"
)
"""A versioned type, a path of an API, or a path of a file.

A random text after a slash has digits or capitals."""


def is_secret_value(word: str, value: str) -> bool:
    """Return whether the value of a key with this word is a secret, not a setting or a type."""
    if (len(value) <= 16 and _TYPE_NAME.fullmatch(value)) or _TYPE_OR_PATH.fullmatch(value):
        return False
    if _PUBLIC_KEY.match(value) or _is_plain_url(value) or _is_sentence_about(word, value):
        return False
    if word == "mnemonic":
        return (
            len(value.split()) >= _MNEMONIC_MIN
        )  # instructions of a processor have mnemonics, too
    if word == "accesskey" and len(value) == 1:
        return False  # a key of the keyboard, in HTML
    if word in ("cookie", "cookies") and " " in value and "=" not in value:
        return False  # a sentence or a command: `"test:cookies": "run test/cookies"`
    if word in ("connection_string", "connectionstring", "connstr") and _is_address(value):
        return False
    return value.lower().rstrip("`.,;") not in _HARMLESS.get(word, ())


_FUNCTION_WORDS = {"is", "are", "was", "be", "must", "may", "can", "cannot", "the", "this", "your"}


def _is_sentence_about(word: str, value: str) -> bool:
    """Return whether a value is a sentence about the secret, or its label.

    `Forgot your password?`, `Password`, `is too short (minimum is 8 characters).`"""
    words = [each.strip(".,:;!?\"'()").lower() for each in value.split(" ")]
    if len(words) < _SENTENCE_MIN:
        return value == word.title()
    is_closed = value[-1] in ".!?)" and not _FUNCTION_WORDS.isdisjoint(words)
    return not {word, f"{word}s"}.isdisjoint(words) or (is_closed and len(words) > _SENTENCE_MIN)


def _is_address(value: str) -> bool:
    """Return whether a connection string has no password: `mssql://@host/db`."""
    plain = re.match(r"[\w+.-]{2,40}://(?:[^:/@\s]{0,64}@)?[^@\s]{1,512}\Z", value)
    return plain is not None and re.search(r"(?i)pass|pwd|secret|key=|sig=|token", value) is None


def _is_plain_url(value: str) -> bool:
    """Return whether a value is a URL of words: the address of a token, not a token."""
    url = _PLAIN_URL.fullmatch(value)
    parts = re.split(r"[/?&=#]", url["path"] or "") if url else []
    return url is not None and all(grade(part) < STRONG for part in parts)


def is_doubtful_secret(word: str, value: str) -> bool:
    """Return whether the value of a doubtful key (`pass`, `stripe_key`) is a secret."""
    if is_placeholder(value) or is_template(value):
        return False
    if value[:1] in "/~<^(" and re.fullmatch(r"[A-Za-z0-9+/]{60,}={0,2}", value) is None:
        return False
    if "://" in value or "`" in value:
        return False
    if word.endswith("_key") and re.fullmatch(r"[0-9a-fA-F-]{36}", value):
        return False  # an id
    if word in ("pass", "pw") and value.isdigit() and len(value) < _DIGITS_MIN:
        return False  # `cur_pass = 0`
    if word in ("pass", "pw"):
        # A number with a fraction is a measurement: `first_pass=12.5`.
        return is_password_like(value) and re.fullmatch(r"[0-9]*\.[0-9]+", value) is None
    if word == "pat":
        return len(value) >= 16 and grade(value) >= WEAK
    if len(value) < 16 or re.search(r"[^\w+/=.~:@$!-]", value.strip()):
        return False  # a list, an expression, a sentence
    longest = max(re.split(r"[-_.]", value), key=len)
    return len(longest) >= 12 and grade(value) == STRONG


def is_header(key: str) -> bool:
    """Return whether a key is a header's name, so that its value extends to the line's end."""
    name = key.lower()
    return name in ("authorization", "cookie") or ("-" in name.strip("-") and is_secret_key(name))


_HEADER_NAMES = re.compile(
    r"(?i)(?:[a-z]+-)+[a-z]+|accept|age|allow|connection|cookie2?|date|etag|expect|expires"
    r"|forwarded"
    r"|from|host|link|location|origin|pragma|range|referer|server|te|trailer|upgrade|vary|via"
    r"|warning|authorization"
)


def is_header_name(value: str) -> bool:
    """Return whether a string in a list is the name of a header, not the value of one."""
    return _HEADER_NAMES.fullmatch(value) is not None


def _without_separators(name: str) -> str:
    return name.replace("_", "").replace("-", "").replace(".", "").lower()


class KeyContext:
    """A key in a text, and its surroundings."""

    __slots__ = ("_known", "doubtful", "end", "key", "rule", "start", "text", "word")

    def __init__(
        self, text: str, start: int, end: int, word: str, doubtful: bool, known: dict[int, bool]
    ) -> None:
        self.text, self.start, self.end = text, start, end
        self.word, self.doubtful = word, doubtful
        self.key = text[start:end]
        self.rule = f"key:{word}"
        self._known = known
        """The parts of the text that were classified, and whether each is source code."""

    @property
    def is_code(self) -> bool:
        """True if the key is in source code."""
        if _RAISED.search(self.text, max(0, self.start - 300), self.start):
            return False  # an exception's message, after the code that raised it
        part = self.start // _PART
        if part not in self._known:
            self._known[part] = is_code_around(self.text, part * _PART + _PART // 2)
        return self._known[part]

    @property
    def begins_line(self) -> bool:
        before = self.text[max(0, self.start - 40) : self.start]
        return self.start == 0 or _LINE_START.search(before) is not None

    @property
    def is_argument(self) -> bool:
        """True if the key is an argument of a call: `f(token=x`."""
        before = self.text[max(0, self.start - 200) : self.start].rstrip()
        if self.key.isupper() or not before.endswith(("(", ",")):
            return False
        # Options of a command are joined by commas, too: `mount -o user=a,password=x`.
        return "(" in before or self.text[self.start - 1] != ","

    def hit(self, low: int, high: int, lowest: int = CODE, quoted: bool = False) -> Hit:
        """Return the hit for a value; harmless if its grade is below `lowest`."""
        value = self.text[low:high]
        is_formatted = quoted and self.text[low - 2 : low - 1] in ("f", "F")
        if (is_formatted and is_template(value)) or not self._is_secret(value, lowest, quoted):
            return Hit(self.start, low, high, None, self.rule)
        new = mask_escaped(value) if quoted or "\\" in value else mask(value)
        return Hit(self.start, low, high, new if new != value else None, self.rule)

    def _is_secret(self, value: str, lowest: int, quoted: bool) -> bool:
        plain = _ESCAPES.sub("", value).strip()
        if is_placeholder(plain) or self._is_its_name(plain):
            return False
        if plain != value and len(plain) < 2:
            return False  # `b"\\x00" * 8`
        if not is_secret_value(self.word, value):
            return False
        is_short = value.isdigit() and len(value) < _DIGITS_MIN
        if is_short and (lowest >= WEAK or not quoted):
            return False  # `RESULT_INVALID_CREDENTIALS = 49`
        if self.doubtful:
            return is_doubtful_secret(self.word, value)
        if lowest == CODE:
            return True
        if is_template(value):
            return False
        if lowest >= WEAK and (is_example(value) or _EXPRESSION.search(value)):
            return False
        if self.key.lower().endswith("pwd") and value.startswith(("/", "~")):
            return False  # a shell's PWD is the current folder, not a password
        if self._is_its_key(plain):
            return False
        if grade(value) >= lowest:
            return True
        # In a configuration, and in quotes, letters in mixed case are not the name of a variable.
        is_setting = lowest == WORD or (lowest == WEAK and self.word in _PASSWORDS)
        return is_setting and (quoted or not self.is_code) and is_mixed_letters(value)

    def _is_its_name(self, value: str) -> bool:
        """Return whether a value is the key in another spelling, or a part of it.

        `api_key="apiKey"`, `issuer_signing_key_ref="signing_key_ref"`."""
        if not value.replace("-", "_").isidentifier() or len(words_of(self.key)) < 2:
            return False
        plain, key = _without_separators(value), _without_separators(self.key)
        if value == self.key:
            return len(words_of(value)) >= 3
        return plain == key or (len(plain) >= _NAME_PART_MIN and plain in key)

    def _is_its_key(self, value: str) -> bool:
        """Return whether a bare value repeats its key, as a variable does: `api_key=api_key`.

        The key of an attribute has an owner: `this.token = token`."""
        plain = value.strip("-_").replace("-", "_").lower()
        key = self.key.strip("-_").replace("-", "_").lower()
        return plain == key or plain == key.rpartition(".")[2].strip("_")
