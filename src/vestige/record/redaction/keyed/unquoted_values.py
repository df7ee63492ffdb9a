"""Unquoted values beside a key: `key=x`, lines of YAML and configuration files, headers."""

from __future__ import annotations

from collections.abc import Iterator

from vestige._runtime.re_compat import re
from vestige.record.redaction.keyed.key_context import KeyContext, is_header
from vestige.record.redaction.keyed.quoted_values import OPENS, find_quoted, is_closing_quote
from vestige.record.redaction.masking import masks_numbers
from vestige.record.redaction.secret_likelihood import (
    CODE,
    STRONG,
    WEAK,
    WORD,
    grade,
    is_mixed_letters,
    is_placeholder,
    is_template,
)
from vestige.record.redaction.secret_patterns import Hit

# Bare values. A comma or bracket ends a value unless a letter or digit follows it directly. An
# ampersand ends it before the next parameter of a URL, and before a shell's `&&`.
_BARE = re.compile(
    r"""(?:\$?\{[^}\s]{0,64}\}|\$\([^)\n]{0,64}\)|[^\s"'&;,<>\\)\]}`]"""
    r"""|&(?=[^\s&"'<>\\])(?!amp;|[\w.%\[\]-]{1,64}=)"""
    r"""|(?!,[\w.$-]{1,40}[=:,}\])]|[)\]}][A-Za-z]{1,40}\()[,)\]}](?=[A-Za-z0-9!@#$%^*]))++"""
)
_REST_OF_LINE = re.compile(r"""[^\s\\"'](?:[^\n\r\\]|\\(?![nr"]))*+""")
_COMMENT = re.compile(r"[ \t]+[#;].*$")
_HEADER_VALUE = re.compile(r"""(?:[^\s"'\\]|[ \t]|\\*["'](?![\s,}\])>:\\]|\Z)|\\++(?![nr"']))++""")
_OPERATOR = re.compile(r"(?:await|new|not|yield|lambda|typeof)[ \t]+[A-Za-z_$]|/\*")
"""A word or comment with which an expression begins: `token = await read()`."""
_SIGN_AFTER = re.compile(r"[ \t]*[()\[\]{},.+*/|?]")
_SIGN_INSIDE = re.compile(r"[,(){}?|<>]|&&")
"""Signs of an expression inside a value. Minified code has no spaces: `token=k,a.b|=c(d)`."""
_WORD_AFTER = re.compile(r"[ \t]+(?:if|or|and|in|is|else|as)\b")
"""Words after a value: code (`token=a or b`), or a sentence (`API_SECRET=x in the log`)."""
_TYPE = re.compile(
    r"(?i)(?:str|string|bytes|int|integer|number|bool|boolean|float|any|object|none|"
    r"optional|union|secretstr|dict|list|tuple|annotated|required|char|varchar|byte|text|true"
    r"|false|yes|no|"
    r"final|literal|sequence|mapping|readonly|unset|undefined)\b(?![-+/=0-9])"
)

_BLOCK_SCALAR = re.compile(
    r"[|>][+-]?[0-9]?[ \t]{0,8}(?:\n|\\n)[ \t]{1,32}(?P<v>[^\s\\]{4,4096})"
    r"[ \t]{0,8}(?=\n|\\n|\Z|\")"
)
"""A value of one word on the line after its key: `secret: |` in YAML."""
_TYPED = re.compile(r"""[\w.\[\]|&?<> ]{1,48}?\s{0,4}=\s{0,4}(?=[brBR]{0,2}\\*["'])""")
"""A type and an equals sign before a quoted value: `password: str = "x"`."""


def find_unquoted(context: KeyContext, assigns: re.Match[str]) -> Iterator[Hit]:
    text, at = context.text, assigns.end()
    sign = "=" if "u003d" in assigns[0] else assigns[0].replace("\\t", "\t")
    if "\n" in sign or "\r" in sign:
        return
    if ":" in sign and "=" not in sign:
        if is_header(context.key):
            yield from _find_header(context, at)
        else:
            yield from _find_after_colon(context, at, sign)
        return
    value = _BARE.match(text, at)
    if value is None or _OPERATOR.match(text, at):
        return
    if context.is_code and _SIGN_INSIDE.search(value[0]):
        return
    before = text[context.start - 1 : context.start]
    is_call = context.is_argument or _SIGN_AFTER.match(text, value.end()) is not None
    has_word = _WORD_AFTER.match(text, value.end()) is not None
    if sign == "=":
        if before and before in "?&;" and not context.is_code:
            yield context.hit(*value.span())
        elif context.key.startswith("-") or text.startswith(";", value.end()):
            lowest = CODE if is_mixed_letters(value[0]) else WORD
            lowest = STRONG if context.is_code else lowest
            yield context.hit(*value.span(), lowest)
        elif context.is_code or is_call:
            # A value with a dash is hardly an expression, and not an argument of a call.
            is_name = context.is_argument or value[0].replace("-", "_").isidentifier()
            is_plain = is_name and "-" not in value[0]
            yield context.hit(*value.span(), STRONG if is_call or is_plain or has_word else WORD)
        elif has_word:
            yield context.hit(*value.span(), WEAK)
        elif context.begins_line and context.key.isupper():
            yield from find_line_value(context, at, WORD)
        else:
            yield context.hit(*value.span(), WORD)
    elif context.begins_line:
        lowest = STRONG if context.is_code or is_call or has_word else WORD
        yield from find_line_value(context, at, lowest)
    elif len(value[0]) >= 6 and value[0].count("`") + value[0].count(".") <= 2:
        # In a sentence: `rejected: password = x`.
        is_doubtful = context.is_code or is_call or has_word
        yield context.hit(*value.span(), STRONG if is_doubtful else WEAK)


def _find_after_colon(context: KeyContext, at: int, sign: str) -> Iterator[Hit]:
    """Yield the value of `password: x`, which is a line of YAML or a sentence."""
    text = context.text
    if typed := _TYPED.match(text, at):
        yield from find_quoted(context, typed.end(), WEAK if context.is_code else CODE)
        return
    if context.begins_line and (scalar := _BLOCK_SCALAR.match(text, at)):
        yield context.hit(*scalar.span("v"), WEAK if context.is_code else WORD)
        return
    if text.startswith("!!binary ", at):
        at += len("!!binary ")
    value = _BARE.match(text, at)
    if value is None or _TYPE.match(value[0]):
        return
    if context.is_code and _SIGN_INSIDE.search(value[0]):
        return
    is_line = context.begins_line and not context.is_code
    if is_line and " " in sign and text[at : at + 1] not in "|>&*!{[":
        rest = _REST_OF_LINE.match(text, at)
        alone = rest is not None and len(_COMMENT.sub("", rest[0]).split()) == 1
        if alone and _is_among_settings(text, context.start):
            yield from find_line_value(context, at, WORD)
            return
    if not value[0].startswith(("http://", "https://", "/", "$")) and len(value[0]) >= 6:
        number = value[0].isdigit() and not masks_numbers(context.word)
        if not number:
            yield context.hit(*value.span(), STRONG if context.is_code else WEAK)


def _is_among_settings(text: str, start: int) -> bool:
    """Return whether a line nearby is a setting too: then this is not a sentence."""
    around = text[max(0, start - 300) : start + 400].replace("\\n", "\n")
    lines = re.findall(r"(?m)^[ \t]*[\w.\"'-]{1,60}[ \t]*[:=][ \t]*(?:\S{1,200})?[ \t]*$", around)
    return len(lines) >= 2


def find_line_value(context: KeyContext, at: int, lowest: int) -> Iterator[Hit]:
    """Yield a value that extends to the end of its line, or to a comment."""
    text = context.text
    if opens := OPENS.match(text, at):
        if not is_closing_quote(text, opens):
            yield from find_quoted(context, at, lowest)
        return
    rest = _REST_OF_LINE.match(text, at)
    if rest is None:
        return
    value = _COMMENT.sub("", rest[0]).rstrip()
    bare = _BARE.match(text, at)
    if " " in value or '"' in value or "'" in value:
        # Several words: a command after a variable assignment, or a sentence.
        high = bare.end() if bare else at
    else:
        high = at + len(value)
    value = text[at:high]
    if value.endswith((",", ";")):
        high -= 1
    if high > at:
        yield context.hit(at, high, lowest)


_COOKIE = re.compile(r"[\w!#$%&'*+.^`|~-]{1,128}=(?P<v>[^\s;]{0,256})")
_SCHEME_VALUE = re.compile(
    r"(?i)(?:bearer|basic|digest|token|apikey|api-key|key|negotiate|bot|ssws|geniekey|oauth"
    r"|aws4-hmac-sha256|hawk|ntlm|splunk|authtoken|private-token|kubernetes)[ \t]{1,4}"
    r"(?P<v>[^\s\"'\\]{1,4096})"
)
_ONE_WORD = re.compile(r"""[^\s"'\\]{1,4096}+(?=[ \t]{0,8}(?:[\n\r"'\\]|\Z))""")
_CALL = re.compile(r"[\w.]{0,64}[({\[<]")
_WORD_MAX = 4
"""Letters after a scheme in Markdown that are no credential: `Authorization: Bearer abc`."""
_SENTENCE_MIN = 12
"""Characters of a value in a sentence: shorter ones are words and versions."""


def _find_header(context: KeyContext, low: int) -> Iterator[Hit]:
    """Yield the value of a header: a scheme and a value, cookies, or one word.

    Anything else is prose or code. The beginning decides, because reading other lines to their
    end for each key would take quadratic time."""
    text, name = context.text, context.key.lower()
    if _TYPE.match(text, low):
        return
    if name.endswith(("cookie", "cookie2")):
        cookie = _COOKIE.match(text, low)
        if cookie is None or is_template(cookie["v"]):
            return
        content = cookie["v"].strip("\"'\\")
        if context.begins_line:
            is_known = len(content) >= 4
        else:
            is_known = len(content) >= 12 and grade(content) == STRONG
        if context.is_code and not is_known:
            return
        if value := _HEADER_VALUE.match(text, low):
            yield context.hit(low, low + len(value[0].rstrip()))
        return
    if "authorization" in name and (scheme := _SCHEME_VALUE.match(text, low)):
        secret = scheme["v"]
        plain = secret.rstrip("`.,;:)")
        if is_placeholder(plain) or is_template(plain) or is_placeholder(secret):
            return
        value = _HEADER_VALUE.match(text, low)
        if value is None:
            return
        high = low + len(value[0].rstrip())
        is_alone = high == scheme.end()
        word = secret.strip("`.,;:)*")
        if "`" in secret and len(word) <= _WORD_MAX and word.isalpha():
            yield Hit(context.start, low, high, None, context.rule)
            return
        if is_alone:
            yield context.hit(low, high, WEAK if context.is_code else CODE)
        elif max(map(grade, secret.split("."))) >= WEAK or "=" in secret:
            yield context.hit(low, high)
        else:
            yield Hit(context.start, low, scheme.end(), None, context.rule)
        return
    if (word := _ONE_WORD.match(text, low)) and _CALL.match(word[0]) is None:
        lowest = WEAK if "authorization" in name else CODE
        if context.is_code:
            # At the start of a line it is a header of a request beside the code.
            lowest = WEAK if context.begins_line else STRONG
        yield context.hit(*word.span(), lowest)
    elif (word := _BARE.match(text, low)) and len(word[0]) >= _SENTENCE_MIN:
        # In a sentence: `X-Api-Key: x was rejected`.
        yield context.hit(*word.span(), STRONG)
