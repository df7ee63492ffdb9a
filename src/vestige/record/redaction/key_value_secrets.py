r"""Secrets that are known by the key beside them, inside any text.

A text may be a request body, a log line, source code, a shell command, or JSON that
was put into JSON three times. One reading fits all: find a word that could belong
to a secret's key, take the whole key around it, look at what follows.

    "password": "x"   \"api_key\": \"x\"   'token': 'x'   API_KEY = "x"    a quoted value
    "password": 12345                                                     a number
    "cookies": ["x", {"name": "sid", "value": "x"}]                       a container
    ["authorization", "x"]   {"name": "API_KEY", "value": "x"}            a pair
    API_KEY=x    ?token=x&...    Password=x;                              no space around =
    Cookie: a=b; c=d    X-Api-Key: x                                      a header, to its line's end
    --token x    --api-key=x                                              a command line

What is not a literal is left alone: `token = get_token()`, `password: str`, `${TOKEN}`,
"the token: see below". So is what a key only counts, and what is masked already.

Elsewhere: which keys are meant in record/redaction/masking.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits

from vestige.limits import SECRET_LENGTH_MAX
from vestige.record.redaction.masking import MARK, is_secret_key, mask, mask_escaped, masks_numbers
from vestige.record.redaction.secret_patterns import Hit, is_placeholder

FindWord = Callable[[str], str | None]

_ASCII_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
_KEY_CHARS = ascii_letters + digits + "_-."
_KEY_SIDE_MAX = 64
_KEY_REST = re.compile(rf"[A-Za-z0-9_.-]{{0,{_KEY_SIDE_MAX}}}+")
_ESCAPE_LETTERS = re.compile(r"[bfnrt]|u[0-9a-fA-F]{4}")

_CLOSED = re.compile(r"""(?P<q>\\*["'])[ \t]{0,4}\]?""")
_ASSIGNS = re.compile(r"\s{0,8}(?:=>|:=|:|=(?![=~>]))\s{0,8}")
_NEXT_ITEM = re.compile(r"""\s{0,8},\s{0,8}b?(?=\\*["'])""")
_VALUE_KEY = re.compile(r"""\\*["'][Vv]alue\\*["']\s{0,8}:\s{0,8}""")
_OPENS = re.compile(r"""[bfruBFRU]{0,2}(?P<q>\\*["'])""")
_QUOTE_OR_LINE = re.compile(r"""(\\*)(["'\n])""")
_NUMBER = re.compile(r"-?[0-9][0-9.]*+(?![\w.])")
_TOKEN_CHOICE = re.compile(r"""\\*["'],\s{0,8}\\*["']logprob""")
_CONTAINER_PART = re.compile(r"""(\\*)(["'])|[\[\](){}]""")
_COLON = re.compile(r"\s{0,8}:")

# Bare values. A comma or bracket ends one unless it is plainly in the middle of it.
_BARE = re.compile(
    r"""(?:\$?\{[^}\s]{0,64}\}|\$\([^)\n]{0,64}\)|[^\s"'&;,<>\\)\]}]|[,)\]}](?=[A-Za-z0-9!@#$%^*])(?!,[\w.-]{1,40}=))++"""
)
_HEADER_VALUE = re.compile(r"""(?:[^\s"'\\]|[ \t]|\\*["'](?![\s,}\])>:\\]|\Z)|\\++(?![nr"']))++""")
_ARGUMENT = re.compile(r"""[ \t]{1,4}(?P<v>(?!-)[^\s"'\\]++)""")
_CODE = re.compile(r"[A-Za-z_][A-Za-z_.]*[(\[]|[&*]?[A-Za-z_.]+::")
_TYPE = re.compile(
    r"(?i)(?:str|string|bytes|int|integer|number|bool|boolean|float|any|object|none|"
    r"optional|union|secretstr|dict|list|tuple|annotated|required|char|varchar|byte)\b(?![-+/=0-9])"
)

_CONTROL = re.compile(r"[\x00-\x06\x0e-\x1a\x1c-\x1f]")
"""No text has these. It may have escape, which colours what a terminal shows."""
_UNDECODED = re.compile(r"[\udc80-\udcff]")
"""Bytes that are no UTF-8, as they are kept inside a text. A few may be letters of another encoding."""
_NO_TEXT = re.compile(f"{_CONTROL.pattern}|{_UNDECODED.pattern}")
_AROUND = 16
_TEXT_MIN = 4

_CONTAINERS = {"cookie", "cookies", "credential", "credentials", "secret", "secrets"}
_DESCRIBING = {
    *("name", "domain", "path", "samesite", "type", "description", "title", "format", "enum"),
    *("required", "id", "expires", "url", "ref", "provider", "scope", "key", "created", "updated"),
}
"""Keys inside such a container whose values describe it: a cookie's domain, a schema's types."""


def find_keyed(text: str, find_word: FindWord, stems: tuple[str, ...]) -> Iterator[Hit]:
    """The secrets beside a key, in order. Values judged harmless come too, with `new=None`.
    `stems`: every key that counts has one of them in it."""
    search = _compiled(stems).search
    # Looking in lower case is three times quicker than ignoring case. A few letters of other
    # scripts change their length in lower case: then places would shift, and only ASCII is lowered.
    lowered = text.lower()
    if len(lowered) != len(text):
        lowered = text.translate(_ASCII_LOWER)
    position = 0
    while match := search(lowered, position):
        start, end = _key_around(text, match.start(), match.end())
        position = max(match.end(), position + 1)
        word = find_word(text[start:end])
        if word is None:
            continue
        for hit in _values(text, start, end, word):
            position = max(position, hit.high)
            yield _as_text(text, hit) if hit.new is not None and _is_amid_bytes(text, hit) else hit


def _is_amid_bytes(text: str, hit: Hit) -> bool:
    """Whether this stands in a file that is no text, where any three letters turn up by chance."""
    around = text[max(0, hit.start - _AROUND) : min(hit.high, hit.low + 4 * _AROUND) + _AROUND]
    undecoded = _UNDECODED.findall(around)
    return _CONTROL.search(around) is not None or 3 * len(undecoded) > len(around)


def _as_text(text: str, hit: Hit) -> Hit:
    """What is text of a value in the midst of bytes; too little of it is no secret."""
    rest = _NO_TEXT.search(text, hit.low, hit.high)
    high = hit.high if rest is None else rest.start()
    value = text[hit.low : high]
    new = mask_escaped(value) if len(value) >= _TEXT_MIN else None
    return Hit(hit.start, hit.low, high, new, hit.rule)


@cache
def _compiled(stems: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, stems)))


def is_header(key: str) -> bool:
    """Whether a key is a header's name: then its value goes on to the end of the line."""
    name = key.lower()
    return name in ("authorization", "cookie") or ("-" in name.strip("-") and is_secret_key(name))


def _key_around(text: str, low: int, high: int) -> tuple[int, int]:
    left = text[max(0, low - _KEY_SIDE_MAX) : low]
    start = low - (len(left) - len(left.rstrip(_KEY_CHARS)))
    if start and text[start - 1] == "\\":
        # The key follows an escape, and the escape's letters are not the key's.
        escape = _ESCAPE_LETTERS.match(text, start, low)
        start = escape.end() if escape else start
    rest = _KEY_REST.match(text, high)
    return start, rest.end() if rest else high


def _values(text: str, start: int, end: int, word: str) -> Iterator[Hit]:
    key = text[start:end]
    rule = f"key:{word}"
    closed = _CLOSED.match(text, end)
    after = closed.end() if closed else end
    assigns = _ASSIGNS.match(text, after)
    if text.startswith("//", start - 2) and start >= 2:
        return  # the user of a URL, whose password has its own rule
    if assigns is None:
        if closed and (place := _second_of_pair(text, closed.end(), key)) is not None:
            yield from _quoted(text, start, place, rule)
        elif key.startswith("--") and (argument := _ARGUMENT.match(text, end)):
            yield from _bare(text, start, *argument.span("v"), key, rule)
        return
    place = assigns.end()
    if opens := _OPENS.match(text, place):
        if word == "token" and _is_token_choice(text, opens):
            yield Hit(start, opens.end(), opens.end(), None, rule)
            return
        yield from _quoted(text, start, place, rule)
    elif closed and masks_numbers(word) and (number := _NUMBER.match(text, place)):
        yield Hit(start, *number.span(), closed["q"] + MARK + closed["q"], rule)
    elif text.startswith(("[", "("), place) or (
        text.startswith("{", place) and word in _CONTAINERS
    ):
        yield from _container(text, start, place, rule)
    elif not closed:
        yield from _unquoted(text, start, assigns, key, word, rule)


def _second_of_pair(text: str, place: int, key: str) -> int | None:
    """Where the value of `["authorization", "x"]` or `{"name": "API_KEY", "value": "x"}` opens."""
    comma = _NEXT_ITEM.match(text, place)
    if comma is None:
        return None
    named = _VALUE_KEY.match(text, comma.end())
    if named:
        return named.end()
    # Of two words in a list the second is a value only beside a header's name or an option:
    # ["password", "email"] are the names of fields.
    return comma.end() if is_header(key) or key.startswith("--") else None


def _quoted(text: str, start: int, place: int, rule: str) -> Iterator[Hit]:
    opens = _OPENS.match(text, place)
    if opens is None:
        return
    low = opens.end()
    high = _end_of_quoted(text, low, opens["q"])
    value = text[low:high]
    masked = None if is_placeholder(value) else mask_escaped(value)
    yield Hit(start, low, high, masked if masked != value else None, rule)


def _end_of_quoted(text: str, low: int, quote: str) -> int:
    """Where a quoted value ends: at its own quote, its line's end, or the text's.

    In JSON put k times into JSON, a closing quote has 2**k - 1 backslashes, and one
    that belongs to the value has 2**(k+1) - 1, both after any number of the value's own
    backslashes, which are 2**(k+1) each. Fewer than a closing quote's: the text
    around the value ends here, and the value was torn.
    """
    depth = len(quote) - 1
    for match in _QUOTE_OR_LINE.finditer(text, low):
        if match[2] == "\n":
            return match.start()
        if match[2] == quote[-1] or (match[2] == '"' and depth):
            slashes = len(match[1])
            if slashes < depth:
                return match.start()
            if match[2] == quote[-1] and slashes % (2 * depth + 2) == depth:
                return match.end() - 1 - depth
    return len(text)


def _is_token_choice(text: str, opens: re.Match[str]) -> bool:
    """Whether this is a model's answer token by token: `{"token": "Hi", "logprob": -0.1`."""
    high = _end_of_quoted(text, opens.end(), opens["q"])
    return high - opens.end() <= 64 and _TOKEN_CHOICE.match(text, high) is not None


def _container(text: str, start: int, place: int, rule: str) -> Iterator[Hit]:
    """Every string in a list or object that no describing key stands before."""
    depth, key, limit = 0, "", place + SECRET_LENGTH_MAX
    while part := _CONTAINER_PART.search(text, place, limit):
        place = part.end()
        if part[2] is None:
            depth += 1 if part[0] in "[({" else -1
            if depth <= 0:
                break
            continue
        low, high = place, _end_of_quoted(text, place, part[0])
        value = text[low:high]
        place = high + len(part[0])
        if _COLON.match(text, place):
            key = value.lower().strip("$")
        elif key not in _DESCRIBING:
            masked = None if is_placeholder(value) else mask_escaped(value)
            yield Hit(start, low, high, masked if masked != value else None, rule)
    # What was read here is not read again: containers in containers would take forever.
    yield Hit(start, place, place, None, rule)


def _unquoted(
    text: str, start: int, assigns: re.Match[str], key: str, word: str, rule: str
) -> Iterator[Hit]:
    place = assigns.end()
    spaced = assigns[0] not in ("=", ":")
    if ":" in assigns[0] and "=" not in assigns[0]:
        if is_header(key) and "\n" not in assigns[0]:
            yield from _header(text, start, place, rule)
        elif (value := _BARE.match(text, place)) and _looks_random(value[0], word):
            yield from _bare(text, start, *value.span(), key, rule)
    elif not spaced and (value := _BARE.match(text, place)):
        yield from _bare(text, start, *value.span(), key, rule)


def _header(text: str, start: int, low: int, rule: str) -> Iterator[Hit]:
    value = _HEADER_VALUE.match(text, low)
    if value is None or _TYPE.match(value[0]):
        return
    secret = value[0].rstrip()
    masked = None if is_placeholder(secret) else mask_escaped(secret)
    yield Hit(start, low, low + len(secret), masked if masked != secret else None, rule)


def _bare(text: str, start: int, low: int, high: int, key: str, rule: str) -> Iterator[Hit]:
    value = text[low:high]
    if is_placeholder(value) or _is_code(value, key):
        yield Hit(start, low, high, None, rule)
        return
    masked = mask(value)
    yield Hit(start, low, high, masked if masked != value else None, rule)


def _is_code(value: str, key: str) -> bool:
    """Whether a bare value names where a secret comes from, as source code and help texts do."""
    plain = value.strip("-_").replace("-", "_").lower()
    if plain == key.strip("-_").replace("-", "_").lower() or _CODE.match(value):
        return True
    if (typed := _TYPE.match(value)) and typed.end() == len(value):
        return True
    if key.lower().endswith("pwd") and value.startswith(("/", "~")):
        return True  # a shell's PWD is where one is, not how one gets in
    owner, dot, last = value.rpartition(".")
    return bool(dot and owner.replace(".", "_").isidentifier() and is_secret_key(last))


def _looks_random(value: str, word: str) -> bool:
    """Whether a bare word after a colon is no word of a language."""
    if len(value) < 6 or _TYPE.match(value) or value.startswith(("http://", "https://", "/", "$")):
        return False
    numbers = sum(character.isdigit() for character in value)
    if numbers == len(value):
        return masks_numbers(word)
    return numbers > 0 or len(value) >= 24
