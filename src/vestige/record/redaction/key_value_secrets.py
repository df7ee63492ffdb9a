r"""Secrets that are known by the key beside them, inside any text.

A text may be a log line, source code, a configuration file, a shell command, or a torn piece of
JSON that was put into JSON three times. One reading fits all: find a word that could belong to a
secret's key, take the whole key around it, look at what follows.

    "password": "x"   \"api_key\": \"x\"   'token': 'x'   API_KEY = "x"    a quoted value
    "password": 12345                                                     a number
    "cookies": ["x", {"name": "sid", "value": "x"}]                       a container
    ["authorization", "x"]   {"name": "API_KEY", "value": "x"}            a pair
    <password>x</password>   <add key="ApiKey" value="x"/>                XML
    name="password"\r\n\r\nx                                              a form's field
    password = x   password: x                                            a line of a configuration
    API_KEY=x    ?token=x&...    Password=x;                              no space around =
    Cookie: a=b; c=d    X-Api-Key: x                                      a header, to its line's end
    --token x    --api-key=x    machine h login u password x              a command line, a .netrc

How much a value must look like a secret depends on where it is (`_Place`): anything beside a quoted
key, a word at the end of a configuration's line, nothing that could be an expression in source code.
Placeholders (`${TOKEN}`, `<token>`) and masks are left alone everywhere.

Elsewhere: which keys are meant in record/redaction/masking.py; what a value looks like in record/redaction/secret_values.py;
whole JSON documents, which are read as such, in record/redaction/json_redaction.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits

from vestige.limits import SECRET_LENGTH_MAX
from vestige.record.redaction.masking import (
    MARK,
    doubtful_word,
    is_secret_key,
    mask,
    mask_escaped,
    masks_numbers,
)
from vestige.record.redaction.secret_patterns import Hit
from vestige.record.redaction.secret_values import (
    CODE,
    STRONG,
    WEAK,
    WORD,
    grade,
    is_code_around,
    is_example,
    is_placeholder,
    is_template,
)

FindWord = Callable[[str], str | None]

_ASCII_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
_KEY_CHARS = ascii_letters + digits + "_-."
_KEY_SIDE_MAX = 64
_KEY_REST = re.compile(rf"[A-Za-z0-9_.-]{{0,{_KEY_SIDE_MAX}}}+")
_ESCAPE_LETTERS = re.compile(r"[bfnrt]|u[0-9a-fA-F]{4}")

_CLOSED = re.compile(r"""(?P<q>\\*["'`])[ \t]{0,4}\]?""")
_ASSIGNS = re.compile(r"\s{0,8}(?:=>|:=|:|=(?![=~>]))\s{0,8}")
_NEXT_ITEM = re.compile(r"""\s{0,8},\s{0,8}b?(?=\\*["'])""")
_VALUE_KEY = re.compile(r"""\\*["'][Vv]alue\\*["']\s{0,8}:\s{0,8}""")
_VALUE_ATTRIBUTE = re.compile(r"""\s{0,8}[Vv]alue\s{0,2}=\s{0,2}(?=\\*["'])""")
_VALUE_LINE = re.compile(r"""["']?(?:\n|\\n)[ \t]{0,32}value:[ \t]{1,4}""")
_FORM_FIELD = re.compile(
    r"""\\*"(?:;[^\r\n\\]{0,120})?(?:\r?\n|\\+r\\+n|\\+n){1,1}"""
    r"""(?:[A-Za-z-]{1,40}: [^\r\n\\]{1,80}(?:\r?\n|\\+r\\+n|\\+n)){0,3}(?:\r?\n|\\+r\\+n|\\+n)"""
    r"(?P<v>[^\r\n\\]{1,4096})"
)
_ELEMENT = re.compile(r"""(?:\\*["'][^<>]{0,80}|\s[^<>]{0,80})?>\s{0,8}(?P<v>[^<>]{1,4096})</""")
_PLIST = re.compile(r"</key>\s{0,16}<string>(?P<v>[^<>]{1,4096})<")
_DEFAULT = re.compile(r"""\\*"\s{0,4}\{[^{}]{0,300}?\bdefault\s{0,8}=\s{0,4}(?=\\*")""")
_NEXT_WORD = re.compile(r"""[ \t]{1,4}(?P<v>[^\s"'\\]{1,256})""")
_RAISED = re.compile(
    r"(?:^|\n|\\n)[\w.]{1,80}(?:Error|Exception|Warning|Exit|Timeout): [^\n]{0,240}\Z"
)
_SQL = re.compile(r"(?i)\b(?:role|user|with|encrypted)\b")
"""Before the password in `CREATE ROLE a PASSWORD 'x'`."""
_NETRC = re.compile(r"\b(?:login|machine|default|account)(?:\s+[^\s\\]+)?(?:\s|\\n)+\Z")
_OPENS = re.compile(r"""[bfruBFRU]{0,2}(?P<q>\\*["'`])""")
_CLOSING = re.compile(r"""\s{0,8}(?:[,}\]:;)\n\\]|\Z)""")
_QUOTE_OR_LINE = re.compile(r"""(\\*)(["'`\n])""")
_NUMBER = re.compile(r"-?[0-9][0-9.]*+(?![\w.])")
_TOKEN_CHOICE = re.compile(r"""\\*["'],\s{0,8}\\*["']logprob""")
_CONTAINER_OPENS = re.compile(r"""[\[{]\s{0,64}(?=\\*["'{\[])""")
_CONTAINER_PART = re.compile(r"""(\\*)(["'])|[\[\](){}]""")
_COLON = re.compile(r"\s{0,8}:")

# Bare values. A comma or bracket ends one unless it is plainly in the middle of it.
_BARE = re.compile(
    r"""(?:\$?\{[^}\s]{0,64}\}|\$\([^)\n]{0,64}\)|[^\s"'&;,<>\\)\]}]|[,)\]}](?=[A-Za-z0-9!@#$%^*])(?!,[\w.-]{1,40}=))++"""
)
_REST_OF_LINE = re.compile(r"""[^\s\\"'](?:[^\n\r\\]|\\(?![nr"]))*+""")
_COMMENT = re.compile(r"[ \t]+[#;].*$")
_HEADER_VALUE = re.compile(r"""(?:[^\s"'\\]|[ \t]|\\*["'](?![\s,}\])>:\\]|\Z)|\\++(?![nr"']))++""")
_ARGUMENT = re.compile(r"""[ \t]{1,4}(?P<v>(?!-)[^\s"'\\]++)""")
_QUOTED_ARGUMENT = re.compile(r"""[ \t]{1,4}(?=\\*["'])""")
_LINE_START = re.compile(
    r"(?:^|[\n\r]|\\n)[ \t]*(?:(?:export|set|setx|env|ENV|ARG|local|declare -x|-|\*|>|#|;|\d+[:|])[ \t]+){0,2}$"
)
_AFTER_VALUE_IS_CODE = re.compile(r"[ \t]*[()\[\]{},.+*/|?]|[ \t]+(?:if|or|and|in|is|else|as)\b")
_TYPE = re.compile(
    r"(?i)(?:str|string|bytes|int|integer|number|bool|boolean|float|any|object|none|"
    r"optional|union|secretstr|dict|list|tuple|annotated|required|char|varchar|byte|text|true|false|yes|no|"
    r"final|literal|sequence|mapping|readonly|unset|undefined)\b(?![-+/=0-9])"
)

_CONTROL = re.compile(r"[\x00-\x06\x0e-\x1a\x1c-\x1f]")
"""No text has these. It may have escape, which colours what a terminal shows."""
_UNDECODED = re.compile(r"[\udc80-\udcff]")
"""Bytes that are no UTF-8, as they are kept inside a text. A few may be letters of another encoding."""
_NO_TEXT = re.compile(f"{_CONTROL.pattern}|{_UNDECODED.pattern}")
_AROUND = 16
_TEXT_MIN = 4
_PART = 1024
"""Characters that are judged together to be source code, or not."""

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
"""Keys inside such a container whose values describe it: a cookie's domain, a schema's types."""

_HARMLESS = {
    "credentials": {"include", "omit", "same-origin", "default", "same_origin"},
    "token": {"string", "bearer", "jwt"},
    "cookie": {"lax", "strict", "secure", "httponly"},
}
"""Words that are settings, not secrets, beside these keys."""

_TYPE_NAME = re.compile(
    r"(?:string|boolean|bool|number|integer|binary|array|object|any|int|float|str|bytes)(?:\[\]|\?){0,2}"
)
"""Schemas write the type of a secret beside its key."""

_DOUBTFUL = r"(?<![a-z])(?:pass|pw|pat)(?![a-z])"


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
    known: dict[int, bool] = {}
    while match := search(lowered, position):
        start, end = _key_around(text, match.start(), match.end())
        position = max(match.end(), position + 1)
        key = text[start:end]
        word = find_word(key)
        doubtful = None if word else doubtful_word(key)
        if word is None and doubtful is None:
            continue
        for hit in _values(_Place(text, start, end, word or doubtful or "", word is None, known)):
            position = max(position, hit.high)
            yield _as_text(text, hit) if hit.new is not None and _is_amid_bytes(text, hit) else hit


def is_secret_value(word: str, value: str) -> bool:
    """Whether a value under a key with this word is a secret: unless it is a mere setting."""
    if len(value) <= 16 and _TYPE_NAME.fullmatch(value):
        return False
    return value.lower() not in _HARMLESS.get(word, ())


def is_doubtful_secret(word: str, value: str) -> bool:
    """Whether a value under a doubtful key (`pass`, `stripe_key`) is a secret."""
    if is_placeholder(value) or is_template(value) or value[:1] in "/~<^(":
        return False
    if "://" in value or "`" in value:
        return False
    if word.endswith("_key") and re.fullmatch(r"[0-9a-fA-F-]{36}", value):
        return False  # an id
    if word in ("pass", "pw"):
        return grade(value) >= WEAK
    if word == "pat":
        return len(value) >= 16 and grade(value) >= WEAK
    if len(value) < 16 or " " in value.strip():
        return False
    longest = max(re.split(r"[-_.]", value), key=len)
    return len(longest) >= 12 and grade(value) == STRONG


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
    return re.compile("|".join((*map(re.escape, stems), _DOUBTFUL)))


def is_header(key: str) -> bool:
    """Whether a key is a header's name: then its value goes on to the end of the line."""
    name = key.lower()
    return name in ("authorization", "cookie") or ("-" in name.strip("-") and is_secret_key(name))


_HEADER_NAMES = re.compile(
    r"(?i)(?:[a-z]+-)+[a-z]+|accept|age|allow|connection|cookie2?|date|etag|expect|expires|forwarded"
    r"|from|host|link|location|origin|pragma|range|referer|server|te|trailer|upgrade|vary|via|warning|authorization"
)


def is_header_name(value: str) -> bool:
    """Whether a string in a list is itself the name of a header, and no value of one."""
    return _HEADER_NAMES.fullmatch(value) is not None


def _key_around(text: str, low: int, high: int) -> tuple[int, int]:
    left = text[max(0, low - _KEY_SIDE_MAX) : low]
    start = low - (len(left) - len(left.rstrip(_KEY_CHARS)))
    if start and text[start - 1] == "\\":
        # The key follows an escape, and the escape's letters are not the key's.
        escape = _ESCAPE_LETTERS.match(text, start, low)
        start = escape.end() if escape else start
    rest = _KEY_REST.match(text, high)
    return start, rest.end() if rest else high


class _Place:
    """A key in a text, and what is around it."""

    __slots__ = ("_known", "doubtful", "end", "key", "rule", "start", "text", "word")

    def __init__(
        self, text: str, start: int, end: int, word: str, doubtful: bool, known: dict[int, bool]
    ) -> None:
        self.text, self.start, self.end = text, start, end
        self.word, self.doubtful = word, doubtful
        self.key = text[start:end]
        self.rule = f"key:{word}"
        self._known = known
        """Which parts of the text are source code, as far as was asked."""

    @property
    def is_code(self) -> bool:
        """Whether this is in source code."""
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
        """Whether this is an argument of a call: `f(token=x`."""
        before = self.text[max(0, self.start - 24) : self.start].rstrip()
        return before.endswith(("(", ",")) and not self.key.isupper()

    def hit(self, low: int, high: int, lowest: int = CODE, quoted: bool = False) -> Hit:
        """The hit for a value there, if it is graded so at least."""
        value = self.text[low:high]
        if not self._is_secret(value, lowest):
            return Hit(self.start, low, high, None, self.rule)
        new = mask_escaped(value) if quoted or "\\" in value else mask(value)
        return Hit(self.start, low, high, new if new != value else None, self.rule)

    def _is_secret(self, value: str, lowest: int) -> bool:
        if is_placeholder(value) or not is_secret_value(self.word, value):
            return False
        if self.doubtful:
            return is_doubtful_secret(self.word, value)
        if lowest == CODE:
            return True
        if is_template(value) or (lowest >= WEAK and is_example(value)):
            return False
        if self.key.lower().endswith("pwd") and value.startswith(("/", "~")):
            return False  # a shell's PWD is where one is, not how one gets in
        return grade(value) >= lowest and not self._is_its_key(value)

    def _is_its_key(self, value: str) -> bool:
        """Whether a bare value names where a secret comes from: `api_key=api_key`."""
        plain = value.strip("-_").replace("-", "_").lower()
        return plain == self.key.strip("-_").replace("-", "_").lower()


def _values(place: _Place) -> Iterator[Hit]:
    text, start, end = place.text, place.start, place.end
    if text.startswith("//", start - 2) and start >= 2:
        return  # the user of a URL, whose password has its own rule
    if text.startswith("::", start - 2) and start >= 2 and not place.key.startswith("_"):
        return  # AWS::IAM::AccessKey is a type
    closed = _CLOSED.match(text, end)
    after = closed.end() if closed else end
    assigns = _ASSIGNS.match(text, after)
    if assigns is None:
        yield from _not_assigned(place, closed)
        return
    at = assigns.end()
    lowest = WEAK if place.is_code else CODE
    if opens := _OPENS.match(text, at):
        if place.word == "token" and _is_token_choice(text, opens):
            yield Hit(start, opens.end(), opens.end(), None, place.rule)
        elif closed or not _is_closing(text, opens):
            yield from _quoted(place, at, lowest)
    elif closed and masks_numbers(place.word) and (number := _NUMBER.match(text, at)):
        if not place.doubtful and not place.is_code:
            yield Hit(start, *number.span(), closed["q"] + MARK + closed["q"], place.rule)
    elif not place.doubtful and (opens := _CONTAINER_OPENS.match(text, at)):
        if text[at] == "[" or place.word in CONTAINERS:
            yield from _container(place, at, WEAK if place.is_code or not closed else CODE)
    elif not closed:
        yield from _unquoted(place, assigns)


def _is_closing(text: str, opens: re.Match[str]) -> bool:
    """Whether a quote after `password:` ends the string that the key is in: `"Password: ", "next"`."""
    return _CLOSING.match(text, opens.end()) is not None and opens["q"] != "`"


def _not_assigned(place: _Place, closed: re.Match[str] | None) -> Iterator[Hit]:
    text, end = place.text, place.end
    before = text[max(0, place.start - 80) : place.start]
    if closed:
        at = _second_of_pair(place, closed.end())
        if at is not None:
            yield from _quoted(place, at, WEAK if place.is_code else CODE)
        elif attribute := _VALUE_ATTRIBUTE.match(text, closed.end()):
            yield from _quoted(place, attribute.end(), CODE)
        elif default := _DEFAULT.match(text, end):
            yield from _quoted(place, default.end(), CODE)
        elif before.endswith(('name="', 'name=\\"')) and (field := _FORM_FIELD.match(text, end)):
            yield place.hit(*field.span("v"))
        elif (element := _ELEMENT.match(text, end)) and 'name="' in before:
            yield _stripped(place, element)
        elif value := _VALUE_LINE.match(text, end):
            yield from _line_value(place, value.end(), CODE)
    elif before.endswith("<") and (element := _ELEMENT.match(text, end)):
        yield _stripped(place, element, WORD if place.is_code else CODE)
    elif before.endswith("<key>") and (element := _PLIST.match(text, end)):
        yield _stripped(place, element)
    elif place.key.startswith("-"):
        yield from _option(place)
    elif value := _VALUE_LINE.match(text, end):
        yield from _line_value(place, value.end(), CODE)
    elif netrc := _NETRC.search(before):
        if word := _NEXT_WORD.match(text, end):
            # Prose has "the default password for" too.
            yield place.hit(*word.span("v"), WORD if netrc[0].startswith("login") else WEAK)
    elif (
        place.word in ("password", "passphrase")
        and (quoted := _QUOTED_ARGUMENT.match(text, end))
        and (place.key.isupper() or _SQL.search(before))
    ):
        yield from _quoted(place, quoted.end(), CODE)


def _stripped(place: _Place, element: re.Match[str], lowest: int = CODE) -> Hit:
    low, high = element.span("v")
    value = element["v"]
    low += len(value) - len(value.lstrip())
    return place.hit(low, max(low, high - (len(value) - len(value.rstrip()))), lowest)


def _option(place: _Place) -> Iterator[Hit]:
    """`--token x`, `--token "x"`. In prose, the word after an option is a word."""
    text = place.text
    if quoted := _QUOTED_ARGUMENT.match(text, place.end):
        yield from _quoted(place, quoted.end(), WEAK if place.is_code else CODE)
    elif argument := _ARGUMENT.match(text, place.end):
        low, high = argument.span("v")
        value = argument["v"]
        rest = text[high : high + 3].lstrip(" ")
        is_alone = not rest or rest[0] in "-\n\r\\\"'|&;<>`"
        is_name = value.isupper() and value.replace("_", "").isalpha()
        lowest = WORD if is_alone and not is_name and not place.is_code else WEAK
        yield place.hit(low, high, lowest)


def _second_of_pair(place: _Place, after: int) -> int | None:
    """Where the value of `["authorization", "x"]` or `{"name": "API_KEY", "value": "x"}` opens.

    A string before a colon is a key and never a value: `{"name": "x-api-key", "required": true}`."""
    text = place.text
    comma = _NEXT_ITEM.match(text, after)
    if comma is None:
        return None
    named = _VALUE_KEY.match(text, comma.end())
    if named:
        return named.end()
    before = text[max(0, place.start - 24) : place.start].rstrip("\"'\\b")
    if before.rstrip().endswith(("define(", "define (")):
        return comma.end()
    opens = _OPENS.match(text, comma.end())
    if opens is None:
        return None
    high = _end_of_quoted(text, opens.end(), opens["q"])
    value, rest = text[opens.end() : high], text[high + len(opens["q"]) :][:24].lstrip()
    if rest.startswith((":", "\\:")) or is_header_name(value):
        return None
    # Of two words in a list the second is a value only beside an option, or a header's name in
    # a list of two: ["password", "email"] are the names of fields.
    if place.key.startswith("--"):
        return None if value.startswith("-") else comma.end()
    if not is_header(place.key):
        return None
    is_pair = before.endswith(("[", "(")) and rest.startswith(("]", ")"))
    return comma.end() if is_pair or grade(value) >= WEAK else None


def _quoted(place: _Place, at: int, lowest: int) -> Iterator[Hit]:
    text = place.text
    opens = _OPENS.match(text, at)
    if opens is None:
        return
    low = opens.end()
    yield place.hit(low, _end_of_quoted(text, low, opens["q"]), lowest, True)


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


def _container(place: _Place, at: int, lowest: int) -> Iterator[Hit]:
    """Every string in a list or object that no describing key stands before."""
    text = place.text
    depth, key, limit = 0, "", at + SECRET_LENGTH_MAX
    is_list = text[at] == "["
    while part := _CONTAINER_PART.search(text, at, limit):
        at = part.end()
        if part[2] is None:
            depth += 1 if part[0] in "[({" else -1
            if depth <= 0:
                break
            continue
        low, high = at, _end_of_quoted(text, at, part[0])
        value = text[low:high]
        at = high + len(part[0])
        if _COLON.match(text, at):
            key = value.lower().strip("$")
        elif key not in DESCRIBING:
            is_direct = is_list and depth == 1
            least = lowest if is_direct else max(lowest, WORD if "cookie" in place.word else WEAK)
            yield place.hit(low, high, least, True)
    # What was read here is not read again: containers in containers would take forever.
    yield Hit(place.start, at, at, None, place.rule)


def _unquoted(place: _Place, assigns: re.Match[str]) -> Iterator[Hit]:
    text, at = place.text, assigns.end()
    sign = assigns[0]
    if "\n" in sign or "\r" in sign:
        return
    if ":" in sign and "=" not in sign:
        if is_header(place.key):
            yield from _header(place, at)
        else:
            yield from _after_colon(place, at, sign)
        return
    value = _BARE.match(text, at)
    if value is None:
        return
    before = text[place.start - 1 : place.start]
    is_call = place.is_argument or _AFTER_VALUE_IS_CODE.match(text, value.end()) is not None
    if sign == "=":
        if before and before in "?&;" and not place.is_code:
            yield place.hit(*value.span())
        elif place.key.startswith("-") or text.startswith(";", value.end()):
            lowest = STRONG if place.is_code else WORD
            yield place.hit(*value.span(), lowest)
        elif place.is_code or is_call:
            # What has a dash in it is hardly an expression, and no argument of a call.
            is_name = place.is_argument or value[0].replace("-", "_").isidentifier()
            is_plain = is_name and "-" not in value[0]
            yield place.hit(*value.span(), STRONG if is_call or is_plain else WORD)
        elif place.begins_line and place.key.isupper():
            yield from _line_value(place, at, WORD)
        else:
            yield place.hit(*value.span(), WORD)
    elif place.begins_line:
        lowest = STRONG if place.is_code or is_call else WORD
        yield from _line_value(place, at, lowest)


def _after_colon(place: _Place, at: int, sign: str) -> Iterator[Hit]:
    """`password: x` is a line of YAML, or prose."""
    text = place.text
    value = _BARE.match(text, at)
    if value is None or _TYPE.match(value[0]):
        return
    is_line = place.begins_line and not place.is_code
    if is_line and " " in sign and text[at : at + 1] not in "|>&*!{[":
        rest = _REST_OF_LINE.match(text, at)
        alone = rest is not None and len(_COMMENT.sub("", rest[0]).split()) == 1
        if alone and _is_among_settings(text, place.start):
            yield from _line_value(place, at, WORD)
            return
    if not value[0].startswith(("http://", "https://", "/", "$")) and len(value[0]) >= 6:
        number = value[0].isdigit() and not masks_numbers(place.word)
        if not number:
            yield place.hit(*value.span(), STRONG if place.is_code else WEAK)


def _is_among_settings(text: str, start: int) -> bool:
    """Whether the line before or after is a setting too: then this is one, and not a sentence."""
    around = text[max(0, start - 300) : start + 400].replace("\\n", "\n")
    lines = re.findall(r"(?m)^[ \t]*[\w.\"'-]{1,60}[ \t]*[:=][ \t]*(?:\S{1,200})?[ \t]*$", around)
    return len(lines) >= 2


def _line_value(place: _Place, at: int, lowest: int) -> Iterator[Hit]:
    """A value that goes on to the end of its line, or to a comment."""
    text = place.text
    if opens := _OPENS.match(text, at):
        if not _is_closing(text, opens):
            yield from _quoted(place, at, lowest)
        return
    rest = _REST_OF_LINE.match(text, at)
    if rest is None:
        return
    value = _COMMENT.sub("", rest[0]).rstrip()
    bare = _BARE.match(text, at)
    if " " in value or '"' in value or "'" in value:
        # Several words: a command after a variable, or a sentence.
        high = bare.end() if bare else at
    else:
        high = at + len(value)
    value = text[at:high]
    if value.endswith((",", ";")):
        high -= 1
    if high > at:
        yield place.hit(at, high, lowest)


_COOKIE = re.compile(r"[\w!#$%&'*+.^`|~-]{1,128}=(?P<v>[^\s;]{0,256})")
_SCHEME_VALUE = re.compile(
    r"(?i)(?:bearer|basic|digest|token|apikey|api-key|key|negotiate|bot|ssws|geniekey|oauth"
    r"|aws4-hmac-sha256|hawk|ntlm)[ \t]{1,4}(?P<v>[^\s\"'\\]{1,4096})"
)
_ONE_WORD = re.compile(r"""[^\s"'\\]{1,4096}+(?=[ \t]{0,8}(?:[\n\r"'\\]|\Z))""")
_CALL = re.compile(r"[\w.]{0,64}[({\[<]")


def _header(place: _Place, low: int) -> Iterator[Hit]:
    """A header: a scheme and a value, cookies, or one word. Anything else is prose or code.
    Its beginning decides: a line that is no header must not be read to its end, again and again."""
    text, name = place.text, place.key.lower()
    if _TYPE.match(text, low):
        return
    if "cookie" in name:
        cookie = _COOKIE.match(text, low)
        if cookie is None or is_template(cookie["v"]):
            return
        if place.is_code and (len(cookie["v"]) < 12 or grade(cookie["v"]) < STRONG):
            return
        if value := _HEADER_VALUE.match(text, low):
            yield place.hit(low, low + len(value[0].rstrip()))
        return
    if "authorization" in name and (scheme := _SCHEME_VALUE.match(text, low)):
        secret = scheme["v"]
        if is_placeholder(secret) or is_template(secret):
            return
        value = _HEADER_VALUE.match(text, low)
        if value is None:
            return
        high = low + len(value[0].rstrip())
        is_alone = high == scheme.end()
        if is_alone:
            yield place.hit(low, high, WEAK if place.is_code else CODE)
        elif grade(secret) >= WEAK or "=" in secret:
            yield place.hit(low, high)
        else:
            yield Hit(place.start, low, scheme.end(), None, place.rule)
        return
    if (word := _ONE_WORD.match(text, low)) and _CALL.match(word[0]) is None:
        lowest = WEAK if "authorization" in name else CODE
        yield place.hit(*word.span(), STRONG if place.is_code else lowest)
