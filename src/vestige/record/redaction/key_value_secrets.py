r"""Find secrets in any text by the key beside them.

A text may be a log line, source code, a configuration file, a shell command, or a fragment of
JSON that is nested in JSON three times. The search is the same for all: find a word that may
belong to a secret's key, find the complete key around it, read what follows.

    "password": "x"   \"api_key\": \"x\"   'token': 'x'   API_KEY = "x"    a quoted value
    "password": 12345                                                     a number
    "cookies": ["x", {"name": "sid", "value": "x"}]                       a container
    ["authorization", "x"]   {"name": "API_KEY", "value": "x"}            a pair
    <password>x</password>   <add key="ApiKey" value="x"/>                XML
    name="password"\r\n\r\nx                                              a form's field
    password = x   password: x                                            a line of a configuration
    API_KEY=x    ?token=x&...    Password=x;                              no space around =
    name,password\nbob,x                                                  a column of a table
    Cookie: a=b; c=d    X-Api-Key: x                                      a header line
    --token x    --api-key=x    machine h login u password x              a command line, a .netrc

How much a value must look like a secret depends on its context (keyed/key_context.py): beside a
quoted key any value counts, at the end of a configuration's line a word, in source code nothing
that could be an expression. Placeholders (`${TOKEN}`, `<token>`) and masks never count.

Keys are in masking.py, the grades of values in secret_likelihood.py, the values themselves in
keyed/. Complete JSON documents are parsed instead (json_redaction.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits

from vestige._runtime.re_compat import re
from vestige.record.redaction.keyed.key_context import (
    CONTAINERS,
    KeyContext,
    is_header,
    is_header_name,
)
from vestige.record.redaction.keyed.quoted_values import (
    OPENS,
    end_of_quoted,
    find_in_container,
    find_quoted,
    is_closing_quote,
    is_token_choice,
)
from vestige.record.redaction.keyed.table_columns import find_in_columns
from vestige.record.redaction.keyed.unquoted_values import find_line_value, find_unquoted
from vestige.record.redaction.masking import (
    MARK,
    doubtful_word,
    mask_escaped,
    masks_numbers,
)
from vestige.record.redaction.secret_likelihood import (
    CODE,
    STRONG,
    WEAK,
    WORD,
    grade,
    is_mixed_letters,
)
from vestige.record.redaction.secret_patterns import Hit

FindWord = Callable[[str], str | None]

_ASCII_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
_KEY_CHARS = ascii_letters + digits + "_-."
_KEY_SIDE_MAX = 64
_KEY_REST = re.compile(rf"[A-Za-z0-9_.-]{{0,{_KEY_SIDE_MAX}}}+")
_ESCAPE_LETTERS = re.compile(r"[bfnrt]|u[0-9a-fA-F]{4}")

_CLOSED = re.compile(r"""(?P<q>\\*["'`])[ \t]{0,4}\]?""")
_SYMBOL_CLOSED = re.compile(r"""(?<=[\w])(?P<q>)\](?=[ \t]{0,4}=[ \t]{0,4}["'])""")
"""After the key of `config[:password] = "x"` in Ruby."""
_QUOTED_SETTING = re.compile(r""":[ \t]{1,4}\\*["']""")
_ASSIGNS = re.compile(
    r"""\*{0,2}\s{0,8}(?:=>|:=|::(?=[ ])|:|\|\|=|\?\?=|\?=|=(?![=~>])|\\+u003d|<-(?=\s{0,8}["']))"""
    r"""(?:\*{1,2}(?=[ ]))?(?:\s|\\+t){0,8}"""
)
"""With the signs of bold text in Markdown: `**Password:** x`, `**Password**: x`."""
_ENTITY = r"&(?:quot|apos|#0?3[49]|#x2[27]);"
_LABELLED = re.compile(
    r"""[ ]?:?[ ]?</(?:b|strong|em|td|th|dt|label|span)>:?\s{0,8}"""
    r"""(?:<(?:td|dd|code|span|b)\b[^<>]{0,40}>)?"""
    r"""\s{0,4}(?P<v>[^<>\s]{4,256})"""
)
"""The value after a label in HTML: `<b>Password:</b> x`, `<td>Token</td><td>x</td>`."""
_IN_ENTITIES = re.compile(rf"{_ENTITY}\s{{0,4}}(?::|=)\s{{0,4}}{_ENTITY}(?P<v>[^&<>\n]{{1,4096}})&")
"""The value of `&quot;password&quot;: &quot;x&quot;` in HTML."""
_WRAPPED = re.compile(
    r"""(?:String::from|new String|Some|\[\]byte|Buffer\.from|"""
    r"""(?:pydantic\.)?Secret(?:Str|Bytes|String)?(?:::new)?)"""
    r"""\(\s{0,8}(?=[brBR]{0,2}\\*["'])"""
)
"""A call around a value: `api_key=SecretStr("x")`."""
_NEXT_ITEM = re.compile(r"""\s{0,8},\s{0,8}b?(?=\\*["'])""")
_VALUE_KEY = re.compile(r"""\\*["'][Vv]alue\\*["']\s{0,8}:\s{0,8}""")
_VALUE_BEFORE = re.compile(
    r"""\\*["']value\\*["']\s{0,4}:\s{0,4}\\*["'](?P<v>[^"'\\\n]{1,256})\\*["']\s{0,4},\s{0,8}"""
    r"""\\*["'](?:name|key)\\*["']\s{0,4}:\s{0,4}\\*["']\Z"""
)
"""The value before its name: `{"value": "x", "name": "DB_PASSWORD"}`."""
_VALUE_ATTRIBUTE = re.compile(r"""\s{0,8}[Vv]alue\s{0,2}=\s{0,2}(?=\\*["'])""")
_INPUT_VALUE = re.compile(
    r"""(?:\s{0,8}[\w-]{1,20}=\\*["'][^"'<>\\]{0,64}\\*["']){0,4}\s{0,8}value=(?=\\*["'])"""
)
"""The value of `<input type="password" name="x" value="y">`."""
_VALUE_LINE = re.compile(
    r"""["']?(?:\n|\\n)[ \t]{0,32}value:[ \t]{1,4}(?=["']|[^\s\\"']+[ \t]*(?:[\r\n\\"'#]|\Z))"""
)
_FORM_FIELD = re.compile(
    r"""\\*"(?:;[^\r\n\\]{0,120})?(?:\r?\n|\\+r\\+n|\\+n){1,1}"""
    r"""(?:[A-Za-z-]{1,40}: [^\r\n\\]{1,80}(?:\r?\n|\\+r\\+n|\\+n)){0,3}(?:\r?\n|\\+r\\+n|\\+n)"""
    r"(?P<v>[^\r\n\\]{1,4096})"
)
_ELEMENT = re.compile(
    r"""(?:\\*["'][^<>]{0,80}|\s[^<>]{0,80})?>\s{0,8}(?:<Value>)?(?P<v>[^<>]{1,4096})</"""
)
_ELEMENT_OPENS = re.compile(r"<(?:[\w-]{1,32}:)?\Z")
_IN_TYPE = re.compile(r"""<input\b[^<>]{0,64}type=\\*["']\Z""")
_PLIST = re.compile(r"</key>\s{0,16}<string>(?P<v>[^<>]{1,4096})<")
_DEFAULT = re.compile(r"""\\*"\s{0,4}\{[^{}]{0,300}?\bdefault\s{0,8}=\s{0,4}(?=\\*")""")
_NEXT_WORD = re.compile(r"""[ \t]{1,4}(?P<v>[^\s"'\\]{1,256})""")
_SQL = re.compile(r"(?i)\b(?:role|user|with|encrypted)\b")
"""Before the password in `CREATE ROLE a PASSWORD 'x'`."""
_DIRECTIVE = re.compile(
    r"""[ \t]{1,16}(?P<q>\\*["']|)(?P<v>[^\s"'\\;]{4,256})(?P=q)[ \t]{0,8};?[ \t]{0,8}"""
    r"""(?=\r?\n|\\[nr"]|["']?\Z)"""
)
"""A line of a configuration without a sign: `BindPassword "x"`, `shared-secret "x";`."""
_NAMED_BEFORE = re.compile(
    r"""\b(?:user|username|login)[ \t]{1,4}(?:\\*["'][^"'\n]{1,64}\\*["']|[\w.@-]{1,64})"""
    r"""[ \t]{1,4}(?:[a-z]{2,16}-)?\Z"""
)
"""A user's name before a password: `username "u" password "x"`."""
_PASSWORD_WORDS = ("password", "passwd", "passphrase", "pass")
_STATED = re.compile(
    r"""(?:(?:[ \t]for[ \t][\w.@-]{1,64}|[ \t]\([\w .-]{1,32}\))?[ \t]"""
    r"""(?:is|was|will be|provided|->|→|\\+u2192|\|)[ \t]?:?"""
    r"""|(?P<colon>[ \t](?:for[ \t][\w.@-]{1,64}|\([\w .-]{1,32}\)|[a-z]{3,12}):))"""
    r"""[ \t\n]{1,4}[`"'(\[]{0,3}"""
    r"""(?P<v>[^\s`"'()\[\]\\<>]{6,256})"""
)
"""A sentence that states a secret: `the password is x`, a row of a table: `| password | x |`.

Also `API key (staging): x` and `token refreshed: x`."""
_EMPHASIS = re.compile(r"(\*{1,2}|_{1,2})[A-Za-z-]{1,32}\1")
"""A word in bold or italics of Markdown."""
_BESIDE = re.compile(
    r"""[ \t](?P<v>(?=[^\s]{0,64}[0-9])(?=[^\s]{0,64}[A-Za-z])(?=[^\s]{0,64}[a-z!@#$%^&*])"""
    r"""[^\s`"'()\[\]\\<>{},;:]{8,128})(?![\w(])"""
)
"""A value directly after the word: `use the password x`."""
_BESIDE_MIN = 24
"""Characters of a value after the word `token`, which names other things than secrets, too."""
_QUOTED_BESIDE_MIN = 16
"""Characters of a value in quotes in a sentence, where names are in quotes, too."""
_CHOSEN = re.compile(r"[!@#$%^&*+=]|\A(?=.{10})(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])")
"""Characters as in a password that a person chose."""
_OWNER_WORD = re.compile(r"(?i)\b(api|access|secret|signing|encryption|master) \Z")
_OWNER_SECTION = re.compile(
    r"""(?i)\b(api|auth|jwt|crypt|encryption|signing|totem)["'\]]{0,2}[ \t]{0,4}(?:=>|[:=])?"""
    r"""[ \t]{0,4}"""
    r"""(?:[\[{(]|\n|\\n)(?:[ \t\r\n]|\\[rnt]){0,24}["']?\Z"""
)
"""A section whose `key` is a secret: `[auth]` in a configuration, `encryption:` in YAML."""
_NETRC = re.compile(
    r"\b(?:login|machine|default|account)(?:\s+(?!and\b|or\b)[^\s\\]+)?(?:\s|\\n)+\Z"
)
_MACHINE = re.compile(r"\b(?:machine|default|host)\b|\A\s*login\b|\n\s*login\b")
_SETS_VALUE = re.compile(
    r"(?i)(?:define ?|set_?(?:default|property)|(?:set|put|get)?env|environ\.get|env\.fetch)\(\s*\Z"
)
"""A call with a name and a value: `define("DB_PASSWORD", "x")`, `os.Setenv("API_TOKEN", "x")`."""
_ARN = re.compile(r"\barn:aws[a-z-]*:[\w:-]*\Z")
_NUMBER = re.compile(r"-?[0-9][0-9.]*+(?![\w.])")
_CONTAINER_OPENS = re.compile(r"""[\[{]\s{0,64}(?=\\*["'{\[])""")
_ARGUMENT = re.compile(r"""[ \t]{1,4}(?:<<<[ \t]{0,4})?(?P<v>(?!-)[^\s"'\\`]++)""")
_QUOTED_ARGUMENT = re.compile(r"""[ \t]{1,4}(?:<<<[ \t]{0,4})?(?=\\*["'])""")
_CONTROL = re.compile(r"[\x00-\x06\x0e-\x1a\x1c-\x1f]")
"""Control characters that do not occur in text. Escape does: it colours terminal output."""
_UNDECODED = re.compile(r"[\udc80-\udcff]")
"""Bytes that are not UTF-8 (surrogateescape). A few may be letters of another encoding."""
_NO_TEXT = re.compile(f"{_CONTROL.pattern}|{_UNDECODED.pattern}")
_AROUND = 16
_TEXT_MIN = 4
_ENDS_CELL = re.compile(r"[\"'`]?[ \t]{0,80}[|,;)\t\r\n]")
"""After the name of a column."""
_DOUBTFUL = r"pass(?![a-z])|(?:pw|pat)(?![a-z])"


def find_keyed(text: str, find_word: FindWord, stems: tuple[str, ...]) -> Iterator[Hit]:
    """Yield the values beside a secret's key, in order. Harmless values have `new=None`.

    `stems`: every key of a secret contains one of them."""
    search = _compiled(stems).search
    # Searching in lower case is three times faster than ignoring case. If lower case changes the
    # length (a few letters of other scripts), offsets would shift, so only ASCII is lowered.
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
        doubtful = None
        if word is None and key.lower() == "key":
            if owner := _OWNER_WORD.search(text, max(0, start - 16), start):
                # Two words of a sentence: `the API key is x`.
                word, start = f"{owner.group(1).lower()}_key", owner.start()
            elif section := _OWNER_SECTION.search(text, max(0, start - 48), start):
                doubtful = f"{section.group(1).lower()}_key"
        if word is None and doubtful is None:
            doubtful = doubtful_word(key)
        if word is None and doubtful is None:
            continue
        for hit in _find_values(
            KeyContext(text, start, end, word or doubtful or "", word is None, known)
        ):
            position = max(position, hit.high)
            yield _as_text(text, hit) if hit.new is not None and _is_amid_bytes(text, hit) else hit


def _is_amid_bytes(text: str, hit: Hit) -> bool:
    """Return whether a hit is in binary data, where any three letters occur by chance."""
    around = text[max(0, hit.start - _AROUND) : min(hit.high, hit.low + 4 * _AROUND) + _AROUND]
    undecoded = _UNDECODED.findall(around)
    return _CONTROL.search(around) is not None or 3 * len(undecoded) > len(around)


def _as_text(text: str, hit: Hit) -> Hit:
    """Return the part of a hit before the next binary byte. A short part is harmless."""
    rest = _NO_TEXT.search(text, hit.low, hit.high)
    high = hit.high if rest is None else rest.start()
    value = text[hit.low : high]
    new = mask_escaped(value) if len(value) >= _TEXT_MIN else None
    return Hit(hit.start, hit.low, high, new, hit.rule)


@cache
def _compiled(stems: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join((*map(re.escape, stems), _DOUBTFUL)))


def _key_around(text: str, low: int, high: int) -> tuple[int, int]:
    left = text[max(0, low - _KEY_SIDE_MAX) : low]
    start = low - (len(left) - len(left.rstrip(_KEY_CHARS)))
    if start and text[start - 1] == "\\":
        # The key follows an escape, whose letters do not belong to the key.
        escape = _ESCAPE_LETTERS.match(text, start, low)
        start = escape.end() if escape else start
    rest = _KEY_REST.match(text, high)
    return start, rest.end() if rest else high


def _find_values(context: KeyContext) -> Iterator[Hit]:
    text, start, end = context.text, context.start, context.end
    if text.startswith("//", start - 2) and start >= 2:
        return  # the user name of a URL; its password has its own rule
    is_typed = text.startswith("::", start - 2) and start >= 2 and not context.key.startswith("_")
    if is_typed and _QUOTED_SETTING.match(text, end) is None:
        return  # AWS::IAM::AccessKey is a type; profile::db::password: "x" is a setting of Puppet
    if text.startswith("::", end) and not text.startswith(":: ", end):
        return  # Token::new is a path of C++ or Rust; `userPassword:: x` is base64 in LDIF
    if text.startswith(":", start - 1) and _ARN.search(text, max(0, start - 100), start):
        return  # arn:aws:secretsmanager:us-east-1:123456789012:secret:name
    closed = _CLOSED.match(text, end) or _SYMBOL_CLOSED.match(text, end)
    after = closed.end() if closed else end
    if labelled := _LABELLED.match(text, end):
        yield context.hit(*labelled.span("v"), WEAK)
        return
    assigns = _ASSIGNS.match(text, after)
    if assigns is None:
        yield from _find_unassigned(context, closed)
        return
    wrapped = _WRAPPED.match(text, assigns.end())
    at = wrapped.end() if wrapped else assigns.end()
    is_doubtful = context.is_code or "*" in assigns[0]
    lowest = WEAK if is_doubtful else CODE
    if opens := OPENS.match(text, at):
        if context.word == "token" and is_token_choice(text, opens):
            yield Hit(start, opens.end(), opens.end(), None, context.rule)
        elif closed or not is_closing_quote(text, opens):
            yield from find_quoted(context, at, lowest)
    elif closed and masks_numbers(context.word) and (number := _NUMBER.match(text, at)):
        if not context.doubtful and not context.is_code:
            yield Hit(start, *number.span(), closed["q"] + MARK + closed["q"], context.rule)
    elif not context.doubtful and (opens := _CONTAINER_OPENS.match(text, at)):
        if text[at] == "[" or context.word in CONTAINERS:
            yield from find_in_container(
                context, at, WEAK if context.is_code or not closed else CODE
            )
    elif not closed:
        yield from find_unquoted(context, assigns)


def _find_unassigned(context: KeyContext, closed: re.Match[str] | None) -> Iterator[Hit]:
    column: list[Hit] = []
    if _ENDS_CELL.match(context.text, context.end):
        column = list(find_in_columns(context))
    yield from column or _find_beside(context, closed)


def _find_beside(context: KeyContext, closed: re.Match[str] | None) -> Iterator[Hit]:
    text, end = context.text, context.end
    before = text[max(0, context.start - 80) : context.start]
    if closed:
        at = _second_of_pair(context, closed.end())
        if first := _VALUE_BEFORE.search(text, max(0, context.start - 300), context.start):
            yield context.hit(*first.span("v"), CODE, True)
        elif at is not None:
            yield from find_quoted(context, at, WEAK if context.is_code else CODE)
        elif attribute := _VALUE_ATTRIBUTE.match(text, closed.end()):
            yield from find_quoted(context, attribute.end(), CODE)
        elif _IN_TYPE.search(before) and (field := _INPUT_VALUE.match(text, closed.end())):
            yield from find_quoted(context, field.end(), CODE)
        elif default := _DEFAULT.match(text, end):
            yield from find_quoted(context, default.end(), CODE)
        elif before.endswith(('name="', 'name=\\"')) and (field := _FORM_FIELD.match(text, end)):
            yield context.hit(*field.span("v"))
        elif (element := _ELEMENT.match(text, end)) and (
            'name="' in before or before.endswith(('key="', 'key=\\"'))
        ):
            yield _strip_element(context, element)
        elif value := _VALUE_LINE.match(text, end):
            yield from find_line_value(context, value.end(), CODE)
    elif _ELEMENT_OPENS.search(before) and (element := _ELEMENT.match(text, end)):
        yield _strip_element(context, element, WORD if context.is_code else CODE)
    elif before.endswith("<key>") and (element := _PLIST.match(text, end)):
        yield _strip_element(context, element)
    elif context.key.startswith("-"):
        yield from _find_option(context)
    elif value := _VALUE_LINE.match(text, end):
        yield from find_line_value(context, value.end(), CODE)
    elif entity := _IN_ENTITIES.match(text, end):
        yield context.hit(*entity.span("v"))
    elif netrc := _NETRC.search(before):
        if word := _NEXT_WORD.match(text, end):
            # Sentences contain "the default password for" and "the login page password" too.
            is_file = netrc[0].startswith("login") and _MACHINE.search(before) is not None
            if is_mixed_letters(word["v"]):
                yield context.hit(*word.span("v"))
            elif is_file or any(map(str.isdigit, word["v"])):
                yield context.hit(*word.span("v"), WORD if is_file else WEAK)
    elif stated := _STATED.match(text, end):
        yield _find_stated(context, stated)
    elif (
        (beside := _BESIDE.match(text, end))
        and context.word in ("token", "api_key", "secret_key", "access_key")
        and len(beside["v"]) >= _BESIDE_MIN
    ):
        yield context.hit(*beside.span("v"), STRONG)
    elif beside and _is_plain_word(context):
        yield context.hit(*beside.span("v"), WEAK if _CHOSEN.search(beside["v"]) else STRONG)
    elif (
        context.word in ("password", "passphrase")
        and (quoted := _QUOTED_ARGUMENT.match(text, end))
        and (context.key.isupper() or _SQL.search(before))
    ):
        # Names of parameters in C: #define PARAM_PASSWORD "pass"
        is_constant = "define " in before[-16:]
        yield from find_quoted(context, quoted.end(), WEAK if is_constant else CODE)
    elif directive := _find_directive(context):
        yield directive
    elif quoted := _QUOTED_ARGUMENT.match(text, end):
        yield from _find_quoted_beside(context, quoted.end(), before.endswith("#define "))


def _find_quoted_beside(context: KeyContext, at: int, is_defined: bool) -> Iterator[Hit]:
    """Yield a random text in quotes beside a key: `#define API_KEY "x"`, `bad secret 'x'`."""
    opens = OPENS.match(context.text, at)
    if opens is None or is_closing_quote(context.text, opens):
        return
    for hit in find_quoted(context, at, STRONG):
        if is_defined or hit.high - hit.low >= _QUOTED_BESIDE_MIN:
            yield hit


def _find_directive(context: KeyContext) -> Hit | None:
    """Return the hit for a line of a configuration: `BindPassword "x"`, `shared-secret "x";`.

    After a user's name too: `username "u" password "x"`, and of a header that a proxy sets."""
    line = _DIRECTIVE.match(context.text, context.end)
    if line is None or (context.doubtful and context.word != "pass"):
        return None
    is_header_set = is_header(context.key) and line["q"] != ""
    before = context.text[max(0, context.start - 80) : context.start]
    is_compound = line["q"] != "" and len(context.key) > len(context.word) + 1
    is_setting = context.begins_line or is_header_set or is_compound
    if not is_setting and _NAMED_BEFORE.search(before) is None:
        return None
    is_strict = context.is_code or (not line["q"] and context.word not in _PASSWORD_WORDS)
    return context.hit(*line.span("v"), STRONG if is_strict else WEAK, bool(line["q"]))


def _is_plain_word(context: KeyContext) -> bool:
    """Return whether a key is the word itself in a sentence or a command: `the password x`."""
    key = context.key.lower()
    if key == "secret":
        return context.text.endswith("enable ", 0, context.start)
    return key in ("password", "passwd", "passphrase") and not context.is_code


def _find_stated(context: KeyContext, stated: re.Match[str]) -> Hit:
    """Return the hit for `the password is x`: random characters, or a word with numbers in it."""
    low = stated.start("v")
    value = stated["v"].rstrip(".,;:!?")
    if _EMPHASIS.fullmatch(value):
        return Hit(context.start, low, low + len(value), None, context.rule)
    is_password = context.word in ("password", "passphrase", "passcode")
    lowest = WEAK if is_password and not stated["colon"] else STRONG
    is_number = value.replace("-", "").replace("/", "").isdigit()
    has_digit = any(character.isdigit() for character in value)
    if is_number or not (has_digit or is_mixed_letters(value)):
        lowest = STRONG
    return context.hit(low, low + len(value), STRONG if context.is_code else lowest)


def _strip_element(context: KeyContext, element: re.Match[str], lowest: int = CODE) -> Hit:
    low, high = element.span("v")
    value = element["v"]
    low += len(value) - len(value.lstrip())
    return context.hit(low, max(low, high - (len(value) - len(value.rstrip()))), lowest)


def _find_option(context: KeyContext) -> Iterator[Hit]:
    """Yield the value of `--token x` or `--token "x"`. After it, prose continues with a word."""
    text = context.text
    if quoted := _QUOTED_ARGUMENT.match(text, context.end):
        yield from find_quoted(context, quoted.end(), WEAK if context.is_code else CODE)
    elif argument := _ARGUMENT.match(text, context.end):
        low, high = argument.span("v")
        value = argument["v"]
        rest = text[high : high + 3].lstrip(" ")
        is_alone = not rest or rest[0] in "-\n\r\\\"'|&;<>`"
        is_name = value.isupper() and value.replace("_", "").isalpha()
        lowest = WORD if is_alone and not is_name and not context.is_code else WEAK
        yield context.hit(low, high, lowest)


def _second_of_pair(context: KeyContext, after: int) -> int | None:
    """Return the offset of the value of `["authorization", "x"]` or `{"name": k, "value": "x"}`.

    A string before a colon is a key, not a value: `{"name": "x-api-key", "required": true}`."""
    text = context.text
    comma = _NEXT_ITEM.match(text, after)
    is_part = text[context.start - 1 : context.start] not in ('"', "'", "`")
    if comma is None or is_part or context.key.lower().startswith(("your-", "your_")):
        return None
    named = _VALUE_KEY.match(text, comma.end())
    if named:
        return named.end()
    before = text[max(0, context.start - 24) : context.start].rstrip("\"'\\b")
    if _SETS_VALUE.search(before):
        return comma.end()
    opens = OPENS.match(text, comma.end())
    if opens is None:
        return None
    high = end_of_quoted(text, opens.end(), opens["q"])
    value, rest = text[opens.end() : high], text[high + len(opens["q"]) :][:24].lstrip()
    if rest.startswith((":", "\\:")) or is_header_name(value):
        return None
    # The second of two words in a list is a value only after an option, or after a header's
    # name in a list of two: ["password", "email"] are names of fields.
    if context.key.startswith("--"):
        return None if value.startswith("-") else comma.end()
    if not is_header(context.key):
        return None
    is_pair = before.endswith(("[", "(")) and rest.startswith(("]", ")"))
    return comma.end() if is_pair or grade(value) == STRONG else None
